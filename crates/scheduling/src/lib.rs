//! Cluster state, GPU ledger, gangs, queue, the scheduling framework, plans and explanations.
//!
//! Pure: no clock, no I/O, no randomness. Changes of objects go into [`Core`], plans come out; whoever carries them out
//! tells how that went. The same state gives the same plan, in whatever order it came about.

mod cluster;
mod core;
mod filters;
mod framework;
mod gang;
mod plan;
mod queue;
mod rejection;
mod scores;
mod shape;

pub use cluster::{Cluster, NodeRecord, PodRecord, Uid};
pub use core::{Attempt, Core, Eviction, Explanation, Settings};
pub use framework::{Context, GangPlacement, Plugin, Profile};
pub use gang::{Gang, GangKey, Membership, Standing};
pub use plan::{Assignment, Choices, Plan, Unit, plan};
pub use queue::{Entry, Place, Queue};
pub use rejection::Rejection;
pub use shape::{Demand, Shape};
