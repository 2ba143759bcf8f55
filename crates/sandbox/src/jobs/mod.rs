//! The Job controller, for clusters that have none: pods are made, counted and replaced as kube-controller-manager does
//! it. Indexed Jobs, pod failure policies and time to live are not there.

mod decide;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use client::{About, Change, Clients, watch};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use decide::{Decision, TRACKING, decide};

const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const CONTROLLER: &str = "batch.kubernetes.io/controller-uid";
/// After a write that failed.
const RETRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);
/// When nothing is due.
const IDLE: Duration = Duration::from_secs(60);

/// Jobs and their pods as they were last seen.
#[derive(Default)]
struct World {
    jobs: BTreeMap<String, Job>,
    /// By their own UID.
    pods: BTreeMap<String, Pod>,
    /// Pods that were made and not seen yet, by the Job's UID.
    expected: BTreeMap<String, BTreeSet<String>>,
    /// Jobs to look at, by UID, and when.
    due: BTreeMap<String, Timestamp>,
}

fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "Job");
    owner.map(|owner| owner.uid.as_str())
}

fn uid_of(meta: &kube::core::ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}

impl World {
    fn touch(&mut self, job: &str) {
        self.due.insert(job.to_owned(), Timestamp::UNIX_EPOCH);
    }

    fn hear_job(&mut self, change: Change<Job>) {
        match change {
            Change::Restarted(jobs) => {
                self.jobs = jobs.into_iter().map(|job| (uid_of(&job.metadata), job)).collect();
                let all: Vec<String> = self.jobs.keys().cloned().collect();
                all.iter().for_each(|job| self.touch(job));
            }
            Change::Applied(job) => {
                let uid = uid_of(&job.metadata);
                self.jobs.insert(uid.clone(), job);
                self.touch(&uid);
            }
            Change::Deleted(job) => {
                let uid = uid_of(&job.metadata);
                self.jobs.remove(&uid);
                self.expected.remove(&uid);
                self.touch(&uid);
            }
        }
    }

    fn hear_pod(&mut self, change: Change<Pod>) {
        match change {
            Change::Restarted(pods) => {
                self.pods.clear();
                self.expected.clear();
                for pod in pods {
                    self.hear_pod(Change::Applied(pod));
                }
                let all: Vec<String> = self.jobs.keys().cloned().collect();
                all.iter().for_each(|job| self.touch(job));
            }
            Change::Applied(pod) => {
                let Some(job) = owner(&pod).map(str::to_owned) else { return };
                let uid = uid_of(&pod.metadata);
                self.seen(&job, &uid);
                self.pods.insert(uid, pod);
                self.touch(&job);
            }
            Change::Deleted(pod) => {
                let Some(job) = owner(&pod).map(str::to_owned) else { return };
                let uid = uid_of(&pod.metadata);
                self.seen(&job, &uid);
                self.pods.remove(&uid);
                self.touch(&job);
            }
        }
    }

    fn seen(&mut self, job: &str, pod: &str) {
        if let Some(expected) = self.expected.get_mut(job) {
            expected.remove(pod);
        }
    }

    fn pods_of<'a>(&'a self, job: &str) -> Vec<&'a Pod> {
        self.pods.values().filter(|pod| owner(pod) == Some(job)).collect()
    }

    /// A Job whose time has come.
    fn next(&mut self, now: Timestamp) -> Option<String> {
        let job = self.due.iter().find(|(_, due)| **due <= now)?.0.clone();
        self.due.remove(&job);
        Some(job)
    }
}

