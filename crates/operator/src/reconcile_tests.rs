//! One job's life, step by step.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// The job that Arena makes, with two workers.
pub(crate) fn job() -> MpiJob {
    serde_json::from_value(json!({
        "apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob",
        "metadata": {"name": "vgg", "namespace": "default", "uid": "u1"},
        "spec": {
            "backoffLimit": 1, "cleanPodPolicy": "All", "launcherResources": {}, "mountsOnLauncher": false, "replicas": 2,
            "template": {
                "metadata": {
                    "annotations": {"requestGPUsOfJobOwner": "2"},
                    "labels": {"app": "mpijob", "release": "vgg", "gpu-topology": "vgg", "gpu-topology-replica": "2"},
                    "name": "vgg",
                },
                "spec": {
                    "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true, "restartPolicy": "Never", "volumes": null,
                    "containers": [{
                        "name": "mpi", "image": "horovod", "command": ["sh", "-c", "mpirun -np 2 python b.py"],
                        "env": [{"name": "gpus", "value": "1"}], "volumeMounts": null, "workingDir": "/root",
                        "resources": {"limits": {"aliyun.com/gpu": "1"}, "requests": {"aliyun.com/gpu": "1"}},
                    }],
                },
            },
        },
    }))
    .unwrap()
}

/// A job with its children, and what the operator remembers of it.
pub(crate) struct Scene {
    pub(crate) seen: Observed,
    pub(crate) memory: Memory,
    made: usize,
}

impl Scene {
    pub(crate) fn new(job: MpiJob) -> Self {
        Self { seen: Observed { job, ..Observed::default() }, memory: Memory::default(), made: 0 }
    }

    /// Looks and does; returns what was done.
    fn step(&mut self, now: Timestamp) -> Todo {
        let todo = reconcile(&self.seen, &mut self.memory, &Options::default(), now);
        todo.actions.iter().for_each(|action| self.apply(action));
        self.memory.access |= !todo.actions.is_empty();
        todo
    }

    /// Does to the objects what the API server would.
    pub(crate) fn apply(&mut self, action: &Action) {
        match action {
            Action::Create { path, object } => self.create(path, object),
            Action::SetHostfiles { hostfiles, .. } => {
                let config = self.seen.config.as_mut().unwrap();
                config.data = serde_json::from_value(hostfiles.clone()).unwrap();
            }
            Action::DeleteWorker { name, uid } => {
                if self.seen.workers.get(name).is_some_and(|pod| pod.uid() == uid) {
                    self.seen.workers.remove(name);
                }
            }
            Action::Suspend { suspend, restarts, .. } => {
                let launcher = self.seen.launcher.as_mut().unwrap();
                launcher.spec.suspend = Some(*suspend);
                let note = (contract::RESTARTS.to_owned(), restarts.to_string());
                launcher.metadata.annotations = Some([note].into());
            }
            Action::Status(status) => self.seen.job.status = Some(status.clone()),
            Action::Event { .. } => {}
        }
    }

    fn create(&mut self, path: &str, object: &Value) {
        self.made += 1;
        let uid = Some(format!("made-{}", self.made));
        let name = object["metadata"]["name"].as_str().unwrap();
        match path.rsplit('/').next().unwrap() {
            "pods" if !self.seen.workers.contains_key(name) => {
                let mut pod: Pod = serde_json::from_value(object.clone()).unwrap();
                pod.metadata.uid = uid;
                self.seen.workers.insert(name.to_owned(), pod);
            }
            "configmaps" if self.seen.config.is_none() => {
                self.seen.config = Some(serde_json::from_value(object.clone()).unwrap());
            }
            "jobs" if self.seen.launcher.is_none() => {
                let mut launcher: Launcher = serde_json::from_value(object.clone()).unwrap();
                launcher.metadata.uid = uid;
                launcher.metadata.creation_timestamp = Some(Time(at(0)));
                self.seen.launcher = Some(launcher);
            }
            _ => {}
        }
    }

    fn pod(&mut self, index: usize) -> &mut Pod {
        self.seen.workers.get_mut(&contract::worker_name("vgg", index)).unwrap()
    }

