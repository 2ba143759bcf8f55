//! What is asked of a placement, and what it answers.

use std::{fmt, sync::Arc};

use serde::Serialize;
use topology::{GpuSet, Product};

use crate::{Class, Workload, arrangement::DEFAULT_NETWORK};

/// A gang of workers of one shape.
#[derive(Debug, Clone)]
pub struct Request {
    /// Workers to place.
    pub workers: usize,
    /// GPUs of each.
    pub gpus_per_worker: usize,
    /// What the job computes, where known: then predicted throughput is what is maximised.
    pub workload: Option<Workload>,
    /// Whether workers of one node will know that they share a host.
    pub host_identity: bool,
}

impl Request {
    /// A gang about which nothing more is known.
    pub fn new(workers: usize, gpus_per_worker: usize) -> Self {
        Self { workers, gpus_per_worker, workload: None, host_identity: true }
    }

    /// GPUs of all workers.
    pub fn gpus(&self) -> usize {
        self.workers * self.gpus_per_worker
    }
}

/// A node that passed every filter.
#[derive(Debug, Clone)]
pub struct NodeOption {
    /// Its name; the last tie-breaker.
    pub name: Arc<str>,
    /// Its topology class.
    pub class: Arc<Class>,
    /// GPUs that nobody holds.
    pub free: GpuSet,
    /// How many workers it can take besides GPUs (CPU, memory, pods).
    pub max_workers: usize,
    /// Preferred affinity; more is better.
    pub preferred: i64,
    /// GPUs that members of the same gang hold here already.
    pub siblings: GpuSet,
}

/// The administrator's choices.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The order in which products are tried.
    pub products: Vec<Product>,
    /// Placements within this share of the best predicted throughput count as equal.
    pub epsilon: f64,
    /// GB/s of a network card that nobody tells of.
    pub network: f64,
}

impl Default for Profile {
    /// The least capable product that has room; two per cent; 10 Gbit/s Ethernet.
    fn default() -> Self {
        Self { products: Product::ALL.to_vec(), epsilon: 0.02, network: DEFAULT_NETWORK }
    }
}

/// The part of a placement on one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Piece {
    /// The node.
    pub node: Arc<str>,
    /// Its GPUs for this gang (those of siblings not included).
    pub gpus: GpuSet,
    /// The same GPUs in rank order.
    pub ranks: Vec<usize>,
    /// Whether the ranks, siblings included, close a ring of links.
    pub closed: bool,
}

/// What is maximised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Objective {
    /// Bus bandwidth; the job's model is not known.
    BusBandwidth,
    /// Predicted throughput; within ε of the best, least fragmentation.
    Throughput,
    /// Least fragmentation; there is nothing to exchange.
    Fragmentation,
    /// Fewest nodes; no GPU is asked for.
    Nodes,
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BusBandwidth => "bus bandwidth",
            Self::Throughput => "predicted throughput",
            Self::Fragmentation => "least fragmentation",
            Self::Nodes => "fewest nodes",
        })
    }
}

/// Where a gang goes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// By node, in rank order.
    pub pieces: Vec<Piece>,
    /// All-reduce bus bandwidth, GB/s; none for a single GPU.
    pub bus_bandwidth: Option<f64>,
    /// GB/s that no algorithm can exceed on these GPUs; none for a single GPU.
    pub bound: Option<f64>,
    /// Whether no placement is better by the objective.
    pub optimal: bool,
    /// What was maximised.
    pub objective: Objective,
    /// Images per second that the model predicts, where the job is known.
    pub throughput: Option<f64>,
    /// The best placement that is strictly worse.
    pub runner_up: Option<Box<RunnerUp>>,
}

/// The best placement that is strictly worse.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerUp {
    /// By node, in rank order.
    pub pieces: Vec<Piece>,
    /// GB/s.
    pub bus_bandwidth: Option<f64>,
    /// Images per second, where the job is known.
    pub throughput: Option<f64>,
}

/// Why a gang has no place, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    /// Workers asked for.
    pub workers: usize,
    /// GPUs of each.
    pub gpus_per_worker: usize,
    /// Nodes that passed every filter.
    pub nodes: usize,
    /// GPUs that are free on them.
    pub free: usize,
    /// Workers that would fit.
    pub fitting: usize,
    /// GPUs those nodes have in all, of one product at most; nodes too small for one worker count none.
    pub capacity: usize,
}

impl Shortage {
    /// Whether the gang would not even fit if every GPU were free.
    pub fn never_fits(&self) -> bool {
        self.workers * self.gpus_per_worker > self.capacity
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, gpus_per_worker, nodes, free, fitting, capacity } = self;
        write!(
            f,
            "{workers} workers × {gpus_per_worker} GPUs need {} GPUs; {nodes} nodes have {free} free, room for {fitting} \
             of {workers} workers",
            workers * gpus_per_worker
        )?;
        match self.never_fits() {
            true if *capacity == 0 => {
                f.write_str("; it can never fit: no node has as many GPUs as one worker asks for")
            }
            true => write!(f, "; it can never fit: the nodes have {capacity} GPUs in all"),
            false => Ok(()),
        }
    }
}