/// Runs Jobs until `shutdown`.
pub(crate) async fn run(clients: Clients, shutdown: CancellationToken) {
    let reads = || clients.reads.clone();
    let mut jobs = watch(Api::<Job>::all(reads()), watcher::Config::default()).boxed();
    let of_jobs = watcher::Config::default().labels(JOB_NAME);
    let mut pods = watch(Api::<Pod>::all(reads()), of_jobs).boxed();
    let mut world = World::default();
    let (mut knows_jobs, mut knows_pods) = (false, false);
    loop {
        let pause = world.due.values().min().map_or(IDLE, |due| {
            Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default().min(IDLE)
        });
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(change) = jobs.next() => { world.hear_job(change); knows_jobs = true }
            Some(change) = pods.next() => { world.hear_pod(change); knows_pods = true }
            () = tokio::time::sleep(pause) => {
                while knows_jobs && knows_pods && let Some(job) = world.next(Timestamp::now()) {
                    if let Err(error) = look(&clients, &mut world, &job).await {
                        tracing::warn!(job, %error, "a Job is looked at again");
                        world.due.insert(job, Timestamp::now() + RETRY);
                    }
                }
                if !(knows_jobs && knows_pods) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

/// Decides for one Job, and does it.
async fn look(clients: &Clients, world: &mut World, uid: &str) -> Result<(), kube::Error> {
    let pods = world.pods_of(uid);
    let Some(job) = world.jobs.get(uid) else {
        // Pods of a Job that is gone are not to be held.
        let released: Vec<(String, String)> = pods
            .iter()
            .filter(|pod| pod.metadata.finalizers.iter().flatten().any(|f| f == TRACKING))
            .map(|pod| {
                (
                    pod.metadata.namespace.clone().unwrap_or_default(),
                    pod.metadata.name.clone().unwrap_or_default(),
                )
            })
            .collect();
        for (namespace, pod) in released {
            release(clients, &namespace, &pod, world).await?;
        }
        return Ok(());
    };
    let is_settled = world.expected.get(uid).is_none_or(BTreeSet::is_empty);
    let is_going = job.metadata.deletion_timestamp.is_some();
    let job = job.clone();
    let Decision { status, create, delete, release: counted, events, wake } =
        decide(&job, &pods, is_settled, Timestamp::now());
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    let name = job.metadata.name.clone().unwrap_or_default();
    if let Some(status) = status {
        let jobs: Api<Job> = Api::namespaced(clients.writes.clone(), &namespace);
        let patch = json!({"metadata": {"uid": uid}, "status": status});
        match jobs.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(patched) => world.jobs.insert(uid.to_owned(), patched),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
            Err(error) => return Err(error),
        };
    }
    for pod in &counted {
        release(clients, &namespace, pod, world).await?;
    }
    let api: Api<Pod> = Api::namespaced(clients.writes.clone(), &namespace);
    for pod in delete {
        tolerate_missing(api.delete(&pod, &DeleteParams::default()).await.map(|_| ()))?;
    }
    for _ in 0..if is_going { 0 } else { create } {
        let pod = api.create(&PostParams::default(), &pod_of(&job)).await?;
        let message = format!("Created pod: {}", pod.metadata.name.clone().unwrap_or_default());
        let made = uid_of(&pod.metadata);
        world.expected.entry(uid.to_owned()).or_default().insert(made);
        tell(clients, &job, "Normal", "SuccessfulCreate", &message).await;
    }
    for (kind, reason, message) in events {
        tell(clients, &job, kind, reason, &message).await;
    }
    if let Some(wake) = wake {
        let due = world.due.entry(uid.to_owned()).or_insert(wake);
        *due = wake.min(*due);
    }
    Ok(())
}

fn tolerate_missing(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}

/// Lets a pod go that has been counted.
async fn release(
    clients: &Clients,
    namespace: &str,
    name: &str,
    world: &World,
) -> Result<(), kube::Error> {
    let known = world.pods.values().find(|pod| {
        pod.metadata.name.as_deref() == Some(name)
            && pod.metadata.namespace.as_deref() == Some(namespace)
    });
    let Some(known) = known else { return Ok(()) };
    let mut kept = known.metadata.finalizers.clone().unwrap_or_default();
    kept.retain(|finalizer| finalizer != TRACKING);
    let patch = json!({"metadata": {
        "uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version, "finalizers": kept,
    }});
    let pods: Api<Pod> = Api::namespaced(clients.writes.clone(), namespace);
    let patched = pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    match patched {
        // It has changed meanwhile: the watch says so, and the Job is looked at again.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => tolerate_missing(other.map(|_| ())),
    }
}

/// A pod of the Job's template.
fn pod_of(job: &Job) -> Pod {
    let template = job.spec.clone().unwrap_or_default().template;
    let mut metadata = template.metadata.unwrap_or_default();
    let (name, uid) = (job.metadata.name.clone().unwrap_or_default(), uid_of(&job.metadata));
    metadata.generate_name = Some(format!("{name}-"));
    metadata.namespace = job.metadata.namespace.clone();
    let labels = metadata.labels.get_or_insert_default();
    for (key, value) in
        [(JOB_NAME, &name), ("job-name", &name), (CONTROLLER, &uid), ("controller-uid", &uid)]
    {
        labels.insert(key.to_owned(), value.clone());
    }
    metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    metadata.owner_references =
        Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name,
            uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]);
    Pod { metadata, spec: template.spec, status: None }
}

/// An event of the Job.
async fn tell(clients: &Clients, job: &Job, kind: &str, reason: &str, message: &str) {
    let about = About {
        api_version: "batch/v1",
        kind: "Job",
        namespace: job.metadata.namespace.as_deref().unwrap_or_default(),
        name: job.metadata.name.as_deref().unwrap_or_default(),
        uid: job.metadata.uid.as_deref().unwrap_or_default(),
        field_path: "",
    };
    let event = client::event(about, kind, reason, message, "job-controller", "");
    client::tell(&clients.writes, &event).await;
}
