//! GPUs, NICs, NUMA and the link matrix of a node; readers of its textual forms; the table of link bandwidths.

mod gpu_set;

pub use gpu_set::{GpuSet, GpuSetError};
