//! GPUs, NICs, NUMA and the link matrix of a node; readers of its textual forms; the table of link bandwidths.
//!
//! ```
//! let node = topology::catalogue::machine("gn6v").map(|machine| machine.topology());
//! assert_eq!(node.map(|node| node.link_name(0, 3)), Some("NV2".to_owned()));
//! ```

pub mod catalogue;
mod cluster_file;
mod gpu_set;
mod level;
mod nccl_xml;
mod product;
mod report;
mod topo_m;
mod topology;

pub use cluster_file::{ClusterFile, ClusterFileError, NodeSpec};
pub use gpu_set::{GpuSet, GpuSetError};
pub use level::{PcieLevel, UnknownLevel};
pub use nccl_xml::XmlError;
pub use product::{LinkTable, LinkTableError, Product, UnknownProduct};
pub use report::{NodeReport, ReportError};
pub use topo_m::{MatrixError, MatrixProblem};
pub use topology::{Matrix, Nic, Topology};
