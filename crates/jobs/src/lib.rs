//! Training jobs as a user sees them: submit, get, list, logs, delete, top. A plain API client.
//!
//! What a command line says becomes a [`Submission`], which becomes a [`Manifest`]; what the cluster holds of a job is
//! [`Observed`], which becomes a [`JobView`]. Both are pure; [`Cluster`] moves the objects.

mod cluster;
mod delete;
mod described;
mod error;
mod explain;
mod job_view;
mod logs;
mod manifest;
mod node_view;
pub mod pod_view;
mod submission;
mod submit;
mod table;

pub use cluster::Cluster;
pub use delete::Deleted;
pub use described::{Described, DescribedError};
pub use error::{JobError, reason};
pub use explain::{Explanation, Surroundings};
pub use job_view::{
    Details, EventRow, Instance, JobView, Observed, Status, list_text, newest_first,
};
pub use logs::LogOptions;
pub use manifest::{API_VERSION, CHART_VERSION, Manifest, User, store_name};
pub use node_view::{NodeClass, NodeView, node_details, node_summary, nodes_json};
pub use submission::{ConfigFile, Submission, SubmissionError};
pub use table::tabulate;
