//! The topology of one node: its GPUs, the links between them, and its NICs.

use serde::{Deserialize, Serialize};

use crate::{GpuSet, LinkTable, PcieLevel, Product};

/// A square matrix over the GPUs of a node, symmetric where it says how two GPUs are joined.
pub type Matrix<T> = Vec<Vec<T>>;

/// One node's GPUs, links and NICs. GPU indices are `nvidia-smi`'s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// What the GPUs are.
    pub product: Product,
    /// Whether `product` was guessed from the number of links, because nobody named it.
    pub product_inferred: bool,
    /// Number of links (NVLink, xGMI) between two GPUs; 0 on the diagonal. Symmetric.
    pub links: Matrix<u32>,
    /// The PCIe level between two GPUs, where the source tells it (it does not for pairs joined by links).
    pub pcie: Matrix<Option<PcieLevel>>,
    /// The node's network cards.
    pub nics: Vec<Nic>,
    /// NUMA node of each GPU, where known.
    pub numa: Vec<Option<u32>>,
    /// GPUs that work. The others are never placed on.
    pub healthy: GpuSet,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// The name in the matrix (`mlx5_0`, `NIC3`).
    pub name: String,
    /// How far each GPU is from it; `None` where unknown.
    pub levels: Vec<Option<PcieLevel>>,
    /// GB/s in one direction that a collective gets, where known.
    pub bandwidth: Option<f64>,
    /// Whether GPUs reach it without the CPU's help (GPUDirect RDMA); a TCP card is shared by all GPUs of its node.
    pub rdma: bool,
}

impl Topology {
    /// A node whose GPUs share nothing but the CPU.
    pub fn unlinked(product: Product, gpus: usize, level: PcieLevel) -> Self {
        Self {
            product,
            product_inferred: false,
            links: vec![vec![0; gpus]; gpus],
            pcie: (0..gpus)
                .map(|a| (0..gpus).map(|b| (a != b).then_some(level)).collect())
                .collect(),
            nics: Vec::new(),
            numa: vec![None; gpus],
            healthy: GpuSet::first(gpus),
        }
    }

    /// Number of GPUs, broken ones included.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether the node has no GPU.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// All GPUs, broken ones included.
    pub fn gpus(&self) -> GpuSet {
        GpuSet::first(self.len())
    }

    /// Links between two GPUs.
    pub fn link(&self, a: usize, b: usize) -> u32 {
        self.links.get(a).and_then(|row| row.get(b)).copied().unwrap_or_default()
    }

    /// The PCIe level between two GPUs; where the source does not tell, the NUMA nodes do.
    pub fn level(&self, a: usize, b: usize) -> PcieLevel {
        let told = self.pcie.get(a).and_then(|row| row.get(b)).copied().flatten();
        let numa = |gpu: usize| self.numa.get(gpu).copied().flatten();
        told.unwrap_or_else(|| match (numa(a), numa(b)) {
            (Some(x), Some(y)) if x == y => PcieLevel::Node,
            _ => PcieLevel::Sys,
        })
    }

    /// Links of one GPU, summed over its peers.
    pub fn degree(&self, gpu: usize) -> u32 {
        (0..self.len()).map(|peer| self.link(gpu, peer)).sum()
    }

    /// Whether the links go through a switch: a GPU shows more links, summed over its peers, than it has ports.
    pub fn is_switched(&self) -> bool {
        !self.product.is_amd() && (0..self.len()).any(|gpu| self.degree(gpu) > self.product.ports())
    }

    /// Whether GPUs are joined in pairs by bridges: some are, and none has two linked peers.
    pub fn is_bridged(&self) -> bool {
        let peers = |gpu: usize| (0..self.len()).filter(|&peer| self.link(gpu, peer) > 0).count();
        (0..self.len()).any(|gpu| peers(gpu) == 1) && (0..self.len()).all(|gpu| peers(gpu) <= 1)
    }

    /// GB/s in one direction of one link of this node.
    pub fn link_bandwidth(&self, table: &LinkTable) -> f64 {
        table.link(self.product, self.is_bridged())
    }

    /// How two GPUs are joined, in `nvidia-smi`'s words: `NV2`, `PHB`, `X` for a GPU and itself.
    pub fn link_name(&self, a: usize, b: usize) -> String {
        if a == b {
            return "X".to_owned();
        }
        match self.link(a, b) {
            0 => self.level(a, b).to_string(),
            links => format!("{}{links}", if self.product.is_amd() { "XG" } else { "NV" }),
        }
    }

    /// The node with the links between two GPUs gone, as after a failed NVLink.
    pub fn without_link(mut self, a: usize, b: usize) -> Self {
        for (x, y) in [(a, b), (b, a)] {
            if let Some(links) = self.links.get_mut(x).and_then(|row| row.get_mut(y)) {
                *links = 0;
            }
        }
        self
    }

    /// The product that the links of a GPU suggest, from the most links that one has: 18 and more than the 12 of an
    /// A100 are an H100's, and so on down. Machines that differ from their product's full wiring can be misread.
    pub fn infer_product(links: &Matrix<u32>, amd: bool) -> Product {
        let degree = |gpu: usize| links.get(gpu).map_or(0, |row| row.iter().sum());
        let most_links = links.iter().flatten().copied().max().unwrap_or_default();
        let most = (0..links.len()).map(degree).max().unwrap_or_default();
        if most == 0 {
            return Product::Pcie;
        }
        if amd {
            return match (links.len(), most_links) {
                (_, 4) => Product::Mi250x,
                (8, _) if most == 7 => Product::Mi300x,
                (4, _) if most >= 3 => Product::Mi300a,
                _ if most >= 3 => Product::Mi100,
                _ => Product::Vega20,
            };
        }
        match most_links {
            // On a switch each pair shows all links of the GPU.
            18 => Product::H100,
            12 => Product::A100,
            _ => match most {
                1..=2 => Product::Rtx8000,
                3..=4 => Product::P100,
                5..=6 => Product::V100,
                7..=12 => Product::A100,
                18 => Product::H100,
                _ if most_links == 6 => Product::V100,
                _ => Product::H100,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_link_is_gone_both_ways() {
        let mut node = Topology::unlinked(Product::V100, 2, PcieLevel::Phb);
        node.links = vec![vec![0, 2], vec![2, 0]];
        assert_eq!(node.link_name(0, 1), "NV2");
        let node = node.without_link(1, 0);
        assert_eq!((node.link_name(0, 1).as_str(), node.link_name(1, 0).as_str()), ("PHB", "PHB"));
    }

    #[test]
    fn a_pair_of_unknown_level_is_judged_by_numa() {
        let mut node = Topology::unlinked(Product::V100, 3, PcieLevel::Phb);
        node.pcie = vec![vec![None; 3]; 3];
        node.numa = vec![Some(0), Some(0), Some(1)];
        assert_eq!((node.level(0, 1), node.level(1, 2)), (PcieLevel::Node, PcieLevel::Sys));
    }
}
