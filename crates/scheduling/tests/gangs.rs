//! Gangs: all or nothing, next to siblings, never overtaken for ever.
#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

mod support;

use std::collections::BTreeSet;

use api::{Pod, contract};
use proptest::prelude::*;
use scheduling::{Attempt, Core, Unit};
use support::{
    at, bind, cluster, gang, node, planned, rejected, report, run, shown, submit, worker,
};

#[test]
fn a_gang_of_four_gets_a_ring() {
    let mut core = cluster(2);
    let mut pods = gang("a", 4);
    submit(&mut core, &pods);
    let plan = planned(&mut core, at(0));
    assert_eq!(shown(&plan), "worker-0@n1:0 worker-1@n1:1 worker-2@n1:2 worker-3@n1:3");
    let placement = plan.placement.clone().unwrap();
    assert!(placement.optimal && placement.pieces[0].closed);
    assert_eq!(plan.assignments[3].visible.to_string(), "0,1,2,3");
    assert_eq!(plan.assignments[3].uuids, ["GPU-n1-3"]);
    for pod in &mut pods {
        bind(pod, &plan);
        core.set_pod(pod);
        core.bound(pod.uid());
    }
    assert!(run(&mut core, at(1)).is_empty());
    assert_eq!(core.queue().entries().count(), 0);
    assert!(core.overdue(at(10_000)).is_empty());
}

#[test]
fn twelve_then_eight_on_sixteen() {
    let mut core = cluster(2);
    let first = gang("a", 12);
    submit(&mut core, &first);
    let plan = planned(&mut core, at(0));
    assert_eq!(plan.assignments.len(), 12);
    submit(&mut core, &gang("b", 8));
    let message = rejected(&mut core, at(1));
    assert_eq!(
        message,
        "1/2 nodes are available, but not for the whole gang: 8 pods × 1 GPU need 8 GPUs, 4 are free, 4 pods fit; \
         refused: 1 Insufficient aliyun.com/gpu."
    );
    assert!(run(&mut core, at(2)).is_empty(), "it waits for an event");
    for pod in &first {
        core.remove_pod(pod.uid());
    }
    let attempts = run(&mut core, at(20));
    assert!(matches!(attempts.as_slice(), [Attempt::Planned(plan)] if plan.assignments.len() == 8));
}

#[test]
fn a_gang_waits_until_its_minimum_exists() {
    let mut core = cluster(1);
    let pods = gang("a", 4);
    submit(&mut core, &pods[..3]);
    assert_eq!(rejected(&mut core, at(0)), "gang is gathering: 3 of 4 pods exist");
    core.set_pod(&pods[3]);
    assert_eq!(planned(&mut core, at(5)).assignments.len(), 4);
}

#[test]
fn seventeen_never_fit_and_the_other_mode_is_named() {
    let mut core = cluster(2);
    submit(&mut core, &gang("a", 17));
    assert!(
        rejected(&mut core, at(0)).contains("it can never fit: these nodes have 16 GPUs in all")
    );
    let mut core = cluster(0);
    core.set_node(&node("n1", false));
    submit(&mut core, &gang("a", 2));
    assert_eq!(
        rejected(&mut core, at(0)),
        "0/1 nodes are available: 1 node(s) served GPUs in default mode, not by topology."
    );
}

#[test]
fn what_others_hold_does_not_make_a_gang_impossible() {
    let mut core = cluster(2);
    submit(&mut core, &gang("a", 8));
    planned(&mut core, at(0));
    submit(&mut core, &gang("b", 12));
    let message = rejected(&mut core, at(1));
    assert!(message.contains("8 are free") && !message.contains("never"), "{message}");
}

#[test]
fn a_gang_of_nvidia_gpus_is_all_or_nothing_too() {
    let mut core = cluster(0);
    for name in ["n1", "n2"] {
        core.set_node(&node(name, false));
    }
    let first: Vec<Pod> = (0..12).map(|i| worker("a", i, 12, 1, contract::NVIDIA_GPU)).collect();
    submit(&mut core, &first);
    assert_eq!(planned(&mut core, at(0)).assignments.len(), 12);
    let second: Vec<Pod> = (0..8).map(|i| worker("b", i, 8, 1, contract::NVIDIA_GPU)).collect();
    submit(&mut core, &second);
    assert!(rejected(&mut core, at(0)).contains("8 pods × 1 GPU need 8 GPUs, 4 are free"));
}

