//! The objects that an MPIJob becomes. Each is a pure function of the job; names are deterministic, so making one twice
//! makes one.

#[cfg(test)]
use std::collections::BTreeMap;

use api::{MpiJob, contract};
use serde_json::{Map, Value, json};

/// Where the launcher finds its hostfile.
const CONFIG_FOLDER: &str = "/etc/mpi";
/// Where the remote shell is copied to.
const AGENT_FOLDER: &str = "/opt/ringmaster";
/// GPUs of a node, for jobs that state a total of GPUs instead of workers (the bundled operator's default).
const GPUS_PER_NODE: i32 = 8;

/// Why a job cannot be run.
pub(crate) type Refusal = String;

/// Number of workers.
pub(crate) fn workers(job: &MpiJob) -> Result<usize, Refusal> {
    let count = match (job.spec.replicas, job.spec.gpus) {
        (Some(replicas), _) => replicas,
        (None, Some(gpus)) if gpus < GPUS_PER_NODE => 1,
        (None, Some(gpus)) if gpus % GPUS_PER_NODE == 0 => gpus / GPUS_PER_NODE,
        (None, Some(_)) => {
            return Err(format!(
                "specified #GPUs is not a multiple of GPUs per node ({GPUS_PER_NODE})"
            ));
        }
        (None, None) => 1,
    };
    usize::try_from(count).map_err(|_| format!("spec.replicas is {count}"))
}

/// Name of a worker.
pub(crate) fn worker_name(job: &str, index: usize) -> String {
    format!("{job}-worker-{index}")
}

/// Name of the launcher, its account, role and role binding.
pub(crate) fn launcher_name(job: &str) -> String {
    format!("{job}-launcher")
}

/// Name of the ConfigMap with the hostfile.
pub(crate) fn config_name(job: &str) -> String {
    format!("{job}-config")
}

