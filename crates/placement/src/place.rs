//! The best placement of a gang over nodes.
//!
//! Nodes are bucketed by what tells them apart (class, free mask, room, preference): of each bucket only as many as the
//! gang has workers can matter, so the work does not grow with the cluster. On one node every set is looked at. Over
//! several nodes the objective is a bottleneck, so it is a threshold search: for a bandwidth θ each node has a largest
//! piece that reaches θ; a knapsack over the nodes then takes the cheapest pieces that add up to the gang.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use topology::{GpuSet, Product};

use crate::{
    Class, Workload,
    request::{NodeOption, Objective, Piece, Placement, Profile, Request, RunnerUp, Shortage},
};

/// What a placement costs, less is better, in the order in which it is compared: nodes and unclosed rings first where
/// the job's model is known, then fragmentation, preference, nodes, balance, emptiness.
type Cost = [i64; 7];

/// Choices `(node, set)` by index into the options, and what they cost.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    cost: Cost,
    /// Bottleneck of the whole gang, GB/s.
    bus: f64,
    chosen: Vec<(usize, GpuSet)>,
}

/// A piece of one node for the knapsack.
#[derive(Clone, Copy)]
struct Part {
    set: GpuSet,
    cost: Cost,
    bus: f64,
}

/// For a number of workers and of nodes (none, one, more): what the cheapest way costs, and its bottleneck.
type Row = Vec<[Option<(Cost, f64)>; 3]>;
/// For the same: workers and set on the last node, and the number of nodes before it.
type Choice = Vec<[Option<(usize, GpuSet, usize)>; 3]>;
/// What tells nodes apart: class, free mask, siblings, room, preference.
type Bucket = (usize, u64, u64, usize, i64);

struct Search<'a> {
    request: &'a Request,
    profile: &'a Profile,
    /// By bucket, each cut to what can matter; in name order.
    nodes: Vec<&'a NodeOption>,
    /// Whether siblings stand on nodes, and on how many.
    settled: usize,
}

/// The best placement of `request` over `nodes`.
///
/// One product is chosen first: the first of the profile's order that has room. The answer does not depend on the
/// order of `nodes`.
///
/// # Errors
/// The shortage, in numbers, when the gang has no place now.
pub fn place(
    request: &Request,
    nodes: &[NodeOption],
    profile: &Profile,
) -> Result<Placement, Shortage> {
    let product = |node: &NodeOption| node.class.topology().product;
    let siblings = nodes.iter().find(|node| !node.siblings.is_empty()).map(product);
    let products: Vec<Product> = if request.gpus_per_worker == 0 {
        return by_room(request, nodes);
    } else if let Some(product) = siblings {
        vec![product]
    } else {
        profile.products.clone()
    };
    for product_wanted in products {
        let group: Vec<&NodeOption> =
            nodes.iter().filter(|node| product(node) == product_wanted).collect();
        if let Some(placement) = Search::new(request, profile, &group).run() {
            return Ok(placement);
        }
    }
    Err(shortage(request, nodes))
}

/// Workers of the gang that a node can take.
fn room(request: &Request, node: &NodeOption) -> usize {
    node.free
        .len()
        .checked_div(request.gpus_per_worker)
        .unwrap_or(usize::MAX)
        .min(node.max_workers)
        .min(request.workers)
}

fn shortage(request: &Request, nodes: &[NodeOption]) -> Shortage {
    let mut capacity: BTreeMap<Product, usize> = BTreeMap::new();
    for node in nodes {
        // A worker needs its GPUs on one node.
        let gpus = node.class.topology().len();
        let usable =
            gpus.checked_div(request.gpus_per_worker).unwrap_or(0) * request.gpus_per_worker;
        *capacity.entry(node.class.topology().product).or_default() += usable;
    }
    Shortage {
        workers: request.workers,
        gpus_per_worker: request.gpus_per_worker,
        nodes: nodes.len(),
        free: nodes.iter().map(|node| node.free.len()).sum(),
        fitting: nodes.iter().map(|node| room(request, node)).sum::<usize>().min(request.workers),
        capacity: capacity.into_values().max().unwrap_or(0),
    }
}

