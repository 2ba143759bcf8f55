//! The launcher: a Job, since Arena looks for one, whose pod runs mpirun.

use std::collections::BTreeMap;

use api::{MpiJob, contract};
use k8s_openapi::{
    api::{batch::v1 as batch, core::v1 as core},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::objects::{metadata, pod_labels, prune, push, role_labels};

/// Where the remote shell is copied to.
const AGENT_FOLDER: &str = "/opt/ringmaster";
/// The remote shell.
const AGENT: &str = "/opt/ringmaster/ringmaster-rsh";
/// Where its image has it.
const AGENT_IN_IMAGE: &str = "/usr/local/bin/ringmaster-rsh";

/// The launcher Job, with the fields that reconcile reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, kube::Resource)]
#[resource(inherit = batch::Job)]
pub(crate) struct Launcher {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: LauncherSpec,
    #[serde(default)]
    pub(crate) status: LauncherStatus,
}

/// What is asked of a launcher.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LauncherSpec {
    /// Whether it is held.
    pub(crate) suspend: Option<bool>,
}

/// What a launcher is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LauncherStatus {
    /// Pods that wait or run.
    pub(crate) active: Option<i32>,
    /// Pods of these that are ready; not every Job controller says.
    pub(crate) ready: Option<i32>,
    /// Pods that succeeded.
    pub(crate) succeeded: Option<i32>,
    /// Pods that failed.
    pub(crate) failed: Option<i32>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_time: Option<Time>,
    /// When it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completion_time: Option<Time>,
    /// `Complete`, `Failed` and others.
    pub(crate) conditions: Vec<api::Condition>,
}

/// The ConfigMap with the hostfile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, kube::Resource)]
#[resource(inherit = core::ConfigMap)]
pub(crate) struct Config {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) data: BTreeMap<String, String>,
}

impl Launcher {
    fn condition(&self, kind: &str) -> Option<&api::Condition> {
        self.status.conditions.iter().find(|c| c.kind == kind && c.status == "True")
    }

    /// Whether it completed.
    pub(crate) fn complete(&self) -> bool {
        self.condition("Complete").is_some()
    }

    /// Whether it failed for good, and why.
    pub(crate) fn failure(&self) -> Option<&api::Condition> {
        self.condition("Failed")
    }

    /// Whether its fate is sealed, though its controller has still to say so.
    pub(crate) fn is_deciding(&self) -> bool {
        self.status.succeeded.unwrap_or(0) > 0
            || self.condition("SuccessCriteriaMet").is_some()
            || self.condition("FailureTarget").is_some()
    }

    /// How often it was started again because a worker was lost; `None` if it was never held by us.
    pub(crate) fn restarts(&self) -> Option<i32> {
        let annotations = self.metadata.annotations.as_ref()?;
        Some(annotations.get(contract::RESTARTS)?.parse().unwrap_or(0))
    }

    /// Whether a pod of it may have run: not while none is there, or none is ready.
    pub(crate) fn is_running(&self) -> bool {
        self.status.active.unwrap_or(0) > 0 && self.status.ready != Some(0)
    }
}

/// Variables by which each MPI finds its hostfile and its remote shell, and starts every daemon itself: in a tree, daemons
/// start daemons, which workers have no right to.
fn mpi_environment() -> Vec<(&'static str, String)> {
    let hostfile = format!("{}/{}", contract::CONFIG_FOLDER, contract::HOSTFILE);
    let machinefile = format!("{}/{}", contract::CONFIG_FOLDER, contract::MACHINEFILE);
    vec![
        // Open MPI 4
        ("OMPI_MCA_plm_rsh_agent", AGENT.into()),
        ("OMPI_MCA_orte_default_hostfile", hostfile.clone()),
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".into()),
        // Open MPI 5, whose run-time is PRRTE
        ("PRTE_MCA_plm_ssh_agent", AGENT.into()),
        ("PRTE_MCA_prte_default_hostfile", hostfile),
        ("PRTE_MCA_plm_ssh_no_tree_spawn", "1".into()),
        // Intel MPI; a branch count of -1 is no tree
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh".into()),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", AGENT.into()),
        ("I_MPI_HYDRA_HOST_FILE", machinefile.clone()),
        ("I_MPI_HYDRA_BRANCH_COUNT", "-1".into()),
        // MPICH, whose hydra knows no tree
        ("HYDRA_LAUNCHER", "rsh".into()),
        ("HYDRA_LAUNCHER_EXEC", AGENT.into()),
        ("HYDRA_HOST_FILE", machinefile),
        // The launcher computes nothing.
        ("NVIDIA_VISIBLE_DEVICES", "void".into()),
    ]
}

