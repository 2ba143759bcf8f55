//! The default profile: upstream's filters, reasons and scores, one pod at a time.
#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

mod support;

use api::{Node, Pod, contract};
use scheduling::{Core, Settings};
use support::{at, node, planned, pod, rejected, worker};

/// A pod of the pages' regular job: no gang labels, `nvidia.com/gpu`.
fn regular(index: usize) -> Pod {
    let mut pod = worker("job", index, 4, 1, contract::NVIDIA_GPU);
    let labels = pod.metadata.labels.as_mut().unwrap();
    labels.remove(contract::GANG_NAME);
    labels.remove(contract::GANG_MINIMUM);
    labels.insert("app".into(), "mpijob".into());
    pod
}

fn two_nodes() -> Core {
    let mut core = Core::new(Settings::default());
    for name in ["n1", "n2"] {
        core.set_node(&node(name, false));
    }
    core
}

fn nodes_of_four(core: &mut Core) -> Vec<String> {
    (0..4)
        .map(|index| {
            core.set_pod(&regular(index));
            planned(core, at(0)).assignments[0].node.to_string()
        })
        .collect()
}

#[test]
fn a_service_makes_the_workers_alternate() {
    let mut core = two_nodes();
    core.set_service("default", "job", Some([("app".to_owned(), "mpijob".to_owned())].into()));
    assert_eq!(nodes_of_four(&mut core), ["n1", "n2", "n1", "n2"]);
}

#[test]
fn an_image_on_one_node_draws_all_workers_there() {
    let mut core = two_nodes();
    let mut with_image = node("n2", false);
    with_image.status.images =
        serde_json::from_str(r#"[{"names": ["image:latest"], "sizeBytes": 3000000000}]"#).unwrap();
    core.set_node(&with_image);
    assert_eq!(nodes_of_four(&mut core), ["n2", "n2", "n2", "n2"]);
}

/// Changes a node and a pod that fit each other so that they do not.
type Change = fn(&mut Node, &mut Pod);

#[test]
fn reasons_are_upstreams() {
    let change = |change: Change| {
        let (mut node, mut pod) = (node("n1", false), pod("p"));
        change(&mut node, &mut pod);
        let mut core = Core::new(Settings::default());
        core.set_node(&node);
        core.set_pod(&pod);
        rejected(&mut core, at(0))
    };
    let cases: [(Change, &str); 7] = [
        (|node, _| node.spec.unschedulable = true, "node(s) were unschedulable"),
        (
            |node, _| {
                node.spec.taints =
                    serde_json::from_str(r#"[{"key": "a", "effect": "NoSchedule"}]"#).unwrap()
            },
            "node(s) had untolerated taint(s)",
        ),
        (
            |_, pod| pod.spec.node_selector = [("a".to_owned(), "b".to_owned())].into(),
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (
            |_, pod| {
                pod.spec.containers[0].resources.requests =
                    [("cpu".to_owned(), "65".parse().unwrap())].into()
            },
            "Insufficient cpu",
        ),
        (
            |_, pod| {
                pod.spec.containers[0].resources.limits =
                    [("nvidia.com/gpu".to_owned(), "9".parse().unwrap())].into()
            },
            "Insufficient nvidia.com/gpu",
        ),
        (
            |node, _| node.status.allocatable.extend([("pods".to_owned(), "0".parse().unwrap())]),
            "Too many pods",
        ),
        (
            |_, pod| {
                pod.spec.topology_spread_constraints = serde_json::from_str(
                    r#"[{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]"#,
                )
                .unwrap();
            },
            "node(s) didn't match pod topology spread constraints (missing required label)",
        ),
    ];
    for (change_one, reason) in cases {
        assert_eq!(change(change_one), format!("0/1 nodes are available: 1 {reason}."));
    }
}

#[test]
fn a_host_port_is_taken_once() {
    let mut core = two_nodes();
    let with_port = |name: &str| {
        let mut pod = pod(name);
        pod.spec.containers[0].ports =
            serde_json::from_str(r#"[{"containerPort": 80, "hostPort": 8080}]"#).unwrap();
        pod
    };
    for name in ["a", "b"] {
        core.set_pod(&with_port(name));
        planned(&mut core, at(0));
    }
    core.set_pod(&with_port("c"));
    assert_eq!(
        rejected(&mut core, at(0)),
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    );
}

#[test]
fn a_pod_that_is_not_ours_is_left_alone_but_counts() {
    let mut core = two_nodes();
    let mut other = pod("other");
    other.spec.scheduler_name = "somebody".into();
    core.set_pod(&other);
    assert!(core.attempt(at(0)).is_none());
    other.spec.node_name = Some("n1".into());
    core.set_pod(&other);
    assert_eq!(core.cluster().node("n1").unwrap().used.pods, 1);
}
