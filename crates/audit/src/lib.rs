//! Checks any cluster state: no GPU given twice, no gang partly started beyond its grace, no node over its capacity, no
//! annotation that does not match. It reads the objects alone, not the scheduler's mind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use api::{Node, Pod, contract, requests};
use jiff::Timestamp;
use scheduling::{GangKey, Membership};
use serde::Serialize;
use topology::NodeReport;

/// A cluster as the API server tells it.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Pods.
    pub pods: Vec<Pod>,
    /// Data of the node reports, by node.
    pub reports: BTreeMap<String, BTreeMap<String, String>>,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "finding", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Finding {
    /// One GPU in two live pods.
    GivenTwice {
        /// The node.
        node: String,
        /// The GPU.
        gpu: usize,
        /// The pods.
        pods: Vec<String>,
    },
    /// An annotation that names what is not there, or not as many GPUs as the pod asks for.
    Annotation {
        /// The pod.
        pod: String,
        /// What is wrong.
        problem: String,
    },
    /// A gang between nothing and its minimum for longer than the grace.
    PartialGang {
        /// The gang.
        gang: String,
        /// Members that started.
        started: usize,
        /// Members that must.
        minimum: usize,
        /// Seconds since its last member was bound.
        seconds: i64,
    },
    /// Pods ask for more than their node has.
    OverCapacity {
        /// The node.
        node: String,
        /// The resource.
        resource: String,
        /// What is asked for.
        asked: String,
        /// What is there.
        capacity: String,
    },
    /// A pod on a node that does not exist.
    NoSuchNode {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GivenTwice { node, gpu, pods } => {
                write!(f, "GPU {gpu} of node {node} is in {}", pods.join(" and "))
            }
            Self::Annotation { pod, problem } => write!(f, "pod {pod}: {problem}"),
            Self::PartialGang { gang, started, minimum, seconds } => {
                write!(f, "gang {gang} has had {started} of {minimum} members for {seconds} s")
            }
            Self::OverCapacity { node, resource, asked, capacity } => {
                write!(f, "node {node}: pods ask for {asked} of {resource}, but it has {capacity}")
            }
            Self::NoSuchNode { pod, node } => {
                write!(f, "pod {pod} is on node {node}, which does not exist")
            }
        }
    }
}

/// Everything that is wrong at `now`, sorted. `grace` is how long a gang may stay partly started.
pub fn audit(snapshot: &Snapshot, now: Timestamp, grace: Duration) -> Vec<Finding> {
    let mut findings = BTreeSet::new();
    allocations(snapshot, &mut findings);
    capacities(snapshot, &mut findings);
    gangs(snapshot, now, grace, &mut findings);
    findings.into_iter().collect()
}

/// Pods that take room on a node.
fn live(snapshot: &Snapshot) -> impl Iterator<Item = (&Pod, &str)> {
    snapshot
        .pods
        .iter()
        .filter(|pod| !pod.is_finished())
        .filter_map(|pod| Some((pod, pod.spec.node_name.as_deref()?)))
}

fn allocations(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    let mut holders: BTreeMap<(&str, usize), Vec<String>> = BTreeMap::new();
    for (pod, node) in live(snapshot) {
        let mut wrong = |problem: String| {
            findings.insert(Finding::Annotation { pod: pod.full_name(), problem });
        };
        let gpus = match (pod.gpu_group(), pod.simulated_gpus()) {
            (Ok(own), Ok(simulated)) => own.or(simulated),
            (Err(error), _) | (_, Err(error)) => {
                wrong(error.to_string());
                continue;
            }
        };
        let asked = pod.gpus();
        match gpus {
            None if asked.aliyun > 0 => {
                wrong(format!("it asks for {} GPUs by topology and names none", asked.aliyun))
            }
            Some(gpus) if gpus.len() != asked.total() => {
                wrong(format!("it asks for {} GPUs and names {gpus}", asked.total()));
            }
            _ => {}
        }
        let gpus = gpus.unwrap_or_default();
        if let Some(Ok(report)) =
            snapshot.reports.get(node).map(|data| NodeReport::from_data(node, data))
        {
            if let Some(gpu) = gpus.difference(report.topology.gpus()).lowest() {
                wrong(format!(
                    "it names GPU {gpu}, but node {node} has {} GPUs",
                    report.topology.len()
                ));
            }
            let uuids =
                pod.annotations().get(contract::GPU_UUIDS).filter(|uuids| !uuids.is_empty());
            let expected: Vec<&str> =
                gpus.iter().filter_map(|gpu| report.uuids.get(gpu).map(String::as_str)).collect();
            if let Some(uuids) = uuids
                && !expected.is_empty()
                && uuids.split(',').collect::<Vec<_>>() != expected
            {
                wrong(format!(
                    "{} is {uuids}, but GPUs {gpus} are {}",
                    contract::GPU_UUIDS,
                    expected.join(",")
                ));
            }
        }
        for gpu in gpus.iter() {
            holders.entry((node, gpu)).or_default().push(pod.full_name());
        }
    }
    for ((node, gpu), mut pods) in holders {
        if pods.len() > 1 {
            pods.sort();
            findings.insert(Finding::GivenTwice { node: node.to_owned(), gpu, pods });
        }
    }
}