#[test]
fn a_launcher_is_never_held_and_never_counted() {
    let mut core = cluster(1);
    let mut launcher = worker("a", 9, 4, 0, contract::ALIYUN_GPU);
    launcher.spec.containers[0].resources.limits.clear();
    launcher.metadata.name = Some("a-launcher".into());
    for labelled in [true, false] {
        let labels = launcher.metadata.labels.as_mut().unwrap();
        labels.insert(contract::MPI_ROLE.into(), contract::LAUNCHER.into());
        if !labelled {
            labels.remove(contract::MPI_ROLE);
        }
        core.remove_pod(launcher.uid());
        let pods = gang("a", 4);
        submit(&mut core, &pods[..3]);
        core.set_pod(&launcher);
        let attempts = run(&mut core, at(if labelled { 0 } else { 100 }));
        let bound: Vec<String> = attempts
            .iter()
            .filter_map(|attempt| match attempt {
                Attempt::Planned(plan) => Some(plan.assignments[0].pod.to_string()),
                Attempt::Rejected { .. } => None,
            })
            .collect();
        assert_eq!(bound, ["a-launcher"], "labelled: {labelled}");
    }
}

#[test]
fn a_lost_worker_comes_back_next_to_its_siblings() {
    let mut core = cluster(2);
    let mut pods = gang("a", 4);
    submit(&mut core, &pods);
    let plan = planned(&mut core, at(0));
    for pod in &mut pods {
        bind(pod, &plan);
        core.set_pod(pod);
        core.bound(pod.uid());
    }
    submit(&mut core, &gang("b", 2));
    planned(&mut core, at(1));
    core.remove_pod(pods[2].uid());
    let mut again = gang("a", 4).remove(2);
    again.metadata.uid = Some("uid-again".into());
    core.set_pod(&again);
    let plan = planned(&mut core, at(2));
    assert_eq!(shown(&plan), "worker-2@n1:2");
    assert_eq!(plan.assignments[0].rank, 2, "the rank that is missing, not one that a sibling has");
}

#[test]
fn a_failed_bind_is_placed_again_and_a_gang_that_stays_partial_is_evicted() {
    let mut core = cluster(1);
    let mut pods = gang("a", 2);
    submit(&mut core, &pods);
    let plan = planned(&mut core, at(0));
    bind(&mut pods[0], &plan);
    core.set_pod(&pods[0]);
    core.bound(pods[0].uid());
    core.bind_failed(pods[1].uid());
    let again = planned(&mut core, at(20));
    assert_eq!(again.assignments.len(), 1);
    core.bind_failed(pods[1].uid());
    // The rest of the node goes to somebody else for good.
    core.set_node(&{
        let mut cordoned = node("n1", true);
        cordoned.spec.unschedulable = true;
        cordoned
    });
    run(&mut core, at(40));
    assert!(core.overdue(at(50)).is_empty());
    let evictions = core.overdue(at(90));
    assert_eq!(evictions.len(), 1);
    assert!(evictions[0].possible && evictions[0].pods.len() == 1);
    assert!(core.overdue(at(91)).is_empty(), "it is said once");
}

#[test]
fn what_has_waited_too_long_is_not_overtaken() {
    let mut core = cluster(1);
    submit(&mut core, &gang("holder", 4));
    planned(&mut core, at(0));
    submit(&mut core, &gang("large", 8));
    rejected(&mut core, at(1));
    let mut small = gang("small", 1);
    small[0].metadata.creation_timestamp =
        Some(serde_json::from_str("\"1970-01-12T14:46:40Z\"").unwrap());
    core.set_pod(&small[0]);
    assert!(
        rejected(&mut core, at(3600)).contains("gang default/mpijob-large has waited 60 minutes")
            || rejected(&mut core, at(3600)).contains("has waited")
    );
}

