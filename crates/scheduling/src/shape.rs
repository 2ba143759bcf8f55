//! The shape of a pod: everything that decides where it fits. Pods of a gang are alike and share one.

use std::collections::BTreeMap;

use api::{
    Amounts, GpuRequest, LabelSelector, Pod, contract,
    pod::{NodeAffinity, Port, Toleration, TopologySpreadConstraint},
    requests,
};

/// Amounts of the resources that nodes are filled with: milli-CPUs, bytes, and whole units of everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Everything else but pods, by name.
    pub other: BTreeMap<String, i64>,
    /// CPU as the scores count it: a container that asks for none counts 100 m.
    pub scored_cpu: i64,
    /// Memory as the scores count it: a container that asks for none counts 200 MB.
    pub scored_memory: i64,
    /// Pods.
    pub pods: i64,
}

const DEFAULT_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

impl Demand {
    /// Of a node's allocatable amounts.
    pub fn of_node(amounts: &Amounts) -> Self {
        let mut demand = Self::of(amounts);
        demand.pods = amounts.get("pods").map(|pods| pods.value()).unwrap_or_default();
        demand
    }

    fn of(amounts: &Amounts) -> Self {
        let mut demand = Self::default();
        for (name, amount) in amounts {
            match name.as_str() {
                "cpu" => demand.cpu = amount.millis(),
                "memory" => demand.memory = amount.value(),
                "pods" => {}
                _ => {
                    demand.other.insert(name.clone(), amount.value());
                }
            }
        }
        demand
    }

    fn of_pod(pod: &Pod) -> Self {
        let mut demand = Self::of(&requests(pod));
        demand.pods = 1;
        let asked = |name: &str| {
            pod.spec
                .containers
                .iter()
                .filter(|c| {
                    c.resources.requests.contains_key(name) || c.resources.limits.contains_key(name)
                })
                .count()
        };
        let silent =
            |name: &str| i64::try_from(pod.spec.containers.len() - asked(name)).unwrap_or_default();
        demand.scored_cpu = demand.cpu + silent("cpu") * DEFAULT_CPU;
        demand.scored_memory = demand.memory + silent("memory") * DEFAULT_MEMORY;
        demand
    }

    /// Adds `sign` times `more`.
    pub fn add(&mut self, more: &Self, sign: i64) {
        self.cpu += sign * more.cpu;
        self.memory += sign * more.memory;
        self.scored_cpu += sign * more.scored_cpu;
        self.scored_memory += sign * more.scored_memory;
        self.pods += sign * more.pods;
        for (name, amount) in &more.other {
            *self.other.entry(name.clone()).or_default() += sign * amount;
        }
    }
}

/// Everything of a pod that decides where it fits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shape {
    /// Its namespace.
    pub namespace: String,
    /// Its labels, for spreading.
    pub labels: BTreeMap<String, String>,
    /// What it asks for.
    pub demand: Demand,
    /// GPUs among it.
    pub gpus: GpuRequest,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Node affinity.
    pub node_affinity: NodeAffinity,
    /// Taints it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Spread constraints.
    pub spread: Vec<TopologySpreadConstraint>,
    /// Ports on the host.
    pub ports: Vec<Port>,
    /// Images of its containers.
    pub images: Vec<String>,
    /// Whether it shares the host's network.
    pub host_network: bool,
    /// What it needs that Ringmaster does not place yet, in words.
    pub unsupported: Option<String>,
}

impl Shape {
    /// Of a pod.
    pub fn of(pod: &Pod) -> Self {
        let demand = Demand::of_pod(pod);
        Self {
            namespace: pod.namespace().to_owned(),
            labels: pod.labels().clone(),
            gpus: pod.gpus(),
            demand,
            node_selector: pod.spec.node_selector.clone(),
            node_affinity: pod.spec.affinity.node_affinity.clone(),
            tolerations: pod.spec.tolerations.clone(),
            spread: pod.spec.topology_spread_constraints.clone(),
            ports: host_ports(pod),
            images: pod.spec.containers.iter().map(|container| container.image.clone()).collect(),
            host_network: pod.spec.host_network,
            unsupported: unsupported(pod),
        }
    }

    /// Whether its gang's workers will know that they share a host: the host's network is what makes them.
    pub fn host_identity(&self) -> bool {
        self.host_network
    }

    /// Whether it is a pod that the topology profile places, apart from its gang labels.
    pub fn asks_for_topology(&self) -> bool {
        self.demand.other.contains_key(contract::ALIYUN_GPU)
    }

    /// A selector of exactly the pods with these labels.
    pub fn selects(&self, selector: &LabelSelector) -> bool {
        selector.matches(&self.labels)
    }
}

/// Ports that the pod takes on its host.
fn host_ports(pod: &Pod) -> Vec<Port> {
    let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
    ports.filter(|port| port.host_port > 0).cloned().collect()
}

/// What the pod needs that is not built yet: it is told so, never placed wrongly.
fn unsupported(pod: &Pod) -> Option<String> {
    for volume in &pod.spec.volumes {
        let name = volume.get("name").and_then(|name| name.as_str()).unwrap_or_default();
        for kind in ["persistentVolumeClaim", "ephemeral"] {
            if volume.contains_key(kind) {
                return Some(format!(
                    "volume {name:?} is a {kind}, and volume binding is not supported yet"
                ));
            }
        }
    }
    let affinity = &pod.spec.affinity;
    if affinity.pod_affinity.as_ref().is_some_and(|pods| !pods.required.is_empty()) {
        return Some("required inter-pod affinity is not supported yet".to_owned());
    }
    if affinity.pod_anti_affinity.as_ref().is_some_and(|pods| !pods.required.is_empty()) {
        return Some("required inter-pod anti-affinity is not supported yet".to_owned());
    }
    let claims = pod.spec.containers.iter().any(|container| !container.resources.claims.is_empty());
    if claims || !pod.spec.resource_claims.is_empty() {
        return Some("resource claims are not supported yet".to_owned());
    }
    let gpus = pod.gpus();
    if gpus.aliyun > 0 && gpus.nvidia > 0 {
        return Some(format!(
            "it asks for {} and {} at once",
            contract::ALIYUN_GPU,
            contract::NVIDIA_GPU
        ));
    }
    None
}
