//! How good a set of GPUs is, the best set for every free mask, the best placement of a gang, and the throughput model.

mod class;
mod packing;
mod ring;

pub use class::{Bandwidth, Class, Classes};