#[test]
fn an_unknown_need_is_told() {
    let mut core = cluster(1);
    let mut pod = support::pod("claims");
    pod.spec.volumes = vec![
        serde_json::from_str(r#"{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}"#)
            .unwrap(),
    ];
    core.set_pod(&pod);
    assert!(rejected(&mut core, at(0)).contains("volume \"data\" is a persistentVolumeClaim"));
    let mut bad = gang("bad", 1).remove(0);
    bad.metadata.labels.as_mut().unwrap().insert(contract::TOPOLOGY_REPLICA.into(), "many".into());
    core.set_pod(&bad);
    assert!(rejected(&mut core, at(0)).contains("gpu-topology-replica=\"many\""));
}

#[test]
fn a_bound_pod_that_does_not_say_its_gpus_holds_the_node() {
    let mut core = cluster(1);
    let mut stranger = gang("x", 1).remove(0);
    stranger.spec.node_name = Some("n1".into());
    stranger.metadata.annotations =
        Some([(contract::GPU_GROUP.to_owned(), "zero".to_owned())].into());
    core.set_pod(&stranger);
    assert!(core.cluster().warnings().values().any(|warning| warning.contains("gpu-group")));
    submit(&mut core, &gang("a", 2));
    assert!(rejected(&mut core, at(0)).contains("Insufficient aliyun.com/gpu"));
}

#[test]
fn a_job_that_names_no_product_leaves_the_better_machine_whole() {
    let mut core = cluster(1);
    core.set_node(&node("a-h100", true));
    core.set_report("a-h100", Some(&report("a-h100", "h100-8gpu-hgx-8nic-pix-node")));
    for job in ["a", "b", "c", "d"] {
        submit(&mut core, &gang(job, 2));
        assert!(shown(&planned(&mut core, at(0))).contains("@n1"));
    }
    submit(&mut core, &gang("e", 2));
    assert!(shown(&planned(&mut core, at(0))).contains("@a-h100"));
}

/// Nobody holds a GPU twice, and no gang stands between nothing and its minimum.
fn check(core: &Core) {
    for node in core.cluster().nodes() {
        let mut seen = topology::GpuSet::EMPTY;
        for pod in node.pods.iter().filter_map(|uid| core.cluster().pod(uid)) {
            assert!(seen.is_disjoint(pod.gpus), "{} twice on {}", pod.gpus, node.name);
            seen = seen.union(pod.gpus);
        }
    }
    for (key, gang) in core.cluster().gangs() {
        let started = core.cluster().standing(gang).started();
        assert!(started == 0 || started >= gang.minimum, "{key}: {started} of {}", gang.minimum);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn interleaved_pods_of_many_gangs_always_progress(order in Just((0..24_usize).collect::<Vec<_>>()).prop_shuffle()) {
        // Six gangs of four on sixteen GPUs, their pods in any order.
        let all: Vec<Pod> = ["a", "b", "c", "d", "e", "f"].iter().flat_map(|job| gang(job, 4)).collect();
        let mut core = cluster(2);
        let mut now = 0;
        let mut running: BTreeSet<Unit> = BTreeSet::new();
        for index in order {
            core.set_pod(&all[index]);
            now += 1;
            for attempt in run(&mut core, at(now)) {
                if let Attempt::Planned(plan) = attempt {
                    running.insert(plan.unit);
                }
            }
            check(&core);
        }
        let mut done = 0;
        while done < 6 {
            prop_assert!(!running.is_empty(), "{done} gangs are done and nobody runs");
            let unit = running.pop_first().unwrap();
            let Unit::Gang(key) = &unit else { unreachable!() };
            let members = core.cluster().gang(key).unwrap().members.clone();
            for uid in members {
                core.remove_pod(&uid);
            }
            done += 1;
            now += 20;
            for attempt in run(&mut core, at(now)) {
                if let Attempt::Planned(plan) = attempt {
                    running.insert(plan.unit);
                }
            }
            check(&core);
        }
    }

    #[test]
    fn the_same_state_gives_the_same_plan(first in 1..9_usize, second in 1..9_usize, reverse in any::<bool>()) {
        let plan = |reverse: bool| {
            let mut core = cluster(0);
            let mut names = vec!["n1", "n2", "n3"];
            if reverse {
                names.reverse();
            }
            for name in names {
                core.set_report(name, Some(&report(name, "gn6v")));
                core.set_node(&node(name, true));
            }
            submit(&mut core, &gang("a", first));
            planned(&mut core, at(0));
            submit(&mut core, &gang("b", second));
            planned(&mut core, at(0))
        };
        prop_assert_eq!(plan(reverse), plan(false));
    }
}