    /// Does what scheduler and kubelet do: a worker is ready on a node, with a rank.
    fn ready(&mut self, index: usize, node: &str, rank: usize) {
        let pod = self.pod(index);
        pod.spec.node_name = Some(node.into());
        pod.metadata.annotations = Some([(contract::RANK.to_owned(), rank.to_string())].into());
        pod.status = serde_json::from_value(
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "mpi", "state": {"running": {}}}]}),
        )
        .unwrap();
    }

    fn launcher(&mut self) -> &mut Launcher {
        self.seen.launcher.as_mut().unwrap()
    }

    /// Does what the Job controller does.
    fn launcher_is(&mut self, status: Value) {
        self.launcher().status = serde_json::from_value(status).unwrap();
    }

    /// A job whose launcher runs.
    fn running(job: MpiJob) -> Self {
        let mut scene = Self::new(job);
        scene.step(at(0));
        for index in 0..scene.seen.workers.len() {
            scene.ready(index, "n1", index);
        }
        scene.step(at(1));
        scene.launcher_is(json!({"active": 1, "ready": 1}));
        scene.step(at(2));
        assert_eq!(scene.seen.job.launcher_status(), "Active");
        scene
    }

    fn hostfile(&self) -> &str {
        &self.seen.config.as_ref().unwrap().data[contract::HOSTFILE]
    }
}

fn events(todo: &Todo) -> Vec<&'static str> {
    let reason = |action: &Action| match action {
        Action::Event { reason, .. } => Some(*reason),
        _ => None,
    };
    todo.actions.iter().filter_map(reason).collect()
}

/// Names of the objects of one kind that are made.
fn made<'a>(todo: &'a Todo, plural: &str) -> Vec<&'a str> {
    let name = |action: &'a Action| match action {
        Action::Create { path, object } if path.ends_with(plural) => {
            object["metadata"]["name"].as_str()
        }
        _ => None,
    };
    todo.actions.iter().filter_map(name).collect()
}

fn suspends(todo: &Todo) -> Option<(bool, i32)> {
    todo.actions.iter().find_map(|action| match action {
        Action::Suspend { suspend, restarts, .. } => Some((*suspend, *restarts)),
        _ => None,
    })
}

fn done(condition: &str) -> Value {
    json!({"conditions": [{"type": condition, "status": "True", "reason": "BackoffLimitExceeded"}]})
}

#[test]
fn workers_first_then_the_launcher_then_done() {
    let mut scene = Scene::new(job());
    let todo = scene.step(at(0));
    assert_eq!(made(&todo, "/pods"), ["vgg-worker-0", "vgg-worker-1"]);
    assert_eq!(made(&todo, "roles"), ["vgg-launcher"]);
    assert!(scene.seen.launcher.is_none() && scene.memory.access);
    assert_eq!(scene.step(at(1)), Todo::default(), "nothing is done twice");

    scene.ready(0, "n1", 1);
    assert_eq!(made(&scene.step(at(2)), "jobs"), [""; 0], "one is missing");
    scene.ready(1, "n1", 0);
    let todo = scene.step(at(2));
    assert_eq!(
        (made(&todo, "configmaps"), made(&todo, "jobs")),
        (vec!["vgg-config"], vec!["vgg-launcher"])
    );
    assert_eq!(
        scene.hostfile(),
        "vgg-worker-1 slots=1\nvgg-worker-0 slots=1\n",
        "in the order of ranks"
    );
    assert_eq!(events(&scene.step(at(3))), ["MPIJobRunning"]);
    assert_eq!(scene.seen.job.launcher_status(), "Active");
    assert_eq!(scene.step(at(4)), Todo::default());

    scene.launcher_is(done("Complete"));
    assert_eq!(events(&scene.step(at(60))), ["MPIJobSucceeded"]);
    assert_eq!(scene.seen.job.launcher_status(), "Succeeded");
    assert!(scene.seen.workers.is_empty() && scene.seen.launcher.is_some());
    scene.step(at(61));
    let status = scene.seen.job.status.clone().unwrap();
    assert_eq!((status.worker_replicas, status.start_time), (Some(0), Some(Time(at(0)))));
    assert_eq!(scene.step(at(62)), Todo::default());

    scene.seen.launcher = None;
    assert_eq!(
        scene.step(at(9999)),
        Todo::default(),
        "a job that is done does not start again without its launcher"
    );
}

