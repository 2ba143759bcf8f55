//! `top node`: nodes, their GPUs and who holds them, as Arena prints it.

use std::collections::BTreeMap;

use api::{Node, Pod, contract};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Serialize;
use serde_json::json;

use crate::{pod_view, tabulate};

/// In which way a node serves its GPUs, as `top node` classes it. The order is that of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeClass {
    /// It has none.
    Normal,
    /// `nvidia.com/gpu`.
    Exclusive,
    /// `aliyun.com/gpu`, with a report.
    Topology,
}

impl NodeClass {
    /// The class that `-m` names.
    ///
    /// # Errors
    /// What the flag takes.
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "none" | "n" => Ok(Self::Normal),
            "exclusive" | "e" => Ok(Self::Exclusive),
            "topology" | "t" => Ok(Self::Topology),
            _ => Err("unknown node type,only supports:[none/n,exclusive/e,topology/t]".to_owned()),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Exclusive => "GPUExclusive",
            Self::Topology => "GPUTopology",
        }
    }

    const fn mode(self) -> &'static str {
        match self {
            Self::Normal => "none",
            Self::Exclusive => "exclusive",
            Self::Topology => "topology",
        }
    }

    const fn resource(self) -> &'static str {
        match self {
            Self::Topology => contract::ALIYUN_GPU,
            Self::Normal | Self::Exclusive => contract::NVIDIA_GPU,
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Normal => "  This node has none gpu devices",
            Self::Exclusive => {
                "  1.This node is enabled gpu exclusive mode.\n  2.Pods can request resource 'nvidia.com/gpu' to use gpu exclusive feature on this node"
            }
            Self::Topology => {
                "  1.This node is enabled gpu topology mode.\n  2.Pods can request resource 'aliyun.com/gpu' to use gpu topology feature on this node"
            }
        }
    }
}

