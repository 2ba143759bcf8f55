//! A simulated machine as Kubernetes sees it: the Node object and the node report.

use std::collections::BTreeMap;

use api::{Mode, contract};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use topology::{LinkTable, NodeReport, NodeSpec, Topology};

use crate::{images::Images, status::instant};

/// What every simulated machine has beside its GPUs: the product pages' instance type has 64 vCPU and 256 GiB.
const CPUS: &str = "64";
const MEMORY: &str = "256Gi";
const STORAGE: &str = "1Ti";
/// A kubelet's own default.
const PODS: &str = "110";

/// Where the kubelets listen.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: String,
    pub(crate) port: u16,
}

/// Labels of a new node: none of ours, it starts without a mode.
pub(crate) fn labels(node: &NodeSpec) -> Value {
    let mut labels = json!({
        "kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": instance_type(&node.machine),
    });
    if !node.topology.product.is_amd() && !node.topology.is_empty() {
        labels["nvidia.com/gpu.product"] = node.topology.product.to_string().into();
    }
    labels
}

/// A machine may be a topology file: its name without the folder, as a label takes it.
fn instance_type(machine: &str) -> String {
    let name = machine.rsplit('/').next().unwrap_or(machine);
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '_' { c } else { '-' })
        .take(63)
        .collect();
    name.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// The status of a node that offers so many GPUs under either name.
pub(crate) fn status(
    node: &NodeSpec,
    offered: (usize, usize),
    images: &Images,
    endpoint: &Endpoint,
    since: Timestamp,
) -> Value {
    let mut resources: Map<String, Value> = [
        ("cpu", CPUS),
        ("memory", MEMORY),
        ("ephemeral-storage", STORAGE),
        ("pods", PODS),
        ("hugepages-1Gi", "0"),
        ("hugepages-2Mi", "0"),
    ]
    .into_iter()
    .map(|(name, amount)| (name.to_owned(), amount.into()))
    .collect();
    for (name, count) in [(contract::ALIYUN_GPU, offered.0), (contract::NVIDIA_GPU, offered.1)] {
        // Explicitly zero, as a kubelet leaves a resource whose plugin is gone.
        resources.insert(name.to_owned(), count.to_string().into());
    }
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": instant(Timestamp::now()), "lastTransitionTime": instant(since),
        })
    };
    json!({
        "capacity": resources, "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status (simulated)"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": endpoint.address},
            {"type": "Hostname", "address": node.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": endpoint.port}},
        "images": images.json(),
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "simulated by Ringmaster",
            "kernelVersion": "simulated", "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-simulated"),
            "containerRuntimeVersion": concat!("simulated://", env!("CARGO_PKG_VERSION")), "kubeProxyVersion": "",
            "machineID": "", "systemUUID": "", "bootID": "",
        },
    })
}

/// The report's ConfigMap.
pub(crate) fn report(node: &NodeSpec, topology: &Topology, links: &LinkTable) -> Value {
    let uuids = (0..node.topology.len()).map(|gpu| uuid(&node.name, gpu)).collect();
    let data: BTreeMap<String, String> =
        NodeReport::new(&node.name, topology.clone(), uuids, links).to_data();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": contract::report_name(&node.name), "namespace": contract::REPORT_NAMESPACE,
            "labels": {contract::REPORT_NODE_LABEL: node.name, contract::MODE_LABEL: contract::MODE_TOPOLOGY},
        },
        "data": data,
    })
}

/// UUID of a simulated GPU, the same every time.
fn uuid(node: &str, gpu: usize) -> String {
    let part = |salt: &str| crate::program::hash(&format!("{node}/{gpu}/{salt}"));
    let (high, low) = (part("high"), part("low"));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The mode as the annotation records it.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Topology => contract::MODE_TOPOLOGY,
        Mode::Default => contract::MODE_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeSpec {
        topology::ClusterFile::from_machines("gn6v=1").unwrap().nodes.remove(0)
    }

    #[test]
    fn a_report_is_read_back_with_uuids_of_its_own() {
        let node = node();
        let made = report(&node, &node.topology, &LinkTable::default());
        assert_eq!(
            made["metadata"]["labels"],
            json!({"nodename": "gn6v-1", "ack.node.gpu.schedule": "topology"}),
            "by both Arena and the scheduler find it"
        );
        let data = serde_json::from_value(made["data"].clone()).unwrap();
        let report = NodeReport::from_data("gn6v-1", &data).unwrap();
        assert_eq!(report.topology, node.topology);
        let distinct: std::collections::BTreeSet<&String> = report.uuids.iter().collect();
        assert_eq!(distinct.len(), 8);
        assert_eq!(uuid("gn6v-1", 0), uuid("gn6v-1", 0));
        assert_ne!(uuid("gn6v-1", 0), uuid("gn6v-2", 0));
        assert_eq!(uuid("gn6v-1", 0).len(), "GPU-".len() + 36);
    }

    #[test]
    fn a_new_node_has_no_mode_and_a_machine_of_a_file_makes_a_label() {
        assert!(labels(&node()).get(contract::MODE_LABEL).is_none());
        for (machine, expected) in
            [("gn6v", "gn6v"), ("a/b/my machine.txt", "my-machine.txt"), ("-x-", "x")]
        {
            assert_eq!(instance_type(machine), expected);
        }
    }
}