#[test]
fn clean_pod_policy() {
    for (policy, left) in [(None, 0), (Some("All"), 0), (Some("Running"), 0), (Some("None"), 2)] {
        for condition in ["Complete", "Failed"] {
            let mut scene = Scene::running(job());
            scene.seen.job.spec.clean_pod_policy = policy.map(str::to_owned);
            scene.launcher_is(done(condition));
            scene.step(at(60));
            assert_eq!(scene.seen.workers.len(), left, "{policy:?} {condition}");
        }
    }
}

#[test]
fn a_failed_try_is_not_the_end() {
    let mut scene = Scene::running(job());
    scene.launcher_is(json!({"active": 0, "failed": 1}));
    assert_eq!(scene.step(at(10)), Todo::default());
    scene.launcher_is(done("Failed"));
    let todo = scene.step(at(20));
    assert_eq!((events(&todo), scene.seen.job.launcher_status()), (vec!["MPIJobFailed"], "Failed"));
}

#[test]
fn hostfile_order() {
    // Node and rank of each worker, by index; the order of the indices in the hostfile.
    type Case<'a> = (&'a str, bool, &'a [(&'a str, usize)], &'a [usize]);
    let cases: [Case<'_>; 4] = [
        ("ranks", true, &[("n1", 2), ("n2", 1), ("n2", 0), ("n1", 3)], &[2, 1, 0, 3]),
        (
            "a replaced worker goes beside its siblings",
            true,
            &[("n1", 4), ("n1", 1), ("n2", 2), ("n2", 3)],
            &[1, 0, 2, 3],
        ),
        (
            "a replaced worker alone on its node",
            true,
            &[("n3", 9), ("n1", 1), ("n2", 2), ("n2", 3)],
            &[1, 2, 3, 0],
        ),
        (
            "no topology: indices",
            false,
            &[("n1", 2), ("n2", 1), ("n2", 0), ("n1", 3)],
            &[0, 1, 2, 3],
        ),
    ];
    for (what, topology, places, order) in cases {
        let mut job = job();
        job.spec.replicas = Some(4);
        if !topology {
            job.spec.template["metadata"]["labels"] = json!({});
            job.spec.template["spec"]["containers"][0]["resources"] = json!({});
        }
        let mut scene = Scene::new(job);
        scene.step(at(0));
        for (index, (node, rank)) in places.iter().enumerate() {
            scene.ready(index, node, *rank);
        }
        scene.step(at(1));
        let expected: String =
            order.iter().map(|index| format!("vgg-worker-{index} slots=1\n")).collect();
        assert_eq!(scene.hostfile(), expected, "{what}");
        let machinefile = &scene.seen.config.as_ref().unwrap().data[contract::MACHINEFILE];
        assert_eq!(*machinefile, expected.replace(" slots=", ":"), "{what}");
    }
}

#[test]
fn eleven_workers_are_in_the_order_of_numbers() {
    let mut job = job();
    job.spec.replicas = Some(11);
    job.spec.template["metadata"]["labels"] = json!({});
    job.spec.template["spec"]["containers"][0]["resources"] = json!({});
    let scene = Scene::running(job);
    assert_eq!(scene.hostfile().lines().nth(2), Some("vgg-worker-2 slots=1"));
}

#[test]
fn a_refused_worker_comes_back_under_its_index_with_back_off() {
    let mut scene = Scene::new(job());
    scene.step(at(0));
    let mut now = 10;
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        scene.pod(1).status.phase = "Failed".into();
        scene.pod(1).status.reason = "UnexpectedAdmissionError".into();
        let todo = scene.step(at(now));
        assert!(
            matches!(todo.actions.last(), Some(Action::DeleteWorker { name, .. }) if name == "vgg-worker-1")
        );
        assert_eq!(events(&todo), ["WorkerLost"]);
        let todo = scene.step(at(now));
        assert_eq!((todo.actions.len(), todo.again), (0, Some(at(now + wait))));
        now += wait;
        assert_eq!(made(&scene.step(at(now)), "/pods"), ["vgg-worker-1"]);
    }
    scene.ready(1, "n1", 1);
    scene.step(at(now));
    scene.seen.workers.remove("vgg-worker-1");
    assert_eq!(
        made(&scene.step(at(now)), "/pods"),
        ["vgg-worker-1"],
        "one that was ready has a clean record"
    );
}

