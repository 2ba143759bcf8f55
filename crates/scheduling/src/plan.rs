//! Where a unit goes: a pure function of the cluster, the unit and the profile. The state after it is the state before.

use std::sync::Arc;

use api::contract;
use placement::{Piece, Placement, Request};
use serde::Serialize;
use topology::GpuSet;

use crate::{
    cluster::{Cluster, NodeRecord, PodRecord, Uid},
    filters,
    framework::{Context, GangPlacement, Profile},
    gang::GangKey,
    rejection::Rejection,
    scores,
    shape::Shape,
};

/// What is placed at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// The members of a gang that wait.
    Gang(GangKey),
    /// A pod by itself.
    Pod(Uid),
}

/// One pod and its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// UID.
    pub uid: Uid,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub pod: Arc<str>,
    /// Node.
    pub node: Arc<str>,
    /// GPUs by index, where the scheduler chooses them.
    pub gpus: GpuSet,
    /// GPUs of the whole gang on the node; wider than `gpus` only where workers share a host.
    pub visible: GpuSet,
    /// UUIDs of `gpus`, where the node tells them.
    pub uuids: Vec<String>,
    /// Rank in the gang, in placement order.
    pub rank: usize,
}

/// Where a unit goes, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What is placed.
    #[serde(skip)]
    pub unit: Unit,
    /// `namespace/group` or `namespace/pod`.
    pub name: String,
    /// The profile.
    pub profile: &'static str,
    /// Pods and their places, in rank order.
    pub assignments: Vec<Assignment>,
    /// GPUs, bandwidth, certificate and runner-up, where GPUs were chosen.
    pub placement: Option<Placement>,
}

/// What the planner may choose.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// The placement's.
    pub placement: placement::Profile,
}

/// The profile that places a pod: whatever it is called, a gang's or topology pod is placed by topology.
pub(crate) fn is_topology(pod: &PodRecord, in_gang: bool) -> bool {
    in_gang || pod.shape.asks_for_topology()
}

/// Plans `pods`, alike in shape, which belong to `unit` and join `siblings` that are placed already.
///
/// # Errors
/// The first constraint that blocks, with numbers.
pub fn plan(
    cluster: &Cluster,
    unit: &Unit,
    pods: &[&PodRecord],
    siblings: &[&PodRecord],
    profile: &Profile,
    choices: &Choices,
) -> Result<Plan, Rejection> {
    let Some(first) = pods.first() else {
        return Err(Rejection::Gathering { members: 0, minimum: 1 });
    };
    for pod in pods {
        if let Some(by) = profile.plugins.iter().find_map(|(plugin, _)| plugin.pre_enqueue(pod)) {
            return Err(Rejection::HeldBack { pod: pod.full_name(), by });
        }
        if !same_demand(&pod.shape, &first.shape) {
            let what = format!(
                "pods {} and {} of one gang differ in what they ask for",
                first.name, pod.name
            );
            return Err(Rejection::Unsupported { what });
        }
    }
    let context = Context { cluster, shape: &first.shape };
    if let Some(what) = profile.plugins.iter().find_map(|(plugin, _)| plugin.pre_filter(&context)) {
        return Err(Rejection::Unsupported { what });
    }
    let (passing, refused) = profile.filter(&context);
    if passing.is_empty() {
        return Err(Rejection::NoNode { nodes: cluster.nodes().len(), refused });
    }
    let name = match unit {
        Unit::Gang(key) => key.to_string(),
        Unit::Pod(_) => first.full_name(),
    };
    let plan = |assignments, placement| Plan {
        unit: unit.clone(),
        name,
        profile: profile.name,
        assignments,
        placement,
    };
    if profile.gangs == GangPlacement::OneByOne {
        let scores = profile.score(&context, &passing);
        // Among equals the lowest name; upstream draws lots.
        let best =
            passing.iter().zip(scores).rev().max_by_key(|(_, score)| *score).map(|(node, _)| *node);
        let Some(node) = best else {
            return Err(Rejection::NoNode { nodes: cluster.nodes().len(), refused });
        };
        return Ok(plan(vec![assignment(first, node, GpuSet::EMPTY, GpuSet::EMPTY, 0)], None));
    }

    let shape = &first.shape;
    let held_on = |node: &NodeRecord| {
        let here = siblings.iter().filter(|pod| pod.node.as_deref() == Some(&*node.name));
        here.fold(GpuSet::EMPTY, |set, pod| set.union(pod.gpus))
    };
    let spread = filters::one_a_node(shape);
    let options: Vec<_> = passing
        .iter()
        .map(|node| {
            let room = filters::room(shape, node);
            let room = if spread { room.min(1) } else { room };
            cluster.option(node, shape, room, scores::preferred(shape, node), held_on(node))
        })
        .collect();
    let request = Request {
        workers: pods.len(),
        gpus_per_worker: shape.gpus.total(),
        workload: None,
        host_identity: shape.host_identity(),
    };
    let placement =
        placement::place(&request, &options, &choices.placement).map_err(|mut shortage| {
            shortage.capacity = shortage.capacity.max(capacity(cluster, shape));
            Rejection::Shortage {
                nodes: cluster.nodes().len(),
                other_mode: other_mode(cluster, shape),
                refused,
                shortage,
            }
        })?;
    // Ranks that siblings have stay theirs; a member made anew takes the one that is missing.
    let taken: Vec<usize> = siblings.iter().filter_map(|pod| pod.rank).collect();
    let ranks = (0..).filter(|rank| !taken.contains(rank));
    let assignments = assign(pods, &placement.pieces, &passing, shape, ranks, held_on);
    Ok(plan(assignments, Some(placement)))
}

