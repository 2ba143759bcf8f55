//! One job's life, step by step.

use serde_json::json;

use super::*;

const IMAGE: &str = "ringmaster:test";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// The job that Arena makes, with two workers.
fn job() -> MpiJob {
    serde_json::from_value(json!({
        "apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob",
        "metadata": {"name": "vgg", "namespace": "default", "uid": "u1"},
        "spec": {
            "backoffLimit": 1, "cleanPodPolicy": "All", "launcherResources": {}, "mountsOnLauncher": false, "replicas": 2,
            "template": {
                "metadata": {"labels": {"app": "mpijob", "release": "vgg", "gpu-topology": "vgg", "gpu-topology-replica": "2"}},
                "spec": {
                    "hostNetwork": true, "restartPolicy": "Never", "volumes": null,
                    "containers": [{
                        "name": "mpi", "image": "horovod", "command": ["sh", "-c", "mpirun -np 2 python b.py"],
                        "env": [{"name": "gpus", "value": "1"}], "volumeMounts": null,
                        "resources": {"limits": {"aliyun.com/gpu": "1"}},
                    }],
                },
            },
        },
    }))
    .unwrap()
}

/// Does to what is observed what the API server and a kubelet would.
fn carry_out(observed: &mut Observed, todo: &Todo) {
    for action in &todo.actions {
        match action {
            Action::Create { path, object } if path.ends_with("/pods") => {
                let mut pod: Pod = serde_json::from_value(object.clone()).unwrap();
                pod.metadata.uid = Some(format!("pod-{}", pod.name()));
                observed.workers.insert(pod.name().to_owned(), pod);
            }
            Action::Create { path, object } if path.ends_with("/configmaps") => {
                observed.hostfile = object["data"]["hostfile"].as_str().map(str::to_owned);
            }
            Action::Create { path, object } if path.ends_with("/jobs") => {
                observed.launcher = Some(serde_json::from_value(object.clone()).unwrap());
            }
            Action::Create { .. } => observed.access = true,
            Action::SetHostfile(hostfile) => observed.hostfile = Some(hostfile.clone()),
            Action::DeleteWorker { name, .. } => drop(observed.workers.remove(name)),
            Action::SuspendLauncher(held) => {
                let launcher = observed.launcher.as_mut().unwrap();
                launcher.spec.as_mut().unwrap().suspend = Some(*held);
            }
            Action::Status(status) => observed.job.status = Some(status.clone()),
            Action::Event { .. } => {}
        }
    }
}

/// Looks and does.
fn step(observed: &mut Observed, memory: &mut Memory, now: Timestamp) {
    let todo = reconcile(observed, memory, IMAGE, now);
    carry_out(observed, &todo);
}

fn ready(observed: &mut Observed, ranks: &[(&str, &str, &str)]) {
    for (name, node, rank) in ranks {
        let pod = observed.workers.get_mut(*name).unwrap();
        pod.spec.node_name = Some((*node).into());
        pod.metadata.annotations = Some([(contract::RANK.to_owned(), (*rank).to_owned())].into());
        pod.status = serde_json::from_value(
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
        )
        .unwrap();
    }
}

fn started() -> (Observed, Memory) {
    let (mut observed, mut memory) =
        (Observed { job: job(), ..Observed::default() }, Memory::default());
    let todo = reconcile(&observed, &mut memory, IMAGE, at(0));
    carry_out(&mut observed, &todo);
    ready(&mut observed, &[("vgg-worker-0", "n1", "0"), ("vgg-worker-1", "n1", "1")]);
    let todo = reconcile(&observed, &mut memory, IMAGE, at(1));
    carry_out(&mut observed, &todo);
    (observed, memory)
}

fn finish(observed: &mut Observed, condition: &str) {
    let launcher = observed.launcher.as_mut().unwrap();
    launcher.status =
        serde_json::from_value(json!({"conditions": [{"type": condition, "status": "True"}]}))
            .unwrap();
}

