//! The reader of NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`).
//!
//! The file is a tree: `system` holds a `cpu` for each NUMA node, a `cpu` holds `pci` devices and switches, a `pci` a
//! `gpu` or `nic` with its `net` ports. A `gpu` lists its links: `nvlink` or `xgmi`, by the bus id of the other end.

use std::collections::BTreeMap;

use crate::{GpuSet, Nic, PcieLevel, Product, Topology};

/// What is wrong with a topology XML.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{line}: {problem}", line = line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct XmlError {
    /// The file.
    pub file: String,
    /// Line, from 1, where there is one.
    pub line: Option<u32>,
    /// What is wrong.
    pub problem: String,
}

/// Where a device hangs: its NUMA node and the switches above it, from the root down.
struct Place {
    numa: Option<u32>,
    cpu: usize,
    switches: Vec<String>,
}

struct Gpu {
    index: usize,
    bus: String,
    place: Place,
    links: Vec<(String, u32)>,
    line: u32,
}

/// The level between two places of the PCIe tree.
fn level(a: &Place, b: &Place) -> PcieLevel {
    if a.cpu != b.cpu {
        return PcieLevel::Sys;
    }
    let shared = a.switches.iter().zip(&b.switches).take_while(|(x, y)| x == y).count();
    if shared == 0 {
        return PcieLevel::Phb;
    }
    let hops = (a.switches.len() - shared) + (b.switches.len() - shared);
    if hops == 0 { PcieLevel::Pix } else { PcieLevel::Pxb }
}

