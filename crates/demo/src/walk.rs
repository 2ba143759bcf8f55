//! Walking through the pages on a cluster.

use std::{collections::BTreeMap, time::Duration};

use api::{Mode as NodeMode, Node, Pod, contract};
use client::{Change, Clients, TimedOut, wait_until, watch};
use futures::StreamExt;
use jobs::{Cluster, JobError, LogOptions};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use placement::{Arrangement, Class, Classes, Exchange};
use serde_json::json;
use topology::{GpuSet, LinkTable, NodeReport};

use crate::{
    pages::{Framework, Mode, PAGES, Run, WORKERS},
    report::{Report, Row, Worker},
};

/// Why the walk ended early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The cluster refused something.
    #[error("{what}: {source}")]
    Cluster {
        /// What was tried.
        what: String,
        /// What the API server says.
        source: kube::Error,
    },
    /// A job command failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Something did not happen in time.
    #[error(transparent)]
    Waited(#[from] TimedOut),
    /// The cluster is not the pages'.
    #[error("the pages need two nodes of eight GPUs; here are {0}")]
    Nodes(String),
    /// A run printed no speed.
    #[error("job {job} printed no images per second; its log ends: {end}")]
    NoSpeed {
        /// The job.
        job: String,
        /// The end of its log.
        end: String,
    },
    /// A pod or report cannot be read.
    #[error("job {job}: {problem}")]
    Unreadable {
        /// The job.
        job: String,
        /// What is wrong.
        problem: String,
    },
}

/// How long a step may take.
const DEADLINE: Duration = Duration::from_secs(120);

fn failed(what: impl Into<String>) -> impl FnOnce(kube::Error) -> DemoError {
    |source| DemoError::Cluster { what: what.into(), source }
}

/// A cluster on which the pages are walked through.
struct Walk<'a> {
    clients: &'a Clients,
    cluster: Cluster,
    nodes: Vec<String>,
    /// Links of each node, from the reports that it publishes in topology mode.
    classes: BTreeMap<String, std::sync::Arc<Class>>,
    progress: &'a (dyn Fn(&str) + Send + Sync),
}