/// The launcher of a job.
pub(crate) fn launcher(job: &MpiJob, agent_image: &str) -> Value {
    let labels = pod_labels(job, contract::LAUNCHER);
    let mut spec = job.spec.template["spec"].clone();
    spec["serviceAccountName"] = contract::launcher_name(job.name()).into();
    if spec["restartPolicy"] != "Never" {
        spec["restartPolicy"] = "OnFailure".into();
    }
    if job.spec.launcher_on_master == Some(true) {
        move_to_master(&mut spec);
    }
    let dropped: Vec<Value> =
        if job.spec.mounts_on_launcher == Some(true) { Vec::new() } else { drop_claims(&mut spec) };
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        container["resources"] = job.spec.launcher_resources.clone().unwrap_or_else(|| json!({}));
        // The launcher never gets GPUs, whatever image or template say.
        set_variable(&mut container["env"], "NVIDIA_VISIBLE_DEVICES", "void", true);
    }
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            if let Some(mounts) = container["volumeMounts"].as_array_mut() {
                mounts.retain(|mount| !dropped.contains(&mount["name"]));
            }
        }
    }
    if let Some(container) = spec["containers"].get_mut(0) {
        for (name, value) in mpi_environment() {
            set_variable(&mut container["env"], name, &value, false);
        }
        for (volume, folder) in
            [("mpi-job-agent", AGENT_FOLDER), ("mpi-job-config", contract::CONFIG_FOLDER)]
        {
            push(&mut container["volumeMounts"], json!({"name": volume, "mountPath": folder}));
        }
    }
    push(
        &mut spec["initContainers"],
        json!({
            "name": "mpi-agent", "image": agent_image, "imagePullPolicy": "IfNotPresent",
            "command": ["cp", AGENT_IN_IMAGE, AGENT],
            "volumeMounts": [{"name": "mpi-job-agent", "mountPath": AGENT_FOLDER}],
        }),
    );
    push(&mut spec["volumes"], json!({"name": "mpi-job-agent", "emptyDir": {}}));
    let file = |key: &str| json!({"key": key, "path": key, "mode": 0o444});
    let config = json!({
        "name": contract::config_name(job.name()),
        "items": [file(contract::HOSTFILE), file(contract::MACHINEFILE)],
    });
    push(&mut spec["volumes"], json!({"name": "mpi-job-config", "configMap": config}));
    let annotations = job.spec.template["metadata"]["annotations"].clone();
    prune(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            job,
            contract::launcher_name(job.name()),
            role_labels(job.name(), contract::LAUNCHER).into(),
        ),
        "spec": {
            "backoffLimit": job.spec.backoff_limit.unwrap_or(0),
            "activeDeadlineSeconds": job.spec.active_deadline_seconds,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }))
}

/// To the nodes of the control plane, and nowhere else.
fn move_to_master(spec: &mut Value) {
    let role = "node-role.kubernetes.io/master";
    spec["tolerations"] = json!([{"key": role, "operator": "Exists", "effect": "NoSchedule"}]);
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": role, "operator": "Exists"}]}]}}});
}