/// A node as `top node` shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// How it serves its GPUs.
    pub class: NodeClass,
    ip: String,
    roles: String,
    status: String,
    total: i64,
    allocated: i64,
    unhealthy: i64,
    devices: Vec<Device>,
    links: Vec<Vec<String>>,
    bandwidth: Vec<Vec<f64>>,
    pods: Vec<Holder>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Device {
    id: String,
    healthy: bool,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
struct Holder {
    namespace: String,
    name: String,
    status: String,
    requested: i64,
    group: Vec<String>,
    visible: Vec<String>,
}

impl NodeView {
    /// Every node with what its report and the pods say. Pods that are done do not count.
    pub fn of_cluster(nodes: &[Node], reports: &[ConfigMap], pods: &[Pod]) -> Vec<Self> {
        let mut views: Vec<Self> = nodes
            .iter()
            .map(|node| {
                let report = reports.iter().find(|report| {
                    let labels = report.metadata.labels.as_ref();
                    labels.and_then(|labels| labels.get(contract::REPORT_NODE_LABEL))
                        == node.metadata.name.as_ref()
                });
                let here = pods.iter().filter(|pod| {
                    pod.spec.node_name.as_deref() == Some(node.name())
                        && !pod_view::is_completed(pod)
                });
                Self::of(node, report, here)
            })
            .collect();
        views.sort_by_key(|view| view.class);
        views
    }

    fn of<'a>(
        node: &Node,
        report: Option<&ConfigMap>,
        pods: impl Iterator<Item = &'a Pod>,
    ) -> Self {
        let amount = |of: &BTreeMap<String, api::Quantity>, resource: &str| {
            of.get(resource).map_or(0, |quantity| quantity.value())
        };
        let labelled = node
            .labels()
            .get(contract::MODE_LABEL)
            .is_some_and(|mode| mode == contract::MODE_TOPOLOGY);
        let class = match report {
            Some(_) if labelled => NodeClass::Topology,
            _ if amount(&node.status.allocatable, contract::NVIDIA_GPU) > 0 => NodeClass::Exclusive,
            _ => NodeClass::Normal,
        };
        let resource = class.resource();
        let total = amount(&node.status.capacity, resource);
        let holders: Vec<Holder> = pods
            .filter(|pod| pod_view::limit(pod, resource) > 0)
            .map(|pod| Holder::of(pod, resource))
            .collect();
        let data =
            report.and_then(|report| report.data.as_ref()).filter(|_| class == NodeClass::Topology);
        let parsed = |key: &str| data.and_then(|data| data.get(key)).map(String::as_str);
        let health: BTreeMap<String, String> =
            parsed("devices").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let mut devices: Vec<Device> = health
            .into_iter()
            .map(|(id, health)| {
                let used = holders.iter().any(|holder| holder.group.contains(&id));
                let status = if used { "using" } else { "idle" };
                Device { healthy: health == "Healthy", status, id }
            })
            .collect();
        devices.sort_by_key(|device| (device.id.parse().unwrap_or(u32::MAX), device.id.clone()));
        Self {
            name: node.name().to_owned(),
            class,
            ip: node
                .status
                .addresses
                .first()
                .map_or_else(|| "N/A".to_owned(), |address| address.address.clone()),
            roles: roles(node),
            status: status(node),
            total,
            allocated: holders.iter().map(|holder| holder.requested).sum(),
            unhealthy: if total > 0 {
                (total - amount(&node.status.allocatable, resource)).max(0)
            } else {
                0
            },
            devices,
            links: parsed("linkType")
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            bandwidth: parsed("bandwidth")
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            pods: holders,
        }
    }

    fn role(&self) -> &str {
        if self.roles.is_empty() { "<none>" } else { &self.roles }
    }

    fn to_json(&self) -> serde_json::Value {
        let mut value = json!({
            "name": self.name,
            "description": format!("\n{}\n", self.class.description()),
            "ip": self.ip,
            "status": self.status,
            "role": self.roles,
            "type": self.class.name(),
        });
        if self.class == NodeClass::Normal {
            return value;
        }
        value["totalGPUs"] = json!(self.total);
        value["allocatedGPUs"] = json!(self.allocated);
        value["unhealthyGPUs"] = json!(self.unhealthy);
        value["gpuMetrics"] = json!([]);
        let topology = self.class == NodeClass::Topology;
        let instances = self.pods.iter().map(|pod| {
            let mut instance = json!({
                "name": pod.name,
                "namespace": pod.namespace,
                "status": pod.status,
                "requestGPUs": pod.requested,
            });
            if topology {
                instance["allocation"] = json!(pod.group);
                instance["visibleGPUs"] = json!(pod.visible);
            }
            instance
        });
        value["instances"] = instances.collect();
        if topology {
            value["devices"] = json!(self.devices);
            value["gpuTopology"] =
                json!({ "linkMatrix": self.links, "bandwidthMatrix": self.bandwidth });
        }
        value
    }

    /// What `top node -d` prints of one node.
    fn details(&self) -> String {
        let mut text = format!(
            "\nName:    {}\nStatus:  {}\nRole:    {}\nType:    {}\nAddress: {}\nDescription:\n{}\n",
            self.name,
            self.status,
            self.role(),
            self.class.name(),
            self.ip,
            self.class.description()
        );
        match self.class {
            NodeClass::Normal => {}
            NodeClass::Exclusive => {
                if !self.pods.is_empty() {
                    text += "Instances:\n  NAMESPACE\tNAME\tSTATUS\tGPU(Requested)\n";
                    text += "  ---------\t----\t------\t--------------\n";
                }
                for pod in &self.pods {
                    text += &format!(
                        "  {}\t{}\t{}\t{}\n",
                        pod.namespace, pod.name, pod.status, pod.requested
                    );
                }
                text += &format!(
                    "GPU Summary:\n  Total GPUs:     {}\n  Allocated GPUs: {}\n  Unhealthy GPUs: {}\n",
                    self.total, self.allocated, self.unhealthy
                );
            }
            NodeClass::Topology => {
                text += &self.topology_details();
            }
        }
        text + "\n"
    }

    fn topology_details(&self) -> String {
        let mut text = String::new();
        if !self.pods.is_empty() {
            text += "Instances:\n  NAMESPACE\tNAME\tGPU(Requested)\tGPU(Allocated)\n";
            text += "  ---------\t----\t--------------\t--------------\n";
        }
        for pod in &self.pods {
            text += &format!(
                "  {}\t{}\t{}\t{}\n",
                pod.namespace,
                pod.name,
                pod.requested,
                pod.group.join(",")
            );
        }
        let header: String =
            (0..self.devices.len()).map(|device| format!("\tGPU{device}")).collect();
        let matrix = |title: &str, rows: Vec<String>| {
            let rows = rows.into_iter().enumerate();
            rows.fold(format!("{title}:\n  {header}\n"), |text, (index, row)| {
                format!("{text}  GPU{index}\t{row}\n")
            })
        };
        if !self.links.is_empty() {
            let rows = self.links.iter().map(|row| row.join("\t")).collect();
            text += &matrix("LinkTypeMatrix", rows);
        }
        if !self.bandwidth.is_empty() {
            let row =
                |row: &Vec<f64>| row.iter().map(ToString::to_string).collect::<Vec<_>>().join("\t");
            text += &matrix("BandwidthMatrix", self.bandwidth.iter().map(row).collect());
        }
        if !self.devices.is_empty() {
            text += "GPUs:\n  INDEX\tSTATUS\tHEALTHY\n  ----\t------\t-------\n";
        }
        for device in &self.devices {
            text += &format!("  GPU{}\t{}\t{}\n", device.id, device.status, device.healthy);
        }
        text + &format!(
            "GPU Summary:\n  Total GPUs: {}\n  Allocated GPUs: {}\n  Unhealthy GPUs: {}\n",
            self.total, self.allocated, self.unhealthy
        )
    }
}

