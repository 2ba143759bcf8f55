//! The objects that a submission becomes: the MPIJob as Arena's chart renders it, what lies beside it, and the store
//! ConfigMap by which Arena finds the job again.

use std::collections::BTreeMap;

use api::contract;
use serde_json::{Map, Value, json};

use crate::submission::{Submission, toleration};

/// Version of Arena's chart whose objects these are.
pub const CHART_VERSION: &str = "0.28.0";
/// The API that Arena submits.
pub const API_VERSION: &str = "kubeflow.org/v1alpha1";

/// Images that Arena's chart names.
const RSYNC_IMAGE: &str = "registry.cn-zhangjiakou.aliyuncs.com/acs/rsync:v3.1.0-aliyun";
const GIT_IMAGE: &str = "registry.cn-zhangjiakou.aliyuncs.com/acs/git-sync:v3.3.5";
const TENSORBOARD_IMAGE: &str = "registry.cn-zhangjiakou.aliyuncs.com/acs/tensorflow:1.12.0-devel";

/// Who submits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name by which the cluster knows them.
    pub name: String,
}

impl User {
    /// Arena's id of a user: the MD5 of the name.
    pub fn id(&self) -> String {
        use md5::{Digest, Md5};
        hex(&Md5::digest(self.name.as_bytes()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a submission creates.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The MPIJob.
    pub mpi_job: Value,
    /// ConfigMaps of the caller's files, the tensorboard.
    pub beside: Vec<Value>,
    /// Arena's record of the job.
    pub store: Value,
}

/// Name of Arena's record of a job.
pub fn store_name(job: &str) -> String {
    format!("{job}-mpijob")
}

impl Submission {
    /// The objects. The submission must have passed its check. `salt` names the tensorboard's log directory.
    pub fn manifest(&self, namespace: &str, user: &User, salt: u32) -> Manifest {
        let annotations = self.annotations(user);
        let labels = self.labels(user);
        let mpi_job = json!({
            "apiVersion": API_VERSION,
            "kind": "MPIJob",
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "cleanPodPolicy": self.clean_task_policy,
                "launcherResources": {},
                "backoffLimit": self.retry,
                "replicas": self.workers,
                "mountsOnLauncher": self.mounts_on_launcher,
                "template": {
                    "metadata": {
                        "name": self.name,
                        "labels": self.pod_labels(&labels),
                        "annotations": annotations,
                    },
                    "spec": self.pod_spec(salt),
                },
            },
        });
        let mut beside = self.config_maps(namespace);
        if self.tensorboard {
            beside.extend(self.tensorboard(namespace, salt));
        }
        let store = self.store(namespace, &beside);
        Manifest { mpi_job, beside, store }
    }

    fn chart_labels(&self) -> BTreeMap<String, String> {
        [
            ("app", "mpijob"),
            ("chart", &format!("mpijob-{CHART_VERSION}")),
            ("release", &self.name),
            ("heritage", "Helm"),
            ("createdBy", "MPIJob"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
    }

    fn labels(&self, user: &User) -> BTreeMap<String, String> {
        let mut labels = self.chart_labels();
        labels.extend(pairs(&self.label));
        labels.insert("arena.kubeflow.org/uid".to_owned(), user.id());
        if let Some(model) = &self.model_name {
            labels.insert("modelName".to_owned(), model.clone());
        }
        labels
    }

    fn pod_labels(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut labels = labels.clone();
        let mut add = |key: &str, value: String| labels.insert(key.to_owned(), value);
        if self.gang {
            add(contract::GANG_NAME, format!("mpijob-{}", self.name));
            add(contract::GANG_MINIMUM, self.workers.to_string());
        }
        if self.gputopology {
            add(contract::TOPOLOGY_GROUP, self.name.clone());
            add(contract::TOPOLOGY_REPLICA, self.workers.to_string());
        }
        labels
    }

    fn annotations(&self, user: &User) -> BTreeMap<String, String> {
        let mut annotations: BTreeMap<String, String> = pairs(&self.annotation).collect();
        let mut add = |key: &str, value: String| annotations.insert(key.to_owned(), value);
        if self.queue {
            add("scheduling.x-k8s.io/suspend", "true".to_owned());
        }
        add("arena.kubeflow.org/username", user.name.clone());
        add("requestGPUsOfJobOwner", (self.workers * self.gpus).to_string());
        let told = &self.described;
        let numbers = [
            (contract::PARAMETERS, told.parameters),
            (contract::GRADIENT_BYTES, told.gradient_bytes),
            (contract::STEP_TIME, told.step_time),
            (contract::BATCH, told.batch),
        ];
        for (key, number) in numbers {
            if let Some(number) = number {
                add(key, number.to_string());
            }
        }
        if let Some(model) = &told.model {
            add(contract::MODEL, model.clone());
        }
        annotations
    }

    fn pod_spec(&self, salt: u32) -> Value {
        let mut spec = Map::new();
        let mut add = |key: &str, value: Value| spec.insert(key.to_owned(), value);
        let selector: BTreeMap<String, String> = pairs(&self.selector).collect();
        if !selector.is_empty() {
            add("nodeSelector", json!(selector));
        }
        let tolerations = self.tolerations();
        if !tolerations.is_empty() {
            add("tolerations", json!(tolerations));
        }
        if let Some(scheduler) = &self.scheduler {
            add("schedulerName", json!(scheduler));
        }
        if let Some(priority) = &self.priority {
            add("priorityClassName", json!(priority));
        }
        add("restartPolicy", json!("Never"));
        let own_interface = pairs(&self.annotation)
            .any(|(key, value)| key == "k8s.aliyun.com/eni" && value == "true");
        if self.gputopology || self.host_network && !own_interface {
            add("hostNetwork", json!(true));
            add("dnsPolicy", json!("ClusterFirstWithHostNet"));
        }
        if self.host_pid {
            add("hostPID", json!(true));
        }
        if self.host_ipc {
            add("hostIPC", json!(true));
        }
        if !self.image_pull_secret.is_empty() {
            let names: Vec<Value> =
                self.image_pull_secret.iter().map(|name| json!({ "name": name })).collect();
            add("imagePullSecrets", json!(names));
        }
        let (volumes, mounts) = self.volumes(salt);
        if !volumes.is_empty() {
            add("volumes", json!(volumes));
        }
        if let Some(container) = self.code_container() {
            add("initContainers", json!([container]));
        }
        add("containers", json!([self.container(mounts)]));
        Value::Object(spec)
    }

    fn tolerations(&self) -> Vec<Value> {
        let mut tolerations = Vec::new();
        for entry in &self.toleration {
            if entry == "all" {
                tolerations.push(json!({ "operator": "Exists" }));
                break;
            }
            if let Some(parts) = toleration(entry) {
                let named = ["key", "value", "effect", "operator"].into_iter().zip(parts);
                let set = named.filter(|(_, part)| !part.is_empty());
                tolerations.push(Value::Object(
                    set.map(|(key, part)| (key.to_owned(), json!(part))).collect(),
                ));
            }
        }
        tolerations
    }

    fn container(&self, mounts: Vec<Value>) -> Value {
        let resources = self.resources();
        let mut container = json!({
            "name": "mpi",
            "image": self.image,
            "imagePullPolicy": self.image_pull_policy,
            "command": [self.shell, "-c", self.command],
            "env": self.environment(),
            "resources": { "requests": resources, "limits": resources },
        });
        if !self.working_dir.is_empty() {
            container["workingDir"] = json!(self.working_dir);
        }
        if self.rdma {
            container["securityContext"] = json!({ "capabilities": { "add": ["IPC_LOCK"] } });
        }
        if !mounts.is_empty() {
            container["volumeMounts"] = json!(mounts);
        }
        container
    }

    /// Requests, and limits: other devices are limited even without GPUs, as extended resources must be.
    fn resources(&self) -> BTreeMap<String, String> {
        let mut resources = BTreeMap::new();
        if self.gpus > 0 {
            let resource =
                if self.gputopology { contract::ALIYUN_GPU } else { contract::NVIDIA_GPU };
            resources.insert(resource.to_owned(), self.gpus.to_string());
        }
        resources.extend(pairs(&self.device));
        for (resource, quantity) in [("cpu", &self.cpu), ("memory", &self.memory)] {
            if let Some(quantity) = quantity {
                resources.insert(resource.to_owned(), quantity.clone());
            }
        }
        if self.rdma {
            resources.insert("rdma/hca".to_owned(), "1".to_owned());
        }
        resources
    }

    fn environment(&self) -> Vec<Value> {
        let mut env: BTreeMap<String, String> = pairs(&self.env).collect();
        env.insert("workers".to_owned(), self.workers.to_string());
        env.insert("gpus".to_owned(), self.gpus.to_string());
        let shares = pairs(&self.device).any(|(name, _)| name == "aliyun.com/gpu-mem")
            || pairs(&self.label).any(|(name, _)| name == "aliyun.com/gpu-count");
        if self.gpus == 0 && !shares {
            env.insert("NVIDIA_VISIBLE_DEVICES".to_owned(), "void".to_owned());
        }
        env.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    }

    /// The init container that fetches the code.
    fn code_container(&self) -> Option<Value> {
        let mode = self.sync_mode.as_deref()?;
        let source = self.sync_source.as_deref().unwrap_or_default();
        let image = if mode == "git" { GIT_IMAGE } else { RSYNC_IMAGE };
        let mut env: Vec<Value> = self.environment();
        let mut container = json!({
            "name": "init-code",
            "image": self.sync_image.as_deref().unwrap_or(image),
            "imagePullPolicy": self.image_pull_policy,
            "volumeMounts": [{ "name": "code-sync", "mountPath": "/code" }],
        });
        if mode == "git" {
            let last = source.trim_matches('/').rsplit('/').next().unwrap_or_default();
            let project = last.split(".git").next().unwrap_or_default();
            for (name, value) in [
                ("GIT_SYNC_REPO", source),
                ("GIT_SYNC_DEST", project),
                ("GIT_SYNC_ROOT", "/code"),
                ("GIT_SYNC_ONE_TIME", "true"),
            ] {
                env.push(json!({ "name": name, "value": value }));
            }
        } else {
            container["command"] = json!(["rsync", "-avP", source, "/code"]);
        }
        container["env"] = json!(env);
        Some(container)
    }

    /// Volumes of the pod, and where the job's container mounts them.
    fn volumes(&self, salt: u32) -> (Vec<Value>, Vec<Value>) {
        let mut volumes = Vec::new();
        let mut mounts = Vec::new();
        let mut add = |name: &str, path: &str, source: Value| {
            let mut volume = source;
            volume["name"] = json!(name);
            volumes.push(volume);
            mounts.push(json!({ "name": name, "mountPath": path }));
        };
        for (key, files) in self.files_by_directory() {
            let source = json!({ "configMap": { "name": format!("{}-{key}", self.name) } });
            add(&key, &files.directory, source);
        }
        if self.tensorboard && self.logs_on_node() {
            let source = json!({ "hostPath": { "path": log_directory(salt) } });
            add("training-logs-volume", &self.logdir, source);
        }
        if self.sync_mode.is_some() {
            let path = format!("{}/code", self.working_dir);
            add("code-sync", &path, json!({ "emptyDir": {} }));
        }
        for (claim, path) in self.claims() {
            add(claim, path, json!({ "persistentVolumeClaim": { "claimName": claim } }));
        }
        for (index, directory) in self.data_dir.iter().enumerate() {
            let (host, container) = directory.split_once(':').unwrap_or((directory, directory));
            let source = json!({ "hostPath": { "path": host } });
            add(&format!("training-data-{index}"), container, source);
        }
        if !self.gputopology {
            let source = json!({ "emptyDir": { "medium": "Memory", "sizeLimit": "2Gi" } });
            add("dshm", "/dev/shm", source);
        }
        (volumes, mounts)
    }

    fn claims(&self) -> impl Iterator<Item = (&str, &str)> {
        self.data.iter().filter_map(|dataset| dataset.split_once(':'))
    }

    /// Whether the logs go to a directory of the node: not into a claim, nor to another file system.
    fn logs_on_node(&self) -> bool {
        self.logdir.starts_with('/')
            && !self.claims().any(|(_, path)| self.logdir.starts_with(path))
    }

    /// The caller's files, by the directory that they appear in; the key is Arena's.
    fn files_by_directory(&self) -> BTreeMap<String, Files<'_>> {
        use md5::{Digest, Md5};
        let mut directories: BTreeMap<String, Files<'_>> = BTreeMap::new();
        for file in &self.config_files {
            let parent = file.container.parent().unwrap_or_else(|| "/".as_ref());
            let directory = parent.to_string_lossy().into_owned();
            let mut key = hex(&Md5::digest(directory.as_bytes()));
            key.truncate(15);
            let name = file.container.file_name().unwrap_or_default();
            directories
                .entry(key)
                .or_insert_with(|| Files { directory, content: BTreeMap::new() })
                .content
                .insert(name.to_string_lossy().into_owned(), &file.content);
        }
        directories
    }

    fn config_maps(&self, namespace: &str) -> Vec<Value> {
        self.files_by_directory()
            .into_iter()
            .map(|(key, files)| {
                json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": format!("{}-{key}", self.name),
                        "namespace": namespace,
                        "labels": self.chart_labels(),
                    },
                    "data": files.content,
                })
            })
            .collect()
    }

