//! A cluster in a few words: nodes of the catalogue, gangs of pods, and what becomes of them.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "shared by test files that each use a part of it"
)]

use std::collections::BTreeMap;

use api::{Node, Pod, Quantity, contract};
use jiff::Timestamp;
use scheduling::{Attempt, Core, Plan, Settings};
use topology::{LinkTable, NodeReport, catalogue};

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// A node of eight V100, 64 CPUs and 256 GiB, in topology mode or not.
pub(crate) fn node(name: &str, topology: bool) -> Node {
    let mode = if topology { contract::MODE_TOPOLOGY } else { contract::MODE_DEFAULT };
    let (aliyun, nvidia) = if topology { (8, 0) } else { (0, 8) };
    let mut node: Node = serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "labels": {contract::MODE_LABEL: mode, "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
    .unwrap();
    node.status.allocatable.insert(contract::ALIYUN_GPU.into(), Quantity::whole(aliyun));
    node.status.allocatable.insert(contract::NVIDIA_GPU.into(), Quantity::whole(nvidia));
    node
}

pub(crate) fn report(name: &str, machine: &str) -> BTreeMap<String, String> {
    let topology = catalogue::machine(machine).unwrap().topology();
    let uuids = (0..topology.len()).map(|gpu| format!("GPU-{name}-{gpu}")).collect();
    NodeReport::new(name, topology, uuids, &LinkTable::default()).to_data()
}

/// A core of `count` nodes gn6v named n1, n2, … in topology mode.
pub(crate) fn cluster(count: usize) -> Core {
    let mut core = Core::new(Settings::default());
    for number in 1..=count {
        let name = format!("n{number}");
        core.set_node(&node(&name, true));
        core.set_report(&name, Some(&report(&name, "gn6v")));
    }
    core
}

/// A pod of the default profile.
pub(crate) fn pod(name: &str) -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "creationTimestamp": "1970-01-12T13:46:40Z"},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main", "image": "image"}]},
        "status": {"phase": "Pending"},
    }))
    .unwrap()
}

/// The workers of a topology job of Arena's: one GPU each unless said otherwise.
pub(crate) fn gang(job: &str, workers: usize) -> Vec<Pod> {
    (0..workers).map(|index| worker(job, index, workers, 1, contract::ALIYUN_GPU)).collect()
}

pub(crate) fn worker(job: &str, index: usize, workers: usize, gpus: i64, resource: &str) -> Pod {
    let mut pod = pod(&format!("{job}-worker-{index}"));
    let mut labels = BTreeMap::from([
        (contract::GANG_NAME.to_owned(), format!("mpijob-{job}")),
        (contract::GANG_MINIMUM.to_owned(), workers.to_string()),
        (contract::MPI_ROLE.to_owned(), contract::WORKER.to_owned()),
        (contract::MPI_JOB_NAME.to_owned(), job.to_owned()),
    ]);
    if resource == contract::ALIYUN_GPU {
        labels.insert(contract::TOPOLOGY_GROUP.into(), job.into());
        labels.insert(contract::TOPOLOGY_REPLICA.into(), workers.to_string());
        pod.spec.host_network = true;
    }
    pod.metadata.labels = Some(labels);
    pod.metadata.owner_references = Some(
        serde_json::from_value(serde_json::json!([
            {"apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob", "name": job, "uid": format!("job-{job}"), "controller": true}
        ]))
        .unwrap(),
    );
    pod.spec.containers[0].resources.limits.insert(resource.into(), Quantity::whole(gpus));
    pod
}

/// Writes what a bind writes.
pub(crate) fn bind(pod: &mut Pod, plan: &Plan) {
    let assignment =
        plan.assignments.iter().find(|assignment| *assignment.uid == *pod.uid()).unwrap();
    pod.spec.node_name = Some(assignment.node.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(contract::RANK.into(), assignment.rank.to_string());
    if !assignment.gpus.is_empty() {
        annotations.insert(contract::GPU_GROUP.into(), assignment.gpus.to_string());
        annotations.insert(contract::GPU_VISIBLE.into(), assignment.visible.to_string());
    }
}

/// Tries until nothing is left to try now.
pub(crate) fn run(core: &mut Core, now: Timestamp) -> Vec<Attempt> {
    std::iter::from_fn(|| core.attempt(now)).collect()
}

/// The one plan of an attempt.
pub(crate) fn planned(core: &mut Core, now: Timestamp) -> Plan {
    match core.attempt(now) {
        Some(Attempt::Planned(plan)) => plan,
        other => panic!("no plan but {other:?}"),
    }
}

/// The message of the one rejection of an attempt.
pub(crate) fn rejected(core: &mut Core, now: Timestamp) -> String {
    match core.attempt(now) {
        Some(Attempt::Rejected { rejection, .. }) => rejection.to_string(),
        other => panic!("no rejection but {other:?}"),
    }
}

/// `worker-0@n1:0 worker-1@n1:3`.
pub(crate) fn shown(plan: &Plan) -> String {
    let one = |a: &scheduling::Assignment| {
        let short = a.pod.split_once('-').map_or(&*a.pod, |(_, rest)| rest);
        format!("{short}@{}:{}", a.node, a.gpus)
    };
    plan.assignments.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Sets all pods of a list.
pub(crate) fn submit(core: &mut Core, pods: &[Pod]) {
    for pod in pods {
        core.set_pod(pod);
    }
}
