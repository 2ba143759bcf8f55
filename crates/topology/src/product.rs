//! GPU products, and the one table of link bandwidths.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::PcieLevel;

/// A GPU product, as far as links and capability are concerned. The order is from least to most capable: a job that
/// names no product gets the least capable one that has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Product {
    /// A GPU without links that we know nothing else of.
    Pcie,
    /// AMD Vega 20 (MI50, MI60).
    Vega20,
    /// NVIDIA Quadro RTX 8000 and its kin, NVLink bridges.
    Rtx8000,
    /// NVIDIA P100, NVLink 1.
    P100,
    /// NVIDIA V100, NVLink 2.
    V100,
    /// AMD MI100.
    Mi100,
    /// AMD MI250X, one graphics die.
    Mi250x,
    /// NVIDIA A100, NVLink 3.
    A100,
    /// AMD MI300A.
    Mi300a,
    /// AMD MI300X.
    Mi300x,
    /// NVIDIA H100, NVLink 4.
    H100,
    /// NVIDIA H200, NVLink 4.
    H200,
    /// AMD MI355X.
    Mi355x,
    /// NVIDIA Blackwell (B200, GB200), NVLink 5.
    B200,
}

impl Product {
    /// Every product, least capable first.
    pub const ALL: [Self; 14] = [
        Self::Pcie,
        Self::Vega20,
        Self::Rtx8000,
        Self::P100,
        Self::V100,
        Self::Mi100,
        Self::Mi250x,
        Self::A100,
        Self::Mi300a,
        Self::Mi300x,
        Self::H100,
        Self::H200,
        Self::Mi355x,
        Self::B200,
    ];

    /// The name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcie => "pcie",
            Self::Vega20 => "vega20",
            Self::Rtx8000 => "rtx8000",
            Self::P100 => "p100",
            Self::V100 => "v100",
            Self::Mi100 => "mi100",
            Self::Mi250x => "mi250x",
            Self::A100 => "a100",
            Self::Mi300a => "mi300a",
            Self::Mi300x => "mi300x",
            Self::H100 => "h100",
            Self::H200 => "h200",
            Self::Mi355x => "mi355x",
            Self::B200 => "b200",
        }
    }

    /// Link ports of one GPU. More links than that, summed over its peers, mean a switch: every pair is then listed
    /// with all the links of the GPU.
    pub const fn ports(self) -> u32 {
        match self {
            Self::Pcie => 0,
            Self::Vega20 | Self::Rtx8000 => 2,
            Self::P100 => 4,
            Self::V100 => 6,
            Self::Mi100 => 7,
            Self::Mi250x => 8,
            Self::A100 => 12,
            Self::Mi300a => 12,
            Self::Mi300x | Self::Mi355x => 7,
            Self::H100 | Self::H200 | Self::B200 => 18,
        }
    }

    /// Whether the maker is AMD, whose links never go through a switch inside a node.
    pub const fn is_amd(self) -> bool {
        matches!(
            self,
            Self::Vega20 | Self::Mi100 | Self::Mi250x | Self::Mi300a | Self::Mi300x | Self::Mi355x
        )
    }

    /// The value of the node label `nvidia.com/gpu.product` (or its kin) read loosely: `Tesla-V100-SXM2-32GB` is a
    /// V100.
    pub fn from_label(value: &str) -> Option<Self> {
        let value = value.to_lowercase();
        Self::ALL.into_iter().skip(1).find(|product| value.contains(product.name()))
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name().to_uppercase())
    }
}

/// The word names no product.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no GPU product; known are {names}", names = Product::ALL.map(Product::name).join(", "))]
pub struct UnknownProduct(String);

impl FromStr for Product {
    type Err = UnknownProduct;

    fn from_str(word: &str) -> Result<Self, UnknownProduct> {
        let lower = word.to_lowercase();
        Self::ALL
            .into_iter()
            .find(|product| product.name() == lower)
            .or_else(|| Self::from_label(&lower))
            .ok_or_else(|| UnknownProduct(word.to_owned()))
    }
}

/// GB/s in one direction of one link of each product and of each PCIe level: what a collective gets, not what the
/// data sheet says. Any entry can be overridden.
///
/// | entry | GB/s | source |
/// |---|---|---|
/// | V100 | 21.7 | alpha-beta fit of an NDv2 machine, 46 µs per MB (TACCL profile) |
/// | P100 | 18.0 | what NCCL plans with; 18.3 measured on a C4130 |
/// | A100 bridged | 17.3 | 208 GB/s over 12 links of a bridged pair (nccl-tests issue 178) |
/// | A100 board | 19.6 | 235 GB/s over 12 links of eight GPUs (NCCL 2.8's plan) |
/// | H100, H200 | 20.6 | what NCCL plans with; 370 GB/s over 18 links measured |
/// | B200 | 40.1 | what NCCL plans with |
/// | RTX 8000 | 12 | what NCCL plans with for bridged cards |
/// | AMD | 37, 50 | xGMI 2 and 3, per link and direction |
/// | PIX, PXB, PHB, NODE, SYS | 10, 10, 9, 8, 6 | in-node rings over PCIe 3; closer is not always faster, so measure |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkTable {
    /// Products' links, GB/s one way.
    pub links: BTreeMap<Product, f64>,
    /// A100s that are joined in pairs by bridges, GB/s one way of one link.
    pub a100_bridged: f64,
    /// PCIe levels, GB/s of a ring whose slowest hop is of the level.
    pub pcie: BTreeMap<PcieLevel, f64>,
}

