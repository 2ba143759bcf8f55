//! Why a job stands where it stands: what the scheduler said, where the ranks are, how fast that is, and what would be
//! the best place now.

use std::{collections::BTreeMap, sync::Arc};

use api::{Mode, Node, Pod, contract};
use k8s_openapi::api::core::v1::ConfigMap;
use placement::{Arrangement, Classes, NodeOption, Path, Placement, Profile, Request, Workload};
use serde::Serialize;
use topology::{GpuSet, LinkTable, NodeReport};

use crate::{Described, EventRow, Observed, Status, pod_view, tabulate};

/// What there is to say of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The job.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// How it stands.
    pub status: Status,
    /// Its gang; none when its pods are placed one by one.
    pub gang: Option<Gang>,
    /// Why it waits, in the scheduler's words.
    pub waiting: Option<Waiting>,
    /// Its pods.
    pub pods: Vec<Member>,
    /// How fast its all-reduce is, where every worker's GPUs and the nodes' links are known.
    pub exchange: Option<Exchange>,
    /// The best placement now, were its own GPUs free.
    pub best: Option<Best>,
    /// What the scheduler reported last, of each kind of event.
    pub events: Vec<EventRow>,
    /// What its user should know.
    pub notes: Vec<String>,
}

/// A gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gang {
    /// Its name.
    pub name: String,
    /// Pods that must start together.
    pub minimum: usize,
    /// Whether its GPUs are placed by topology.
    pub topology: bool,
    /// Workers that exist.
    pub members: usize,
    /// Workers that have a node.
    pub bound: usize,
}

/// Why a pod is not scheduled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// In one word.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// A pod of the job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its name.
    pub name: String,
    /// `launcher` or `worker`.
    pub role: String,
    /// kubectl's status word.
    pub status: String,
    /// Its node.
    pub node: Option<String>,
    /// Its GPUs.
    pub gpus: Option<Vec<usize>>,
    /// Its rank in placement order.
    pub rank: Option<usize>,
}

/// How fast a job's all-reduce is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Exchange {
    /// GB/s; none for a single GPU.
    pub bus_bandwidth: Option<f64>,
    /// What carries the slowest hop.
    pub path: Path,
    /// Whether workers of one node know that they share a host.
    pub host_identity: bool,
    /// Images per second that the model predicts, where the program is described.
    pub throughput: Option<f64>,
}

/// The GPUs of a placement on one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spot {
    /// The node.
    pub node: Arc<str>,
    /// Its GPUs.
    pub gpus: Vec<usize>,
}

/// The best placement now.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Best {
    /// Where.
    pub placements: Vec<Spot>,
    /// GB/s; none for a single GPU.
    pub bus_bandwidth: Option<f64>,
    /// GB/s that no algorithm can exceed there.
    pub bound: Option<f64>,
    /// The best placement that is strictly worse.
    pub runner_up: Option<Second>,
}

/// The best placement that is strictly worse.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Second {
    /// Where.
    pub placements: Vec<Spot>,
    /// GB/s; none for a single GPU.
    pub bus_bandwidth: Option<f64>,
}

/// The cluster around the job.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The nodes' reports.
    pub reports: Vec<ConfigMap>,
    /// All pods.
    pub pods: Vec<Pod>,
    /// Events of the job's objects.
    pub events: Vec<EventRow>,
}

impl Observed {
    fn workers(&self) -> impl Iterator<Item = &Pod> {
        let launcher = |pod: &&Pod| role(pod) == contract::LAUNCHER;
        self.pods.iter().filter(move |pod| !launcher(pod))
    }

