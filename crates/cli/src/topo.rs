//! `topo show` and `topo list`.

use std::path::Path;

use anyhow::Context;
use clap::{Args, Subcommand};
use placement::{Bandwidth, Class};
use serde::Serialize;
use topology::{GpuSet, LinkTable, Product, Topology, catalogue};

use crate::{
    args::Connection,
    exit::Exit,
    output::{Format, Output},
};

/// The commands about topologies.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the link matrix of a machine of the catalogue, a file or a cluster's node
    Show(Show),
    /// List the machines of the catalogue
    List(List),
}

/// What `topo show` shows.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A machine of the catalogue, a file (`nvidia-smi topo -m` or NCCL's XML), or a node of the cluster
    #[arg(value_name = "FILE|NODE|MACHINE")]
    what: String,
    #[command(flatten)]
    hints: Hints,
    #[command(flatten)]
    output: Output,
}

/// What a topology file does not say.
#[derive(Debug, Clone, Args)]
pub(crate) struct Hints {
    /// The GPU product (v100, a100, h100 …); else it is guessed from the links
    #[arg(long, value_name = "PRODUCT")]
    pub(crate) gpu: Option<Product>,
    #[command(flatten)]
    pub(crate) links: Links,
}

/// What links carry.
#[derive(Debug, Clone, Args)]
pub(crate) struct Links {
    /// A YAML file whose link bandwidths replace the table's, as {links: {v100: 22.9}, pcie: {PHB: 11}} in GB/s
    #[arg(long, value_name = "FILE")]
    pub(crate) link_table: Option<std::path::PathBuf>,
}

impl Links {
    /// The table of link bandwidths.
    pub(crate) fn table(&self) -> anyhow::Result<LinkTable> {
        let Some(path) = &self.link_table else { return Ok(LinkTable::default()) };
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        Ok(LinkTable::from_yaml(&text, &file)?)
    }
}

/// Flags of `topo list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    output: Output,
}

/// A machine as `topo list` names it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: &'static str,
    product: Product,
    gpus: usize,
    nics: usize,
    description: &'static str,
}

/// A topology with its best sets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    name: String,
    description: Option<&'static str>,
    /// GB/s in one direction of one link.
    link_bandwidth: f64,
    switched: bool,
    #[serde(flatten)]
    topology: Topology,
    /// The best set of each size, all GPUs free.
    best: Vec<Best>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Best {
    gpus: Vec<usize>,
    ranks: Vec<usize>,
    bus_bandwidth: f64,
    bound: f64,
    closed: bool,
}

/// Runs a command about topologies.
pub(crate) fn run(command: Command, connection: &Connection) -> anyhow::Result<Exit> {
    match command {
        Command::Show(show) => show.run(connection),
        Command::List(List { output }) => {
            let rows: Vec<Row> = catalogue::machines().map(Row::of).collect();
            output.emit(&rows, |rows| {
                let mut text = "NAME\tGPUS\tNICS\tMACHINE\n".to_owned();
                for row in rows {
                    let gpus = format!("{} x {}", row.gpus, row.product);
                    text += &format!("{}\t{gpus}\t{}\t{}\n", row.name, row.nics, row.description);
                }
                jobs::tabulate(&text)
            })?;
            Ok(Exit::DONE)
        }
    }
}

impl Row {
    fn of(machine: &'static catalogue::Machine) -> Self {
        let topology = machine.topology();
        Self {
            name: machine.name,
            product: topology.product,
            gpus: topology.len(),
            nics: topology.nics.len(),
            description: machine.description(),
        }
    }
}

impl Show {
    fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let table = self.hints.links.table()?;
        let machine = catalogue::machine(&self.what);
        let topology = if machine.is_some() || Path::new(&self.what).is_file() {
            Topology::load(&self.what, self.hints.gpu)?
        } else {
            self.node(connection)?
        };
        let class = Class::new(topology, &table);
        let topology = class.topology();
        let all = topology.healthy;
        let best = (2..=all.len())
            .filter_map(|size| {
                let (set, Bandwidth { bus, bound, closed }) = class.best(all, size)?;
                let gpus: Vec<usize> = set.iter().collect();
                Some(Best { gpus, ranks: class.ranks(set), bus_bandwidth: bus, bound, closed })
            })
            .collect();
        let answer = Answer {
            name: self.what.clone(),
            description: machine.map(catalogue::Machine::description),
            link_bandwidth: topology.link_bandwidth(&table),
            switched: topology.is_switched(),
            topology: topology.clone(),
            best,
        };
        self.output.emit(&answer, Answer::text)?;
        if self.output.format() == Format::Wide && answer.topology.product_inferred {
            crate::output::complain(
                "note: the product is guessed from the links; name it with --gpu",
            );
        }
        Ok(Exit::DONE)
    }
}