fn metadata(job: &MpiJob, name: String, labels: Value) -> Value {
    json!({
        "name": name,
        "namespace": job.namespace(),
        "labels": labels,
        "ownerReferences": [{
            "apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob", "name": job.name(), "uid": job.uid(),
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

fn role_labels(job: &str, role: &str) -> Map<String, Value> {
    [
        (contract::GROUP_NAME, contract::MPI_GROUP),
        (contract::MPI_JOB_NAME, job),
        (contract::MPI_ROLE, role),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.into()))
    .collect()
}

/// Labels of the template with ours; those by which Arena finds a job's pods are added where the user gave none.
fn pod_labels(job: &MpiJob, role: &str) -> Map<String, Value> {
    let mut labels =
        job.spec.template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.entry("release").or_insert_with(|| job.name().into());
    labels.entry("app").or_insert_with(|| "mpijob".into());
    labels.extend(role_labels(job.name(), role));
    labels
}

/// Whether the template asks for GPUs by topology.
pub(crate) fn is_topology(job: &MpiJob) -> bool {
    slots_of(job, contract::ALIYUN_GPU).is_some()
}

/// Whether the template shares the host's network.
pub(crate) fn host_network(job: &MpiJob) -> bool {
    job.spec.template["spec"]["hostNetwork"] == true
}

fn slots_of(job: &MpiJob, resource: &str) -> Option<i64> {
    let containers = job.spec.template["spec"]["containers"].as_array()?;
    let amount = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
    let sum: i64 = containers
        .iter()
        .filter_map(|container| amount(&container["resources"]["limits"][resource]))
        .sum();
    (sum > 0).then_some(sum)
}

/// Ranks that a worker runs: its GPUs, or one.
pub(crate) fn slots(job: &MpiJob) -> i64 {
    slots_of(job, contract::ALIYUN_GPU).or_else(|| slots_of(job, contract::NVIDIA_GPU)).unwrap_or(1)
}

/// A worker pod: the template, asleep until mpirun's daemon is started in it.
pub(crate) fn worker(job: &MpiJob, index: usize, workers: usize) -> Value {
    let mut labels = pod_labels(job, contract::WORKER);
    labels.insert(contract::WORKER_INDEX.into(), index.to_string().into());
    labels
        .insert("statefulset.kubernetes.io/pod-name".into(), worker_name(job.name(), index).into());
    let mut spec = job.spec.template["spec"].clone();
    spec["restartPolicy"] = "Always".into();
    if let Some(container) = spec["containers"].get_mut(0) {
        container["command"] = json!(["sleep"]);
        container["args"] = json!(["365d"]);
    }
    if host_network(job) && workers > 1 && is_topology(job) {
        share_memory(&mut spec);
    }
    let mut metadata = metadata(job, worker_name(job.name(), index), labels.into());
    metadata["annotations"] = job.spec.template["metadata"]["annotations"].clone();
    prune(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Workers of one node share a host for NCCL when they see the same /dev/shm besides the same host name: the host's is
/// mounted, unless the user mounts something there.
fn share_memory(spec: &mut Value) {
    const SHM: &str = "/dev/shm";
    const VOLUME: &str = "ringmaster-host-shm";
    let taken = |container: &Value| {
        container["volumeMounts"]
            .as_array()
            .is_some_and(|mounts| mounts.iter().any(|mount| mount["mountPath"] == SHM))
    };
    let Some(containers) = spec["containers"].as_array_mut() else { return };
    if containers.iter().any(taken) {
        return;
    }
    for container in containers {
        push(&mut container["volumeMounts"], json!({"name": VOLUME, "mountPath": SHM}));
    }
    push(
        &mut spec["volumes"],
        json!({"name": VOLUME, "hostPath": {"path": SHM, "type": "Directory"}}),
    );
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

/// Without the nulls that Arena's chart leaves.
fn prune(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            for value in map.values_mut() {
                *value = prune(value.take());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = prune(item.take())),
        _ => {}
    }
    value
}

/// The ConfigMap with the hostfile: workers in the order of their ranks.
pub(crate) fn config(job: &MpiJob, hostfile: &str) -> Value {
    let metadata = metadata(job, config_name(job.name()), json!({"app": job.name()}));
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"hostfile": hostfile}})
}

/// One line a worker, in the order given.
pub(crate) fn hostfile(job: &MpiJob, order: &[String]) -> String {
    let slots = slots(job);
    order.iter().map(|worker| format!("{worker} slots={slots}\n")).collect()
}

/// Account, role and role binding of the launcher: it may look at its workers and start programs in them.
pub(crate) fn access(job: &MpiJob, workers: usize) -> Vec<(&'static str, Value)> {
    let name = launcher_name(job.name());
    let meta = || metadata(job, name.clone(), json!({"app": job.name()}));
    let pods: Vec<String> = (0..workers).map(|index| worker_name(job.name(), index)).collect();
    let group = "rbac.authorization.k8s.io";
    vec![
        (
            "api/v1/serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta()}),
        ),
        (
            "apis/rbac.authorization.k8s.io/v1/roles",
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta(),
                "rules": [
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": pods},
                    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": pods},
                ],
            }),
        ),
        (
            "apis/rbac.authorization.k8s.io/v1/rolebindings",
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta(),
                "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": job.namespace()}],
            }),
        ),
    ]
}

/// Variables by which each MPI finds its hostfile and its remote shell, and starts every daemon itself (a tree would have
/// daemons start daemons, which have no right to).
fn mpi_environment() -> Vec<(&'static str, String)> {
    let agent = format!("{AGENT_FOLDER}/ringmaster-rsh");
    let hostfile = format!("{CONFIG_FOLDER}/hostfile");
    vec![
        // Open MPI 4
        ("OMPI_MCA_plm_rsh_agent", agent.clone()),
        ("OMPI_MCA_orte_default_hostfile", hostfile.clone()),
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".into()),
        // Open MPI 5, whose run-time is PRRTE
        ("PRTE_MCA_plm_ssh_agent", agent.clone()),
        ("PRTE_MCA_prte_default_hostfile", hostfile.clone()),
        ("PRTE_MCA_plm_ssh_no_tree_spawn", "1".into()),
        // Intel MPI
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh".into()),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", agent.clone()),
        ("I_MPI_HYDRA_HOST_FILE", hostfile.clone()),
        // MPICH
        ("HYDRA_LAUNCHER", "rsh".into()),
        ("HYDRA_LAUNCHER_EXEC", agent),
        ("HYDRA_HOST_FILE", hostfile),
        // The launcher computes nothing.
        ("NVIDIA_VISIBLE_DEVICES", "void".into()),
    ]
}

