//! Named machines: matrices of real ones, each a file under `fixtures/topologies`.

use crate::{LinkTable, Nic, Product, Topology};

/// A machine of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Its name, which is also that of its file.
    pub name: &'static str,
    /// What its GPUs are; the matrix does not say.
    pub product: Product,
    /// Its network cards' speed: GB/s in one direction that a collective gets from one card, and whether by RDMA.
    nic: Option<(f64, bool)>,
    /// Whether the matrix shows no card and one TCP card is meant.
    adds_nic: bool,
    text: &'static str,
}

macro_rules! machines {
    ($($name:literal $product:ident $nic:expr;)*) => {
        &[$(Machine {
            name: $name,
            product: Product::$product,
            nic: $nic,
            adds_nic: false,
            text: include_str!(concat!("../../../fixtures/topologies/", $name, ".txt")),
        }),*]
    };
}

/// GB/s of one port under RDMA: NCCL plans 12 for 100, 24 for 200 and 48 for 400 Gbit/s.
const EDR: Option<(f64, bool)> = Some((12.0, true));
const HDR: Option<(f64, bool)> = Some((24.0, true));
const NDR: Option<(f64, bool)> = Some((48.0, true));

/// The machine of the product pages: eight V100 in a virtual machine, one TCP card whose 1.49 GB/s each way follow from
/// the pages' own figures (fit A of the throughput model).
const GN6V: Machine = Machine {
    name: "gn6v",
    product: Product::V100,
    nic: Some((1.49, false)),
    adds_nic: true,
    text: include_str!("../../../fixtures/topologies/v100-8gpu-vm-phb-64vcpu.txt"),
};

const FILES: &[Machine] = machines! {
    "a100-4gpu-perlmutter-like" A100 HDR;
    "a100-4gpu-redstone-2nic" A100 HDR;
    "a100-4gpu-redstone-4nic-leonardo" A100 EDR;
    "a100-8gpu-pcie-bridged-pairs-nccltests178" A100 None;
    "a100-aws-p4d-pcie-only" A100 EDR;
    "a100-azure-ndv4-pcie-only" A100 HDR;
    "dgx-a100-8gpu-10nic-dcgm149" A100 HDR;
    "dgx1-p100-gpuallocator" P100 None;
    "dgx1-v100-4xib-ucxpy" V100 EDR;
    "dgx2-16v100-nvswitch-hwloc" V100 EDR;
    "gb200-4gpu-node-k8stestinfra371" B200 NDR;
    "h100-4gpu-nv6-nccl1617" H100 NDR;
    "h100-8gpu-hgx-10nic-nccl1264" H100 NDR;
    "h100-8gpu-hgx-8nic-pix-node" H100 NDR;
    "h100-azure-ndv5-pcie-only" H100 NDR;
    "mi100-2x4gpu-4nic-rccl" Mi100 HDR;
    "mi100-8gpu-6link-rccl" Mi100 HDR;
    "mi250x-8gcd-4nic-rccl" Mi250x HDR;
    "mi300a-4gpu-rccl" Mi300a HDR;
    "mi300x-8gpu-8nic-rccl" Mi300x NDR;
    "mi355x-8gpu-linktype" Mi355x NDR;
    "pcie-8gpu-all-sys-epyc-nccl1530" Pcie EDR;
    "pcie-8gpu-dualroot-pix-phb-sys" Pcie EDR;
    "pcie-8gpu-dualsocket-node-sys" Pcie EDR;
    "pcie-8gpu-singleroot-pxb-phb-rccl" Pcie EDR;
    "power8-minsky-4p100-hwloc" P100 EDR;
    "rtx8000-4gpu-gpuallocator" Rtx8000 None;
    "v100-4gpu-c4140-nv2-fullmesh" V100 EDR;
    "v100-8gpu-32gb-1nic" V100 EDR;
    "v100-8gpu-vm-phb-64vcpu" V100 None;
    "v100-8gpu-vm16cpu-julia" V100 EDR;
    "v100-azure-ndv2-pcie-only" V100 EDR;
    "vega20-8gpu-ts1-rccl" Vega20 EDR;
};

/// Every machine, the product pages' first, then by name.
pub fn machines() -> impl Iterator<Item = &'static Machine> {
    std::iter::once(&GN6V).chain(FILES)
}

/// The machine of that name.
pub fn machine(name: &str) -> Option<&'static Machine> {
    machines().find(|machine| machine.name == name)
}

impl Machine {
    /// The matrix as its source prints it.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// One line that says what the machine is, from the head of its file.
    pub fn description(&self) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("# machine: ")).unwrap_or(self.name)
    }

    /// The topology, with the speeds of the network cards.
    ///
    /// # Panics
    /// Never: a test reads every machine.
    pub fn topology(&self) -> Topology {
        let read = Topology::from_topo_m(self.text, self.name, Some(self.product));
        let mut topology = match read {
            Ok(topology) => topology,
            Err(error) => unreachable!("a machine of the catalogue reads: {error}"),
        };
        if self.adds_nic {
            let gpus = topology.len();
            topology.nics.push(Nic {
                name: "eth0".to_owned(),
                levels: vec![None; gpus],
                bandwidth: None,
                rdma: false,
            });
        }
        if let Some((bandwidth, rdma)) = self.nic {
            for nic in &mut topology.nics {
                (nic.bandwidth, nic.rdma) = (Some(bandwidth), rdma);
            }
        }
        topology
    }

    /// GB/s in one direction of one link.
    pub fn link_bandwidth(&self, table: &LinkTable) -> f64 {
        self.topology().link_bandwidth(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_reads_and_matches_its_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/topologies");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let names: Vec<&str> = machines().skip(1).map(|machine| machine.name).collect();
        assert_eq!(names, files);
        for machine in machines() {
            let topology = machine.topology();
            assert!(topology.len() >= 4, "{}", machine.name);
            assert_eq!(
                topology.nics.len(),
                topology.nics.iter().filter(|nic| nic.bandwidth.is_some()).count()
            );
        }
    }

    #[test]
    fn products_inferred_from_fully_wired_machines_are_right() {
        for machine in machines() {
            // The PCIe views hide the links; a Minsky has half its ports on the CPU; a bridge hides the card.
            let hidden = ["pcie-only", "minsky", "mi355x", "mi100-2x4gpu"];
            if hidden.iter().any(|word| machine.name.contains(word)) {
                continue;
            }
            let read = Topology::from_topo_m(machine.text, machine.name, None).unwrap();
            assert!(read.product_inferred);
            if machine.name.starts_with("gb200") {
                assert_eq!(read.product, Product::H100, "18 links say no more than that");
            } else {
                assert_eq!(read.product, machine.product, "{}", machine.name);
            }
        }
    }

    #[test]
    fn the_pages_machine_is_the_cube_mesh_with_one_tcp_card() {
        let topology = machine("gn6v").unwrap().topology();
        assert_eq!(topology.link_name(0, 3), "NV2");
        assert_eq!(topology.link_name(0, 7), "PHB");
        assert_eq!(
            (topology.nics.len(), topology.nics[0].bandwidth, topology.nics[0].rdma),
            (1, Some(1.49), false)
        );
        assert!(!topology.is_switched());
    }
}
