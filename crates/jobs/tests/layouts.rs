//! What people read of jobs and nodes, in Arena's layout.
#![allow(clippy::unwrap_used)]

use api::{Node, Pod};
use jiff::{Timestamp, tz::TimeZone};
use jobs::{Details, EventRow, NodeView, Observed, Surroundings};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use topology::{LinkTable, NodeReport};

const MADE: &str = "2026-06-27T08:00:00Z";

fn now() -> Timestamp {
    "2026-06-27T08:00:11Z".parse().unwrap()
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(job: &str, name: &str, role: &str, node: Option<&str>, gpus: &str) -> Pod {
    let limits = if role == "worker" { json!({ "aliyun.com/gpu": "1" }) } else { json!({}) };
    let running = node.is_some();
    let mut annotations = json!({ "requestGPUsOfJobOwner": "4" });
    if running && role == "worker" {
        annotations["topology.kubernetes.io/gpu-group"] = json!(gpus);
        annotations["topology.kubernetes.io/gpu-visible"] = json!("0,1,2,3");
        annotations["ringmaster.dev/rank"] = json!(gpus);
        annotations["ringmaster.dev/bus-bandwidth"] = json!("89.84");
    }
    let mut status = json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room: 4 GPUs, 3 free",
    }] });
    if running {
        status = json!({
            "phase": "Running", "hostIP": "192.168.16.173", "podIP": "192.168.16.173", "startTime": MADE,
            "containerStatuses": [{ "name": "mpi", "ready": true, "state": { "running": { "startedAt": MADE } } }],
        });
    }
    read(json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "creationTimestamp": MADE,
            "labels": {
                "group_name": "kubeflow.org", "mpi_job_name": job, "mpi_role_type": role,
                "gpu-topology": job, "gpu-topology-replica": "4",
            },
            "annotations": annotations,
        },
        "spec": {
            "nodeName": node, "hostNetwork": true,
            "volumes": [{ "name": "shm", "hostPath": { "path": "/dev/shm" } }],
            "containers": [{
                "name": "mpi", "resources": { "limits": limits },
                "volumeMounts": [{ "name": "shm", "mountPath": "/dev/shm" }],
            }],
        },
        "status": status,
    }))
}

fn job(name: &str, status: Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": "u", "creationTimestamp": MADE,
            "annotations": { "requestGPUsOfJobOwner": "4", "ringmaster.dev/model": "pytorch/vgg16:64" },
        },
        "spec": { "replicas": 4, "template": {} },
        "status": status,
    })
}

fn running() -> Observed {
    let name = "pytorch-topo-4-vgg16";
    let node = "cn-shanghai.192.168.16.173";
    let mut pods =
        vec![pod(name, "pytorch-topo-4-vgg16-launcher-mnjzr", "launcher", Some(node), "")];
    for index in 0..4 {
        let worker = format!("{name}-worker-{index}");
        pods.push(pod(name, &worker, "worker", Some(node), &index.to_string()));
    }
    Observed {
        job: read(job(name, json!({ "launcherStatus": "Active" }))),
        pods,
        launcher: Some(read(json!({ "metadata": { "name": format!("{name}-launcher") } }))),
        tensorboard: String::new(),
    }
}

fn pending() -> Observed {
    let name = "waiting";
    Observed {
        job: read(job(name, json!({}))),
        pods: (0..4)
            .map(|i| pod(name, &format!("waiting-worker-{i}"), "worker", None, ""))
            .collect(),
        ..Observed::default()
    }
}

#[test]
fn get_is_the_pages() {
    let view = running().view(now());
    let text = view.text(&TimeZone::UTC, &Details { gpus: true, events: None });
    insta::assert_snapshot!(text);
}

#[test]
fn get_of_a_job_that_waits() {
    let observed = pending();
    assert_eq!(observed.pending_reason(), Some("no room: 4 GPUs, 3 free"));
    let events = [
        EventRow {
            source: "mpijob/waiting".into(),
            kind: "Normal".into(),
            age: 9,
            reason: "Synced".into(),
            message: "MPIJob synced".into(),
        },
        EventRow {
            source: "pod/waiting-worker-0".into(),
            kind: "Warning".into(),
            age: 5,
            reason: "FailedScheduling".into(),
            message: "no room".into(),
        },
    ];
    let text =
        observed.view(now()).text(&TimeZone::UTC, &Details { gpus: false, events: Some(&events) });
    insta::assert_snapshot!(text);
}