/// The launcher: a Job, since Arena looks for one.
pub(crate) fn launcher(job: &MpiJob, agent_image: &str) -> Value {
    let labels = pod_labels(job, contract::LAUNCHER);
    let mut spec = job.spec.template["spec"].clone();
    spec["serviceAccountName"] = launcher_name(job.name()).into();
    if spec["restartPolicy"] != "Never" {
        spec["restartPolicy"] = "OnFailure".into();
    }
    if job.spec.launcher_on_master == Some(true) {
        let role = "node-role.kubernetes.io/master";
        spec["tolerations"] = json!([{"key": role, "operator": "Exists", "effect": "NoSchedule"}]);
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": role, "operator": "Exists"}]}]}}});
    }
    let dropped: Vec<Value> =
        if job.spec.mounts_on_launcher == Some(true) { Vec::new() } else { drop_claims(&mut spec) };
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        container["resources"] = job.spec.launcher_resources.clone().unwrap_or_else(|| json!({}));
        if let Some(mounts) = container["volumeMounts"].as_array_mut() {
            mounts.retain(|mount| !dropped.contains(&mount["name"]));
        }
    }
    if let Some(container) = spec["containers"].get_mut(0) {
        for (name, value) in mpi_environment() {
            set_variable(&mut container["env"], name, &value);
        }
        push(
            &mut container["volumeMounts"],
            json!({"name": "mpi-job-agent", "mountPath": AGENT_FOLDER}),
        );
        push(
            &mut container["volumeMounts"],
            json!({"name": "mpi-job-config", "mountPath": CONFIG_FOLDER}),
        );
    }
    push(
        &mut spec["initContainers"],
        json!({
            "name": "mpi-agent", "image": agent_image, "imagePullPolicy": "IfNotPresent",
            "command": ["cp", "/usr/local/bin/ringmaster-rsh", format!("{AGENT_FOLDER}/ringmaster-rsh")],
            "volumeMounts": [{"name": "mpi-job-agent", "mountPath": AGENT_FOLDER}],
        }),
    );
    push(&mut spec["volumes"], json!({"name": "mpi-job-agent", "emptyDir": {}}));
    let config = json!({"name": config_name(job.name()), "items": [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]});
    push(&mut spec["volumes"], json!({"name": "mpi-job-config", "configMap": config}));
    let annotations = job.spec.template["metadata"]["annotations"].clone();
    prune(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(job, launcher_name(job.name()), role_labels(job.name(), contract::LAUNCHER).into()),
        "spec": {
            "backoffLimit": job.spec.backoff_limit.unwrap_or(0),
            "activeDeadlineSeconds": job.spec.active_deadline_seconds,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }))
}

/// Takes the volume claims out; returns their names.
fn drop_claims(spec: &mut Value) -> Vec<Value> {
    let Some(volumes) = spec["volumes"].as_array_mut() else { return Vec::new() };
    let is_claim = |volume: &Value| volume.get("persistentVolumeClaim").is_some();
    let dropped = volumes
        .iter()
        .filter(|volume| is_claim(volume))
        .map(|volume| volume["name"].clone())
        .collect();
    volumes.retain(|volume| !is_claim(volume));
    dropped
}

/// Sets a variable that the user has not set.
fn set_variable(env: &mut Value, name: &str, value: &str) {
    let there =
        env.as_array().is_some_and(|env| env.iter().any(|variable| variable["name"] == name));
    // The launcher never gets GPUs, whatever the template says.
    if there && name != "NVIDIA_VISIBLE_DEVICES" {
        return;
    }
    if let Some(env) = env.as_array_mut() {
        env.retain(|variable| variable["name"] != name);
    }
    push(env, json!({"name": name, "value": value}));
}

/// The variables of an environment.
#[cfg(test)]
pub(crate) fn names(env: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    env.as_array().into_iter().flatten().map(|v| (text(&v["name"]), text(&v["value"]))).collect()
}