#[test]
fn workers_first_then_the_launcher_then_done() {
    let (mut observed, mut memory) =
        (Observed { job: job(), ..Observed::default() }, Memory::default());
    let todo = reconcile(&observed, &mut memory, IMAGE, at(0));
    carry_out(&mut observed, &todo);
    assert_eq!(observed.workers.keys().collect::<Vec<_>>(), ["vgg-worker-0", "vgg-worker-1"]);
    assert!(observed.launcher.is_none() && observed.access);
    assert_eq!(
        reconcile(&observed, &mut memory, IMAGE, at(1)),
        Todo::default(),
        "nothing is done twice"
    );

    ready(&mut observed, &[("vgg-worker-0", "n1", "1"), ("vgg-worker-1", "n1", "0")]);
    let todo = reconcile(&observed, &mut memory, IMAGE, at(2));
    carry_out(&mut observed, &todo);
    assert_eq!(
        observed.hostfile.as_deref(),
        Some("vgg-worker-1 slots=1\nvgg-worker-0 slots=1\n"),
        "in the order of ranks"
    );
    assert!(observed.launcher.is_some());
    step(&mut observed, &mut memory, at(3));
    assert_eq!(observed.job.launcher_status(), "Active");

    finish(&mut observed, "Complete");
    let todo = reconcile(&observed, &mut memory, IMAGE, at(60));
    carry_out(&mut observed, &todo);
    assert_eq!(observed.job.launcher_status(), "Succeeded");
    assert!(observed.workers.is_empty() && observed.launcher.is_some());
    assert_eq!(
        reconcile(&observed, &mut memory, IMAGE, at(61)).actions.len(),
        1,
        "only the count of ready workers"
    );
}

#[test]
fn clean_pod_policy_none_keeps_the_workers() {
    let (mut observed, mut memory) = started();
    observed.job.spec.clean_pod_policy = Some("None".into());
    finish(&mut observed, "Failed");
    let todo = reconcile(&observed, &mut memory, IMAGE, at(60));
    carry_out(&mut observed, &todo);
    assert_eq!((observed.job.launcher_status(), observed.workers.len()), ("Failed", 2));
}

#[test]
fn a_refused_worker_comes_back_under_its_index_after_a_while() {
    let (mut observed, mut memory) =
        (Observed { job: job(), ..Observed::default() }, Memory::default());
    step(&mut observed, &mut memory, at(0));
    observed.workers.get_mut("vgg-worker-1").unwrap().status.phase = "Failed".into();
    let todo = reconcile(&observed, &mut memory, IMAGE, at(10));
    assert!(
        matches!(todo.actions.last(), Some(Action::DeleteWorker { name, .. }) if name == "vgg-worker-1")
    );
    carry_out(&mut observed, &todo);
    let todo = reconcile(&observed, &mut memory, IMAGE, at(10));
    assert_eq!((todo.actions.len(), todo.again), (0, Some(at(11))));
    step(&mut observed, &mut memory, at(11));
    assert!(observed.workers.contains_key("vgg-worker-1"));
}

#[test]
fn a_launcher_waits_for_a_lost_worker_while_retries_are_left() {
    for (limit, held) in [(1, true), (0, false)] {
        let (mut observed, mut memory) = started();
        observed.job.spec.backoff_limit = Some(limit);
        step(&mut observed, &mut memory, at(2));
        observed.workers.remove("vgg-worker-1");
        let todo = reconcile(&observed, &mut memory, IMAGE, at(3));
        assert_eq!(
            todo.actions.contains(&Action::SuspendLauncher(true)),
            held,
            "backoffLimit {limit}"
        );
        carry_out(&mut observed, &todo);
        assert!(observed.workers.contains_key("vgg-worker-1"));
        if held {
            ready(&mut observed, &[("vgg-worker-1", "n1", "1")]);
            let todo = reconcile(&observed, &mut memory, IMAGE, at(4));
            assert!(todo.actions.contains(&Action::SuspendLauncher(false)));
        }
    }
}