impl Holder {
    fn of(pod: &Pod, resource: &str) -> Self {
        let list = |key: &str| -> Vec<String> {
            let list = pod.annotations().get(key).map_or("", String::as_str);
            list.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            status: pod_view::status(pod),
            requested: pod_view::limit(pod, resource),
            group: list(contract::GPU_GROUP),
            visible: list(contract::GPU_VISIBLE),
        }
    }
}

fn roles(node: &Node) -> String {
    let mut roles: Vec<&str> = node
        .labels()
        .iter()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => Some(value.as_str()),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}

fn status(node: &Node) -> String {
    let ready = node.status.conditions.iter().find(|condition| condition.kind == "Ready");
    let word = match ready.map(|condition| condition.status.as_str()) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    };
    let cordoned = if node.spec.unschedulable { ",SchedulingDisabled" } else { "" };
    format!("{word}{cordoned}")
}

/// The JSON form, with Arena's keys.
pub fn nodes_json(nodes: &[NodeView]) -> serde_json::Value {
    let of = |class: NodeClass| -> serde_json::Value {
        nodes.iter().filter(|node| node.class == class).map(NodeView::to_json).collect()
    };
    json!({
        "gpuShareNodes": [],
        "gpuTopologyNodes": of(NodeClass::Topology),
        "gpuExclusiveNodes": of(NodeClass::Exclusive),
        "normalNodes": of(NodeClass::Normal),
    })
}

/// What `top node -d` prints.
pub fn node_details(nodes: &[NodeView]) -> String {
    tabulate(&nodes.iter().map(NodeView::details).collect::<String>())
}

/// What `top node` prints. `named` says that the user named the nodes: then there is no sum over the cluster.
pub fn node_summary(nodes: &[NodeView], named: bool) -> String {
    let mut classes: Vec<NodeClass> = nodes.iter().map(|node| node.class).collect();
    classes.dedup();
    let one = classes.len() == 1;
    classes.retain(|&class| class != NodeClass::Normal);
    let several = classes.len() > 1;
    let any_unhealthy = nodes.iter().any(|node| node.unhealthy > 0);
    let mut text = "NAME\tIPADDRESS\tROLE\tSTATUS\tGPU(Total)\tGPU(Allocated)".to_owned();
    text += if several { "\tGPU(Mode)" } else { "" };
    text += if any_unhealthy { "\tUNHEALTHY\n" } else { "\n" };
    for node in nodes {
        text += &format!(
            "{}\t{}\t{}\t{}\t{}\t{}",
            node.name,
            node.ip,
            node.role(),
            node.status,
            node.total,
            node.allocated
        );
        if several {
            text += &format!("\t{}", node.class.mode());
        }
        if any_unhealthy {
            text += &format!("\t{}", node.unhealthy);
        }
        text.push('\n');
    }
    let whose = match (one, classes.first()) {
        // Only nodes without GPUs: there is nothing to add up.
        (true, None) => return tabulate(&text),
        (true, Some(class)) => {
            format!("of nodes which own resource {} In Cluster:", class.resource())
        }
        (false, _) if named => return tabulate(&text),
        (false, _) => "In Cluster:".to_owned(),
    };
    let sum = |of: fn(&NodeView) -> i64| nodes.iter().map(of).sum::<i64>();
    let total = sum(|node| node.total);
    text += &format!("{}\nAllocated/Total GPUs {whose}\n", "-".repeat(99));
    text += &share(sum(|node| node.allocated), total);
    let unhealthy = sum(|node| node.unhealthy);
    if unhealthy > 0 {
        text += &format!("Unhealthy/Total GPUs {whose}\n{}", share(unhealthy, total));
    }
    tabulate(&text)
}

fn share(part: i64, total: i64) -> String {
    // Tenths of a per cent, rounded half up.
    let tenths = if total > 0 { (part * 2000 + total) / (2 * total) } else { 0 };
    format!("{part}/{total} ({}.{}%)\n", tenths / 10, tenths % 10)
}
