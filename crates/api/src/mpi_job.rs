//! The MPIJob, `kubeflow.org/v1alpha1`, as Arena submits it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An MPI job: workers, and a launcher that runs mpirun over them.
///
/// The pod template is kept as it came, so that nothing of it is lost on the way into the pods. A job whose spec cannot
/// be read is a job all the same, with [`MpiJobSpec::problem`] set: one such job must not hide the others of a list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Wire")]
pub struct MpiJob {
    /// `kubeflow.org/v1alpha1`.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// `MPIJob`.
    pub kind: String,
    /// Name, labels, annotations.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: MpiJobSpec,
    /// What is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<MpiJobStatus>,
}

/// A job as it comes, before its spec is read.
#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl From<Wire> for MpiJob {
    fn from(wire: Wire) -> Self {
        let spec = match wire.spec {
            Value::Null => MpiJobSpec::default(),
            spec => serde_json::from_value(spec).unwrap_or_else(|error| MpiJobSpec {
                problem: Some(format!("spec: {error}")),
                ..MpiJobSpec::default()
            }),
        };
        // A status that cannot be read is none: it is written anew from what is observed.
        let status = serde_json::from_value(wire.status).unwrap_or_default();
        Self {
            api_version: wire.api_version,
            kind: wire.kind,
            metadata: wire.metadata,
            spec,
            status,
        }
    }
}

/// What an MPI job asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MpiJobSpec {
    /// Total GPUs, instead of `replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i32>,
    /// GPUs of a node, by which `gpus` is divided among workers; the operator's setting when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<i32>,
    /// Total processing units of `processing_resource_type`, instead of `replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_units: Option<i32>,
    /// Processing units of a node, as `gpus_per_node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_units_per_node: Option<i32>,
    /// The resource that a processing unit is: `nvidia.com/gpu` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_resource_type: Option<String>,
    /// Ranks of a worker; its GPUs when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_per_worker: Option<i32>,
    /// Workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// `All`, `Running` or `None`: which workers go when the launcher is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<String>,
    /// How often a failed launcher starts again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// Seconds after which the job is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Resources of the launcher, instead of the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_resources: Option<Value>,
    /// Whether the launcher runs on a control-plane node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_on_master: Option<bool>,
    /// Whether the launcher gets the template's volume claims too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts_on_launcher: Option<bool>,
    /// The pods.
    pub template: Value,
    /// Why the spec could not be read; nothing else of it is set then.
    #[serde(skip)]
    pub problem: Option<String>,
}

/// How an MPI job stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MpiJobStatus {
    /// `Active`, `Succeeded` or `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_status: Option<String>,
    /// Workers that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_replicas: Option<i32>,
    /// When the launcher started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

impl kube::Resource for MpiJob {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "MPIJob".into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "kubeflow.org".into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "mpijobs".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl MpiJob {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `Active`, `Succeeded`, `Failed`, or nothing before the launcher ran.
    pub fn launcher_status(&self) -> &str {
        self.status
            .as_ref()
            .and_then(|status| status.launcher_status.as_deref())
            .unwrap_or_default()
    }

    /// Whether the launcher is done.
    pub fn is_done(&self) -> bool {
        matches!(self.launcher_status(), "Succeeded" | "Failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_kept_as_it_came() {
        let text = r#"{"apiVersion":"kubeflow.org/v1alpha1","kind":"MPIJob","metadata":{"name":"a"},"spec":{
            "gpusPerNode":4,"replicas":2,"template":{"spec":{"volumes":null,"somethingNew":[1]}}}}"#;
        let job: MpiJob = serde_json::from_str(text).unwrap();
        assert_eq!((job.spec.replicas, job.spec.gpus_per_node), (Some(2), Some(4)));
        assert_eq!(job.spec.problem, None);
        let there: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&job).unwrap()["spec"], there["spec"]);
    }

    #[test]
    fn a_spec_that_cannot_be_read_is_a_problem_of_its_job_only() {
        let list: Vec<MpiJob> = serde_json::from_str(
            r#"[{"metadata":{"name":"a"},"spec":{"replicas":"two"},"status":7},
                {"metadata":{"name":"b"},"spec":null,"status":{"launcherStatus":"Active"}}]"#,
        )
        .unwrap();
        let [bad, good] = list.as_slice() else { panic!("two jobs") };
        assert_eq!((bad.name(), &bad.status), ("a", &None));
        assert!(bad.spec.problem.as_deref().is_some_and(|problem| problem.contains("two")));
        assert_eq!((good.launcher_status(), &good.spec.problem), ("Active", &None));
    }
}
