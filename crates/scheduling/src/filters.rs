//! Filters: whether a node can take a shape of pod. Reasons are upstream's, word for word.

use api::{Mode, contract, pod::Port};

use crate::{
    cluster::NodeRecord,
    framework::{Context, Plugin},
    shape::Shape,
};

/// Pods that need what is not built yet are told so.
pub(crate) struct Supported;

impl Plugin for Supported {
    fn name(&self) -> &'static str {
        "Supported"
    }

    fn pre_enqueue(&self, pod: &crate::PodRecord) -> Option<String> {
        pod.held_back.clone()
    }

    fn pre_filter(&self, context: &Context<'_>) -> Option<String> {
        context.shape.unsupported.clone()
    }
}

/// New pods stay off nodes that are cordoned.
pub(crate) struct NodeUnschedulable;

/// The taint of a cordoned node; a pod that tolerates it goes there all the same.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn filter(&self, context: &Context<'_>, node: &NodeRecord) -> Option<String> {
        let taint = api::pod::Taint {
            key: CORDONED.into(),
            value: String::new(),
            effect: "NoSchedule".into(),
        };
        let tolerated =
            context.shape.tolerations.iter().any(|toleration| toleration.tolerates(&taint));
        (node.unschedulable && !tolerated).then(|| "node(s) were unschedulable".to_owned())
    }
}

/// Two pods cannot have one port of a host.
pub(crate) struct NodePorts;

fn clash(a: &Port, b: &Port) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    let protocol = |port: &Port| {
        if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() }
    };
    a.host_port == b.host_port
        && protocol(a) == protocol(b)
        && (any(&a.host_ip) || any(&b.host_ip) || a.host_ip == b.host_ip)
}

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn filter(&self, context: &Context<'_>, node: &NodeRecord) -> Option<String> {
        if context.shape.ports.is_empty() {
            return None;
        }
        let taken = node
            .pods
            .iter()
            .filter_map(|uid| context.cluster.pod(uid))
            .flat_map(|pod| &pod.shape.ports);
        let mut clashes =
            taken.flat_map(|port| context.shape.ports.iter().map(move |asked| clash(port, asked)));
        clashes
            .any(|clash| clash)
            .then(|| "node(s) didn't have free ports for the requested pod ports".to_owned())
    }
}

/// Pods of a gang that ask for one port of a host cannot share a node.
pub(crate) fn one_a_node(shape: &Shape) -> bool {
    !shape.ports.is_empty()
}

/// A node serves its GPUs in one mode.
pub(crate) struct NodeMode;

/// GPUs asked for by topology, on a node in default mode.
pub(crate) const IN_DEFAULT_MODE: &str = "node(s) served GPUs in default mode, not by topology";
/// GPUs asked for in the default way, on a node in topology mode.
pub(crate) const IN_TOPOLOGY_MODE: &str = "node(s) served GPUs in topology mode";

impl Plugin for NodeMode {
    fn name(&self) -> &'static str {
        "NodeMode"
    }

    fn filter(&self, context: &Context<'_>, node: &NodeRecord) -> Option<String> {
        let serves =
            |resource: &str| node.allocatable.other.get(resource).is_some_and(|amount| *amount > 0);
        let gpus = context.shape.gpus;
        match node.mode {
            // A node without GPUs lacks them in any mode; that is NodeResourcesFit's to say.
            Mode::Default
                if gpus.aliyun > 0
                    && (serves(contract::NVIDIA_GPU) || serves(contract::ALIYUN_GPU)) =>
            {
                Some(IN_DEFAULT_MODE.to_owned())
            }
            Mode::Topology if gpus.nvidia > 0 => Some(IN_TOPOLOGY_MODE.to_owned()),
            _ => None,
        }
    }
}

/// Resources of which a node has too little left; empty when the shape fits.
pub(crate) fn lacking(context: &Context<'_>, node: &NodeRecord) -> Vec<String> {
    let asked = &context.shape.demand;
    let mut lacking = Vec::new();
    if node.used.pods + 1 > node.allocatable.pods {
        lacking.push("Too many pods".to_owned());
    }
    let short = |name: &str, asked: i64, used: i64, there: i64| {
        (asked > 0 && used + asked > there).then(|| format!("Insufficient {name}"))
    };
    lacking.extend(short("cpu", asked.cpu, node.used.cpu, node.allocatable.cpu));
    lacking.extend(short("memory", asked.memory, node.used.memory, node.allocatable.memory));
    for (name, amount) in &asked.other {
        let of = |demand: &crate::Demand| demand.other.get(name).copied().unwrap_or_default();
        lacking.extend(short(name, *amount, of(&node.used), of(&node.allocatable)));
    }
    if asked.other.contains_key(contract::ALIYUN_GPU) && lacking.is_empty() {
        let free = context.cluster.free_gpus(node).len();
        if free < context.shape.gpus.aliyun {
            lacking.push(format!("Insufficient {}", contract::ALIYUN_GPU));
        }
    }
    lacking
}

/// How many pods of the shape a node can take, GPUs left aside.
pub(crate) fn room(shape: &Shape, node: &NodeRecord) -> usize {
    let mut room = node.allocatable.pods - node.used.pods;
    let mut limit = |asked: i64, left: i64| {
        if asked > 0 {
            room = room.min(left / asked);
        }
    };
    limit(shape.demand.cpu, node.allocatable.cpu - node.used.cpu);
    limit(shape.demand.memory, node.allocatable.memory - node.used.memory);
    for (name, amount) in &shape.demand.other {
        let of = |demand: &crate::Demand| demand.other.get(name).copied().unwrap_or_default();
        limit(*amount, of(&node.allocatable) - of(&node.used));
    }
    if one_a_node(shape) {
        room = room.min(1);
    }
    usize::try_from(room).unwrap_or_default()
}
