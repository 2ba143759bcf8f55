//! Where the ranks of a job stand, and how fast their all-reduce and their training then are.

use serde::Serialize;
use topology::GpuSet;

use crate::{Class, workload::LOOPBACK};

/// GB/s in one direction of a node's network card that nobody tells of: 10 Gbit/s Ethernet, several TCP flows.
pub const DEFAULT_NETWORK: f64 = 1.1;

/// The ranks of a job in order, each with its node and GPUs.
#[derive(Debug, Clone)]
pub struct Arrangement<'a> {
    /// Topology class of each node that takes part.
    pub nodes: Vec<&'a Class>,
    /// For each worker in rank order: its node (an index of `nodes`) and its GPUs.
    pub workers: Vec<(usize, GpuSet)>,
    /// Whether workers of one node know that they share a host (host network and /dev/shm). Without it they talk over
    /// TCP even inside a node.
    pub host_identity: bool,
}

/// What carries the slowest hop of a job's all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Path {
    /// Nothing is exchanged.
    Alone,
    /// Links of one node.
    Links,
    /// PCIe of one node.
    Pcie,
    /// TCP over loopback, between workers of one node that take each other for other hosts.
    Loopback,
    /// The network between nodes.
    Network,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Alone => "alone",
            Self::Links => "NVLink",
            Self::Pcie => "PCIe",
            Self::Loopback => "loopback TCP",
            Self::Network => "network",
        })
    }
}

/// How fast the all-reduce of an arrangement is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Exchange {
    /// GB/s of bus bandwidth; infinite for one GPU.
    pub bus: f64,
    /// What carries the slowest hop.
    pub path: Path,
}

impl Arrangement<'_> {
    /// Number of GPUs.
    pub fn gpus(&self) -> usize {
        self.workers.iter().map(|(_, gpus)| gpus.len()).sum()
    }

    /// The bus bandwidth: the least over the nodes of what the set there carries, and of what its network cards carry
    /// divided by how often the ring of ranks leaves the node.
    pub fn exchange(&self) -> Exchange {
        let mut slowest = Exchange { bus: f64::INFINITY, path: Path::Alone };
        let mut meet = |bus: f64, path: Path| {
            if bus < slowest.bus {
                slowest = Exchange { bus, path };
            }
        };
        for (index, class) in self.nodes.iter().enumerate() {
            let here =
                |worker: usize| self.workers.get(worker).is_some_and(|(node, _)| *node == index);
            let count = self.workers.len();
            let next = |worker: usize| (worker + 1) % count.max(1);
            let members = (0..count).filter(|&worker| here(worker)).count();
            let set = self
                .workers
                .iter()
                .filter(|(node, _)| *node == index)
                .fold(GpuSet::EMPTY, |set, (_, gpus)| set.union(*gpus));
            let crossings =
                (0..count).filter(|&worker| here(worker) && !here(next(worker))).count();
            let neighbours =
                (0..count).any(|worker| count > 1 && here(worker) && here(next(worker)));
            let inside = |set: GpuSet| {
                let bandwidth = class.bandwidth(set);
                let linked =
                    set.iter().any(|a| set.iter().any(|b| class.topology().link(a, b) > 0));
                // A set that links do not span runs at PCIe speed even if some of its pairs are linked.
                let path = if linked && (bandwidth.closed || bandwidth.bound > bandwidth.bus) {
                    Path::Links
                } else {
                    Path::Pcie
                };
                (bandwidth.bus, path)
            };
            if set.len() > 1 && (self.host_identity || members == 1) {
                let (bus, path) = inside(set);
                meet(bus, path);
            } else if members > 1 && neighbours {
                meet(LOOPBACK, Path::Loopback);
                for (_, gpus) in
                    self.workers.iter().filter(|(node, gpus)| *node == index && gpus.len() > 1)
                {
                    let (bus, path) = inside(*gpus);
                    meet(bus, path);
                }
            }
            if let Some(crossings) = u32::try_from(crossings).ok().filter(|&n| n > 0) {
                meet(class.network(set, DEFAULT_NETWORK) / f64::from(crossings), Path::Network);
            }
        }
        slowest
    }
}
