//! Training jobs as a user sees them: submit, get, list, logs, delete, top. A plain API client.

mod table;

pub use table::tabulate;
