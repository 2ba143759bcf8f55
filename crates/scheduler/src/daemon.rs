//! The task that owns the state.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{Node, Pod, contract};
use client::{Change, Clients, watch};
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{Api, ResourceExt, runtime::watcher};
use scheduling::{Assignment, Attempt, Core, Eviction, Unit};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    bind::{self, Landed, Outcome},
    metrics::Metrics,
    serve::Question,
    tell::{News, teller},
};

/// A change of any kind that the scheduler watches.
#[expect(clippy::large_enum_variant, reason = "each lives for one loop, in a chunk")]
enum Heard {
    Pod(Change<Pod>),
    Node(Change<Node>),
    Report(Change<ConfigMap>),
    Service(Change<Service>),
}

/// The scheduler with its connections.
pub(crate) struct Daemon {
    core: Core,
    clients: Clients,
    metrics: Arc<Metrics>,
    binds: Arc<Semaphore>,
    landed: (mpsc::UnboundedSender<Landed>, mpsc::UnboundedReceiver<Landed>),
    news: mpsc::Sender<News>,
    /// What each waiting pod was last told.
    told: BTreeMap<Arc<str>, String>,
    grace: Duration,
}

/// Changes taken in before the next plan is made.
const CHUNK: usize = 512;

impl Daemon {
    pub(crate) fn new(clients: Clients, options: Options, metrics: Arc<Metrics>) -> Self {
        Self {
            grace: options.settings.grace,
            core: Core::new(options.settings),
            metrics,
            binds: Arc::new(Semaphore::new(options.parallel_binds)),
            landed: mpsc::unbounded_channel(),
            news: teller(clients.writes.clone()),
            told: BTreeMap::new(),
            clients,
        }
    }

    fn watches(&self) -> impl Stream<Item = Vec<Heard>> + Send + use<> {
        let reads = || self.clients.reads.clone();
        let config = watcher::Config::default;
        let reports =
            config().labels(&format!("{}={}", contract::MODE_LABEL, contract::MODE_TOPOLOGY));
        let all = [
            watch(Api::<Node>::all(reads()), config()).map(Heard::Node).boxed(),
            watch(Api::<ConfigMap>::namespaced(reads(), contract::REPORT_NAMESPACE), reports)
                .map(Heard::Report)
                .boxed(),
            watch(Api::<Service>::all(reads()), config()).map(Heard::Service).boxed(),
            watch(Api::<Pod>::all(reads()), config()).map(Heard::Pod).boxed(),
        ];
        stream::select_all(all).ready_chunks(CHUNK)
    }

    /// Plans and binds until `shutdown`.
    pub(crate) async fn run(
        mut self,
        mut questions: mpsc::Receiver<Question>,
        shutdown: CancellationToken,
    ) {
        let mut watches = std::pin::pin!(self.watches());
        // No decision before everything was listed once: what is not known yet may hold GPUs.
        let mut unknown = 4;
        loop {
            if unknown == 0 {
                self.decide().await;
            }
            let pause = self.pause(unknown > 0);
            tokio::select! {
                () = shutdown.cancelled() => return,
                heard = watches.next() => {
                    let Some(heard) = heard else { return };
                    for change in heard {
                        let first = matches!(
                            change,
                            Heard::Pod(Change::Restarted(_)) | Heard::Node(Change::Restarted(_))
                                | Heard::Report(Change::Restarted(_)) | Heard::Service(Change::Restarted(_))
                        );
                        self.hear(change);
                        if first && unknown > 0 {
                            unknown -= 1;
                            if unknown == 0 {
                                tracing::info!(nodes = self.core.cluster().nodes().len(), "scheduling");
                            }
                        }
                    }
                }
                Some(landed) = self.landed.1.recv() => self.land(landed),
                Some(question) = questions.recv() => self.answer(question),
                () = tokio::time::sleep(pause) => {}
            }
            while let Ok(landed) = self.landed.1.try_recv() {
                self.land(landed);
            }
        }
    }

