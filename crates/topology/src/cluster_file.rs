//! The cluster file: a YAML list of nodes, each a machine's name or a topology file.
//!
//! ```yaml
//! - {name: n1, topology: gn6v}
//! - {name: n2, topology: rack7.txt, gpu: v100, free: [0, 2, 3]}
//! ```

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::{GpuSet, MatrixError, Product, Topology, XmlError, catalogue};

/// A cluster as a file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFile {
    /// Its nodes, in the file's order.
    pub nodes: Vec<NodeSpec>,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSpec {
    /// The node's name.
    pub name: String,
    /// The machine's name in the catalogue, or the topology file's.
    pub machine: String,
    /// Its GPUs and links.
    pub topology: Topology,
    /// The GPUs that nobody holds.
    pub free: GpuSet,
}

/// What is wrong with a cluster file or with the topology of a node in it.
#[derive(Debug, thiserror::Error)]
pub enum ClusterFileError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no list of nodes.
    #[error("{file}: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// The YAML reader's words, with line and column.
        problem: String,
    },
    /// Two nodes have one name.
    #[error("{file}:{line}: node {name:?} is there twice")]
    Twice {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The name.
        name: String,
    },
    /// A name or file that is none.
    #[error(
        "{file}:{line}: node {name:?}: {machine:?} is neither a machine of the catalogue nor a file"
    )]
    UnknownMachine {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The node.
        name: String,
        /// What it names.
        machine: String,
    },
    /// A free GPU that the node has not.
    #[error("{file}:{line}: node {name:?}: free names GPU {gpu}, but the node has {gpus} GPUs")]
    NoSuchGpu {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The node.
        name: String,
        /// The GPU.
        gpu: usize,
        /// How many there are.
        gpus: usize,
    },
    /// The topology file cannot be read.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// The topology XML cannot be read.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// The catalogue does not have it.
    #[error("{0:?} is no machine of the catalogue; `ringmaster topo list` names them")]
    NoSuchMachine(String),
    /// A machine list such as `gn6v=2` is wrong.
    #[error("{0:?} is not MACHINE=COUNT (as gn6v=2)")]
    MachineCount(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    topology: Spanned<String>,
    #[serde(default)]
    free: Option<Spanned<GpuSet>>,
    #[serde(default)]
    gpu: Option<Product>,
}

/// `name` as a machine of the catalogue, else as a file: NCCL topology XML by its extension, a matrix otherwise.
fn load(path: &Path, product: Option<Product>) -> Result<Topology, ClusterFileError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| ClusterFileError::Read { file: file.clone(), source })?;
    if path.extension().is_some_and(|extension| extension == "xml") {
        return Ok(Topology::from_nccl_xml(&text, &file, product)?);
    }
    Ok(Topology::from_topo_m(&text, &file, product)?)
}

impl Topology {
    /// A machine of the catalogue or a topology file (`.xml` is NCCL's form).
    ///
    /// # Errors
    /// The file cannot be read, or its matrix is wrong.
    pub fn load(name: &str, product: Option<Product>) -> Result<Self, ClusterFileError> {
        match catalogue::machine(name) {
            Some(machine) => {
                let mut topology = machine.topology();
                topology.product = product.unwrap_or(topology.product);
                Ok(topology)
            }
            None => load(Path::new(name), product),
        }
    }
}