/// Takes the volume claims out; returns their names.
fn drop_claims(spec: &mut Value) -> Vec<Value> {
    let Some(volumes) = spec["volumes"].as_array_mut() else { return Vec::new() };
    let is_claim = |volume: &Value| volume["persistentVolumeClaim"].is_object();
    let dropped =
        volumes.iter().filter(|volume| is_claim(volume)).map(|volume| volume["name"].clone());
    let dropped = dropped.collect();
    volumes.retain(|volume| !is_claim(volume));
    dropped
}

/// Sets a variable; one that the user has set stays unless it is forced.
fn set_variable(env: &mut Value, name: &str, value: &str, force: bool) {
    let variables = env.as_array_mut();
    let there = variables.as_ref().is_some_and(|env| env.iter().any(|v| v["name"] == name));
    if there && !force {
        return;
    }
    if let Some(variables) = variables {
        variables.retain(|variable| variable["name"] != name);
    }
    push(env, json!({"name": name, "value": value}));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::tests::job;

    const IMAGE: &str = "ringmaster:test";

    fn container(launcher: &Value) -> &Value {
        &launcher["spec"]["template"]["spec"]["containers"][0]
    }

    fn variables(launcher: &Value) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let env = container(launcher)["env"].as_array().unwrap();
        env.iter().map(|v| (text(&v["name"]), text(&v["value"]))).collect()
    }

    #[test]
    fn the_launcher_of_arenas_job() {
        insta::assert_json_snapshot!(launcher(&job(), IMAGE));
    }

    #[test]
    fn it_gets_no_gpu_and_what_the_user_set_stays() {
        let mut job = job();
        let env = json!([
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "OMPI_MCA_plm_rsh_agent", "value": "/my/agent"},
        ]);
        job.spec.template["spec"]["containers"][0]["env"] = env;
        let made = launcher(&job, IMAGE);
        assert_eq!(container(&made)["resources"], json!({}));
        let variables = variables(&made);
        assert_eq!(variables["NVIDIA_VISIBLE_DEVICES"], "void");
        assert_eq!(variables["OMPI_MCA_plm_rsh_agent"], "/my/agent");
        assert_eq!(variables["HYDRA_HOST_FILE"], "/etc/mpi/machinefile");
    }

    #[test]
    fn claims_stay_with_the_workers_unless_asked_for() {
        let mut job = job();
        let spec = &mut job.spec.template["spec"];
        spec["volumes"] = json!([
            {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "b"}},
            {"name": "c", "emptyDir": {}},
        ]);
        spec["containers"][0]["volumeMounts"] = json!([
            {"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}, {"name": "c", "mountPath": "/c"},
        ]);
        for (mounts, count) in [(false, 3), (true, 5)] {
            job.spec.mounts_on_launcher = Some(mounts);
            let made = launcher(&job, IMAGE);
            let volumes = &made["spec"]["template"]["spec"]["volumes"];
            assert_eq!(volumes.as_array().unwrap().len(), count);
            assert_eq!(container(&made)["volumeMounts"].as_array().unwrap().len(), count);
        }
    }

    #[test]
    fn limits_of_tries_time_and_place() {
        let mut job = job();
        (job.spec.backoff_limit, job.spec.active_deadline_seconds) = (Some(3), Some(60));
        job.spec.launcher_on_master = Some(true);
        job.spec.launcher_resources = Some(json!({"requests": {"cpu": "1"}}));
        job.spec.template["spec"]["restartPolicy"] = "Always".into();
        let made = launcher(&job, IMAGE);
        assert_eq!(
            (&made["spec"]["backoffLimit"], &made["spec"]["activeDeadlineSeconds"]),
            (&json!(3), &json!(60))
        );
        assert_eq!(container(&made)["resources"]["requests"]["cpu"], "1");
        let pod = &made["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "OnFailure");
        assert_eq!(pod["tolerations"][0]["key"], "node-role.kubernetes.io/master");
    }
}