    /// Until something is due without a change.
    fn pause(&self, blind: bool) -> Duration {
        const IDLE: Duration = Duration::from_secs(60);
        if blind {
            return IDLE;
        }
        let now = Timestamp::now();
        self.core.next_deadline().map_or(IDLE, |deadline| {
            let wait = deadline.duration_since(now);
            if wait.is_negative() {
                Duration::from_millis(1)
            } else {
                wait.unsigned_abs().min(IDLE)
            }
        })
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Pod(Change::Restarted(pods)) => self.core.reset_pods(&pods),
            Heard::Pod(Change::Applied(pod)) => self.core.set_pod(&pod),
            Heard::Pod(Change::Deleted(pod)) => {
                self.told.remove(pod.uid());
                self.core.remove_pod(pod.uid());
            }
            Heard::Node(Change::Restarted(nodes)) => {
                let gone: Vec<Arc<str>> = self
                    .core
                    .cluster()
                    .nodes()
                    .map(|node| Arc::clone(&node.name))
                    .filter(|name| nodes.iter().all(|node| node.name() != &**name))
                    .collect();
                gone.iter().for_each(|name| self.core.remove_node(name));
                nodes.iter().for_each(|node| self.core.set_node(node));
            }
            Heard::Node(Change::Applied(node)) => self.core.set_node(&node),
            Heard::Node(Change::Deleted(node)) => self.core.remove_node(node.name()),
            Heard::Report(change) => self.hear_report(change),
            Heard::Service(change) => self.hear_service(change),
        }
    }

    fn hear_report(&mut self, change: Change<ConfigMap>) {
        let node = |report: &ConfigMap| report.labels().get(contract::REPORT_NODE_LABEL).cloned();
        match change {
            Change::Restarted(reports) => {
                let nodes: Vec<Arc<str>> =
                    self.core.cluster().nodes().map(|node| Arc::clone(&node.name)).collect();
                for name in nodes {
                    if reports.iter().all(|report| node(report).as_deref() != Some(&*name)) {
                        self.core.set_report(&name, None);
                    }
                }
                for report in reports {
                    self.hear_report(Change::Applied(report));
                }
            }
            Change::Applied(report) => {
                if let Some(node) = node(&report) {
                    self.core.set_report(&node, Some(&report.data.unwrap_or_default()));
                }
            }
            Change::Deleted(report) => {
                if let Some(node) = node(&report) {
                    self.core.set_report(&node, None);
                }
            }
        }
    }

    fn hear_service(&mut self, change: Change<Service>) {
        let mut set = |service: &Service, there: bool| {
            let selector =
                service.spec.as_ref().and_then(|spec| spec.selector.clone()).filter(|_| there);
            self.core.set_service(
                &service.namespace().unwrap_or_default(),
                &service.name_any(),
                selector,
            );
        };
        match change {
            Change::Restarted(services) => services.iter().for_each(|service| set(service, true)),
            Change::Applied(service) => set(&service, true),
            Change::Deleted(service) => set(&service, false),
        }
    }

    /// Everything that can be decided now.
    async fn decide(&mut self) {
        // Bounded, so that outcomes and changes are heard between long runs of plans.
        for _ in 0..CHUNK {
            let start = std::time::Instant::now();
            let Some(attempt) = self.core.attempt(Timestamp::now()) else { break };
            self.metrics.plan_seconds.observe(start.elapsed().as_secs_f64());
            match attempt {
                Attempt::Planned(plan) => {
                    self.metrics.attempt("scheduled", plan.profile);
                    tracing::debug!(unit = plan.name, pods = plan.assignments.len(), "planned");
                    let bandwidth =
                        plan.placement.as_ref().and_then(|placement| placement.bus_bandwidth);
                    for assignment in plan.assignments {
                        self.bind(assignment, bandwidth);
                    }
                }
                Attempt::Rejected { pods, rejection, .. } => {
                    self.metrics.attempt("unschedulable", "");
                    let message = rejection.to_string();
                    for (uid, namespace, pod) in pods {
                        if self.told.get(&uid) == Some(&message) {
                            continue;
                        }
                        self.told.insert(Arc::clone(&uid), message.clone());
                        let told = self.tell(News {
                            uid: Arc::clone(&uid),
                            namespace,
                            pod,
                            kind: "Warning",
                            reason: "FailedScheduling",
                            message: message.clone(),
                            unschedulable: true,
                        });
                        if !told {
                            self.told.remove(&uid);
                        }
                    }
                }
            }
        }
        for eviction in self.core.overdue(Timestamp::now()) {
            self.evict(eviction).await;
        }
        self.metrics
            .pending
            .set(i64::try_from(self.core.queue().entries().count()).unwrap_or(i64::MAX));
    }

    fn tell(&self, news: News) -> bool {
        self.news.try_send(news).is_ok()
    }

    fn bind(&self, assignment: Assignment, bandwidth: Option<f64>) {
        let (clients, binds, landed) =
            (self.clients.clone(), Arc::clone(&self.binds), self.landed.0.clone());
        let news = self.news.clone();
        tokio::spawn(async move {
            let Ok(_permit) = binds.acquire().await else { return };
            let outcome = bind::bind(&clients, &assignment, bandwidth).await;
            if matches!(outcome, Outcome::Bound) {
                let Assignment { namespace, pod, node, .. } = &assignment;
                // An event that finds no room is not worth a bind's time.
                let _ = news.try_send(News {
                    uid: Arc::clone(&assignment.uid),
                    message: format!("Successfully assigned {namespace}/{pod} to {node}"),
                    namespace: Arc::clone(namespace),
                    pod: Arc::clone(pod),
                    kind: "Normal",
                    reason: "Scheduled",
                    unschedulable: false,
                });
            }
            // The daemon may be gone already.
            let _ = landed.send((assignment.uid, outcome));
        });
    }

    fn land(&mut self, (uid, outcome): Landed) {
        self.told.remove(&uid);
        match outcome {
            Outcome::Bound => {
                self.metrics.binds.inc();
                self.core.bound(&uid);
            }
            Outcome::Failed(why) => {
                self.metrics.bind_failures.inc();
                tracing::warn!(
                    pod = self.core.cluster().pod(&uid).map(scheduling::PodRecord::full_name),
                    why,
                    "bind failed"
                );
                self.core.bind_failed(&uid);
            }
        }
    }

    /// Starts a gang again as a whole, or says why that cannot be.
    async fn evict(&self, eviction: Eviction) {
        tracing::warn!(gang = %eviction.gang, possible = eviction.possible, "{}", eviction.why);
        if eviction.possible {
            self.metrics.evictions.inc();
        }
        for (uid, namespace, pod) in eviction.pods {
            if eviction.possible {
                let body = json!({
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": pod, "namespace": namespace},
                    "deleteOptions": {"preconditions": {"uid": uid}},
                });
                let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
                if let Err(error) = client::post(&self.clients.writes, &path, &body).await {
                    tracing::warn!(%pod, %error, "not evicted");
                }
            }
            let reason = if eviction.possible { "GangRestarted" } else { "GangIncomplete" };
            self.tell(News {
                uid,
                namespace,
                pod,
                kind: "Warning",
                reason,
                message: eviction.why.clone(),
                unschedulable: false,
            });
        }
    }

    fn answer(&self, question: Question) {
        match question {
            Question::Explain(namespace, name, sender) => {
                let unit = self.find(&namespace, &name);
                let explanation =
                    unit.and_then(|unit| serde_json::to_value(self.core.explain(&unit)).ok());
                // Who asked may be gone.
                let _ = sender.send(explanation);
            }
            Question::Audit(sender) => {
                // It lists anew: the audit is to find what the scheduler's own books have wrong.
                let (reads, grace) = (self.clients.reads.clone(), self.grace);
                let warnings: Vec<String> =
                    self.core.cluster().warnings().values().cloned().collect();
                tokio::spawn(async move {
                    let answer = match snapshot(reads).await {
                        Ok(snapshot) => json!({
                            "findings": audit::audit(&snapshot, Timestamp::now(), grace),
                            "warnings": warnings,
                        }),
                        Err(error) => json!({"error": error.to_string()}),
                    };
                    // Who asked may be gone.
                    let _ = sender.send(answer);
                });
            }
        }
    }

    /// A gang by its group or its job's name, else a pod.
    fn find(&self, namespace: &str, name: &str) -> Option<Unit> {
        let cluster = self.core.cluster();
        let gang = cluster.gangs().find(|(key, gang)| {
            let of_job = |uid: &Arc<str>| {
                cluster.pod(uid).is_some_and(|pod| {
                    pod.shape.labels.get(contract::MPI_JOB_NAME).is_some_and(|job| job == name)
                })
            };
            *key.namespace == *namespace && (*key.group == *name || gang.members.iter().any(of_job))
        });
        let pod = || cluster.pods().find(|pod| *pod.namespace == *namespace && *pod.name == *name);
        gang.map(|(key, _)| Unit::Gang(key.clone()))
            .or_else(|| pod().map(|pod| Unit::Pod(Arc::clone(&pod.uid))))
    }
}

/// The cluster as the API server tells it.
async fn snapshot(reads: kube::Client) -> Result<audit::Snapshot, kube::Error> {
    let all = kube::api::ListParams::default();
    let reports =
        all.clone().labels(&format!("{}={}", contract::MODE_LABEL, contract::MODE_TOPOLOGY));
    let reports = Api::<ConfigMap>::namespaced(reads.clone(), contract::REPORT_NAMESPACE)
        .list(&reports)
        .await?;
    let of_node = |report: ConfigMap| {
        Some((report.labels().get(contract::REPORT_NODE_LABEL)?.clone(), report.data?))
    };
    Ok(audit::Snapshot {
        nodes: Api::<Node>::all(reads.clone()).list(&all).await?.items,
        pods: Api::<Pod>::all(reads).list(&all).await?.items,
        reports: reports.items.into_iter().filter_map(of_node).collect(),
    })
}
