//! The MPIJob, `kubeflow.org/v1alpha1`, as Arena submits it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};

/// An MPI job: workers, and a launcher that runs mpirun over them.
///
/// The pod template is kept as it came, so that nothing of it is lost on the way into the pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MpiJob {
    /// `kubeflow.org/v1alpha1`.
    #[serde(rename = "apiVersion", default)]
    pub api_version: String,
    /// `MPIJob`.
    #[serde(default)]
    pub kind: String,
    /// Name, labels, annotations.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: MpiJobSpec,
    /// What is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<MpiJobStatus>,
}

/// What an MPI job asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MpiJobSpec {
    /// Total GPUs, instead of `replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i32>,
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
    pub launcher_resources: Option<serde_json::Value>,
    /// Whether the launcher runs on a control-plane node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_on_master: Option<bool>,
    /// Whether the launcher gets the template's volume claims too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts_on_launcher: Option<bool>,
    /// The pods.
    pub template: serde_json::Value,
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
