//! `plan`: where a gang would go, offline.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use jobs::Described;
use placement::{Classes, NodeOption, Piece, Placement, Profile, Request, RunnerUp, Shortage};
use serde::Serialize;
use topology::{ClusterFile, GpuSet, NodeSpec, Topology};

use crate::{
    exit::{Exit, NO_PLACEMENT, Usage},
    output::Output,
    topo::{Hints, rounded},
};

/// Flags of `plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// One node: a machine of the catalogue or a topology file
    #[arg(long, value_name = "FILE|MACHINE", required_unless_present_any = ["cluster", "machine"])]
    topology: Option<String>,
    /// The free GPUs of that node; else all
    #[arg(long, value_name = "0,2,3", requires = "topology")]
    free: Option<GpuSet>,
    /// Several nodes: a YAML list of {name, topology, free?, gpu?}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["topology", "machine"])]
    cluster: Option<PathBuf>,
    /// Several machines of the catalogue, all free (as gn6v=2)
    #[arg(long, value_name = "MACHINE=N", conflicts_with = "topology")]
    machine: Option<String>,
    /// GPUs of one worker on one node; short for --workers 1 --gpus-per-worker K
    #[arg(
        long,
        value_name = "K",
        value_parser = positive,
        allow_hyphen_values = true,
        conflicts_with_all = ["workers", "gpus_per_worker"],
        required_unless_present = "workers"
    )]
    gpus: Option<usize>,
    /// Workers of the gang
    #[arg(long, value_name = "N", value_parser = positive, allow_hyphen_values = true)]
    workers: Option<usize>,
    /// GPUs of each worker
    #[arg(
        long,
        value_name = "G",
        value_parser = positive,
        allow_hyphen_values = true,
        default_value = "1"
    )]
    gpus_per_worker: usize,
    #[command(flatten)]
    job: Job,
    /// The workers of a node do not know that they share a host (no host network, or no common /dev/shm)
    #[arg(long)]
    separate_hosts: bool,
    #[command(flatten)]
    hints: Hints,
    #[command(flatten)]
    output: Output,
}

/// What the job computes, for the throughput model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What the job computes (for the throughput model)")]
pub(crate) struct Job {
    /// A job of the model's table, as tf/vgg16:64
    #[arg(long = "job", alias = "model", value_name = "FRAMEWORK/MODEL[:BATCH]")]
    model: Option<String>,
    #[command(flatten)]
    numbers: Numbers,
}

/// The numbers of a program that is not in the model's table.
#[derive(Debug, Clone, Args)]
pub(crate) struct Numbers {
    /// Parameters of the network (four bytes of gradient each)
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    parameters: Option<f64>,
    /// Bytes of gradient that a step exchanges
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    gradient_bytes: Option<f64>,
    /// Seconds that one step computes on one GPU
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    step_time: Option<f64>,
    /// Samples that a GPU takes in a step
    #[arg(long, value_name = "SAMPLES", allow_negative_numbers = true)]
    batch: Option<f64>,
}

impl Numbers {
    /// The description, with the model of the table that was named beside it.
    pub(crate) fn described(&self, model: Option<String>) -> Described {
        Described {
            model,
            parameters: self.parameters,
            gradient_bytes: self.gradient_bytes,
            step_time: self.step_time,
            batch: self.batch,
        }
    }
}

/// A count from 1 up.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|&count| count > 0)
        .ok_or_else(|| "it must be a whole number from 1 up".to_owned())
}

/// The answer, in the form that the documentation promises.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    placements: Vec<Part>,
    bus_bandwidth: Option<f64>,
    bound: Option<f64>,
    optimal: bool,
    objective: placement::Objective,
    throughput: Option<f64>,
    runner_up: Option<Second>,
}

#[derive(Serialize)]
struct Part {
    node: Arc<str>,
    gpus: Vec<usize>,
    ranks: Vec<usize>,
    closed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Second {
    placements: Vec<Part>,
    bus_bandwidth: Option<f64>,
    throughput: Option<f64>,
}

/// No placement.
#[derive(Serialize)]
struct Rejected {
    rejection: Rejection,
}

#[derive(Serialize)]
struct Rejection {
    reason: &'static str,
    message: String,
}

impl Plan {
    /// Answers.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let nodes = self.nodes()?;
        let guessed = nodes.iter().filter(|node| node.topology.product_inferred).count();
        let mut classes = Classes::new(self.hints.links.table()?);
        let options: Vec<NodeOption> = nodes
            .into_iter()
            .map(|NodeSpec { name, topology, free, .. }| NodeOption {
                name: name.into(),
                free: free.intersection(topology.healthy),
                class: classes.of(topology),
                max_workers: usize::MAX,
                preferred: 0,
                siblings: GpuSet::EMPTY,
            })
            .collect();
        let (workers, gpus_per_worker) = match (self.gpus, self.workers) {
            (Some(gpus), _) => (1, gpus),
            (None, Some(workers)) => (workers, self.gpus_per_worker),
            (None, None) => return Err(Usage("--gpus or --workers is missing".into()).into()),
        };
        if workers.checked_mul(gpus_per_worker).is_none() {
            return Err(Usage("--workers times --gpus-per-worker is too large".into()).into());
        }
        let workload = self
            .job
            .numbers
            .described(self.job.model.clone())
            .workload()
            .map_err(|error| Usage(error.to_string()))?;
        let request = Request {
            workload,
            host_identity: !self.separate_hosts,
            ..Request::new(workers, gpus_per_worker)
        };
        match placement::place(&request, &options, &Profile::default()) {
            Ok(placement) => {
                self.output.emit(&Answer::of(&placement), |answer| answer.text(guessed))?;
                Ok(Exit::DONE)
            }
            Err(shortage) => {
                self.output.emit(&Rejected::of(&shortage), |rejected| {
                    format!(
                        "No placement ({}): {}\n",
                        rejected.rejection.reason, rejected.rejection.message
                    )
                })?;
                Ok(Exit(NO_PLACEMENT))
            }
        }
    }