    /// Explains the job.
    pub fn explain(&self, around: &Surroundings, now: jiff::Timestamp) -> Explanation {
        let view = self.view(now);
        let table = LinkTable::default();
        let mut classes = Classes::new(table);
        let reports: BTreeMap<String, NodeReport> = around
            .nodes
            .iter()
            .filter_map(|node| {
                let name = contract::report_name(node.name());
                let report =
                    around.reports.iter().find(|map| map.metadata.name.as_ref() == Some(&name))?;
                let report = NodeReport::from_data(node.name(), report.data.as_ref()?).ok()?;
                Some((node.name().to_owned(), report))
            })
            .collect();
        let mut notes = Vec::new();
        let workload = self.workload().unwrap_or_else(|error| {
            notes.push(format!("the program's description is wrong: {error}"));
            None
        });
        let gang = self.gang(&mut notes);
        let exchange = self.exchange(&reports, &mut classes, workload.as_ref());
        if let Some(Exchange { path: Path::Loopback, .. }) = exchange {
            notes.push(
                "workers of one node take each other for other hosts and talk over TCP: give each node one pod of \
                 several GPUs, or use --gputopology (host network and the node's /dev/shm)"
                    .to_owned(),
            );
        }
        let best = gang
            .as_ref()
            .filter(|gang| gang.topology)
            .and_then(|_| self.best(around, &reports, &mut classes, workload));
        let waiting = self.waiting(view.status, &mut notes);
        Explanation {
            name: view.name,
            namespace: view.namespace,
            status: view.status,
            gang,
            waiting,
            pods: self.pods.iter().map(Member::of).collect(),
            exchange,
            best,
            events: scheduler_events(&around.events),
            notes,
        }
    }

    fn gang(&self, notes: &mut Vec<String>) -> Option<Gang> {
        let labels = self.workers().find_map(|pod| match pod.gang_labels() {
            Ok(labels) => labels,
            Err(error) => {
                notes.push(error.to_string());
                None
            }
        })?;
        Some(Gang {
            name: labels.group,
            minimum: labels.minimum,
            topology: labels.topology,
            members: self.workers().filter(|pod| !pod.is_terminating()).count(),
            bound: self.workers().filter(|pod| pod.spec.node_name.is_some()).count(),
        })
    }

    fn waiting(&self, status: Status, notes: &mut Vec<String>) -> Option<Waiting> {
        let unbound = || {
            self.pods.iter().filter(|pod| pod.spec.node_name.is_none() && pod_view::is_pending(pod))
        };
        let condition = unbound()
            .flat_map(|pod| &pod.status.conditions)
            .find(|condition| condition.kind == "PodScheduled" && condition.status == "False");
        if let Some(condition) = condition {
            return Some(Waiting {
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            });
        }
        if status != Status::Pending {
            return None;
        }
        let waits =
            |reason: &str, message: String| Some(Waiting { reason: reason.to_owned(), message });
        if self.pods.is_empty() {
            notes.push("no operator has made its pods yet; is one running?".to_owned());
            return waits("NoPods", "the job has no pods yet".to_owned());
        }
        let silent = unbound().count();
        if silent > 0 {
            notes.push("no scheduler has looked at its pods yet; is one running?".to_owned());
            return waits("NotScheduled", format!("{silent} pods are not scheduled yet"));
        }
        let starting: Vec<String> = self
            .pods
            .iter()
            .filter(|pod| pod_view::is_pending(pod))
            .map(|pod| format!("{} ({})", pod.name(), pod_view::status(pod)))
            .collect();
        if starting.is_empty() {
            return waits("NoLauncher", "its launcher is still to come".to_owned());
        }
        waits("Starting", format!("scheduled, but not started: {}", starting.join(", ")))
    }

    /// What its annotations say of the program.
    fn workload(&self) -> Result<Option<Workload>, crate::DescribedError> {
        let annotations = self.job.metadata.annotations.as_ref();
        let text = |key: &str| annotations.and_then(|annotations| annotations.get(key)).cloned();
        let number = |key: &str| text(key).map(|value| value.parse().unwrap_or(f64::NAN));
        Described {
            model: text(contract::MODEL),
            parameters: number(contract::PARAMETERS),
            gradient_bytes: number(contract::GRADIENT_BYTES),
            step_time: number(contract::STEP_TIME),
            batch: number(contract::BATCH),
        }
        .workload()
    }

