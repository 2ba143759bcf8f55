//! The pod, with the fields that scheduling, the operator and the simulated kubelets read.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{Deserialize, Serialize};

use crate::{LabelSelector, NodeSelector, Quantity, selector::NodeSelectorTerm};

/// A pod. It is only patched, never written back whole: the fields that it lacks must not be lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, kube::Resource)]
#[resource(inherit = core::Pod)]
pub struct Pod {
    /// Name, labels, annotations, owners.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: PodSpec,
    /// What is.
    #[serde(default)]
    pub status: PodStatus,
}

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node, once bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Who schedules it.
    pub scheduler_name: String,
    /// Containers.
    pub containers: Vec<Container>,
    /// Init containers, sidecars among them.
    pub init_containers: Vec<Container>,
    /// `Always`, `OnFailure` or `Never`.
    pub restart_policy: String,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity.
    pub affinity: Affinity,
    /// Taints it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Spread over topology domains.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority, resolved from the class.
    pub priority: i32,
    /// Priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Gates that hold it back.
    pub scheduling_gates: Vec<Gate>,
    /// Volumes; only their kind counts.
    pub volumes: Vec<serde_json::Map<String, serde_json::Value>>,
    /// Claims on dynamic resources.
    pub resource_claims: Vec<serde_json::Value>,
    /// Whether it shares the host's network.
    pub host_network: bool,
    /// What the sandbox around the containers takes.
    pub overhead: BTreeMap<String, Quantity>,
    /// Requests of the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Seconds a container gets to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Program; replaces the image's.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<EnvVar>,
    /// What it asks for.
    pub resources: ResourceRequirements,
    /// Ports.
    pub ports: Vec<Port>,
    /// Mounts.
    pub volume_mounts: Vec<VolumeMount>,
    /// `Always` makes an init container a sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

/// A variable of the environment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value, when it is written out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A mount of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// The volume.
    pub name: String,
    /// Where it appears.
    pub mount_path: String,
}

/// Requests and limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    /// What is reserved.
    pub requests: BTreeMap<String, Quantity>,
    /// What may be used.
    pub limits: BTreeMap<String, Quantity>,
    /// Claims on dynamic resources.
    pub claims: Vec<serde_json::Value>,
}

/// A port of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Port in the container.
    pub container_port: i32,
    /// Port on the host; 0 for none.
    pub host_port: i32,
    /// Address on the host.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// Affinity to nodes and pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// To nodes.
    pub node_affinity: NodeAffinity,
    /// To pods: only whether it is there counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// Away from pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Affinity to nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Terms of which one must hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
    /// Terms that count in favour of a node.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredTerm>,
}

/// A term that counts in favour of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// 1–100.
    pub weight: i32,
    /// The term.
    pub preference: NodeSelectorTerm,
}

/// Affinity to pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// Terms that must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Vec<serde_json::Value>,
    /// Terms that count in favour of a node.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<serde_json::Value>,
}

/// A taint that a pod tolerates.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key; empty with `Exists` tolerates everything.
    pub key: String,
    /// `Equal` (also when empty) or `Exists`.
    pub operator: String,
    /// Value for `Equal`.
    pub value: String,
    /// Effect; empty for all.
    pub effect: String,
}

/// A taint of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Toleration {
    /// Whether it tolerates the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => !self.key.is_empty() && self.value == taint.value,
            _ => false,
        }
    }
}

/// Spread over the domains of a node label.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// Largest difference between the domains.
    pub max_skew: i32,
    /// The node label.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// Which pods count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Domains that there should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// Labels of the pod itself that narrow the selector.
    pub match_label_keys: Vec<String>,
    /// `Honor` (default) or `Ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore` (default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
}

/// A gate that holds a pod back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Its name.
    pub name: String,
}

/// What a pod is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// Init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Why it is in its phase.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// Address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// Address of its node.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// When the kubelet took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
}

