//! Lean Kubernetes objects, quantities, selectors, pod arithmetic, MPIJob types and the contract names.
//!
//! The objects have only the fields that we use: a pod takes a tenth of the memory of the full type. They are read and
//! patched, never written back whole.

pub mod contract;
mod gang;
mod mpi_job;
pub mod node;
pub mod pod;
mod quantity;
mod requests;
pub mod selector;

pub use gang::{GangLabels, PodError};
pub use mpi_job::{MpiJob, MpiJobSpec, MpiJobStatus};
pub use node::{Mode, Node};
pub use pod::{Condition, Pod};
pub use quantity::{Quantity, QuantityError};
pub use requests::{Amounts, GpuRequest, requests};
pub use selector::{LabelSelector, NodeSelector, Requirement};
