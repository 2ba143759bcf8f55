//! How two devices of a node reach each other over PCIe.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The part of the PCIe tree that a path between two devices crosses, in `nvidia-smi`'s names, from near to far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PcieLevel {
    /// At most one PCIe switch.
    Pix,
    /// Several PCIe switches, no host bridge.
    Pxb,
    /// A PCIe host bridge, that is the CPU.
    Phb,
    /// Several host bridges of one NUMA node.
    Node,
    /// The link between NUMA nodes. Old drivers say SOC.
    Sys,
}

impl PcieLevel {
    /// Every level, from near to far.
    pub const ALL: [Self; 5] = [Self::Pix, Self::Pxb, Self::Phb, Self::Node, Self::Sys];

    /// The name that `nvidia-smi topo -m` prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }
}

impl fmt::Display for PcieLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The word is no level of a PCIe tree.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of PIX, PXB, PHB, NODE, SYS")]
pub struct UnknownLevel(String);

impl FromStr for PcieLevel {
    type Err = UnknownLevel;

    fn from_str(word: &str) -> Result<Self, UnknownLevel> {
        match word {
            "PIX" => Ok(Self::Pix),
            "PXB" => Ok(Self::Pxb),
            "PHB" => Ok(Self::Phb),
            "NODE" => Ok(Self::Node),
            "SYS" | "SOC" => Ok(Self::Sys),
            other => Err(UnknownLevel(other.to_owned())),
        }
    }
}
