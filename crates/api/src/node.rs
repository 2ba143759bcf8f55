//! The node, with the fields that scheduling reads.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};

use crate::{
    Quantity, contract,
    pod::{Condition, Taint},
};

/// A node. It is only patched, never written back whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, kube::Resource)]
#[resource(inherit = core::Node)]
pub struct Node {
    /// Name, labels, annotations.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: NodeSpec,
    /// What is.
    #[serde(default)]
    pub status: NodeStatus,
}

/// What is asked of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether new pods are kept off.
    pub unschedulable: bool,
    /// Taints.
    pub taints: Vec<Taint>,
}

/// What a node is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// What pods may use.
    pub allocatable: BTreeMap<String, Quantity>,
    /// What there is.
    pub capacity: BTreeMap<String, Quantity>,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Addresses.
    pub addresses: Vec<Address>,
    /// Images that need no pull.
    pub images: Vec<Image>,
    /// Where its kubelet listens.
    pub daemon_endpoints: DaemonEndpoints,
}

/// Where the daemons of a node listen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonEndpoints {
    /// The kubelet.
    pub kubelet_endpoint: Endpoint,
}

/// Where a daemon listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Port; 0 for none.
    #[serde(rename = "Port")]
    pub port: i32,
}

/// An address of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `InternalIP`, `Hostname`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

/// An image on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// Its names.
    pub names: Vec<String>,
    /// Bytes.
    pub size_bytes: i64,
}

/// In which way a node serves its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// As `aliyun.com/gpu`, placed by topology.
    Topology,
    /// As `nvidia.com/gpu`.
    Default,
}

impl Node {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

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

    /// Whether its kubelet says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    /// The mode in force: what the label says; without one, what was last in force.
    pub fn mode(&self) -> Mode {
        let wanted = self.labels().get(contract::MODE_LABEL).map(String::as_str);
        let last = self.annotations().get(contract::MODE_ANNOTATION).map(String::as_str);
        match wanted.or(last) {
            Some(contract::MODE_TOPOLOGY) => Mode::Topology,
            _ => Mode::Default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_decides_and_deleting_it_changes_nothing() {
        let node = |label: Option<&str>, annotation: Option<&str>| {
            let map = |key: &str, value: Option<&str>| {
                value.map(|v| BTreeMap::from([(key.to_owned(), v.to_owned())]))
            };
            Node {
                metadata: ObjectMeta {
                    labels: map(contract::MODE_LABEL, label),
                    annotations: map(contract::MODE_ANNOTATION, annotation),
                    ..ObjectMeta::default()
                },
                ..Node::default()
            }
        };
        assert_eq!(node(None, None).mode(), Mode::Default);
        assert_eq!(node(Some("topology"), None).mode(), Mode::Topology);
        assert_eq!(node(None, Some("topology")).mode(), Mode::Topology);
        assert_eq!(node(Some("default"), Some("topology")).mode(), Mode::Default);
    }
}
