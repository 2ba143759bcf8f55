//! What the runs were, beside what the pages published.

use std::{collections::BTreeMap, fmt::Write};

use placement::{DEFAULT_BATCH, Exchange, Path, Rates, Workload};
use serde::Serialize;
use serde_json::{Value, json};
use topology::GpuSet;

use crate::pages::{Mode, Run, WORKERS};

/// A worker and what it got.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worker {
    /// The pod.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its GPUs.
    pub gpus: Vec<usize>,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The page's run.
    pub run: Run,
    /// Its workers, in rank order.
    pub workers: Vec<Worker>,
    /// GB/s of the all-reduce, and over what.
    pub exchange: Exchange,
    /// Images per second that it printed.
    pub speed: f64,
    /// What the model says with compute rates from independent benchmarks.
    pub independent: f64,
}

/// All runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The state that the cluster was in before the first.
    pub start: Vec<String>,
    /// The runs.
    pub rows: Vec<Row>,
}

impl Row {
    pub(crate) fn new(run: Run, workers: Vec<Worker>, exchange: Exchange, speed: f64) -> Self {
        let gpus = workers.iter().map(|worker| worker.gpus.len()).sum();
        let known =
            Workload::known(run.framework.known_as(), run.model, DEFAULT_BATCH, Rates::Independent);
        let independent =
            known.map_or(f64::NAN, |known| known.images_per_second(gpus, exchange.bus));
        Self { run, workers, exchange, speed, independent }
    }

    /// How far the run is from what was published, as a share of that.
    pub fn error(&self) -> f64 {
        self.speed / self.run.published - 1.0
    }

    fn placement(&self) -> String {
        let mut nodes: BTreeMap<&str, GpuSet> = BTreeMap::new();
        for worker in &self.workers {
            let gpus: GpuSet = worker.gpus.iter().copied().collect();
            let set = nodes.entry(&worker.node).or_insert(GpuSet::EMPTY);
            *set = set.union(gpus);
        }
        let sets = nodes.iter().map(|(node, gpus)| format!("{node} {{{gpus}}}"));
        sets.collect::<Vec<_>>().join(" ")
    }
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

impl Report {
    /// Topology and regular run of the same job.
    pub(crate) fn pairs(&self) -> Vec<(&Row, &Row)> {
        let topology = self.rows.iter().filter(|row| row.run.mode == Mode::Topology);
        let partner = |row: &Row| {
            self.rows.iter().find(|other| {
                other.run.mode == Mode::Default
                    && other.run.framework == row.run.framework
                    && other.run.model == row.run.model
            })
        };
        topology.filter_map(|row| Some((row, partner(row)?))).collect()
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut text = String::from("Starting state:\n");
        for line in &self.start {
            let _ = writeln!(text, "  {line}");
        }
        text.push_str("  a Service selects the workers of the regular TensorFlow jobs, none those of PyTorch\n\n");
        let heading =
            ["JOB", "PLACEMENT", "ALL-REDUCE", "IMAGES/S", "PUBLISHED", "ERROR", "INDEPENDENT"];
        let mut rows = vec![heading.join("\t")];
        for row in &self.rows {
            let mark = if row.run.mode == Mode::Topology { " *" } else { "" };
            let link = match row.exchange.path {
                Path::Alone => "-".to_owned(),
                path => format!("{:.2} GB/s {path}", row.exchange.bus),
            };
            let cells = [
                row.run.job(),
                row.placement(),
                link,
                format!("{:.1}{mark}", row.speed),
                format!("{:.2}", row.run.published),
                percent(row.error()),
                percent(row.independent / row.run.published - 1.0),
            ];
            rows.push(cells.join("\t"));
        }
        text.push_str(&jobs::tabulate(&rows.join("\n")));
        text.push_str(
            "\nSpeeds are modelled, not measured. * The compute rate of this row is calibrated on its published figure; the\n\
             overlap of computing and exchange and the speeds of loopback and network are fitted to the other four.\n\
             INDEPENDENT is the error with compute rates from public benchmarks of one GPU instead.\n\n",
        );
        let mut rows = vec!["JOB\tTOPOLOGY / REGULAR\tPUBLISHED".to_owned()];
        for (fast, slow) in self.pairs() {
            rows.push(format!(
                "{} {}\t{:.2}\t{:.2}",
                fast.run.framework.word(),
                fast.run.model,
                fast.speed / slow.speed,
                fast.run.published / slow.run.published
            ));
        }
        text.push_str(&jobs::tabulate(&rows.join("\n")));
        text
    }

    /// For a program.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "job": row.run.job(),
                "mode": if row.run.mode == Mode::Topology { "topology" } else { "default" },
                "pods": row.workers,
                "busBandwidth": row.exchange.bus.is_finite().then_some(row.exchange.bus),
                "path": row.exchange.path,
                "imagesPerSecond": row.speed,
                "published": row.run.published,
                "independentRates": row.independent,
            })
        };
        self.rows.iter().map(row).collect()
    }

    /// The ratios as bars.
    pub fn svg(&self) -> String {
        crate::svg::bars(self)
    }

    /// Whether every row is within 5 % of what was published.
    pub fn holds(&self) -> bool {
        self.rows
            .iter()
            .all(|row| row.error().abs() <= 0.05 && i64::try_from(row.workers.len()) == Ok(WORKERS))
    }
}