    fn exchange(
        &self,
        reports: &BTreeMap<String, NodeReport>,
        classes: &mut Classes,
        workload: Option<&Workload>,
    ) -> Option<Exchange> {
        let mut workers: Vec<(usize, &str, GpuSet)> = self
            .workers()
            .filter(|pod| !pod.is_terminating())
            .enumerate()
            .map(|(index, pod)| {
                let rank = rank(pod).unwrap_or(index);
                Some((rank, pod.spec.node_name.as_deref()?, pod_view::held(pod)?))
            })
            .collect::<Option<_>>()?;
        workers.sort_by_key(|&(rank, ..)| rank);
        let mut names: Vec<&str> = workers.iter().map(|&(_, node, _)| node).collect();
        names.sort_unstable();
        names.dedup();
        let nodes: Vec<_> = names
            .iter()
            .map(|&name| Some(classes.of(reports.get(name)?.topology.clone())))
            .collect::<Option<_>>()?;
        let host_identity = self.workers().all(Pod::shares_host);
        let arrangement = Arrangement {
            nodes: nodes.iter().map(AsRef::as_ref).collect(),
            workers: workers
                .iter()
                .filter_map(|(_, node, gpus)| Some((names.binary_search(node).ok()?, *gpus)))
                .collect(),
            host_identity,
        };
        let gpus = arrangement.gpus();
        let exchange = arrangement.exchange();
        (gpus > 0).then(|| Exchange {
            bus_bandwidth: exchange.bus.is_finite().then_some(exchange.bus),
            path: exchange.path,
            host_identity,
            throughput: workload.map(|workload| workload.images_per_second(gpus, exchange.bus)),
        })
    }

    /// The best placement, were the job's own GPUs free.
    fn best(
        &self,
        around: &Surroundings,
        reports: &BTreeMap<String, NodeReport>,
        classes: &mut Classes,
        workload: Option<Workload>,
    ) -> Option<Best> {
        let of_job = |pod: &Pod| {
            pod.namespace() == self.job.namespace()
                && pod
                    .labels()
                    .get(contract::MPI_JOB_NAME)
                    .is_some_and(|job| job == self.job.name())
        };
        let options: Vec<NodeOption> = around
            .nodes
            .iter()
            .filter(|node| {
                node.is_ready() && !node.spec.unschedulable && node.mode() == Mode::Topology
            })
            .filter_map(|node| {
                let topology = reports.get(node.name())?.topology.clone();
                let held = around
                    .pods
                    .iter()
                    .filter(|pod| pod.spec.node_name.as_deref() == Some(node.name()))
                    .filter(|pod| {
                        !of_job(pod) && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
                    })
                    .filter_map(pod_view::held)
                    .fold(GpuSet::EMPTY, GpuSet::union);
                Some(NodeOption {
                    name: node.name().into(),
                    free: topology.healthy.difference(held),
                    class: classes.of(topology),
                    max_workers: usize::MAX,
                    preferred: 0,
                    siblings: GpuSet::EMPTY,
                })
            })
            .collect();
        let shape = self.workers().next()?;
        let gpus_per_worker =
            usize::try_from(pod_view::gpus(shape)).ok().filter(|&gpus| gpus > 0)?;
        let workers = usize::try_from(self.job.spec.replicas.unwrap_or(1)).ok()?;
        let request = Request { workload, ..Request::new(workers, gpus_per_worker) };
        placement::place(&request, &options, &Profile::default()).ok().map(Best::of)
    }
}

impl Best {
    fn of(placement: Placement) -> Self {
        let spots = |pieces: Vec<placement::Piece>| -> Vec<Spot> {
            let spot = |piece: placement::Piece| Spot {
                node: piece.node,
                gpus: piece.gpus.iter().collect(),
            };
            pieces.into_iter().map(spot).collect()
        };
        Self {
            placements: spots(placement.pieces),
            bus_bandwidth: placement.bus_bandwidth,
            bound: placement.bound,
            runner_up: placement.runner_up.map(|second| Second {
                placements: spots(second.pieces),
                bus_bandwidth: second.bus_bandwidth,
            }),
        }
    }
}

impl Member {
    fn of(pod: &Pod) -> Self {
        Self {
            name: pod.name().to_owned(),
            role: role(pod).to_owned(),
            status: pod_view::status(pod),
            node: pod.spec.node_name.clone(),
            gpus: pod_view::held(pod).map(|gpus| gpus.iter().collect()),
            rank: rank(pod),
        }
    }
}

fn role(pod: &Pod) -> &str {
    pod.labels().get(contract::MPI_ROLE).map_or(contract::WORKER, String::as_str)
}