impl Default for LinkTable {
    fn default() -> Self {
        let links = [
            (Product::Pcie, 0.0),
            (Product::Vega20, 37.0),
            (Product::Rtx8000, 12.0),
            (Product::P100, 18.0),
            (Product::V100, 21.7),
            (Product::Mi100, 37.0),
            (Product::Mi250x, 37.0),
            (Product::A100, 19.6),
            (Product::Mi300a, 37.0),
            (Product::Mi300x, 50.0),
            (Product::H100, 20.6),
            (Product::H200, 20.6),
            (Product::Mi355x, 50.0),
            (Product::B200, 40.1),
        ];
        let pcie = PcieLevel::ALL.into_iter().zip([10.0, 10.0, 9.0, 8.0, 6.0]);
        Self { links: links.into_iter().collect(), a100_bridged: 17.3, pcie: pcie.collect() }
    }
}

/// What is wrong with a table of link bandwidths.
#[derive(Debug, thiserror::Error)]
pub enum LinkTableError {
    /// The text is no such table.
    #[error("{file}: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// The YAML reader's words, with line and column.
        problem: String,
    },
    /// A bandwidth that is none.
    #[error("{file}: {entry}: {value} is no bandwidth in GB/s")]
    Value {
        /// The file.
        file: String,
        /// The product or level.
        entry: String,
        /// What stands there.
        value: f64,
    },
}

/// The entries of a table that differ from the default one.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[derive(Default)]
struct Overrides {
    links: BTreeMap<Product, f64>,
    a100_bridged: Option<f64>,
    pcie: BTreeMap<PcieLevel, f64>,
}

impl LinkTable {
    /// The default table with the entries that `text` names replaced, as `{links: {v100: 22.9}, pcie: {PHB: 11}}`.
    /// `file` is the name for errors.
    ///
    /// # Errors
    /// YAML that cannot be read, by line; an entry that is unknown, negative or no number.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, LinkTableError> {
        let overrides: Overrides = serde_saphyr::from_str(text).map_err(|e| {
            LinkTableError::Syntax { file: file.to_owned(), problem: e.to_string() }
        })?;
        let mut table = Self::default();
        let named = overrides
            .links
            .iter()
            .map(|(product, &value)| (product.to_string(), value))
            .chain(overrides.pcie.iter().map(|(level, &value)| (level.to_string(), value)))
            .chain(overrides.a100_bridged.map(|value| ("a100Bridged".to_owned(), value)));
        for (entry, value) in named {
            if !value.is_finite() || value < 0.0 {
                return Err(LinkTableError::Value { file: file.to_owned(), entry, value });
            }
        }
        table.links.extend(overrides.links);
        table.pcie.extend(overrides.pcie);
        table.a100_bridged = overrides.a100_bridged.unwrap_or(table.a100_bridged);
        Ok(table)
    }

    /// GB/s in one direction of one link; `bridged` says whether the GPUs are joined in pairs by bridges.
    pub fn link(&self, product: Product, bridged: bool) -> f64 {
        if product == Product::A100 && bridged {
            return self.a100_bridged;
        }
        self.links.get(&product).copied().unwrap_or_default()
    }

    /// GB/s of a ring whose slowest hop crosses `level`.
    pub fn pcie(&self, level: PcieLevel) -> f64 {
        self.pcie.get(&level).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels() {
        for product in Product::ALL {
            assert_eq!(product.name().parse(), Ok(product));
        }
        for (label, product) in [
            ("Tesla-V100-SXM2-32GB", Some(Product::V100)),
            ("NVIDIA-A100-SXM4-80GB", Some(Product::A100)),
            ("NVIDIA-H200", Some(Product::H200)),
            ("NVIDIA-GB200", Some(Product::B200)),
            ("A10", None),
        ] {
            assert_eq!(Product::from_label(label), product, "{label}");
        }
        assert!("banana".parse::<Product>().unwrap_err().to_string().contains("v100"));
    }

    #[test]
    fn a_table_is_overridden_entry_by_entry() {
        let table =
            LinkTable::from_yaml("links: {v100: 22.9}\npcie: {PHB: 11}\n", "t.yaml").unwrap();
        assert_eq!(table.link(Product::V100, false), 22.9);
        assert_eq!(table.link(Product::H100, false), 20.6);
        assert_eq!((table.pcie(PcieLevel::Phb), table.pcie(PcieLevel::Sys)), (11.0, 6.0));
        for (text, words) in [
            ("links: {v900: 1}", "v900"),
            ("links: {v100: -1}", "V100: -1 is no bandwidth"),
            ("pcie: {PHB: .nan}", "PHB: NaN"),
            ("nics: {}", "nics"),
        ] {
            let error = LinkTable::from_yaml(text, "t.yaml").unwrap_err().to_string();
            assert!(error.starts_with("t.yaml") && error.contains(words), "{error}");
        }
    }
}