#[test]
fn a_terminating_namesake_is_waited_for_and_a_stranger_is_named() {
    let (mut observed, mut memory) =
        (Observed { job: job(), ..Observed::default() }, Memory::default());
    let mut old: Pod = serde_json::from_value(objects::worker(&job(), 0, 2)).unwrap();
    old.metadata.owner_references.as_mut().unwrap()[0].uid = "u0".into();
    old.metadata.deletion_timestamp = Some(Time(at(0)));
    observed.workers.insert("vgg-worker-0".into(), old.clone());
    let created = |todo: &Todo| {
        todo.actions
            .iter()
            .filter(|a| matches!(a, Action::Create { path, .. } if path.ends_with("/pods")))
            .count()
    };
    let todo = reconcile(&observed, &mut memory, IMAGE, at(0));
    assert_eq!(created(&todo), 1, "only worker 1");
    old.metadata.deletion_timestamp = None;
    observed.workers.insert("vgg-worker-0".into(), old);
    let todo = reconcile(&observed, &mut memory, IMAGE, at(1));
    assert!(
        todo.actions.iter().any(|a| matches!(a, Action::Event { reason: "ErrResourceExists", .. }))
    );
}

#[test]
fn host_identity_is_shared_memory_on_the_hosts_network_and_a_warning_without() {
    let shm = |pod: &Value| {
        pod["spec"]["volumes"]
            .as_array()
            .is_some_and(|v| v.iter().any(|v| v["hostPath"]["path"] == "/dev/shm"))
    };
    assert!(shm(&objects::worker(&job(), 0, 2)));
    assert!(!shm(&objects::worker(&job(), 0, 1)), "a lone worker needs none");
    let mut alone = job();
    alone.spec.template["spec"]["hostNetwork"] = false.into();
    assert!(!shm(&objects::worker(&alone, 0, 2)));
    let observed = Observed { job: alone, ..Observed::default() };
    let mut memory = Memory::default();
    let warnings = |todo: &Todo| {
        todo.actions
            .iter()
            .filter(|a| matches!(a, Action::Event { reason: "NoHostIdentity", .. }))
            .count()
    };
    assert_eq!(warnings(&reconcile(&observed, &mut memory, IMAGE, at(0))), 1);
    assert_eq!(warnings(&reconcile(&observed, &mut memory, IMAGE, at(1))), 0, "once");
}

#[test]
fn the_launcher_has_every_mpi_s_variables_and_no_gpu() {
    let launcher = objects::launcher(&job(), IMAGE);
    let container = &launcher["spec"]["template"]["spec"]["containers"][0];
    let env = objects::names(&container["env"]);
    for (name, value) in [
        ("OMPI_MCA_plm_rsh_agent", "/opt/ringmaster/ringmaster-rsh"),
        ("PRTE_MCA_plm_ssh_agent", "/opt/ringmaster/ringmaster-rsh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/opt/ringmaster/ringmaster-rsh"),
        ("HYDRA_LAUNCHER_EXEC", "/opt/ringmaster/ringmaster-rsh"),
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("NVIDIA_VISIBLE_DEVICES", "void"),
        ("gpus", "1"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(container["resources"], json!({}));
    insta::assert_json_snapshot!(launcher["spec"]["template"]["spec"]["initContainers"], @r#"
    [
      {
        "command": [
          "cp",
          "/usr/local/bin/ringmaster-rsh",
          "/opt/ringmaster/ringmaster-rsh"
        ],
        "image": "ringmaster:test",
        "imagePullPolicy": "IfNotPresent",
        "name": "mpi-agent",
        "volumeMounts": [
          {
            "mountPath": "/opt/ringmaster",
            "name": "mpi-job-agent"
          }
        ]
      }
    ]
    "#);
}

#[test]
fn a_total_of_gpus_becomes_workers() {
    for (gpus, workers) in [(1, Ok(1)), (8, Ok(1)), (16, Ok(2)), (12, Err(()))] {
        let mut job = job();
        (job.spec.replicas, job.spec.gpus) = (None, Some(gpus));
        assert_eq!(objects::workers(&job).map_err(drop), workers, "{gpus} GPUs");
    }
}