fn capacities(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    let nodes: BTreeMap<&str, &Node> =
        snapshot.nodes.iter().map(|node| (node.name(), node)).collect();
    let mut used: BTreeMap<&str, api::Amounts> = BTreeMap::new();
    for (pod, node) in live(snapshot) {
        if !nodes.contains_key(node) {
            findings.insert(Finding::NoSuchNode { pod: pod.full_name(), node: node.to_owned() });
            continue;
        }
        let sum = used.entry(node).or_default();
        for (resource, amount) in requests(pod) {
            let entry = sum.entry(resource).or_default();
            *entry = *entry + amount;
        }
    }
    for (node, used) in used {
        let Some(there) = nodes.get(node).map(|node| &node.status.allocatable) else { continue };
        for (resource, asked) in used {
            let capacity = there.get(&resource).copied().unwrap_or_default();
            if asked > capacity {
                findings.insert(Finding::OverCapacity {
                    node: node.to_owned(),
                    resource,
                    asked: asked.to_string(),
                    capacity: capacity.to_string(),
                });
            }
        }
    }
}

/// What is known of one gang.
#[derive(Default)]
struct Seen {
    minimum: usize,
    started: usize,
    ever_ran: bool,
    last_bound: Option<Timestamp>,
}

fn gangs(snapshot: &Snapshot, now: Timestamp, grace: Duration, findings: &mut BTreeSet<Finding>) {
    let mut seen: BTreeMap<GangKey, Seen> = BTreeMap::new();
    let mut some_gpus: BTreeSet<GangKey> = BTreeSet::new();
    let member = |pod: &Pod| match Membership::of(pod, pod.gang_labels().ok()?) {
        Membership::Of(key, minimum) => Some((key, minimum)),
        Membership::Alone => None,
    };
    for pod in &snapshot.pods {
        if let Some((key, _)) = member(pod).filter(|_| pod.gpus().total() > 0) {
            some_gpus.insert(key);
        }
    }
    for pod in &snapshot.pods {
        let Some((key, minimum)) = member(pod) else { continue };
        if some_gpus.contains(&key) && pod.gpus().total() == 0 {
            continue;
        }
        let gang = seen.entry(key).or_default();
        gang.minimum = gang.minimum.max(minimum);
        gang.ever_ran |= pod.ever_started();
        let satisfied = pod.is_finished() && pod.ever_started();
        let placed = pod.spec.node_name.is_some() && !pod.is_finished() && !pod.is_terminating();
        if satisfied || placed {
            gang.started += 1;
            let bound = pod
                .condition("PodScheduled")
                .and_then(|condition| condition.last_transition_time.as_ref());
            gang.last_bound = gang.last_bound.max(bound.map(|time| time.0));
        }
    }
    for (key, gang) in seen {
        if gang.started == 0 || gang.started >= gang.minimum || gang.ever_ran {
            continue;
        }
        let seconds = gang.last_bound.map_or(0, |bound| now.as_second() - bound.as_second());
        if u64::try_from(seconds).is_ok_and(|seconds| seconds > grace.as_secs()) {
            let (started, minimum) = (gang.started, gang.minimum);
            findings.insert(Finding::PartialGang {
                gang: key.to_string(),
                started,
                minimum,
                seconds,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        serde_json::from_str(r#"{"metadata": {"name": "n1"}, "status": {"allocatable": {"aliyun.com/gpu": "8", "cpu": "2"}}}"#)
            .unwrap()
    }

    fn pod(name: &str, gpus: Option<&str>, bound_at: i64) -> Pod {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "d", "uid": name,
                "labels": {"gpu-topology": "g", "gpu-topology-replica": "2", "mpi_role_type": "worker"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": {"aliyun.com/gpu": "1"}}}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True",
                "lastTransitionTime": Timestamp::from_second(bound_at).unwrap().to_string()}]},
        }))
        .unwrap();
        pod.metadata.annotations =
            gpus.map(|gpus| [(contract::GPU_GROUP.to_owned(), gpus.to_owned())].into());
        pod
    }

    fn found(pods: Vec<Pod>) -> Vec<String> {
        let snapshot = Snapshot { nodes: vec![node()], pods, reports: BTreeMap::new() };
        let now = Timestamp::from_second(1000).unwrap();
        audit(&snapshot, now, Duration::from_secs(60)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_cluster_has_no_findings() {
        assert_eq!(found(vec![pod("a", Some("0"), 0), pod("b", Some("1"), 0)]), [""; 0]);
        assert_eq!(found(vec![pod("a", Some("0"), 990)]), [""; 0], "within its grace");
    }

    #[test]
    fn every_kind_of_wrong_is_found() {
        assert_eq!(
            found(vec![pod("a", Some("0"), 0), pod("b", Some("0"), 0)]),
            ["GPU 0 of node n1 is in d/a and d/b"]
        );
        assert_eq!(
            found(vec![pod("a", Some("0"), 0)]),
            ["gang d/g has had 1 of 2 members for 1000 s"]
        );
        for (gpus, words) in [
            (None, "names none"),
            (Some("0,1"), "asks for 1 GPUs and names 0,1"),
            (Some("x"), "gpu-group"),
        ] {
            let findings = found(vec![pod("a", gpus, 0), pod("b", Some("7"), 0)]);
            assert!(matches!(findings.as_slice(), [one] if one.contains(words)), "{findings:?}");
        }
        let mut hungry = pod("a", Some("0"), 0);
        hungry.spec.containers[0].resources.limits.insert("cpu".into(), "3".parse().unwrap());
        assert_eq!(
            found(vec![hungry, pod("b", Some("1"), 0)]),
            ["node n1: pods ask for 3 of cpu, but it has 2"]
        );
        let mut lost = pod("a", Some("0"), 0);
        lost.spec.node_name = Some("n9".into());
        assert_eq!(
            found(vec![lost, pod("b", Some("1"), 0)]),
            ["pod d/a is on node n9, which does not exist"]
        );
    }
}