/// GPUs that the cluster serves under the name asked for, held ones too: only what exceeds them can never fit.
fn capacity(cluster: &Cluster, shape: &Shape) -> usize {
    let (resource, each) = match shape.gpus {
        gpus if gpus.aliyun > 0 => (contract::ALIYUN_GPU, gpus.aliyun),
        gpus => (contract::NVIDIA_GPU, gpus.nvidia.max(1)),
    };
    let served =
        |node: &NodeRecord| node.allocatable.other.get(resource).copied().unwrap_or_default();
    cluster
        .nodes()
        .map(|node| usize::try_from(served(node)).unwrap_or_default() / each * each)
        .sum()
}

/// Whether two pods ask for the same of a node.
fn same_demand(a: &Shape, b: &Shape) -> bool {
    std::ptr::eq(a, b)
        || (a.demand == b.demand
            && a.node_selector == b.node_selector
            && a.node_affinity == b.node_affinity
            && a.tolerations == b.tolerations
            && a.ports == b.ports)
}

/// GPUs of nodes in the mode that the shape does not ask for.
fn other_mode(cluster: &Cluster, shape: &Shape) -> usize {
    let resource = if shape.gpus.aliyun > 0 { contract::NVIDIA_GPU } else { contract::ALIYUN_GPU };
    if shape.gpus.total() == 0 {
        return 0;
    }
    let gpus = cluster.nodes().filter_map(|node| node.allocatable.other.get(resource));
    gpus.map(|amount| usize::try_from(*amount).unwrap_or_default()).sum()
}

/// Gives the pods, in the order of their indices, the GPUs of the pieces, in rank order: so rank, index and place are one
/// thing.
fn assign(
    pods: &[&PodRecord],
    pieces: &[Piece],
    nodes: &[&NodeRecord],
    shape: &Shape,
    mut ranks: impl Iterator<Item = usize>,
    held_on: impl Fn(&NodeRecord) -> GpuSet,
) -> Vec<Assignment> {
    let chosen_by_us = shape.gpus.aliyun > 0;
    let mut assignments = Vec::new();
    let mut pods = pods.iter();
    for piece in pieces {
        let Some(node) = nodes.iter().find(|node| node.name == piece.node) else { continue };
        let visible = piece.gpus.union(held_on(node));
        let shares: Vec<GpuSet> = match shape.gpus.total() {
            0 => vec![GpuSet::EMPTY],
            each => piece.ranks.chunks(each).map(|ranks| ranks.iter().copied().collect()).collect(),
        };
        for gpus in shares {
            let Some(pod) = pods.next() else { break };
            let Some(rank) = ranks.next() else { break };
            let (gpus, visible) = match (chosen_by_us, shape.host_identity()) {
                (false, _) => (GpuSet::EMPTY, GpuSet::EMPTY),
                (true, true) => (gpus, visible),
                (true, false) => (gpus, gpus),
            };
            assignments.push(assignment(pod, node, gpus, visible, rank));
        }
    }
    assignments
}

fn assignment(
    pod: &PodRecord,
    node: &NodeRecord,
    gpus: GpuSet,
    visible: GpuSet,
    rank: usize,
) -> Assignment {
    Assignment {
        uid: Arc::clone(&pod.uid),
        namespace: Arc::clone(&pod.namespace),
        pod: Arc::clone(&pod.name),
        node: Arc::clone(&node.name),
        gpus,
        visible,
        uuids: gpus.iter().filter_map(|gpu| node.uuids.get(gpu).cloned()).collect(),
        rank,
    }
}

impl Cluster {
    /// Reserves every place of a plan, or none: what was reserved before one that fails is taken back.
    pub fn reserve(&mut self, plan: &Plan) -> bool {
        for (index, assignment) in plan.assignments.iter().enumerate() {
            if !self.assume(&assignment.uid, &assignment.node, assignment.gpus) {
                for done in plan.assignments.iter().take(index) {
                    self.forget(&done.uid);
                }
                return false;
            }
        }
        true
    }
}
