//! The product pages' walk-through as a program: eight runs, their placements and speeds beside the published ones.
//!
//! Each run is what a user types: label the nodes, wait for their capacities, submit with the page's flags, follow the log.
//! Nothing is known of a run but its command; where it lands and how fast it is come from the cluster.

mod pages;
mod report;
mod svg;
mod walk;

pub use pages::{Framework, Mode, PAGES, Run};
pub use report::{Report, Row, Worker};
pub use walk::{DemoError, run};
