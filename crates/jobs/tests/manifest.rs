//! The objects of a submission against what Arena 0.15.5 made of the same flags on a real cluster.
#![allow(clippy::unwrap_used)]

use jobs::{Described, Submission, User};
use serde_json::{Value, json};

fn user() -> User {
    User { name: "kubecfg:certauth:admin".to_owned() }
}

fn page() -> Submission {
    Submission {
        name: "tensorflow-topo-4-vgg16".into(),
        image: "kubeai/tensorflow-horovod:test".into(),
        gpus: 1,
        workers: 4,
        gang: true,
        gputopology: true,
        command: "mpirun --allow-run-as-root -np 4 python /b.py".into(),
        ..Submission::default()
    }
}

#[test]
fn the_pages_job_is_arenas() {
    let labels = json!({
        "app": "mpijob", "arena.kubeflow.org/uid": "3399d840e8b371ed7ca45dda29debeb1",
        "chart": "mpijob-0.28.0", "createdBy": "MPIJob", "heritage": "Helm", "release": "tensorflow-topo-4-vgg16",
    });
    let annotations = json!({ "arena.kubeflow.org/username": "kubecfg:certauth:admin", "requestGPUsOfJobOwner": "4" });
    let mut pod_labels = labels.clone();
    for (key, value) in [
        ("gpu-topology", "tensorflow-topo-4-vgg16"),
        ("gpu-topology-replica", "4"),
        ("pod-group.scheduling.sigs.k8s.io/min-available", "4"),
        ("pod-group.scheduling.sigs.k8s.io/name", "mpijob-tensorflow-topo-4-vgg16"),
    ] {
        pod_labels[key] = json!(value);
    }
    let expected = json!({
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "MPIJob",
        "metadata": {
            "name": "tensorflow-topo-4-vgg16", "namespace": "default", "labels": labels, "annotations": annotations,
        },
        "spec": {
            "backoffLimit": 0, "cleanPodPolicy": "All", "launcherResources": {}, "mountsOnLauncher": false, "replicas": 4,
            "template": {
                "metadata": { "name": "tensorflow-topo-4-vgg16", "labels": pod_labels, "annotations": annotations },
                "spec": {
                    "containers": [{
                        "command": ["sh", "-c", "mpirun --allow-run-as-root -np 4 python /b.py"],
                        "env": [{ "name": "gpus", "value": "1" }, { "name": "workers", "value": "4" }],
                        "image": "kubeai/tensorflow-horovod:test", "imagePullPolicy": "Always", "name": "mpi",
                        "resources": { "limits": { "aliyun.com/gpu": "1" }, "requests": { "aliyun.com/gpu": "1" } },
                        "workingDir": "/root",
                    }],
                    "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true, "restartPolicy": "Never",
                },
            },
        },
    });
    assert_eq!(page().manifest("default", &user(), 0).mpi_job, expected);
}

#[test]
fn a_plain_job_has_shared_memory_and_no_group() {
    let plain = Submission { gang: false, gputopology: false, gpus: 0, ..page() };
    let job = plain.manifest("default", &user(), 0).mpi_job;
    let spec = &job["spec"]["template"]["spec"];
    assert_eq!(
        spec["volumes"],
        json!([{ "name": "dshm", "emptyDir": { "medium": "Memory", "sizeLimit": "2Gi" } }])
    );
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([{ "name": "dshm", "mountPath": "/dev/shm" }])
    );
    assert_eq!(spec["hostNetwork"], Value::Null);
    let env = spec["containers"][0]["env"].as_array().unwrap();
    assert!(env.contains(&json!({ "name": "NVIDIA_VISIBLE_DEVICES", "value": "void" })));
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["gpu-topology"], Value::Null);
    let gang = Submission { gang: true, gpus: 2, ..plain }.manifest("default", &user(), 0).mpi_job;
    let limits = &gang["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({ "nvidia.com/gpu": "2" }));
}

#[test]
fn every_flag_leaves_its_mark() {
    let submission = Submission {
        retry: 2,
        env: vec!["A=1,2=3".into(), "dropped".into()],
        data: vec!["claim:/data".into()],
        data_dir: vec!["/raw".into(), "/host:/inside".into()],
        device: vec!["amd.com/gpu=1".into()],
        annotation: vec!["note=x".into()],
        label: vec!["team=y".into()],
        rdma: true,
        priority: Some("high".into()),
        queue: true,
        toleration: vec!["k=v:NoSchedule,Equal".into()],
        selector: vec!["gpu=v100".into()],
        config_files: vec![jobs::ConfigFile {
            container: "/etc/app/a.json".into(),
            content: "{}".into(),
        }],
        image_pull_secret: vec!["secret".into()],
        scheduler: Some("ringmaster".into()),
        host_ipc: true,
        host_pid: true,
        tensorboard: true,
        sync_mode: Some("git".into()),
        sync_source: Some("https://host/team/code.git".into()),
        cpu: Some("2".into()),
        memory: Some("4Gi".into()),
        described: Described {
            gradient_bytes: Some(1e9),
            step_time: Some(0.25),
            ..Described::default()
        },
        ..page()
    };
    submission.check().unwrap();
    let manifest = submission.manifest("ns", &user(), 7);
    insta::assert_snapshot!(
        serde_saphyr::to_string(&manifest.mpi_job["spec"]["template"]["spec"]).unwrap()
    );
    let annotations = &manifest.mpi_job["metadata"]["annotations"];
    assert_eq!(annotations["scheduling.x-k8s.io/suspend"], "true");
    assert_eq!(annotations["ringmaster.dev/gradient-bytes"], "1000000000");
    assert_eq!(annotations["ringmaster.dev/step-time"], "0.25");
    assert_eq!(manifest.mpi_job["metadata"]["labels"]["team"], "y");
    let kinds: Vec<&str> =
        manifest.beside.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "Service"]);
    assert_eq!(
        manifest.store["data"]["app"],
        format!(
            "configmap/{}\ndeployment.apps/tensorflow-topo-4-vgg16-tensorboard\nservice/tensorflow-topo-4-vgg16-tensorboard\nmpijob.kubeflow.org/tensorflow-topo-4-vgg16",
            manifest.beside[0]["metadata"]["name"].as_str().unwrap()
        )
    );
}