impl Show {
    /// The topology that a node of the cluster reports.
    fn node(&self, connection: &Connection) -> anyhow::Result<Topology> {
        let what = &self.what;
        let asked = crate::runtime()?.block_on(async {
            let cluster = connection.cluster().await?;
            Ok::<_, anyhow::Error>(cluster.report(what).await?)
        });
        let report = asked.with_context(|| {
            format!("{what:?} is neither a machine of the catalogue nor a file, nor could a cluster be asked")
        })?;
        let Some(report) = report else {
            anyhow::bail!(
                "{what:?} is neither a machine of the catalogue nor a file, and no node of that name reports its topology"
            )
        };
        let mut topology = report?.topology;
        if let Some(product) = self.hints.gpu {
            (topology.product, topology.product_inferred) = (product, false);
        }
        Ok(topology)
    }
}

impl Answer {
    fn text(&self) -> String {
        let topology = &self.topology;
        let mut head = format!("Name:\t{}\n", self.name);
        if let Some(description) = self.description {
            head += &format!("Machine:\t{description}\n");
        }
        let guess = if topology.product_inferred { " (guessed from the links)" } else { "" };
        head += &format!("GPUs:\t{} x {}{guess}\n", topology.len(), topology.product);
        let most = (0..topology.len()).map(|gpu| topology.degree(gpu)).max().unwrap_or_default();
        head += &match (most, self.switched) {
            (0, _) => "Links:\tnone, PCIe only\n".to_owned(),
            (_, true) => {
                format!("Links:\ta switch, {} GB/s one way a link\n", self.link_bandwidth)
            }
            (links, false) => format!(
                "Links:\tup to {links} a GPU, point to point, {} GB/s one way a link\n",
                self.link_bandwidth
            ),
        };
        let broken = topology.gpus().difference(topology.healthy);
        if !broken.is_empty() {
            head += &format!("Unhealthy:\t{broken}\n");
        }
        for nic in &topology.nics {
            let kind = if nic.rdma { "RDMA" } else { "TCP, shared by all GPUs" };
            let speed = nic.bandwidth.map_or_else(
                || "of unknown speed".to_owned(),
                |speed| format!("{} GB/s each way", rounded(speed)),
            );
            head += &format!("NIC {}:\t{speed}, {kind}\n", nic.name);
        }
        let best = self.best_table();
        format!("{}\n{}{best}", jobs::tabulate(&head), jobs::tabulate(&matrix(topology)))
    }

    fn best_table(&self) -> String {
        if self.best.is_empty() {
            return String::new();
        }
        let mut text = "SIZE\tBEST SET\tRANKS\tBUS GB/s\tBOUND\tRING\n".to_owned();
        for best in &self.best {
            let ranks: Vec<String> = best.ranks.iter().map(ToString::to_string).collect();
            text += &format!(
                "{}\t{}\t{}\t{}\t{}\t{}\n",
                best.gpus.len(),
                best.gpus.iter().copied().collect::<GpuSet>(),
                ranks.join(","),
                rounded(best.bus_bandwidth),
                rounded(best.bound),
                if best.closed { "closed" } else { "open" }
            );
        }
        format!("\n{}", jobs::tabulate(&text))
    }
}

/// The matrix as `nvidia-smi topo -m` lays it out.
fn matrix(topology: &Topology) -> String {
    let known_numa = topology.numa.iter().any(Option::is_some);
    let mut text = String::new();
    for gpu in 0..topology.len() {
        text += &format!("\tGPU{gpu}");
    }
    let placed = |nic: &&topology::Nic| nic.levels.iter().any(Option::is_some);
    for nic in topology.nics.iter().filter(placed) {
        text += &format!("\t{}", nic.name);
    }
    text += if known_numa { "\tNUMA\n" } else { "\n" };
    for a in 0..topology.len() {
        text += &format!("GPU{a}");
        for b in 0..topology.len() {
            text += &format!("\t{}", topology.link_name(a, b));
        }
        for nic in topology.nics.iter().filter(placed) {
            let level = nic.levels.get(a).copied().flatten();
            text += &format!("\t{}", level.map_or("?", topology::PcieLevel::name));
        }
        if known_numa {
            let numa = topology.numa.get(a).copied().flatten();
            text += &numa.map_or_else(|| "\tN/A".to_owned(), |numa| format!("\t{numa}"));
        }
        text.push('\n');
    }
    text
}

/// A bandwidth with at most two decimals.
pub(crate) fn rounded(bandwidth: f64) -> f64 {
    (bandwidth * 100.0).round() / 100.0
}