/// Workers that ask for no GPU: the fewest nodes, the roomiest first.
fn by_room(request: &Request, nodes: &[NodeOption]) -> Result<Placement, Shortage> {
    let mut order: Vec<&NodeOption> = nodes.iter().collect();
    order.sort_by_key(|node| {
        (Reverse(node.preferred), Reverse(room(request, node)), Arc::clone(&node.name))
    });
    let mut left = request.workers;
    let mut pieces = Vec::new();
    for node in order {
        let here = room(request, node).min(left);
        left -= here;
        // A piece without GPUs stands for one worker.
        pieces.extend((0..here).map(|_| Piece {
            node: Arc::clone(&node.name),
            gpus: GpuSet::EMPTY,
            ranks: Vec::new(),
            closed: false,
        }));
    }
    if left > 0 {
        return Err(shortage(request, nodes));
    }
    Ok(Placement {
        pieces,
        bus_bandwidth: None,
        bound: None,
        optimal: true,
        objective: Objective::Nodes,
        throughput: None,
        runner_up: None,
    })
}

impl<'a> Search<'a> {
    fn new(request: &'a Request, profile: &'a Profile, group: &[&'a NodeOption]) -> Self {
        let mut sorted: Vec<&NodeOption> = group.to_vec();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        let mut seen: BTreeMap<(usize, u64, usize, i64), usize> = BTreeMap::new();
        sorted.retain(|node| {
            if !node.siblings.is_empty() {
                return true;
            }
            let room = room(request, node);
            let bucket =
                (Arc::as_ptr(&node.class) as usize, node.free.bits(), room, node.preferred);
            let count = seen.entry(bucket).or_default();
            *count += 1;
            room > 0 && *count <= request.workers
        });
        let settled = sorted.iter().filter(|node| !node.siblings.is_empty()).count();
        Self { request, profile, nodes: sorted, settled }
    }

    fn run(&self) -> Option<Placement> {
        let room: usize = self.nodes.iter().map(|node| room(self.request, node)).sum();
        if room < self.request.workers {
            return None;
        }
        let thresholds = self.thresholds();
        // The largest θ that the gang can reach; feasibility is monotone in θ.
        let feasible = |theta: f64| self.cheapest(theta).is_some();
        let count = thresholds.partition_point(|&theta| feasible(theta));
        let best = thresholds[..count].last().copied()?;
        let exchanges = best.is_finite();
        let (objective, floor) = match &self.request.workload {
            _ if !exchanges => (Objective::Fragmentation, best),
            None => (Objective::BusBandwidth, best),
            Some(workload) => {
                let gpus = self.gpus();
                let least = workload.images_per_second(gpus, best) * (1.0 - self.profile.epsilon);
                let good = |theta: &&f64| workload.images_per_second(gpus, **theta) >= least;
                (
                    Objective::Throughput,
                    thresholds[..count].iter().find(good).copied().unwrap_or(best),
                )
            }
        };
        let chosen = self.cheapest(floor)?;
        let runner_up = self.runner_up(&chosen, &thresholds);
        Some(self.placement(&chosen, objective, runner_up))
    }

    /// GPUs of the gang, siblings included.
    fn gpus(&self) -> usize {
        self.request.gpus() + self.nodes.iter().map(|node| node.siblings.len()).sum::<usize>()
    }

    /// Every bandwidth that a piece, and so a gang, can have; ascending, without repetitions. Infinite for a gang that
    /// exchanges nothing.
    fn thresholds(&self) -> Vec<f64> {
        let mut all: Vec<f64> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            // Nodes of a class and mask have the same values.
            let alike = |other: &&NodeOption| {
                Arc::ptr_eq(&other.class, &node.class)
                    && other.free == node.free
                    && other.siblings == node.siblings
            };
            if self.nodes.get(..index).is_some_and(|before| before.iter().any(alike)) {
                continue;
            }
            for workers in 0..=room(self.request, node) {
                for set in node.class.sets_of(node.free, workers * self.request.gpus_per_worker) {
                    let whole = set.union(node.siblings);
                    if whole.is_empty() {
                        continue;
                    }
                    all.push(node.class.bandwidth(whole).bus);
                    if workers < self.request.workers || self.settled > 0 {
                        all.push(node.class.network(whole, self.profile.network));
                    }
                }
            }
        }
        if self.gpus() > 1 {
            all.retain(|bus| bus.is_finite());
        }
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    /// What every placement of the gang costs that reaches `theta`: the cheapest, on one node or over several.
    fn cheapest(&self, theta: f64) -> Option<Candidate> {
        let single = self.single(theta);
        let several =
            (self.request.workers > 1 || self.settled > 0).then(|| self.several(theta)).flatten();
        match (single, several) {
            (Some(a), Some(b)) => Some(if b.cost < a.cost { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// The cheapest part of `workers` workers on a node that reaches `theta`; `network` says whether the gang spans
    /// other nodes too.
    fn part(&self, node: &NodeOption, workers: usize, theta: f64, network: bool) -> Option<Part> {
        let mut best: Option<Part> = None;
        for set in node.class.sets_of(node.free, workers * self.request.gpus_per_worker) {
            let whole = set.union(node.siblings);
            let mut bus = node.class.bandwidth(whole).bus;
            if network && !whole.is_empty() {
                bus = bus.min(node.class.network(whole, self.profile.network));
            }
            if bus < theta {
                continue;
            }
            let cost = self.cost(node, set);
            let better = best.is_none_or(|best| {
                (cost, Reverse(ordered(bus)), rank(set))
                    < (best.cost, Reverse(ordered(best.bus)), rank(best.set))
            });
            if better {
                best = Some(Part { set, cost, bus });
            }
        }
        best
    }

    fn cost(&self, node: &NodeOption, set: GpuSet) -> Cost {
        let class = &node.class;
        let whole = set.union(node.siblings);
        let new = i64::from(!set.is_empty() && node.siblings.is_empty());
        let open = i64::from(whole.len() > 1 && !class.bandwidth(whole).closed);
        let lost = class.fragmentation(node.free.difference(set)) - class.fragmentation(node.free);
        let count = |set: GpuSet| i64::try_from(set.len()).unwrap_or(i64::MAX);
        let preference = -node.preferred * count(set);
        // Squares add up to the least when pieces are equal, and rails with them.
        let balance = count(whole) * count(whole);
        let emptiness = if set.is_empty() { 0 } else { count(node.free.difference(set)) };
        let known = i64::from(self.request.workload.is_some());
        [new * known, open * known, lost, preference, new, balance, emptiness]
    }

    fn single(&self, theta: f64) -> Option<Candidate> {
        if self.settled > 1 {
            return None;
        }
        let mut best: Option<Candidate> = None;
        for (index, node) in self.nodes.iter().enumerate() {
            if room(self.request, node) < self.request.workers
                || (self.settled == 1 && node.siblings.is_empty())
            {
                continue;
            }
            let Some(part) = self.part(node, self.request.workers, theta, false) else { continue };
            if best.as_ref().is_none_or(|best| part.cost < best.cost) {
                best = Some(Candidate {
                    cost: part.cost,
                    bus: part.bus,
                    chosen: vec![(index, part.set)],
                });
            }
        }
        best
    }

    /// A knapsack over the nodes: the cheapest parts, each reaching `theta`, that add up to the gang, on at least two
    /// nodes.
    fn several(&self, theta: f64) -> Option<Candidate> {
        let workers = self.request.workers;
        // cheapest[w][two]: w workers placed, on one node at most or on two at least.
        let mut cheapest: Row = vec![[None; 3]; workers + 1];
        cheapest[0][0] = Some(([0; 7], f64::INFINITY));
        let mut choices: Vec<Choice> = Vec::new();
        let mut parts_of: BTreeMap<Bucket, Vec<Option<Part>>> = BTreeMap::new();
        for node in &self.nodes {
            let room = room(self.request, node);
            let bucket = (
                Arc::as_ptr(&node.class) as usize,
                node.free.bits(),
                node.siblings.bits(),
                room,
                node.preferred,
            );
            let parts = parts_of.entry(bucket).or_insert_with(|| {
                (0..=room).map(|workers| self.part(node, workers, theta, true)).collect()
            });
            let mut next: Row = vec![[None; 3]; workers + 1];
            let mut choice = vec![[None; 3]; workers + 1];
            for (placed, row) in cheapest.iter().enumerate() {
                for (nodes, entry) in row.iter().enumerate() {
                    let Some((cost, bus)) = entry else { continue };
                    for (here, part) in parts.iter().enumerate().take(workers - placed + 1) {
                        let Some(part) = part else { continue };
                        let nodes_now =
                            (nodes + usize::from(here > 0 || !node.siblings.is_empty())).min(2);
                        let sum: Cost = std::array::from_fn(|i| cost[i] + part.cost[i]);
                        let slot = &mut next[placed + here][nodes_now];
                        if slot.is_none_or(|(cost, _)| sum < cost) {
                            *slot = Some((sum, bus.min(part.bus)));
                            choice[placed + here][nodes_now] = Some((here, part.set, nodes));
                        }
                    }
                }
            }
            cheapest = next;
            choices.push(choice);
        }
        let (cost, bus) = cheapest[workers][2]?;
        let (mut left, mut nodes) = (workers, 2);
        let mut chosen = Vec::new();
        for (index, choice) in choices.iter().enumerate().rev() {
            let (here, set, before) = choice[left][nodes]?;
            if here > 0 {
                chosen.push((index, set));
            }
            (left, nodes) = (left - here, before);
        }
        chosen.reverse();
        Some(Candidate { cost, bus, chosen })
    }

    /// The best placement whose bandwidth is strictly below that of `best`.
    fn runner_up(&self, best: &Candidate, thresholds: &[f64]) -> Option<Candidate> {
        let below = thresholds.partition_point(|&theta| theta < best.bus);
        let mut worse: Option<Candidate> = None;
        let mut consider = |candidate: Option<Candidate>| {
            if let Some(candidate) = candidate
                && candidate.bus < best.bus
                && worse.as_ref().is_none_or(|worse| candidate.bus > worse.bus)
            {
                worse = Some(candidate);
            }
        };
        // On one node: the set with the most bandwidth below.
        if self.settled <= 1 {
            for (index, node) in self.nodes.iter().enumerate() {
                if room(self.request, node) < self.request.workers
                    || (self.settled == 1 && node.siblings.is_empty())
                {
                    continue;
                }
                for set in node.class.sets_of(node.free, self.request.gpus()) {
                    let bus = node.class.bandwidth(set.union(node.siblings)).bus;
                    consider(Some(Candidate {
                        cost: self.cost(node, set),
                        bus,
                        chosen: vec![(index, set)],
                    }));
                }
            }
        }
        // Over several: the first threshold below at which the cheapest is truly worse.
        if self.request.workers > 1 || self.settled > 0 {
            let found = thresholds[..below]
                .iter()
                .rev()
                .find_map(|&theta| self.several(theta).filter(|c| c.bus < best.bus));
            consider(found);
        }
        worse
    }

    fn placement(
        &self,
        chosen: &Candidate,
        objective: Objective,
        runner_up: Option<Candidate>,
    ) -> Placement {
        let finite = |bus: f64| bus.is_finite().then_some(bus);
        let throughput = |bus: f64| {
            let workload: &Workload = self.request.workload.as_ref()?;
            Some(workload.images_per_second(self.gpus(), bus))
        };
        let spans = chosen.chosen.len() > 1;
        let bound = chosen
            .chosen
            .iter()
            .map(|&(index, set)| {
                let node = self.nodes[index];
                let whole = set.union(node.siblings);
                let inside = node.class.bandwidth(whole).bound;
                if spans {
                    inside.min(node.class.network(whole, self.profile.network))
                } else {
                    inside
                }
            })
            .fold(f64::INFINITY, f64::min);
        Placement {
            pieces: self.pieces(chosen),
            bus_bandwidth: finite(chosen.bus),
            bound: finite(bound.max(chosen.bus)),
            optimal: self.nodes.iter().all(|node| node.class.is_exact()),
            objective,
            throughput: throughput(chosen.bus),
            runner_up: runner_up.map(|worse| {
                Box::new(RunnerUp {
                    pieces: self.pieces(&worse),
                    bus_bandwidth: finite(worse.bus),
                    throughput: throughput(worse.bus),
                })
            }),
        }
    }

    fn pieces(&self, candidate: &Candidate) -> Vec<Piece> {
        candidate
            .chosen
            .iter()
            .map(|&(index, set)| {
                piece(
                    &self.nodes[index].name,
                    &self.nodes[index].class,
                    set,
                    self.nodes[index].siblings,
                )
            })
            .collect()
    }
}

fn piece(name: &Arc<str>, class: &Class, set: GpuSet, siblings: GpuSet) -> Piece {
    let whole = set.union(siblings);
    Piece {
        node: Arc::clone(name),
        gpus: set,
        ranks: class.ranks(whole).into_iter().filter(|&gpu| set.contains(gpu)).collect(),
        closed: class.bandwidth(whole).closed,
    }
}

/// Sets in the order of their lowest members: {0,3} before {1,2}.
fn rank(set: GpuSet) -> Reverse<u64> {
    Reverse(set.bits().reverse_bits())
}

/// A bandwidth as a key that sorts like it: none is negative.
fn ordered(bus: f64) -> u64 {
    bus.to_bits()
}
