//! Reading what the cluster holds of jobs and nodes.

use std::collections::BTreeMap;

use api::{MpiJob, Node, Pod, contract};
use client::Clients;
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    batch::v1::Job,
    core::v1::{ConfigMap, Event, Service},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};

use topology::{NodeReport, ReportError};

use crate::{
    EventRow, JobError, NodeClass, NodeView, Observed, Surroundings, User,
    error::{code, failed},
    job_view::index_order,
    pod_view::seconds,
};

/// A cluster, and the namespace whose jobs are meant.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) clients: Clients,
    pub(crate) namespace: String,
}

impl Cluster {
    /// `namespace` is the context's unless it is named.
    pub fn new(clients: Clients, namespace: Option<String>) -> Self {
        let namespace = namespace.unwrap_or_else(|| clients.namespace.clone());
        Self { clients, namespace }
    }

    /// The namespace whose jobs are meant.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn read<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.clients.reads.clone(), &self.namespace)
    }

    fn scope<K>(&self, all_namespaces: bool) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        if all_namespaces { Api::all(self.clients.reads.clone()) } else { self.read() }
    }

    /// The name by which the cluster knows the caller; Arena's words for what a certificate or password proves.
    pub async fn user(&self) -> User {
        let auth = &self.clients.config.auth_info;
        let name = if let Some(name) = &auth.username {
            format!("kubecfg:basicauth:{name}")
        } else if auth.client_certificate.is_some() || auth.client_certificate_data.is_some() {
            "kubecfg:certauth:admin".to_owned()
        } else {
            let api: Api<SelfSubjectReview> = Api::all(self.clients.reads.clone());
            match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
                Ok(review) => review
                    .status
                    .and_then(|status| status.user_info?.username)
                    .unwrap_or_else(|| "unknown".to_owned()),
                Err(error) => {
                    tracing::debug!(%error, "the cluster does not say who we are");
                    "unknown".to_owned()
                }
            }
        };
        User { name }
    }

    /// The MPIJob of that name, if there is one.
    ///
    /// # Errors
    /// The cluster knows no MPIJobs, or does not answer.
    pub async fn mpi_job(&self, name: &str) -> Result<Option<MpiJob>, JobError> {
        match self.read::<MpiJob>().get(name).await {
            Ok(job) => Ok(Some(job)),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // An unknown object is named in the answer, an unknown kind is not.
                let kind_is_known = status.message.contains(name);
                if kind_is_known { Ok(None) } else { Err(JobError::NoMpiJob) }
            }
            Err(error) => Err(failed(format!("read job {name}"))(error)),
        }
    }

    /// What there is of a job.
    ///
    /// # Errors
    /// No such job, or the cluster does not answer.
    pub async fn observe(&self, name: &str) -> Result<Observed, JobError> {
        let job = self.mpi_job(name).await?.ok_or_else(|| JobError::NotFound {
            name: name.to_owned(),
            namespace: self.namespace.clone(),
        })?;
        let of_job = format!("{}={name}", contract::MPI_JOB_NAME);
        let pods = ListParams::default().labels(&format!(
            "{}={},{of_job}",
            contract::GROUP_NAME,
            contract::MPI_GROUP
        ));
        let pods = self.read::<Pod>().list(&pods).await.map_err(failed("list pods"))?;
        let jobs = self
            .read::<Job>()
            .list(&ListParams::default().labels(&of_job))
            .await
            .map_err(failed("list jobs"))?;
        let launcher = jobs.items.into_iter().find(|job| is_launcher_of(job, name));
        let mut pods = pods.items;
        pods.sort_by(|a, b| index_order(a.name()).cmp(&index_order(b.name())));
        let tensorboard = self.tensorboard(name).await?;
        Ok(Observed { job, pods, launcher, tensorboard })
    }

    /// The address of a job's tensorboard, or nothing.
    async fn tensorboard(&self, name: &str) -> Result<String, JobError> {
        let selector = ListParams::default().labels(&format!("role=tensorboard,release={name}"));
        let services: Api<Service> = self.read();
        let services = services.list(&selector).await.map_err(failed("list services"))?;
        let port = services.items.iter().find_map(|service| {
            service.spec.as_ref()?.ports.as_ref()?.iter().find_map(|port| port.node_port)
        });
        let Some(port) = port else { return Ok(String::new()) };
        let nodes = self.nodes().await?;
        let address = nodes.iter().find_map(|node| node.status.addresses.first());
        Ok(address.map(|address| format!("http://{}:{port}", address.address)).unwrap_or_default())
    }

    /// Every MPIJob of the namespace, or of all.
    ///
    /// # Errors
    /// The cluster knows no MPIJobs, or does not answer.
    pub async fn observe_all(&self, all_namespaces: bool) -> Result<Vec<Observed>, JobError> {
        let all = ListParams::default();
        let jobs = self.scope::<MpiJob>(all_namespaces).list(&all).await.map_err(|error| {
            if code(&error) == Some(404) { JobError::NoMpiJob } else { failed("list jobs")(error) }
        })?;
        let of_jobs = ListParams::default().labels(contract::MPI_JOB_NAME);
        let pods = self.scope::<Pod>(all_namespaces).list(&of_jobs).await;
        let pods = pods.map_err(failed("list pods"))?;
        let launchers = self.scope::<Job>(all_namespaces).list(&of_jobs).await;
        let launchers = launchers.map_err(failed("list jobs"))?;
        let mut by_job: BTreeMap<(String, String), Vec<Pod>> = BTreeMap::new();
        for pod in pods.items {
            if let Some(job) = pod.labels().get(contract::MPI_JOB_NAME) {
                let key = (pod.namespace().to_owned(), job.clone());
                by_job.entry(key).or_default().push(pod);
            }
        }
        Ok(jobs
            .items
            .into_iter()
            .map(|job| {
                let key = (job.namespace().to_owned(), job.name().to_owned());
                let launcher = launchers.items.iter().find(|launcher| {
                    launcher.metadata.namespace == job.metadata.namespace
                        && is_launcher_of(launcher, job.name())
                });
                Observed {
                    pods: by_job.remove(&key).unwrap_or_default(),
                    launcher: launcher.cloned(),
                    job,
                    tensorboard: String::new(),
                }
            })
            .collect())
    }

    /// Events of a job, its launcher and its pods, by object and time.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn events(
        &self,
        observed: &Observed,
        now: Timestamp,
    ) -> Result<Vec<EventRow>, JobError> {
        let events: Api<Event> = self.read();
        let events = events.list(&ListParams::default()).await.map_err(failed("list events"))?;
        let mut uids = vec![observed.job.uid()];
        uids.extend(observed.launcher.as_ref().and_then(|job| job.metadata.uid.as_deref()));
        uids.extend(observed.pods.iter().map(Pod::uid));
        let mut rows: Vec<(usize, EventRow)> = events
            .items
            .iter()
            .filter_map(|event| {
                let of = &event.involved_object;
                let rank = uids.iter().position(|uid| of.uid.as_deref() == Some(uid))?;
                let last = event.last_timestamp.as_ref().map(|time| time.0);
                let series =
                    event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
                let at = last
                    .or_else(|| series.map(|time| time.0))
                    .or_else(|| event.event_time.as_ref().map(|time| time.0))
                    .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
                let row = EventRow {
                    source: format!(
                        "{}/{}",
                        of.kind.as_deref().unwrap_or_default().to_lowercase(),
                        of.name.as_deref().unwrap_or_default()
                    ),
                    kind: event.type_.clone().unwrap_or_default(),
                    age: at.map_or(0, |at| seconds(at, now)),
                    reason: event.reason.clone().unwrap_or_default(),
                    message: event.message.clone().unwrap_or_default(),
                };
                Some((rank, row))
            })
            .collect();
        rows.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| y.age.cmp(&x.age)));
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// What is around a job, for its explanation.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn surroundings(
        &self,
        observed: &Observed,
        now: Timestamp,
    ) -> Result<Surroundings, JobError> {
        let pods: Api<Pod> = Api::all(self.clients.reads.clone());
        let pods = pods.list(&ListParams::default()).await.map_err(failed("list pods"))?;
        Ok(Surroundings {
            nodes: self.nodes().await?,
            reports: self.reports().await?,
            pods: pods.items,
            events: self.events(observed, now).await?,
        })
    }

    /// All nodes.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn nodes(&self) -> Result<Vec<Node>, JobError> {
        let nodes: Api<Node> = Api::all(self.clients.reads.clone());
        let nodes = nodes.list(&ListParams::default()).await.map_err(failed("list nodes"))?;
        Ok(nodes.items)
    }

    /// The reports of nodes in topology mode.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn reports(&self) -> Result<Vec<ConfigMap>, JobError> {
        let reports: Api<ConfigMap> =
            Api::namespaced(self.clients.reads.clone(), contract::REPORT_NAMESPACE);
        let selector = format!("{}={}", contract::MODE_LABEL, contract::MODE_TOPOLOGY);
        let reports = reports.list(&ListParams::default().labels(&selector)).await;
        Ok(reports.map_err(failed("list node reports"))?.items)
    }

    /// What a node reports of its topology, if it reports.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn report(
        &self,
        node: &str,
    ) -> Result<Option<Result<NodeReport, ReportError>>, JobError> {
        let reports: Api<ConfigMap> =
            Api::namespaced(self.clients.reads.clone(), contract::REPORT_NAMESPACE);
        let report = reports.get_opt(&contract::report_name(node)).await;
        let report = report.map_err(failed(format!("read the report of node {node}")))?;
        Ok(report.map(|report| NodeReport::from_data(node, &report.data.unwrap_or_default())))
    }

    /// Nodes with their GPUs and who holds them: those named, or all; of one class, or of every.
    ///
    /// # Errors
    /// None of them is there, or the cluster does not answer.
    pub async fn node_views(
        &self,
        names: &[String],
        class: Option<NodeClass>,
    ) -> Result<Vec<NodeView>, JobError> {
        let nodes = self.nodes().await?;
        let reports = self.reports().await?;
        let active = ListParams::default().fields("status.phase!=Failed,status.phase!=Succeeded");
        let pods: Api<Pod> = Api::all(self.clients.reads.clone());
        let pods = pods.list(&active).await.map_err(failed("list pods"))?;
        let mut views = NodeView::of_cluster(&nodes, &reports, &pods.items);
        views.retain(|view| {
            (names.is_empty() || names.contains(&view.name))
                && class.is_none_or(|class| view.class == class)
        });
        if views.is_empty() { Err(JobError::NoNodes) } else { Ok(views) }
    }
}

fn is_launcher_of(job: &Job, name: &str) -> bool {
    job.metadata.name.as_deref().is_some_and(|launcher| {
        let stem = launcher.strip_suffix("-launcher");
        stem == Some(name) || stem.and_then(|stem| stem.strip_suffix("-mpijob")) == Some(name)
    })
}
