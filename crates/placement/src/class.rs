//! What there is to know of a node's topology, computed once and shared by all nodes that are alike.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use rustc_hash::FxHashMap;
use serde::Serialize;
use topology::{GpuSet, LinkTable, PcieLevel, Topology};

use crate::packing::{self, Links};

/// Share of a chain's link speed that a collective gets: NCCL's planner applies it to chains and trees.
const CHAIN_FACTOR: f64 = 0.92;

/// Up to this many GPUs every set is in a table.
const TABLE_LIMIT: usize = 8;

/// All-reduce bus bandwidth of one set of GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bandwidth {
    /// GB/s, by packing rings and chains into the links of the set.
    pub bus: f64,
    /// GB/s that no algorithm can exceed.
    pub bound: f64,
    /// Whether the links close a ring over all members.
    pub closed: bool,
}

impl Bandwidth {
    /// Of a set that has nothing to exchange: one GPU or none.
    const ALONE: Self = Self { bus: f64::INFINITY, bound: f64::INFINITY, closed: false };
}

/// A topology class: one distinct topology and the answers about its sets of GPUs.
#[derive(Debug)]
pub struct Class {
    topology: Topology,
    /// GB/s of one link in one direction.
    link: f64,
    switched: bool,
    pcie: BTreeMap<PcieLevel, f64>,
    /// By bits of the set, for up to [`TABLE_LIMIT`] GPUs.
    sets: Vec<Bandwidth>,
    /// B of the best set of each size on an empty node.
    best: Vec<f64>,
    fragmentation: OnceLock<Vec<i64>>,
}

/// Weights of gang sizes in the fragmentation, per mille: the sizes 2, 4 and 8 of a mixed training load (20, 25 and 10 of
/// 100 gangs), normalised.
const SIZE_WEIGHTS: [(usize, i64); 3] = [(2, 364), (4, 454), (8, 182)];

