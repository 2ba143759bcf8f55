//! How good a set of GPUs is, the best set for every free mask, the best placement of a gang, and the throughput model.

mod arrangement;
mod class;
mod packing;
mod place;
mod request;
mod ring;
mod workload;

pub use arrangement::{Arrangement, DEFAULT_NETWORK, Exchange, Path};
pub use class::{Bandwidth, Class, Classes};
pub use place::place;
pub use request::{NodeOption, Objective, Piece, Placement, Profile, Request, RunnerUp, Shortage};
pub use workload::{DEFAULT_BATCH, LOOPBACK, OVERLAP, Rates, Workload, WorkloadError};
