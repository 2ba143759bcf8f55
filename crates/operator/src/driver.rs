//! Watches in, actions out. One task looks at one job after the other; what fails is looked at again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context as _;
use api::{MpiJob, Pod, contract};
use client::{Change, Clients, watch};
use futures::{Stream, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Options, objects,
    reconcile::{Action, Memory, Observed, reconcile},
};

/// Namespace and name of a job.
type Key = (String, String);

#[expect(clippy::large_enum_variant, reason = "each lives for one loop, in a chunk")]
enum Heard {
    Job(Change<MpiJob>),
    Worker(Change<Pod>),
    Launcher(Change<Job>),
    Config(Change<ConfigMap>),
}

/// After a failed action.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

pub(crate) struct Driver {
    clients: Clients,
    options: Options,
    observed: BTreeMap<Key, Observed>,
    memory: BTreeMap<Key, (String, Memory)>,
    /// Jobs to look at, and when.
    due: BTreeMap<Key, Timestamp>,
    events: u64,
}

impl Driver {
    pub(crate) fn new(clients: Clients, options: Options) -> Self {
        Self {
            clients,
            options,
            observed: BTreeMap::new(),
            memory: BTreeMap::new(),
            due: BTreeMap::new(),
            events: 0,
        }
    }

    fn watches(&self) -> impl Stream<Item = Vec<Heard>> + Send + use<> {
        let reads = || self.clients.reads.clone();
        let of_jobs = || watcher::Config::default().labels(contract::MPI_JOB_NAME);
        let all = [
            watch(Api::<MpiJob>::all(reads()), watcher::Config::default()).map(Heard::Job).boxed(),
            watch(Api::<Pod>::all(reads()), of_jobs()).map(Heard::Worker).boxed(),
            watch(Api::<Job>::all(reads()), of_jobs()).map(Heard::Launcher).boxed(),
            watch(Api::<ConfigMap>::all(reads()), watcher::Config::default().labels("app"))
                .map(Heard::Config)
                .boxed(),
        ];
        stream::select_all(all).ready_chunks(256)
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut watches = std::pin::pin!(self.watches());
        // Nothing is made before everything was listed once: it may be there.
        let mut unknown = 4;
        loop {
            let now = Timestamp::now();
            let due: Vec<Key> = self
                .due
                .iter()
                .filter(|(_, time)| **time <= now)
                .map(|(key, _)| key.clone())
                .collect();
            if unknown == 0 {
                for key in due {
                    if shutdown.is_cancelled() {
                        return;
                    }
                    self.due.remove(&key);
                    self.look(&key).await;
                }
            }
            let next = self.due.values().min().map_or(Duration::from_secs(60), |time| {
                let wait = time.duration_since(Timestamp::now());
                if wait.is_negative() { Duration::from_millis(1) } else { wait.unsigned_abs() }
            });
            let next = if unknown > 0 { Duration::from_secs(60) } else { next };
            tokio::select! {
                () = shutdown.cancelled() => return,
                heard = watches.next() => {
                    let Some(heard) = heard else { return };
                    for change in heard {
                        if self.hear(change) && unknown > 0 {
                            unknown -= 1;
                        }
                    }
                }
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    /// Takes a change in; true for a whole new list.
    fn hear(&mut self, heard: Heard) -> bool {
        match heard {
            Heard::Job(change) => {
                let key = |job: &MpiJob| (job.namespace().to_owned(), job.name().to_owned());
                self.spread(change, key, |observed, _, job| observed.job = job.unwrap_or_default())
            }
            Heard::Worker(change) => {
                let key =
                    |pod: &Pod| job_key(pod.namespace(), pod.labels().get(contract::MPI_JOB_NAME));
                self.spread(change, key, |observed, name, pod| match pod {
                    Some(pod) if pod.is_labelled_launcher() == Some(true) => {}
                    Some(pod) => drop(observed.workers.insert(name.to_owned(), pod)),
                    None => drop(observed.workers.remove(name)),
                })
            }
            Heard::Launcher(change) => {
                let key = |job: &Job| {
                    job_key(
                        &job.namespace().unwrap_or_default(),
                        job.labels().get(contract::MPI_JOB_NAME),
                    )
                };
                self.spread(change, key, |observed, name, job| {
                    if name == objects::launcher_name(observed.job.name())
                        || observed.job.name().is_empty()
                        || job.is_none()
                    {
                        observed.launcher = job;
                    }
                })
            }
            Heard::Config(change) => {
                let key = |config: &ConfigMap| {
                    job_key(&config.namespace().unwrap_or_default(), config.labels().get("app"))
                };
                self.spread(change, key, |observed, name, config| {
                    if name.ends_with("-config") {
                        observed.hostfile =
                            config.and_then(|config| config.data?.remove("hostfile"));
                    }
                })
            }
        }
    }

    /// Hands a change to the jobs that it concerns.
    fn spread<K: ResourceExt>(
        &mut self,
        change: Change<K>,
        key: impl Fn(&K) -> Key,
        mut put: impl FnMut(&mut Observed, &str, Option<K>),
    ) -> bool {
        let now = Timestamp::now();
        let touch = |due: &mut BTreeMap<Key, Timestamp>, key: &Key| {
            due.insert(key.clone(), now);
        };
        match change {
            Change::Restarted(all) => {
                // What is not listed is gone: everything of this kind is put in anew.
                let mut names: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
                for object in &all {
                    names.entry(key(object)).or_default().insert(object.name_any());
                }
                for (key, observed) in &mut self.observed {
                    let gone: Vec<String> =
                        observed.workers.keys().cloned().chain(["".to_owned()]).collect();
                    let there = names.get(key);
                    for name in gone {
                        if there.is_none_or(|there| !there.contains(&name)) {
                            put(observed, &name, None);
                        }
                    }
                    touch(&mut self.due, key);
                }
                for object in all {
                    let key = key(&object);
                    touch(&mut self.due, &key);
                    let name = object.name_any();
                    put(self.observed.entry(key).or_default(), &name, Some(object));
                }
                true
            }
            Change::Applied(object) => {
                let key = key(&object);
                touch(&mut self.due, &key);
                let name = object.name_any();
                put(self.observed.entry(key).or_default(), &name, Some(object));
                false
            }
            Change::Deleted(object) => {
                let key = key(&object);
                touch(&mut self.due, &key);
                let name = object.name_any();
                put(self.observed.entry(key).or_default(), &name, None);
                false
            }
        }
    }

    /// Looks at one job and does what is to be done.
    async fn look(&mut self, key: &Key) {
        let Some(observed) = self.observed.get_mut(key) else { return };
        if observed.job.uid().is_empty() {
            self.memory.remove(key);
            if observed.workers.is_empty() && observed.launcher.is_none() {
                self.observed.remove(key);
            }
            return;
        }
        let uid = observed.job.uid().to_owned();
        let remembered = self.memory.entry(key.clone()).or_default();
        if remembered.0 != uid {
            *remembered = (uid, Memory::default());
            observed.access = false;
        }
        let todo =
            reconcile(observed, &mut remembered.1, &self.options.agent_image, Timestamp::now());
        if let Some(again) = todo.again {
            self.due.insert(key.clone(), again);
        }
        let job = observed.job.clone();
        let access = !todo.actions.is_empty();
        let mut failed = false;
        for action in todo.actions {
            if let Err(error) = self.act(&job, &action).await {
                tracing::debug!(job = job.name(), ?action, %error, "not done; it is tried again");
                failed = true;
                break;
            }
        }
        if failed {
            self.due
                .insert(key.clone(), Timestamp::now().checked_add(PAUSE).unwrap_or(Timestamp::MAX));
        } else if access && let Some(observed) = self.observed.get_mut(key) {
            observed.access = true;
        }
    }

    async fn act(&mut self, job: &MpiJob, action: &Action) -> anyhow::Result<()> {
        let writes = &self.clients.writes;
        match action {
            Action::Create { path, object } => self.create(job, path, object).await,
            Action::SetHostfile(hostfile) => {
                let configs: Api<ConfigMap> = Api::namespaced(writes.clone(), job.namespace());
                let patch = json!({"data": {"hostfile": hostfile}});
                let name = objects::config_name(job.name());
                configs.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                Ok(())
            }
            Action::DeleteWorker { name, uid } => {
                let pods: Api<Pod> = Api::namespaced(writes.clone(), job.namespace());
                let only = Preconditions { uid: Some(uid.clone()), resource_version: None };
                match pods.delete(name, &DeleteParams::default().preconditions(only)).await {
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                    other => other.map(|_| ()).context("delete a worker"),
                }
            }
            Action::SuspendLauncher(held) => {
                let jobs: Api<Job> = Api::namespaced(writes.clone(), job.namespace());
                let patch = json!({"spec": {"suspend": held}});
                jobs.patch(
                    &objects::launcher_name(job.name()),
                    &PatchParams::default(),
                    &Patch::Merge(patch),
                )
                .await?;
                Ok(())
            }
            Action::Status(status) => {
                let jobs: Api<MpiJob> = Api::namespaced(writes.clone(), job.namespace());
                let patch = json!({"metadata": {"uid": job.uid()}, "status": status});
                jobs.patch_status(job.name(), &PatchParams::default(), &Patch::Merge(patch))
                    .await?;
                Ok(())
            }
            Action::Event { kind, reason, message } => {
                self.events += 1;
                let name = format!(
                    "{}.{:x}{:x}",
                    job.name(),
                    Timestamp::now().as_nanosecond(),
                    self.events
                );
                let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let event = json!({
                    "apiVersion": "v1", "kind": "Event",
                    "metadata": {"name": name, "namespace": job.namespace()},
                    "involvedObject": {"apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob",
                        "namespace": job.namespace(), "name": job.name(), "uid": job.uid()},
                    "type": kind, "reason": reason, "message": message, "count": 1,
                    "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "mpi-job-controller"},
                });
                self.create(job, &format!("/api/v1/namespaces/{}/events", job.namespace()), &event)
                    .await
            }
        }
    }

    /// Makes an object; one of that name that is this job's counts as made.
    async fn create(&self, job: &MpiJob, path: &str, object: &Value) -> anyhow::Result<()> {
        let body = serde_json::to_vec(object)?;
        let made = Request::new(path).create(&PostParams::default(), body)?;
        match self.clients.writes.request::<Value>(made).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let there: Value = self
                    .clients
                    .reads
                    .request(Request::new(path).get(name, &kube::api::GetParams::default())?)
                    .await?;
                let owners = there["metadata"]["ownerReferences"].as_array();
                let ours = owners
                    .is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == job.uid()));
                anyhow::ensure!(ours, "{path}/{name} belongs to somebody else");
                Ok(())
            }
            Err(kube::Error::Api(status)) => anyhow::bail!("{path}: {}", status.message),
            Err(error) => Err(error.into()),
        }
    }
}

fn job_key(namespace: &str, job: Option<&String>) -> Key {
    (namespace.to_owned(), job.cloned().unwrap_or_default())
}