/// Walks through the pages; `progress` hears of every step.
///
/// # Errors
/// The cluster is not two nodes of eight GPUs, refuses something, or something does not happen in time.
pub async fn run(
    clients: &Clients,
    links: LinkTable,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<Report, DemoError> {
    let cluster = Cluster::new(clients.clone(), None);
    let all: Api<Node> = Api::all(clients.reads.clone());
    let nodes = all.list(&ListParams::default()).await.map_err(failed("list nodes"))?.items;
    let names: Vec<String> = nodes.iter().map(|node| node.name().to_owned()).collect();
    if names.len() != 2 {
        return Err(DemoError::Nodes(format!("{} nodes", names.len())));
    }
    let mut walk = Walk { clients, cluster, nodes: names, classes: BTreeMap::new(), progress };
    let start = walk.start().await?;
    let mut rows = Vec::new();
    let mut mode = None;
    for run in PAGES {
        if mode != Some(run.mode) {
            walk.label(run.mode, &links).await?;
            mode = Some(run.mode);
        }
        rows.push(walk.run(run).await?);
    }
    Ok(Report { start, rows })
}

impl Walk<'_> {
    /// The state that the pages' clusters must have been in: which node has which image.
    async fn start(&self) -> Result<Vec<String>, DemoError> {
        let nodes: Api<Node> = Api::all(self.clients.writes.clone());
        let mut told = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let mut images = vec![Framework::TensorFlow.image()];
            if index == 0 {
                images.push(Framework::PyTorch.image());
            }
            let note = json!({"metadata": {"annotations": {contract::SIMULATED_IMAGES: images.join(",")}}});
            nodes
                .patch(node, &PatchParams::default(), &Patch::Merge(&note))
                .await
                .map_err(failed(format!("annotate node {node}")))?;
            let short = images.iter().map(|image| image.rsplit('/').next().unwrap_or(image));
            told.push(format!("{node} has the images {}", short.collect::<Vec<_>>().join(" and ")));
        }
        self.wait_for_nodes("images", |node| {
            let there = |image: &str| {
                node.status.images.iter().any(|i| i.names.iter().any(|name| name == image))
            };
            there(Framework::TensorFlow.image())
        })
        .await?;
        Ok(told)
    }

    async fn wait_for_nodes(
        &self,
        what: &str,
        holds: impl Fn(&Node) -> bool,
    ) -> Result<(), DemoError> {
        let nodes: Api<Node> = Api::all(self.clients.reads.clone());
        wait_until(&format!("{what} of the nodes"), DEADLINE, self.progress, || async {
            let seen = nodes.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
            let missing: Vec<&str> =
                seen.iter().filter(|node| !holds(node)).map(Node::name).collect();
            if missing.is_empty() {
                Ok(())
            } else {
                Err(format!("waiting for the {what} of {}", missing.join(", ")))
            }
        })
        .await?;
        Ok(())
    }

    /// The page's labelling, and the wait until the nodes offer what it asks for.
    async fn label(&mut self, mode: Mode, links: &LinkTable) -> Result<(), DemoError> {
        let (label, resource, is) = match mode {
            Mode::Topology => (contract::MODE_TOPOLOGY, contract::ALIYUN_GPU, NodeMode::Topology),
            Mode::Default => (contract::MODE_DEFAULT, contract::NVIDIA_GPU, NodeMode::Default),
        };
        (self.progress)(&format!(
            "kubectl label node {} {}={label} --overwrite",
            self.nodes.join(" "),
            contract::MODE_LABEL
        ));
        let nodes: Api<Node> = Api::all(self.clients.writes.clone());
        for node in &self.nodes {
            let patch = json!({"metadata": {"labels": {contract::MODE_LABEL: label}}});
            nodes
                .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map_err(failed(format!("label node {node}")))?;
        }
        self.wait_for_nodes(resource, |node| {
            let count = node.status.allocatable.get(resource).map(|count| count.value());
            count == Some(8) && node.mode() == is
        })
        .await?;
        if mode == Mode::Topology {
            self.read_links(links).await?;
        }
        Ok(())
    }

    async fn read_links(&mut self, links: &LinkTable) -> Result<(), DemoError> {
        let maps: Api<ConfigMap> =
            Api::namespaced(self.clients.reads.clone(), contract::REPORT_NAMESPACE);
        let mut classes = Classes::new(links.clone());
        for node in &self.nodes {
            let name = contract::report_name(node);
            let report =
                maps.get(&name).await.map_err(failed(format!("read the report {name}")))?;
            let report = NodeReport::from_data(node, &report.data.unwrap_or_default())
                .map_err(|e| DemoError::Unreadable { job: node.clone(), problem: e.to_string() })?;
            self.classes.insert(node.clone(), classes.of(report.topology));
        }
        Ok(())
    }

    /// One run, from submit to the job's deletion.
    async fn run(&self, run: Run) -> Result<Row, DemoError> {
        let job = run.job();
        (self.progress)(&format!("ringmaster submit mpi --name={job} …"));
        let services: Api<Service> =
            Api::namespaced(self.clients.writes.clone(), self.cluster.namespace());
        // The TensorFlow page's cluster spread the workers of regular jobs over its nodes in turn, which the default
        // scheduler does for pods that a Service selects.
        let is_served = run.framework == Framework::TensorFlow && run.mode == Mode::Default;
        if is_served {
            services
                .create(&PostParams::default(), &service(&job))
                .await
                .map_err(failed(format!("create service {job}")))?;
        }
        self.cluster.submit(&run.submission(), 0, self.progress).await?;
        let watching = tokio::spawn(placed(
            self.clients.clone(),
            self.cluster.namespace().to_owned(),
            job.clone(),
        ));
        let mut log = Vec::new();
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let logged = tokio::time::timeout(
            DEADLINE,
            self.cluster.logs(&job, &options, &mut log, self.progress),
        );
        let logged = logged.await.map_err(|_| TimedOut {
            what: format!("job {job} to end"),
            waited: DEADLINE,
            last: String::from_utf8_lossy(&log).lines().last().unwrap_or("no log").to_owned(),
        });
        logged??;
        let log = String::from_utf8_lossy(&log).into_owned();
        let pods = tokio::time::timeout(DEADLINE, watching).await.ok().and_then(Result::ok);
        let pods = pods.unwrap_or_default();
        self.cluster.delete(&job, self.progress).await?;
        if is_served {
            services
                .delete(&job, &DeleteParams::default())
                .await
                .map_err(failed(format!("delete service {job}")))?;
        }
        let total = log.lines().find_map(|line| line.strip_prefix(run.framework.total()));
        let speed = total.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let speed: f64 = speed.ok_or_else(|| DemoError::NoSpeed {
            job: job.clone(),
            end: log.lines().last().unwrap_or_default().to_owned(),
        })?;
        let (workers, exchange) = self.stand(&job, &pods)?;
        Ok(Row::new(run, workers, exchange, speed))
    }

    /// Where the workers stood, and what they exchanged their gradients over.
    fn stand(&self, job: &str, pods: &[Pod]) -> Result<(Vec<Worker>, Exchange), DemoError> {
        let wrong = |problem: String| DemoError::Unreadable { job: job.to_owned(), problem };
        let mut workers = Vec::new();
        for pod in pods {
            let gpus = match pod.gpu_group().map_err(|e| wrong(e.to_string()))? {
                Some(planned) => Some(planned),
                None => pod.simulated_gpus().map_err(|e| wrong(e.to_string()))?,
            };
            let gpus = gpus.ok_or_else(|| wrong(format!("pod {} got no GPUs", pod.name())))?;
            let node = pod.spec.node_name.clone().unwrap_or_default();
            workers.push((
                pod.rank().map_err(|e| wrong(e.to_string()))?,
                pod.name().to_owned(),
                node,
                gpus,
            ));
        }
        // In the order of the hostfile: of the placement, or of the names.
        workers.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let node_of = |name: &String| self.nodes.iter().position(|node| node == name).unwrap_or(0);
        let machines: Vec<&Class> = self
            .nodes
            .iter()
            .filter_map(|node| self.classes.get(node))
            .map(AsRef::as_ref)
            .collect();
        let arrangement = Arrangement {
            nodes: machines,
            workers: workers.iter().map(|(_, _, node, gpus)| (node_of(node), *gpus)).collect(),
            host_identity: pods.iter().all(Pod::shares_host),
        };
        let exchange = arrangement.exchange();
        let workers = workers.into_iter().map(|(_, name, node, gpus): (_, _, _, GpuSet)| Worker {
            name,
            node,
            gpus: gpus.iter().collect(),
        });
        Ok((workers.collect(), exchange))
    }
}