#[test]
fn a_loss_counts_once_however_often_it_is_seen() {
    let mut scene = Scene::new(job());
    scene.step(at(0));
    scene.pod(1).status.phase = "Failed".into();
    for _ in 0..5 {
        let todo = reconcile(&scene.seen, &mut scene.memory, &Options::default(), at(10));
        assert!(todo.actions.iter().any(|action| matches!(action, Action::DeleteWorker { .. })));
    }
    scene.seen.workers.remove("vgg-worker-1");
    assert_eq!(scene.step(at(10)).again, Some(at(11)));
}

#[test]
fn a_deleted_worker_comes_back_at_once_and_not_before_it_is_gone() {
    let mut scene = Scene::running(job());
    scene.pod(0).metadata.deletion_timestamp = Some(Time(at(5)));
    assert_eq!(made(&scene.step(at(5)), "/pods"), [""; 0]);
    scene.seen.workers.remove("vgg-worker-0");
    let todo = scene.step(at(6));
    assert_eq!((made(&todo, "/pods"), events(&todo)), (vec!["vgg-worker-0"], vec!["WorkerLost"]));
}

#[test]
fn one_that_was_made_is_not_made_again_before_it_had_time_to_appear() {
    let mut scene = Scene::new(job());
    let todo = reconcile(&scene.seen, &mut scene.memory, &Options::default(), at(0));
    assert_eq!(made(&todo, "/pods").len(), 2);
    scene.memory.access = true;
    let again = reconcile(&scene.seen, &mut scene.memory, &Options::default(), at(1));
    assert_eq!((again.actions.len(), again.again), (0, Some(at(5))));
    scene.memory.undone();
    assert_eq!(made(&scene.step(at(1)), "/pods").len(), 2, "unless it was not made after all");
}

#[test]
fn a_launcher_is_held_for_a_lost_worker_while_retries_are_left() {
    // Retries, status of the launcher, restarts so far; whether it is held, and at which count.
    for (limit, status, restarts, held) in [
        (1, json!({"active": 1, "ready": 1}), None, Some(1)),
        (1, json!({"active": 1}), None, Some(1)),
        (0, json!({"active": 1, "ready": 1}), None, None),
        (1, json!({"active": 1, "ready": 1}), Some(1), None),
        (2, json!({"active": 1, "ready": 1}), Some(1), Some(2)),
        (1, json!({"active": 1, "ready": 1, "failed": 1}), None, None),
        // Between tries, or not started yet: the next one waits, and nothing is spent.
        (1, json!({"active": 0, "failed": 1}), None, Some(0)),
        (0, json!({"active": 1, "ready": 0}), None, Some(0)),
        (0, json!({}), None, Some(0)),
        // It is over, though the Job does not say so yet.
        (3, json!({"active": 0, "succeeded": 1}), None, None),
        (3, json!({"conditions": [{"type": "FailureTarget", "status": "True"}]}), None, None),
    ] {
        let mut scene = Scene::running(job());
        scene.seen.job.spec.backoff_limit = Some(limit);
        scene.launcher_is(status.clone());
        if let Some(restarts) = restarts {
            let note = (contract::RESTARTS.to_owned(), i32::to_string(&restarts));
            scene.launcher().metadata.annotations = Some([note].into());
        }
        scene.seen.workers.remove("vgg-worker-1");
        let todo = scene.step(at(3));
        assert_eq!(
            suspends(&todo),
            held.map(|restarts| (true, restarts)),
            "{limit} {status} {restarts:?}"
        );
        assert!(scene.seen.workers.contains_key("vgg-worker-1"), "it is made anew in any case");
        let Some(restarts) = held else { continue };
        assert_eq!(suspends(&scene.step(at(4))), None, "held until all are ready");
        scene.ready(1, "n1", 2);
        assert_eq!(suspends(&scene.step(at(5))), Some((false, restarts)));
    }
}

#[test]
fn a_launcher_starts_again_with_the_hostfile_of_the_new_worker() {
    let mut scene = Scene::running(job());
    assert_eq!(scene.hostfile(), "vgg-worker-0 slots=1\nvgg-worker-1 slots=1\n");
    scene.seen.workers.remove("vgg-worker-0");
    scene.step(at(3));
    scene.ready(0, "n1", 2);
    let todo = scene.step(at(4));
    let write =
        todo.actions.iter().position(|action| matches!(action, Action::SetHostfiles { .. }));
    let start = todo.actions.iter().position(|action| matches!(action, Action::Suspend { .. }));
    assert!(write.is_some() && write < start, "{todo:?}");
    assert_eq!(scene.hostfile(), "vgg-worker-1 slots=1\nvgg-worker-0 slots=1\n");
}

