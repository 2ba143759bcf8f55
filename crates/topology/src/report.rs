//! The node report: the ConfigMap in which a node tells its topology, and from which Arena prints `top node`.
//!
//! Arena and ACK's scheduler read `devices`, `bandwidth` and `linkType`; what the matrix cannot say (product, UUIDs,
//! NICs, NUMA) stands in keys of ours beside them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{GpuSet, LinkTable, Matrix, Nic, PcieLevel, Product, Topology};

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// The node's name.
    pub node: String,
    /// Its GPUs and links.
    pub topology: Topology,
    /// UUID of each GPU, by index; empty when the report has none.
    pub uuids: Vec<String>,
    /// GB/s between two GPUs, as Arena prints it; the diagonal is a GPU's own memory.
    pub bandwidth: Matrix<f64>,
}

/// Keys of ours.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    product: Product,
    nics: Vec<Nic>,
    numa: Vec<Option<u32>>,
    uuids: Vec<String>,
    pcie: Matrix<Option<PcieLevel>>,
}

/// What is wrong with a node report.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// A key is missing.
    #[error("node report of {node}: key {key} is missing")]
    Missing {
        /// The node.
        node: String,
        /// The key.
        key: &'static str,
    },
    /// A key's value is not the JSON that it should be.
    #[error("node report of {node}: key {key}: {problem}")]
    Malformed {
        /// The node.
        node: String,
        /// The key.
        key: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// GB/s of a V100's own memory copy, the example value of ACK's proposal.
const OWN_MEMORY: f64 = 745.0;

impl NodeReport {
    /// The report of a node whose bandwidths follow from the table: links × GB/s, else the PCIe level's.
    pub fn new(node: &str, topology: Topology, uuids: Vec<String>, table: &LinkTable) -> Self {
        let link = topology.link_bandwidth(table);
        let between = |a: usize, b: usize| match (a == b, topology.link(a, b)) {
            (true, _) => OWN_MEMORY,
            (false, 0) => table.pcie(topology.level(a, b)),
            (false, links) => (f64::from(links) * link * 100.0).round() / 100.0,
        };
        let gpus = topology.len();
        let bandwidth = (0..gpus).map(|a| (0..gpus).map(|b| between(a, b)).collect()).collect();
        Self { node: node.to_owned(), topology, uuids, bandwidth }
    }

    /// The `data` of the ConfigMap.
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let gpus = self.topology.len();
        let devices: BTreeMap<String, &str> = (0..gpus)
            .map(|gpu| {
                (
                    gpu.to_string(),
                    if self.topology.healthy.contains(gpu) { "Healthy" } else { "Unhealthy" },
                )
            })
            .collect();
        let name = |a: usize, b: usize| {
            if a == b { "N-A".to_owned() } else { self.topology.link_name(a, b) }
        };
        let links: Matrix<String> =
            (0..gpus).map(|a| (0..gpus).map(|b| name(a, b)).collect()).collect();
        let details = Details {
            product: self.topology.product,
            nics: self.topology.nics.clone(),
            numa: self.topology.numa.clone(),
            uuids: self.uuids.clone(),
            pcie: self.topology.pcie.clone(),
        };
        let json = |value: serde_json::Result<String>| value.unwrap_or_default();
        [
            ("nodeName", self.node.clone()),
            ("devices", json(serde_json::to_string(&devices))),
            ("bandwidth", json(serde_json::to_string(&self.bandwidth))),
            ("linkType", json(serde_json::to_string(&links))),
            ("ringmaster", json(serde_json::to_string(&details))),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }

    /// Reads the `data` of a node's ConfigMap. Reports of other writers have no product: it is inferred.
    ///
    /// # Errors
    /// The key that is missing or malformed.
    pub fn from_data(node: &str, data: &BTreeMap<String, String>) -> Result<Self, ReportError> {
        fn parse<T: serde::de::DeserializeOwned>(
            node: &str,
            key: &'static str,
            text: &str,
        ) -> Result<T, ReportError> {
            serde_json::from_str(text).map_err(|e| ReportError::Malformed {
                node: node.to_owned(),
                key,
                problem: e.to_string(),
            })
        }
        let get = |key: &'static str| {
            data.get(key).ok_or_else(|| ReportError::Missing { node: node.to_owned(), key })
        };
        let devices: BTreeMap<String, String> = parse(node, "devices", get("devices")?)?;
        let names: Matrix<String> = parse(node, "linkType", get("linkType")?)?;
        let bandwidth: Matrix<f64> = match data.get("bandwidth") {
            Some(text) => parse(node, "bandwidth", text)?,
            None => Vec::new(),
        };
        let details: Option<Details> = match data.get("ringmaster") {
            Some(text) => Some(parse(node, "ringmaster", text)?),
            None => None,
        };
        let malformed = |key: &'static str, problem: String| ReportError::Malformed {
            node: node.to_owned(),
            key,
            problem,
        };
        let gpus = names.len();
        if gpus > GpuSet::CAPACITY {
            return Err(malformed("linkType", format!("{gpus} rows; at most 64 are supported")));
        }
        // The matrix reader knows every way in which a matrix can be wrong.
        let header: String = (0..gpus).map(|gpu| format!("\tGPU{gpu}")).collect();
        let rows: String = names
            .iter()
            .enumerate()
            .map(|(gpu, row)| {
                format!("\nGPU{gpu}\t{}", row.join("\t").replace("N-A", "X").replace("N/A", "X"))
            })
            .collect();
        let product = details.as_ref().map(|details| details.product);
        let mut topology = if gpus == 0 {
            Topology::unlinked(product.unwrap_or(Product::Pcie), 0, PcieLevel::Sys)
        } else {
            Topology::from_topo_m(&format!("{header}{rows}\n"), node, product)
                .map_err(|e| malformed("linkType", e.problem.to_string()))?
        };
        topology.healthy = GpuSet::EMPTY;
        for (index, health) in &devices {
            let gpu = index.parse().ok().filter(|&gpu: &usize| gpu < gpus);
            let gpu = gpu
                .ok_or_else(|| malformed("devices", format!("{index:?} is no GPU of this node")))?;
            if health == "Healthy" {
                topology.healthy.insert(gpu);
            }
        }
        let mut uuids = Vec::new();
        if let Some(details) = details {
            topology.nics = details.nics;
            uuids = details.uuids;
            if details.numa.len() == gpus {
                topology.numa = details.numa;
            }
            if details.pcie.len() == gpus {
                topology.pcie = details.pcie;
            }
        }
        Ok(Self { node: node.to_owned(), topology, uuids, bandwidth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn every_machine_survives_its_report() {
        for machine in catalogue::machines() {
            let mut topology = machine.topology();
            topology.healthy.remove(1);
            let uuids = (0..topology.len()).map(|gpu| format!("GPU-{gpu}")).collect();
            let report = NodeReport::new("n1", topology, uuids, &LinkTable::default());
            let read = NodeReport::from_data("n1", &report.to_data()).unwrap();
            assert_eq!(read, report, "{}", machine.name);
        }
    }

    #[test]
    fn a_report_of_another_writer_has_its_product_inferred() {
        let mut data = NodeReport::new(
            "n1",
            catalogue::machine("gn6v").unwrap().topology(),
            vec![],
            &LinkTable::default(),
        )
        .to_data();
        data.remove("ringmaster");
        let read = NodeReport::from_data("n1", &data).unwrap();
        assert_eq!((read.topology.product, read.topology.product_inferred), (Product::V100, true));
        data.insert("linkType".into(), "[[\"N-A\",\"NV1\"],[\"NV2\",\"N-A\"]]".into());
        let error = NodeReport::from_data("n1", &data).unwrap_err().to_string();
        assert!(error.contains("linkType") && error.contains("GPU1"), "{error}");
        data.remove("devices");
        assert!(NodeReport::from_data("n1", &data).unwrap_err().to_string().contains("devices"));
    }
}
