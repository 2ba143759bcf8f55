//! The operator is killed after any of its writes, or the answer to one is lost, or it sees everything late: the job ends in
//! the same state, and nothing is there twice.

use serde_json::json;

use super::{
    tests::{Scene, at, job},
    *,
};

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// After the n-th write the operator is killed and started again.
    Killed(usize),
    /// The n-th write is done, but its answer is lost.
    AnswerLost(usize),
    /// The n-th write is not done.
    Refused(usize),
}

/// What a job has come to.
#[derive(Debug, PartialEq)]
struct End {
    status: Option<String>,
    workers: usize,
    hostfile: Option<String>,
    runs: usize,
    writes: usize,
}

/// Runs a job of two workers to its end. Worker 1 is lost while the launcher runs. With `late`, the operator sees the objects
/// as they were one round before.
fn run(fault: Fault, late: bool) -> End {
    let mut scene = Scene::new(job());
    let mut memory = Memory::default();
    let mut past = scene.seen.clone();
    let (mut writes, mut runs, mut lost) = (0, 0, false);
    for round in 0..120 {
        let seen = if late { past.clone() } else { scene.seen.clone() };
        past = scene.seen.clone();
        let todo = reconcile(&seen, &mut memory, &Options::default(), at(round));
        let mut whole = true;
        for action in todo.actions {
            if matches!(action, Action::Event { .. }) {
                continue;
            }
            writes += 1;
            if !matches!(fault, Fault::Refused(n) if n == writes) {
                scene.apply(&action);
            }
            match fault {
                Fault::Killed(n) if n == writes => {
                    memory = Memory::default();
                    whole = false;
                }
                Fault::AnswerLost(n) | Fault::Refused(n) if n == writes => {
                    memory.undone();
                    whole = false;
                }
                _ => continue,
            }
            break;
        }
        memory.access |= whole;
        runs += play(&mut scene.seen);
        if runs == 1 && !lost {
            scene.seen.workers.remove("vgg-worker-1");
            lost = true;
        }
    }
    End {
        status: scene.seen.job.status.and_then(|status| status.launcher_status),
        workers: scene.seen.workers.len(),
        hostfile: scene.seen.config.and_then(|mut config| config.data.remove(contract::HOSTFILE)),
        runs,
        writes,
    }
}

/// What kubelets and the Job controller do in one round: workers become ready; a launcher that is let runs, and completes if
/// no worker is lost by the next round. Returns 1 for a launcher that started.
fn play(seen: &mut Observed) -> usize {
    let workers = seen.workers.len();
    for pod in seen.workers.values_mut() {
        pod.spec.node_name = Some("n1".into());
        pod.status = serde_json::from_value(
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "mpi", "state": {"running": {}}}]}),
        )
        .unwrap();
    }
    let Some(launcher) = &mut seen.launcher else { return 0 };
    if launcher.complete() || launcher.failure().is_some() {
        return 0;
    }
    if launcher.spec.suspend == Some(true) {
        launcher.status = serde_json::from_value(json!({})).unwrap();
        return 0;
    }
    match launcher.status.active {
        Some(1) if workers == 2 => {
            launcher.status = serde_json::from_value(
                json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}),
            )
            .unwrap();
            0
        }
        // mpirun has lost a worker, and notices after the operator.
        Some(1) => 0,
        _ => {
            launcher.status = serde_json::from_value(json!({"active": 1, "ready": 1})).unwrap();
            1
        }
    }
}

#[test]
fn every_crash_and_every_lost_answer_ends_in_the_same_state() {
    for late in [false, true] {
        let undisturbed = run(Fault::None, late);
        assert_eq!(undisturbed.status.as_deref(), Some("Succeeded"), "{undisturbed:?}");
        assert_eq!((undisturbed.workers, undisturbed.runs), (0, 2), "{undisturbed:?}");
        for n in 1..=undisturbed.writes {
            for fault in [Fault::Killed(n), Fault::AnswerLost(n), Fault::Refused(n)] {
                let end = run(fault, late);
                let same = End { writes: end.writes, ..run(Fault::None, late) };
                assert_eq!(end, same, "{fault:?} late: {late}");
            }
        }
    }
}