#[test]
fn a_worker_that_is_only_not_ready_is_not_lost() {
    let mut scene = Scene::running(job());
    scene.pod(0).status.conditions.clear();
    let todo = scene.step(at(3));
    assert_eq!(suspends(&todo), None);
    assert_eq!(scene.seen.job.status.as_ref().unwrap().worker_replicas, Some(1));
}

#[test]
fn a_launcher_that_somebody_else_suspends_is_left_to_them() {
    let mut scene = Scene::running(job());
    scene.launcher().spec.suspend = Some(true);
    assert_eq!(scene.step(at(3)), Todo::default());
}

#[test]
fn a_job_that_is_held_or_going_is_left_alone() {
    let mut held = job();
    held.metadata.annotations = Some([(contract::SUSPEND.to_owned(), "true".to_owned())].into());
    assert_eq!(Scene::new(held).step(at(0)), Todo::default());
    let mut going = job();
    going.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(Scene::new(going).step(at(0)), Todo::default());
}

#[test]
fn what_cannot_be_run_is_said_once_and_nothing_is_made() {
    let mut bad = job();
    bad.spec.replicas = Some(-3);
    let mut scene = Scene::new(bad);
    let todo = scene.step(at(0));
    assert_eq!((events(&todo), todo.actions.len()), (vec!["InvalidMPIJob"], 1));
    assert_eq!(scene.step(at(1)), Todo::default());
}

#[test]
fn namesakes_of_an_earlier_job_are_waited_for_and_strangers_are_named() {
    let old = |meta: &mut ObjectMeta| meta.owner_references.as_mut().unwrap()[0].uid = "u0".into();
    let stranger = |meta: &mut ObjectMeta| meta.owner_references = None;
    type Change = fn(&mut ObjectMeta);
    for (change, told) in [(old as Change, vec![]), (stranger as Change, vec!["ErrResourceExists"])]
    {
        // A worker.
        let mut scene = Scene::new(job());
        scene.step(at(0));
        change(&mut scene.pod(0).metadata);
        let (mut other, mut memory) = (scene.seen.clone(), Memory::default());
        other.workers.remove("vgg-worker-1");
        memory.access = true;
        let todo = reconcile(&other, &mut memory, &Options::default(), at(1));
        assert_eq!((made(&todo, "/pods"), events(&todo)), (vec!["vgg-worker-1"], told.clone()));
        // The hostfile.
        let mut scene = Scene::running(job());
        scene.seen.launcher = None;
        change(&mut scene.seen.config.as_mut().unwrap().metadata);
        let todo = scene.step(at(3));
        assert_eq!((made(&todo, "jobs"), events(&todo)), (vec![], told.clone()));
        // The launcher.
        let mut scene = Scene::running(job());
        change(&mut scene.launcher().metadata);
        let todo = scene.step(at(3));
        assert_eq!((made(&todo, "jobs"), events(&todo)), (vec![], told));
        scene.seen.launcher = None;
        assert_eq!(made(&scene.step(at(4)), "jobs"), ["vgg-launcher"], "the name is free");
    }
}

#[test]
fn a_definition_without_times_is_not_written_to_for_ever() {
    let mut scene = Scene::running(job());
    let forget = |scene: &mut Scene| {
        let status = scene.seen.job.status.as_mut().unwrap();
        (status.start_time, status.completion_time) = (None, None);
    };
    forget(&mut scene);
    assert_eq!(scene.step(at(3)), Todo::default());
    scene.launcher_is(done("Complete"));
    scene.step(at(60));
    forget(&mut scene);
    scene.step(at(61));
    forget(&mut scene);
    assert_eq!(scene.step(at(62)), Todo::default());
}

#[test]
fn a_missing_host_identity_is_warned_of_once() {
    let mut alone = job();
    alone.spec.template["spec"]["hostNetwork"] = false.into();
    let mut scene = Scene::new(alone);
    assert_eq!(events(&scene.step(at(0))), ["NoHostIdentity", "Synced"]);
    assert_eq!(events(&scene.step(at(1))), [""; 0]);
}