impl ClusterFile {
    /// Reads a cluster file; topology files are relative to it.
    ///
    /// # Errors
    /// The file, the line or the node that is wrong.
    pub fn read(path: &Path) -> Result<Self, ClusterFileError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ClusterFileError::Read { file: file.clone(), source })?;
        Self::parse(&text, &file, path.parent().unwrap_or_else(|| Path::new("")))
    }

    fn parse(text: &str, file: &str, folder: &Path) -> Result<Self, ClusterFileError> {
        let entries: Vec<Entry> = serde_saphyr::from_str(text).map_err(|e| {
            ClusterFileError::Syntax { file: file.to_owned(), problem: e.to_string() }
        })?;
        let mut names = BTreeSet::new();
        let mut nodes = Vec::new();
        for Entry { name, topology: machine, free, gpu } in entries {
            let (name, line) = (name.value, name.referenced.line());
            if !names.insert(name.clone()) {
                return Err(ClusterFileError::Twice { file: file.to_owned(), line, name });
            }
            let (machine, line) = (machine.value, machine.referenced.line());
            let topology = match catalogue::machine(&machine) {
                Some(_) => Topology::load(&machine, gpu)?,
                None => {
                    let path: PathBuf = folder.join(&machine);
                    if !path.exists() {
                        return Err(ClusterFileError::UnknownMachine {
                            file: file.to_owned(),
                            line,
                            name,
                            machine,
                        });
                    }
                    load(&path, gpu)?
                }
            };
            let line = free.as_ref().map_or(line, |free| free.referenced.line());
            let free = free.map_or_else(|| topology.gpus(), |free| free.value);
            if let Some(gpu) = free.difference(topology.gpus()).lowest() {
                return Err(ClusterFileError::NoSuchGpu {
                    file: file.to_owned(),
                    line,
                    name,
                    gpu,
                    gpus: topology.len(),
                });
            }
            nodes.push(NodeSpec { name, machine, topology, free });
        }
        Ok(Self { nodes })
    }

    /// The nodes of `gn6v=2`: `gn6v-1`, `gn6v-2`. Several machines are separated by commas.
    ///
    /// # Errors
    /// A count that is no number, a machine that the catalogue does not have.
    pub fn from_machines(list: &str) -> Result<Self, ClusterFileError> {
        let mut nodes = Vec::new();
        for item in list.split(',') {
            let (machine, count) = item.split_once('=').unwrap_or((item, "1"));
            let count: usize = count
                .parse()
                .ok()
                .filter(|&n| n > 0)
                .ok_or_else(|| ClusterFileError::MachineCount(item.to_owned()))?;
            let known = catalogue::machine(machine)
                .ok_or_else(|| ClusterFileError::NoSuchMachine(machine.to_owned()))?;
            let topology = known.topology();
            nodes.extend((1..=count).map(|number| NodeSpec {
                name: format!("{machine}-{number}"),
                machine: machine.to_owned(),
                free: topology.gpus(),
                topology: topology.clone(),
            }));
        }
        Ok(Self { nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClusterFile, ClusterFileError> {
        ClusterFile::parse(text, "c.yaml", Path::new(""))
    }

    #[test]
    fn nodes_of_the_catalogue() {
        let cluster =
            parse("- {name: n1, topology: gn6v}\n- {name: n2, topology: gn6v, free: [0, 3]}\n")
                .unwrap();
        assert_eq!(cluster.nodes[0].free, GpuSet::first(8));
        assert_eq!(cluster.nodes[1].free.to_string(), "0,3");
        let same = ClusterFile::from_machines("gn6v=2").unwrap();
        assert_eq!(
            same.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(),
            ["gn6v-1", "gn6v-2"]
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("- {name: n1}", "topology"),
            (
                "- {name: n1, topology: gn6v}\n- {name: n1, topology: gn6v}",
                "c.yaml:2: node \"n1\" is there twice",
            ),
            ("- {name: n1, topology: nope}", "\"nope\" is neither a machine"),
            (
                "- {name: n1, topology: gn6v, free: [8]}",
                "free names GPU 8, but the node has 8 GPUs",
            ),
            ("- {name: n1, topology: gn6v, gpu: banana}", "banana"),
            ("- {name: n1, topology: gn6v, colour: red}", "colour"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("c.yaml") && error.contains(words), "{error}");
        }
        for list in ["gn6v=0", "gn6v=two", "nope=1"] {
            assert!(ClusterFile::from_machines(list).is_err(), "{list}");
        }
    }
}