/// A condition of a pod, a node or a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in words.
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// What a container is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Whether it serves.
    pub ready: bool,
    /// How often it was started again.
    pub restart_count: i32,
    /// Now.
    pub state: ContainerState,
    /// Before the last start.
    pub last_state: ContainerState,
}

/// One of three states of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerState {
    /// Not started yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// Ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

/// Why a container waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// In one word.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// Since when a container runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

/// How a container ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Exit code.
    pub exit_code: i32,
    /// In one word.
    pub reason: String,
    /// Signal, if one ended it.
    pub signal: i32,
    /// Start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// End.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

impl Pod {
    /// Its labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.metadata.labels.as_ref().unwrap_or(&NONE)
    }

    /// Its annotations.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.metadata.annotations.as_ref().unwrap_or(&NONE)
    }

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

    /// Whether it is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether a container of it ever started; a kubelet that refuses a pod starts none.
    pub fn ever_started(&self) -> bool {
        self.status.container_statuses.iter().chain(&self.status.init_container_statuses).any(
            |container| {
                let ran =
                    |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
                ran(&container.state) || ran(&container.last_state) || container.restart_count > 0
            },
        )
    }

    /// Whether all its containers serve.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|condition| condition.status == "True")
    }

    /// Whether it shows NCCL the identity of its node: the host's name, by its network, and the host's /dev/shm in its
    /// first container. Without either, NCCL takes pods of one node for separate hosts.
    pub fn shares_host(&self) -> bool {
        const SHM: &str = "/dev/shm";
        let is_host = |volume: &&serde_json::Map<String, serde_json::Value>| {
            volume.get("hostPath").and_then(|host| host.get("path")?.as_str()) == Some(SHM)
        };
        let volumes: Vec<&str> = self
            .spec
            .volumes
            .iter()
            .filter(is_host)
            .filter_map(|volume| volume.get("name")?.as_str())
            .collect();
        let mounts_it = self.spec.containers.first().is_some_and(|container| {
            let mut mounts = container.volume_mounts.iter();
            mounts.any(|mount| mount.mount_path == SHM && volumes.contains(&mount.name.as_str()))
        });
        self.spec.host_network && mounts_it
    }

    /// A condition by its type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// UID of the controller that owns it.
    pub fn controller(&self) -> Option<&str> {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations() {
        let taint = Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into() };
        for (key, operator, value, effect, expected) in [
            ("gpu", "Equal", "yes", "NoSchedule", true),
            ("gpu", "", "yes", "", true),
            ("gpu", "Equal", "no", "", false),
            ("gpu", "Exists", "", "NoExecute", false),
            ("", "Exists", "", "", true),
            ("", "Equal", "yes", "", false),
            ("cpu", "Exists", "", "", false),
        ] {
            let toleration = Toleration {
                key: key.into(),
                operator: operator.into(),
                value: value.into(),
                effect: effect.into(),
            };
            assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
        }
    }

    #[test]
    fn host_identity_takes_the_hosts_network_and_memory() {
        let pod = |network: bool, path: &str, mounted: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {}, "spec": {
                    "hostNetwork": network, "volumes": [{"name": "v", "hostPath": {"path": path}}],
                    "containers": [{"name": "c", "volumeMounts": [{"name": mounted, "mountPath": "/dev/shm"}]}],
                },
            }))
            .unwrap()
        };
        assert!(pod(true, "/dev/shm", "v").shares_host());
        assert!(!pod(false, "/dev/shm", "v").shares_host());
        assert!(!pod(true, "/tmp", "v").shares_host());
        assert!(!pod(true, "/dev/shm", "w").shares_host());
    }

    #[test]
    fn a_pod_as_the_api_server_sends_it() {
        let pod: Pod = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"c"},
                "spec":{"containers":[{"name":"x","resources":{"limits":{"aliyun.com/gpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{}}]},
                "status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","lastTransitionTime":null}]}}"#,
        )
        .unwrap();
        assert_eq!((pod.name(), pod.spec.containers[0].name.as_str()), ("a", "x"));
        assert!(!pod.ever_started() && !pod.is_finished());
    }
}
