//! Training jobs as a user sees them: submit, get, list, logs, delete, top. A plain API client.

mod described;
mod table;

pub use described::{Described, DescribedError};
pub use table::tabulate;