    fn tensorboard(&self, namespace: &str, salt: u32) -> [Value; 2] {
        let name = format!("{}-tensorboard", self.name);
        let mut labels = self.chart_labels();
        labels.insert("role".to_owned(), "tensorboard".to_owned());
        let selector: BTreeMap<&str, &String> = ["app", "chart", "release", "role"]
            .into_iter()
            .filter_map(|key| Some((key, labels.get(key)?)))
            .collect();
        let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
        let (volumes, mounts, shown): (Vec<Value>, Vec<Value>, &str) = if self.logs_on_node() {
            (
                vec![json!({
                    "name": "training-logs-volume",
                    "hostPath": { "path": log_directory(salt) },
                })],
                vec![json!({
                    "name": "training-logs-volume",
                    "mountPath": "/output/training_logs",
                })],
                "/output/training_logs",
            )
        } else {
            let volume = |claim: &str| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } });
            (
                self.claims().map(|(claim, _)| volume(claim)).collect(),
                self.claims()
                    .map(|(claim, path)| json!({ "name": claim, "mountPath": path }))
                    .collect(),
                &self.logdir,
            )
        };
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "selector": { "matchLabels": selector },
                "template": {
                    "metadata": { "labels": selector },
                    "spec": {
                        "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                            "labelSelector": { "matchExpressions": [
                                { "key": contract::MPI_JOB_NAME, "operator": "In", "values": [self.name] },
                                {
                                    "key": "statefulset.kubernetes.io/pod-name",
                                    "operator": "In",
                                    "values": [format!("{}-worker-0", self.name)],
                                },
                            ] },
                            "topologyKey": "kubernetes.io/hostname",
                        }] } },
                        "volumes": volumes,
                        "containers": [{
                            "name": "tensorboard",
                            "image": self.tensorboard_image.as_deref().unwrap_or(TENSORBOARD_IMAGE),
                            "imagePullPolicy": "Always",
                            "command": ["tensorboard", "--logdir", shown, "--host", "0.0.0.0"],
                            "ports": [{ "containerPort": 6006 }],
                            "volumeMounts": mounts,
                        }],
                    },
                },
            },
        });
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "type": "NodePort",
                "ports": [{ "name": "tensorboard", "port": 6006, "targetPort": 6006, "protocol": "TCP" }],
                "selector": selector,
            },
        });
        [deployment, service]
    }

    /// Arena's record: what it lists under `app` it deletes with the job.
    fn store(&self, namespace: &str, beside: &[Value]) -> Value {
        let resource = |object: &Value| {
            let kind = match object["kind"].as_str() {
                Some("Deployment") => "deployment.apps",
                Some("Service") => "service",
                _ => "configmap",
            };
            format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap_or_default())
        };
        let mut app: Vec<String> = beside.iter().map(resource).collect();
        app.push(format!("mpijob.kubeflow.org/{}", self.name));
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": store_name(&self.name),
                "namespace": namespace,
                "labels": { "createdBy": "arena" },
            },
            "data": {
                "values": serde_saphyr::to_string(self).unwrap_or_default(),
                "app": app.join("\n"),
                "mpijob": CHART_VERSION,
            },
        })
    }
}

/// Files that appear in one directory.
struct Files<'a> {
    directory: String,
    content: BTreeMap<String, &'a String>,
}

fn log_directory(salt: u32) -> String {
    format!("/arena_logs/training{salt}")
}

/// The pairs of `key=value` entries; the others are left out.
fn pairs(entries: &[String]) -> impl Iterator<Item = (String, String)> {
    entries
        .iter()
        .filter_map(|entry| entry.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}