/// A headless Service that selects a job's workers.
fn service(job: &str) -> Service {
    let selector = [
        (contract::MPI_JOB_NAME.to_owned(), job.to_owned()),
        (contract::MPI_ROLE.to_owned(), contract::WORKER.to_owned()),
    ];
    Service {
        metadata: ObjectMeta { name: Some(job.to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(selector.into()),
            ports: Some(vec![ServicePort { port: 22, ..ServicePort::default() }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The workers of a job once all are bound and have their GPUs.
async fn placed(clients: Clients, namespace: String, job: String) -> Vec<Pod> {
    let labels =
        format!("{}={job},{}={}", contract::MPI_JOB_NAME, contract::MPI_ROLE, contract::WORKER);
    let pods: Api<Pod> = Api::namespaced(clients.reads.clone(), &namespace);
    let mut changes = watch(pods, watcher::Config::default().labels(&labels)).boxed();
    let mut known: BTreeMap<String, Pod> = BTreeMap::new();
    while let Some(change) = changes.next().await {
        let seen = match change {
            Change::Restarted(pods) => pods,
            Change::Applied(pod) => vec![pod],
            Change::Deleted(_) => Vec::new(),
        };
        for pod in seen {
            let note = |key: &str| pod.annotations().contains_key(key);
            if note(contract::GPU_GROUP) || note(contract::SIMULATED_GPUS) {
                known.insert(pod.name().to_owned(), pod);
            }
        }
        if i64::try_from(known.len()) == Ok(WORKERS) {
            break;
        }
    }
    known.into_values().collect()
}