#[test]
fn a_finished_job_ends_with_its_launcher() {
    let mut done = running();
    done.job = read(job("pytorch-topo-4-vgg16", json!({ "launcherStatus": "Succeeded" })));
    done.launcher = Some(read(json!({
        "metadata": { "name": "x" }, "status": { "completionTime": "2026-06-27T08:00:07Z" },
    })));
    let text = done.view(now()).text(&TimeZone::UTC, &Details::default());
    let head: Vec<&str> = text.lines().take(8).collect();
    assert_eq!(head[1], "Status:      SUCCEEDED");
    assert_eq!(head[5], "Duration:    7s");
    assert_eq!(head[7], "EndTime:     2026-06-27 08:00:07");
}

#[test]
fn list_counts_topology_gpus_too() {
    let jobs = [running().view(now()), pending().view(now())];
    insta::assert_snapshot!(jobs::list_text(&jobs, false));
    assert_eq!(
        jobs::list_text(&[], true),
        "NAMESPACE  NAME  STATUS  TRAINER  DURATION  GPU(Requested)  GPU(Allocated)  NODE\n"
    );
}

fn node(name: &str, topology: bool, capacity: &str, allocatable: &str) -> Node {
    let resource = if topology { "aliyun.com/gpu" } else { "nvidia.com/gpu" };
    let labels = if topology { json!({ "ack.node.gpu.schedule": "topology" }) } else { json!({}) };
    let mut status = json!({
        "capacity": {}, "allocatable": {}, "conditions": [{ "type": "Ready", "status": "True" }],
        "addresses": [{ "type": "InternalIP", "address": "192.168.16.173" }],
    });
    status["capacity"][resource] = json!(capacity);
    status["allocatable"][resource] = json!(allocatable);
    read(json!({ "metadata": { "name": name, "labels": labels }, "status": status }))
}

fn report(node: &str) -> ConfigMap {
    let topology = topology::catalogue::machine("v100-4gpu-c4140-nv2-fullmesh").unwrap().topology();
    let report = NodeReport::new(node, topology, Vec::new(), &LinkTable::default());
    read(json!({
        "metadata": { "name": format!("{node}-gputopo-report"), "labels": { "nodename": node } },
        "data": report.to_data(),
    }))
}

#[test]
fn top_node_is_arenas() {
    let name = "cn-shanghai.192.168.16.173";
    let nodes =
        [node("n2", false, "8", "7"), node(name, true, "4", "4"), node("n3", false, "0", "0")];
    let views = NodeView::of_cluster(&nodes, &[report(name)], &running().pods);
    insta::assert_snapshot!(jobs::node_summary(&views, false));
    let topology: Vec<NodeView> = views.iter().filter(|view| view.name == name).cloned().collect();
    insta::assert_snapshot!(jobs::node_summary(&topology, true));
    insta::assert_snapshot!(jobs::node_details(&topology));
    let json = jobs::nodes_json(&views);
    assert_eq!(
        json["gpuTopologyNodes"][0]["instances"][2]["visibleGPUs"],
        json!(["0", "1", "2", "3"])
    );
    assert_eq!(json["gpuExclusiveNodes"][0]["unhealthyGPUs"], json!(1));
}

#[test]
fn explain_says_what_a_placement_is_worth() {
    let name = "cn-shanghai.192.168.16.173";
    let around = Surroundings {
        nodes: vec![node(name, true, "4", "4")],
        reports: vec![report(name)],
        pods: running().pods,
        events: Vec::new(),
    };
    insta::assert_snapshot!(running().explain(&around, now()).text());
    insta::assert_snapshot!(pending().explain(&around, now()).text());
}

#[test]
fn explain_without_operator_or_scheduler_says_so() {
    let mut bare = pending();
    for pod in &mut bare.pods {
        pod.status.conditions.clear();
    }
    let silent = bare.explain(&Surroundings::default(), now());
    assert_eq!(silent.waiting.unwrap().reason, "NotScheduled");
    bare.pods.clear();
    let none = bare.explain(&Surroundings::default(), now());
    assert_eq!(none.waiting.unwrap().reason, "NoPods");
}

#[test]
fn the_log_is_the_launchers() {
    let observed = running();
    assert_eq!(observed.instance(None).unwrap().name(), "pytorch-topo-4-vgg16-launcher-mnjzr");
    assert!(
        observed
            .instance(Some("x"))
            .unwrap_err()
            .to_string()
            .starts_with("invalid instance name x in job")
    );
    let many = pending().instance(None).unwrap_err().to_string();
    assert!(
        many.starts_with("There is 4 instances have been found:\n\nwaiting-worker-0\n"),
        "{many}"
    );
    let none = Observed { pods: Vec::new(), ..pending() };
    assert_eq!(
        none.instance(None).unwrap_err().to_string(),
        "not found instances of the job waiting"
    );
}