impl Topology {
    /// Reads NCCL's topology XML. `product` is inferred from the links when nobody says it.
    ///
    /// # Errors
    /// XML that cannot be read, a GPU without an index, a link to a device that is not there, by file and line.
    pub fn from_nccl_xml(
        text: &str,
        file: &str,
        product: Option<Product>,
    ) -> Result<Self, XmlError> {
        let fail =
            |line: Option<u32>, problem: String| XmlError { file: file.to_owned(), line, problem };
        let document = roxmltree::Document::parse(text)
            .map_err(|e| fail(Some(e.pos().row), format!("not XML that can be read: {e}")))?;
        let line = |node: &roxmltree::Node<'_, '_>| document.text_pos_at(node.range().start).row;
        let place = |node: &roxmltree::Node<'_, '_>| {
            let cpu = node.ancestors().find(|a| a.has_tag_name("cpu"));
            // The nearest `pci` is the device itself; those above it are switches.
            let mut switches: Vec<String> = node
                .ancestors()
                .filter(|a| a.has_tag_name("pci"))
                .skip(1)
                .map(|a| a.attribute("busid").unwrap_or_default().to_lowercase())
                .collect();
            switches.reverse();
            Place {
                numa: cpu.and_then(|cpu| cpu.attribute("numaid")).and_then(|id| id.parse().ok()),
                cpu: cpu.map_or(0, |cpu| cpu.range().start),
                switches,
            }
        };

        let mut gpus = Vec::new();
        let mut nics = Vec::new();
        let mut amd = false;
        for node in document.descendants() {
            if node.has_tag_name("gpu") {
                let bus = node
                    .ancestors()
                    .find(|a| a.has_tag_name("pci"))
                    .and_then(|pci| pci.attribute("busid"))
                    .unwrap_or_default();
                let index = node.attribute("dev").unwrap_or_default();
                let index = index.parse().map_err(|_| {
                    fail(
                        Some(line(&node)),
                        format!("gpu {bus}: attribute dev {index:?} is no index"),
                    )
                })?;
                let mut links = Vec::new();
                for link in
                    node.children().filter(|c| c.has_tag_name("nvlink") || c.has_tag_name("xgmi"))
                {
                    amd |= link.has_tag_name("xgmi");
                    let count = link.attribute("count").unwrap_or("1");
                    let count = count.parse().map_err(|_| {
                        fail(
                            Some(line(&link)),
                            format!("gpu {index}: link count {count:?} is no number"),
                        )
                    })?;
                    links
                        .push((link.attribute("target").unwrap_or_default().to_lowercase(), count));
                }
                gpus.push(Gpu {
                    index,
                    bus: bus.to_lowercase(),
                    place: place(&node),
                    links,
                    line: line(&node),
                });
            } else if node.has_tag_name("net") {
                let name = node.attribute("name").unwrap_or("nic").to_owned();
                // Mbit/s; a tenth is lost to framing, as NCCL plans 12 GB/s for 100 Gbit/s.
                let speed = node.attribute("speed").and_then(|s| s.parse::<f64>().ok());
                let rdma = node.attribute("gdr") == Some("1");
                nics.push((name, speed.map(|mbit| mbit / 8000.0 * 0.96), rdma, place(&node)));
            }
        }
        gpus.sort_by_key(|gpu| gpu.index);
        let count = gpus.len();
        if count == 0 {
            return Err(fail(None, "it names no GPU".to_owned()));
        }
        if count > GpuSet::CAPACITY {
            return Err(fail(None, format!("{count} GPUs; at most 64 are supported")));
        }
        if let Some((expected, gpu)) = gpus.iter().enumerate().find(|(i, gpu)| *i != gpu.index) {
            return Err(fail(
                Some(gpu.line),
                format!("gpu dev={} is not where dev={expected} belongs", gpu.index),
            ));
        }
        let by_bus: BTreeMap<&str, usize> =
            gpus.iter().map(|gpu| (gpu.bus.as_str(), gpu.index)).collect();
        let mut links = vec![vec![0; count]; count];
        let mut switch_links = vec![0; count];
        for gpu in &gpus {
            for (target, number) in &gpu.links {
                match by_bus.get(target.as_str()) {
                    Some(&peer) => links[gpu.index][peer] += number,
                    // The other end is an NVSwitch: every GPU on it is a peer.
                    None => switch_links[gpu.index] += number,
                }
            }
        }
        for a in 0..count {
            for b in 0..count {
                if a != b {
                    links[a][b] += switch_links[a].min(switch_links[b]);
                }
            }
        }
        for (a, gpu) in gpus.iter().enumerate() {
            if let Some(b) = (0..count).find(|&b| links[a][b] != links[b][a]) {
                let problem = format!(
                    "gpu {a} lists {} links to gpu {b}, which lists {} back",
                    links[a][b], links[b][a]
                );
                return Err(fail(Some(gpu.line), problem));
            }
        }
        let between = |a: &Gpu, b: &Gpu| (a.index != b.index).then(|| level(&a.place, &b.place));
        let inferred = Self::infer_product(&links, amd);
        Ok(Self {
            product: product.unwrap_or(inferred),
            product_inferred: product.is_none(),
            links,
            pcie: gpus.iter().map(|a| gpus.iter().map(|b| between(a, b)).collect()).collect(),
            nics: nics
                .into_iter()
                .map(|(name, bandwidth, rdma, place)| Nic {
                    name,
                    levels: gpus.iter().map(|gpu| Some(level(&gpu.place, &place))).collect(),
                    bandwidth,
                    rdma,
                })
                .collect(),
            numa: gpus.iter().map(|gpu| gpu.place.numa).collect(),
            healthy: GpuSet::first(count),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_SOCKETS: &str = r#"<system version="1">
  <cpu numaid="0">
    <pci busid="0000:01:00.0"><pci busid="0000:02:00.0"><gpu dev="0">
      <nvlink target="0000:03:00.0" count="2"/></gpu></pci>
      <pci busid="0000:03:00.0"><gpu dev="1"><nvlink target="0000:02:00.0" count="2"/></gpu></pci>
      <pci busid="0000:04:00.0"><nic><net name="mlx5_0" speed="100000" gdr="1"/></nic></pci></pci>
  </cpu>
  <cpu numaid="1"><pci busid="0000:81:00.0"><gpu dev="2"/></pci></cpu>
</system>"#;

    #[test]
    fn a_tree_becomes_a_matrix() {
        let node = Topology::from_nccl_xml(TWO_SOCKETS, "t.xml", Some(Product::V100)).unwrap();
        assert_eq!(node.link_name(0, 1), "NV2");
        assert_eq!(node.level(0, 1), PcieLevel::Pix);
        assert_eq!(node.link_name(0, 2), "SYS");
        assert_eq!(node.numa, [Some(0), Some(0), Some(1)]);
        assert_eq!(
            node.nics[0].levels,
            [Some(PcieLevel::Pix), Some(PcieLevel::Pix), Some(PcieLevel::Sys)]
        );
        assert_eq!(node.nics[0].bandwidth, Some(12.0));
    }

    #[test]
    fn what_is_wrong_is_named_by_line() {
        let one_way = TWO_SOCKETS.replace("<nvlink target=\"0000:02:00.0\" count=\"2\"/>", "");
        for (text, words) in [
            ("<system>".to_owned(), "not XML"),
            ("<system/>".to_owned(), "names no GPU"),
            (one_way, "t.xml:3: gpu 0 lists 2 links to gpu 1, which lists 0 back"),
            (TWO_SOCKETS.replace("dev=\"2\"", "dev=\"7\""), "dev=7 is not where dev=2 belongs"),
            (TWO_SOCKETS.replace("dev=\"2\"", "dev=\"x\""), "dev \"x\" is no index"),
        ] {
            let error = Topology::from_nccl_xml(&text, "t.xml", None).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