impl Class {
    /// Computes the tables of a topology. `table` says what a link and a PCIe level carry.
    pub fn new(topology: Topology, table: &LinkTable) -> Self {
        let switched = topology.is_switched();
        let link = topology.link_bandwidth(table);
        let pcie = PcieLevel::ALL.into_iter().map(|level| (level, table.pcie(level))).collect();
        let mut class = Self {
            topology,
            link,
            switched,
            pcie,
            sets: Vec::new(),
            best: Vec::new(),
            fragmentation: OnceLock::new(),
        };
        let gpus = class.topology.gpus();
        if gpus.len() <= TABLE_LIMIT {
            // Isomorphic sets, told by equal submatrices, are packed once.
            let mut packed = FxHashMap::default();
            class.sets = (0..1_u64 << gpus.len())
                .map(|bits| class.measure(GpuSet::from_bits(bits), &mut packed))
                .collect();
        }
        class.best = (0..=gpus.len()).map(|size| class.best_of_size(size)).collect();
        class
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether every answer is exact: point-to-point machines of more than eight GPUs are estimated.
    pub fn is_exact(&self) -> bool {
        self.topology.len() <= TABLE_LIMIT || self.switched || !self.has_links()
    }

    fn has_links(&self) -> bool {
        self.topology.links.iter().flatten().any(|&links| links > 0)
    }

    /// All-reduce bus bandwidth of a set of this node's GPUs; infinite for fewer than two.
    pub fn bandwidth(&self, set: GpuSet) -> Bandwidth {
        usize::try_from(set.bits())
            .ok()
            .and_then(|bits| self.sets.get(bits).copied())
            .unwrap_or_else(|| self.measure(set, &mut FxHashMap::default()))
    }

    /// The set of `size` free GPUs with the most bandwidth, and it; among equals the one that leaves the least
    /// fragmentation, then the lowest. `None` when fewer are free.
    pub fn best(&self, free: GpuSet, size: usize) -> Option<(GpuSet, Bandwidth)> {
        self.sets_of(free, size).map(|set| (set, self.bandwidth(set))).max_by(|(a, x), (b, y)| {
            x.bus
                .total_cmp(&y.bus)
                .then_with(|| {
                    self.fragmentation(free.difference(*b))
                        .cmp(&self.fragmentation(free.difference(*a)))
                })
                .then_with(|| a.bits().reverse_bits().cmp(&b.bits().reverse_bits()))
        })
    }

    /// The sets of `size` GPUs of `free` worth looking at: all, on a node of a table; on a larger switched node, where
    /// all are alike, those with the lowest GPUs of each rail.
    pub(crate) fn sets_of(&self, free: GpuSet, size: usize) -> Box<dyn Iterator<Item = GpuSet>> {
        if self.topology.len() <= TABLE_LIMIT || !self.switched {
            return Box::new(free.subsets(size).collect::<Vec<_>>().into_iter());
        }
        let lowest: GpuSet = free.iter().take(size).collect();
        Box::new((lowest.len() == size).then_some(lowest).into_iter())
    }

    fn best_of_size(&self, size: usize) -> f64 {
        let sets = self.sets_of(self.topology.gpus(), size);
        sets.map(|set| self.bandwidth(set).bus).fold(0.0, f64::max)
    }

    /// B of the best set of `size` GPUs when all are free.
    pub fn best_when_empty(&self, size: usize) -> f64 {
        self.best.get(size).copied().unwrap_or_default()
    }

    /// Expected GPUs of `free`, in thousandths, that gangs of the usual sizes cannot use at full speed:
    /// Σ w(κ) (|f| − κ Q(κ, f)), where Q is the largest sum of B(S)/B*(κ) over disjoint sets S of κ free GPUs.
    pub fn fragmentation(&self, free: GpuSet) -> i64 {
        if self.topology.len() > TABLE_LIMIT {
            // Every set of a switch is alike; what cannot be filled with whole gangs is lost.
            let free = free.len();
            return SIZE_WEIGHTS
                .iter()
                .filter(|(size, _)| *size <= self.topology.len())
                .map(|(size, weight)| weight * i64::try_from(free % size).unwrap_or_default())
                .sum();
        }
        let table = self.fragmentation.get_or_init(|| self.fragmentation_table());
        usize::try_from(free.bits())
            .ok()
            .and_then(|bits| table.get(bits).copied())
            .unwrap_or_default()
    }

    fn fragmentation_table(&self) -> Vec<i64> {
        let count = self.sets.len();
        let mut table = vec![0.0; count];
        for (size, weight) in SIZE_WEIGHTS {
            if size > self.topology.len() {
                continue;
            }
            let best = self.best_when_empty(size);
            // quality[f] = Q(size, f): leave the lowest free GPU out, or give it to a set.
            let mut quality = vec![0.0_f64; count];
            for bits in 1..count {
                let free = GpuSet::from_bits(bits as u64);
                let Some(lowest) = free.lowest() else { continue };
                let others = free.difference(GpuSet::single(lowest));
                let at = |set: GpuSet| usize::try_from(set.bits()).unwrap_or_default();
                let mut most = quality[at(others)];
                for rest in others.subsets(size - 1) {
                    let set = rest.union(GpuSet::single(lowest));
                    let value = if best > 0.0 { self.bandwidth(set).bus / best } else { 1.0 };
                    most = most.max(value + quality[at(free.difference(set))]);
                }
                quality[bits] = most;
            }
            for (bits, lost) in table.iter_mut().enumerate() {
                let free = f64::from(bits.count_ones());
                let used = f64::from(u32::try_from(size).unwrap_or_default()) * quality[bits];
                #[expect(clippy::cast_precision_loss, reason = "weights are below 1000")]
                let weight = weight as f64;
                *lost += weight * (free - used);
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 8 GPUs in thousandths")]
        table.into_iter().map(|lost| lost.round() as i64).collect()
    }

    fn measure(&self, set: GpuSet, packed: &mut FxHashMap<Links, (u32, u32, f64)>) -> Bandwidth {
        let members: Vec<usize> = set.iter().collect();
        let size = members.len();
        if size < 2 {
            return Bandwidth::ALONE;
        }
        if self.switched {
            let bus = f64::from(self.topology.product.ports()) * self.link;
            return Bandwidth { bus, bound: bus, closed: true };
        }
        let links: Links = members
            .iter()
            .map(|&a| members.iter().map(|&b| self.topology.link(a, b)).collect())
            .collect();
        let linked = links.iter().flatten().any(|&links| links > 0);
        if linked && size <= TABLE_LIMIT {
            let (rings, chains, strength) = *packed.entry(links).or_insert_with_key(|links| {
                (packing::rings(links), packing::chains(links), packing::strength(links))
            });
            if rings > 0 || chains > 0 {
                let share = share(size);
                let by_rings = f64::from(rings) * self.link;
                let by_chains = if size > 2 {
                    CHAIN_FACTOR * f64::from(chains) * self.link * share
                } else {
                    0.0
                };
                let bound = strength * self.link * share;
                let bus = by_rings.max(by_chains);
                return Bandwidth { bus, bound: bound.max(bus), closed: rings > 0 };
            }
        }
        let level = crate::ring::slowest_level(&self.topology, &members);
        let bus = level.and_then(|level| self.pcie.get(&level).copied()).unwrap_or_default();
        Bandwidth { bus, bound: bus, closed: false }
    }

    /// The members in rank order: along the ring that the links close, else along a chain, else along the ring whose
    /// slowest PCIe hop is fastest. Starts at the lowest member; the lowest such order.
    pub fn ranks(&self, set: GpuSet) -> Vec<usize> {
        if self.switched {
            return set.iter().collect();
        }
        crate::ring::order(&self.topology, set)
    }

    /// GB/s that the network cards near a set carry in one direction: the sum over the distinct RDMA cards that are at
    /// PIX or PXB of a member, at least one card's; a TCP card is the node's. `fallback` is for nodes that tell of none.
    pub fn network(&self, set: GpuSet, fallback: f64) -> f64 {
        let near = |nic: &topology::Nic| {
            nic.rdma
                && set.iter().any(|gpu| {
                    matches!(nic.levels.get(gpu), Some(Some(PcieLevel::Pix | PcieLevel::Pxb)))
                })
        };
        let speed = |nic: &topology::Nic| nic.bandwidth.unwrap_or(fallback);
        let nics = &self.topology.nics;
        let rails: f64 = nics.iter().filter(|nic| near(nic)).map(speed).sum();
        if rails > 0.0 {
            rails
        } else {
            nics.iter().map(speed).reduce(f64::max).unwrap_or(fallback)
        }
    }
}

/// Bytes that each member of an all-reduce over `size` members sends, per byte of data: 2(k−1)/k.
pub(crate) fn share(size: usize) -> f64 {
    let size = u32::try_from(size).map_or(f64::INFINITY, f64::from);
    2.0 * (size - 1.0) / size
}

/// The classes of a cluster: equal topologies share one.
#[derive(Debug, Default)]
pub struct Classes {
    table: LinkTable,
    known: Vec<Arc<Class>>,
}

impl Classes {
    /// No class yet; `table` holds for all.
    pub fn new(table: LinkTable) -> Self {
        Self { table, known: Vec::new() }
    }

    /// The class of a topology; computed when it is the first of its kind.
    pub fn of(&mut self, topology: Topology) -> Arc<Class> {
        if let Some(class) = self.known.iter().find(|class| class.topology == topology) {
            return Arc::clone(class);
        }
        let class = Arc::new(Class::new(topology, &self.table));
        self.known.push(Arc::clone(&class));
        class
    }
}