    fn nodes(&self) -> anyhow::Result<Vec<NodeSpec>> {
        if let Some(file) = &self.cluster {
            return Ok(ClusterFile::read(file)?.nodes);
        }
        if let Some(machines) = &self.machine {
            return Ok(ClusterFile::from_machines(machines)?.nodes);
        }
        let machine = self.topology.clone().unwrap_or_default();
        let topology = Topology::load(&machine, self.hints.gpu)?;
        let free = self.free.unwrap_or_else(|| topology.gpus());
        if let Some(gpu) = free.difference(topology.gpus()).lowest() {
            let gpus = topology.len();
            return Err(
                Usage(format!("--free names GPU {gpu}, but the node has {gpus} GPUs")).into()
            );
        }
        let stem = std::path::Path::new(&machine).file_stem();
        let name = stem.map_or_else(|| machine.clone(), |stem| stem.to_string_lossy().into_owned());
        Ok(vec![NodeSpec { name, machine, topology, free }])
    }
}

impl Part {
    fn of(pieces: &[Piece]) -> Vec<Self> {
        pieces
            .iter()
            .map(|piece| Self {
                node: piece.node.clone(),
                gpus: piece.gpus.iter().collect(),
                ranks: piece.ranks.clone(),
                closed: piece.closed,
            })
            .collect()
    }

    fn text(parts: &[Self]) -> String {
        let list =
            |gpus: &[usize]| gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        parts.iter().fold("NODE\tGPUS\tRANK ORDER\tRING\n".to_owned(), |text, part| {
            let ring = match (part.gpus.len(), part.closed) {
                (0 | 1, _) => "-",
                (_, true) => "closed",
                (_, false) => "open",
            };
            format!("{text}{}\t{}\t{}\t{ring}\n", part.node, list(&part.gpus), list(&part.ranks))
        })
    }
}

impl Answer {
    fn of(placement: &Placement) -> Self {
        let second = |second: &RunnerUp| Second {
            placements: Part::of(&second.pieces),
            bus_bandwidth: second.bus_bandwidth,
            throughput: second.throughput,
        };
        Self {
            placements: Part::of(&placement.pieces),
            bus_bandwidth: placement.bus_bandwidth,
            bound: placement.bound,
            optimal: placement.optimal,
            objective: placement.objective,
            throughput: placement.throughput,
            runner_up: placement.runner_up.as_deref().map(second),
        }
    }

    fn text(&self, guessed: usize) -> String {
        let mut text = jobs::tabulate(&Part::text(&self.placements));
        let certificate =
            if self.optimal { "no placement is better" } else { "may not be the best" };
        let mut facts = format!("Objective:\t{} ({certificate})\n", self.objective);
        let of_bound = self.bound.map_or_else(String::new, |bound| {
            format!(" of at most {} on these GPUs", rounded(bound))
        });
        facts += &self.bus_bandwidth.map_or_else(
            || "Bus bandwidth:\t- (a single GPU)\n".to_owned(),
            |bus| format!("Bus bandwidth:\t{} GB/s{of_bound}\n", rounded(bus)),
        );
        if let Some(throughput) = self.throughput {
            facts += &format!("Throughput:\t{} images/s (modelled)\n", rounded(throughput));
        }
        if guessed > 0 {
            facts += &format!(
                "Product:\tguessed from the links on {guessed} nodes; name it with --gpu\n"
            );
        }
        text += &format!("\n{}", jobs::tabulate(&facts));
        match &self.runner_up {
            None => text += "\nNo other placement is worse: all are alike, or there is no other.\n",
            Some(second) => {
                text +=
                    &format!("\nRunner-up:\n{}", jobs::tabulate(&Part::text(&second.placements)));
                if let Some(bus) = second.bus_bandwidth {
                    text += &format!("at {} GB/s", rounded(bus));
                    if let Some(throughput) = second.throughput {
                        text += &format!(", {} images/s", rounded(throughput));
                    }
                    text.push('\n');
                }
            }
        }
        text
    }
}

impl Rejected {
    fn of(shortage: &Shortage) -> Self {
        let reason = if shortage.never_fits() { "NeverFits" } else { "InsufficientGpus" };
        Self { rejection: Rejection { reason, message: shortage.to_string() } }
    }
}