fn rank(pod: &Pod) -> Option<usize> {
    pod.annotations().get(contract::RANK)?.parse().ok()
}

/// The last event of each reason that a scheduler writes; once a pod is scheduled, why it waited before is stale.
fn scheduler_events(events: &[EventRow]) -> Vec<EventRow> {
    let mut last: BTreeMap<&str, &EventRow> = BTreeMap::new();
    for event in events.iter().filter(|event| event.source.starts_with("pod/")) {
        if matches!(event.reason.as_str(), "Scheduled" | "FailedScheduling" | "Preempted")
            && last.get(event.reason.as_str()).is_none_or(|known| event.age < known.age)
        {
            last.insert(&event.reason, event);
        }
    }
    if let (Some(failed), Some(scheduled)) = (last.get("FailedScheduling"), last.get("Scheduled"))
        && failed.age >= scheduled.age
    {
        last.remove("FailedScheduling");
    }
    last.into_values().cloned().collect()
}

impl Explanation {
    /// What `explain` prints.
    pub fn text(&self) -> String {
        let mut head = format!(
            "Job:\t{} in namespace {}\nStatus:\t{}\n",
            self.name,
            self.namespace,
            self.status.name()
        );
        head += &match &self.gang {
            None => "Gang:\tnone: its pods are placed one by one\n".to_owned(),
            Some(Gang { name, minimum, topology, members, bound }) => format!(
                "Gang:\t{name}: {minimum} workers start together{}; {members} exist, {bound} have a node\n",
                if *topology { ", GPUs placed by topology" } else { "" }
            ),
        };
        if let Some(Waiting { reason, message }) = &self.waiting {
            head += &format!("Waiting:\t{reason}: {message}\n");
        }
        if let Some(exchange) = &self.exchange {
            head += &match exchange.bus_bandwidth {
                Some(bus) => {
                    format!("Bus bandwidth:\t{} GB/s over {}\n", rounded(bus), exchange.path)
                }
                None => "Bus bandwidth:\t- (a single GPU)\n".to_owned(),
            };
            if let Some(throughput) = exchange.throughput {
                head += &format!("Throughput:\t{} images/s (modelled)\n", rounded(throughput));
            }
        }
        if let Some(best) = &self.best {
            head += &format!("Best now:\t{}\n", at(&best.placements, best.bus_bandwidth));
            head += &match &best.runner_up {
                Some(second) => {
                    format!("It beats:\t{}\n", at(&second.placements, second.bus_bandwidth))
                }
                None => "It beats:\tnothing: no placement is worse\n".to_owned(),
            };
        }
        let mut text = tabulate(&head);
        text += "\nPods:\n";
        let mut pods = "  NAME\tROLE\tSTATUS\tNODE\tGPUS\tRANK\n".to_owned();
        for pod in &self.pods {
            let gpus = pod.gpus.as_ref().map(|gpus| gpus.iter().copied().collect::<GpuSet>());
            pods += &format!(
                "  {}\t{}\t{}\t{}\t{}\t{}\n",
                pod.name,
                pod.role,
                pod.status,
                pod.node.as_deref().unwrap_or("-"),
                gpus.filter(|gpus| !gpus.is_empty())
                    .map_or_else(|| "-".to_owned(), |gpus| gpus.to_string()),
                pod.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            );
        }
        text += &tabulate(&pods);
        if !self.events.is_empty() {
            text += "\nThe scheduler's last words:\n";
        }
        for event in &self.events {
            let ago = pod_view::short_duration(event.age);
            text +=
                &format!("  {ago} ago, {}: [{}] {}\n", event.source, event.reason, event.message);
        }
        for note in &self.notes {
            text += &format!("\nNote: {note}\n");
        }
        text
    }
}

fn at(spots: &[Spot], bus: Option<f64>) -> String {
    let spot = |spot: &Spot| {
        let gpus: GpuSet = spot.gpus.iter().copied().collect();
        format!("{} {{{gpus}}}", spot.node)
    };
    let spots: Vec<String> = spots.iter().map(spot).collect();
    let bus = bus.map_or_else(String::new, |bus| format!(" at {} GB/s", rounded(bus)));
    format!("{}{bus}", spots.join(" + "))
}

fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
