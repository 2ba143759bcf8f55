//! What to do next for one job: a pure function of what is observed. Doing it twice does it once.

use std::collections::BTreeMap;

use api::{MpiJob, MpiJobStatus, Pod, contract};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::Value;

use crate::objects;

/// The annotation by which a queueing system holds a job.
const SUSPENDED: &str = "scheduling.x-k8s.io/suspend";

/// One job and its children, as last seen.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The job.
    pub(crate) job: MpiJob,
    /// Pods whose names are workers' of this job, whoever owns them.
    pub(crate) workers: BTreeMap<String, Pod>,
    /// The Job whose name is the launcher's, whoever owns it.
    pub(crate) launcher: Option<Job>,
    /// The hostfile in the ConfigMap; `None` while there is none of this job.
    pub(crate) hostfile: Option<String>,
    /// Whether account, role and role binding were made.
    pub(crate) access: bool,
}

/// What is remembered of a job between looks: how often its workers failed to stay.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    failures: BTreeMap<usize, (u32, Timestamp)>,
    warned: Vec<String>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Make an object under this path unless it is there.
    Create { path: String, object: Value },
    /// Write the hostfile into the ConfigMap that is there.
    SetHostfile(String),
    /// Delete a worker.
    DeleteWorker { name: String, uid: String },
    /// Hold the launcher, or let it run.
    SuspendLauncher(bool),
    /// Write the status.
    Status(MpiJobStatus),
    /// Tell an event of the job.
    Event { kind: &'static str, reason: &'static str, message: String },
}

/// What to do, and when to look again without a change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Todo {
    pub(crate) actions: Vec<Action>,
    pub(crate) again: Option<Timestamp>,
}

/// How a launcher stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launch {
    Absent,
    Active,
    Succeeded,
    Failed,
}

fn launch(observed: &Observed) -> Launch {
    let Some(launcher) = observed
        .launcher
        .as_ref()
        .filter(|launcher| owned(observed, launcher.metadata.owner_references.as_deref()))
    else {
        return Launch::Absent;
    };
    let conditions = launcher
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let holds = |kind: &str| {
        conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
    };
    match (holds("Complete"), holds("Failed")) {
        (true, _) => Launch::Succeeded,
        (_, true) => Launch::Failed,
        _ => Launch::Active,
    }
}

fn owned(
    observed: &Observed,
    owners: Option<&[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]>,
) -> bool {
    owners.unwrap_or_default().iter().any(|owner| owner.uid == observed.job.uid())
}

/// What to do for a job now.
pub(crate) fn reconcile(
    observed: &Observed,
    memory: &mut Memory,
    agent_image: &str,
    now: Timestamp,
) -> Todo {
    let mut todo = Todo::default();
    let job = &observed.job;
    let suspended = job
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(SUSPENDED))
        .is_some_and(|value| value == "true");
    if job.metadata.deletion_timestamp.is_some() || suspended {
        return todo;
    }
    let count = match objects::workers(job) {
        Ok(count) => count,
        Err(message) => {
            memory.warn(&mut todo, "InvalidMPIJob", message);
            return todo;
        }
    };
    let state = launch(observed);
    let ours = |pod: &&Pod| owned(observed, pod.metadata.owner_references.as_deref());
    let ready = observed
        .workers
        .values()
        .filter(ours)
        .filter(|pod| pod.is_ready() && !pod.is_terminating())
        .count();
    status(observed, state, ready, now, &mut todo);
    if matches!(state, Launch::Succeeded | Launch::Failed) {
        if job.spec.clean_pod_policy.as_deref() != Some("None") {
            for pod in observed.workers.values().filter(ours).filter(|pod| !pod.is_terminating()) {
                todo.actions.push(delete(pod));
            }
        }
        return todo;
    }
    let namespace = job.namespace();
    if !observed.access {
        for (path, object) in objects::access(job, count) {
            let (group, plural) = path.rsplit_once('/').unwrap_or(("", path));
            todo.actions.push(Action::Create {
                path: format!("/{group}/namespaces/{namespace}/{plural}"),
                object,
            });
        }
    }
    workers(observed, memory, count, now, &mut todo);
    if objects::is_topology(job) && !objects::host_network(job) && count > 1 {
        let message = "workers do not share the host's network: NCCL takes those of one node for separate hosts and uses TCP \
                       between them; set hostNetwork, or ask for all GPUs of a node in one worker"
            .to_owned();
        memory.warn(&mut todo, "NoHostIdentity", message);
    }
    launcher(observed, memory, state, count, ready, agent_image, &mut todo);
    todo
}

fn delete(pod: &Pod) -> Action {
    Action::DeleteWorker { name: pod.name().to_owned(), uid: pod.uid().to_owned() }
}

fn status(observed: &Observed, state: Launch, ready: usize, now: Timestamp, todo: &mut Todo) {
    let old = observed.job.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.worker_replicas = Some(i32::try_from(ready).unwrap_or(i32::MAX));
    let word = match state {
        Launch::Absent => None,
        Launch::Active => Some("Active"),
        Launch::Succeeded => Some("Succeeded"),
        Launch::Failed => Some("Failed"),
    };
    if let Some(word) = word {
        new.launcher_status = Some(word.to_owned());
        let whole_second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        if new.start_time.is_none() {
            new.start_time = Some(Time(whole_second));
        }
        if state != Launch::Active && new.completion_time.is_none() {
            let of_job = observed
                .launcher
                .as_ref()
                .and_then(|job| job.status.as_ref()?.completion_time.clone());
            new.completion_time = Some(of_job.unwrap_or(Time(whole_second)));
        }
        if old.launcher_status.as_deref() != Some(word) {
            todo.actions.push(Action::Event {
                kind: if state == Launch::Failed { "Warning" } else { "Normal" },
                reason: match state {
                    Launch::Succeeded => "MPIJobSucceeded",
                    Launch::Failed => "MPIJobFailed",
                    _ => "MPIJobRunning",
                },
                message: format!("launcher is {word}"),
            });
        }
    }
    if new != old {
        todo.actions.push(Action::Status(new));
    }
}

/// Every index has a worker that runs or is on its way; what failed or was refused is made anew, after a while.
fn workers(
    observed: &Observed,
    memory: &mut Memory,
    count: usize,
    now: Timestamp,
    todo: &mut Todo,
) {
    let job = &observed.job;
    for index in 0..count {
        let name = objects::worker_name(job.name(), index);
        match observed.workers.get(&name) {
            Some(pod) if !owned(observed, pod.metadata.owner_references.as_deref()) => {
                if !pod.is_terminating() {
                    let message =
                        format!("Resource {name:?} already exists and is not managed by MPIJob");
                    memory.warn(todo, "ErrResourceExists", message);
                }
                // A namesake of a job that was deleted is waited for.
            }
            Some(pod) if pod.is_finished() && !pod.is_terminating() => {
                memory.failed(index, now);
                let why = [pod.status.reason.as_str(), pod.status.message.as_str()].join(" ");
                todo.actions.push(Action::Event {
                    kind: "Warning",
                    reason: "WorkerLost",
                    message: format!("worker {name} ended ({}); it is made anew", why.trim()),
                });
                todo.actions.push(delete(pod));
            }
            Some(_) => {}
            None => match memory.not_before(index).filter(|&time| time > now) {
                Some(time) => todo.again = Some(todo.again.map_or(time, |again| again.min(time))),
                None => todo.actions.push(Action::Create {
                    path: format!("/api/v1/namespaces/{}/pods", job.namespace()),
                    object: objects::worker(job, index, count),
                }),
            },
        }
    }
}

/// Workers in the order of the hostfile: for topology jobs that of their ranks, contiguous by node and along the ring
/// inside it; for others that of their indices.
fn order(observed: &Observed, count: usize) -> Vec<String> {
    let job = &observed.job;
    let mut names: Vec<String> =
        (0..count).map(|index| objects::worker_name(job.name(), index)).collect();
    if objects::is_topology(job) {
        let rank = |name: &String| {
            let pod = observed.workers.get(name);
            let rank = pod
                .and_then(|pod| pod.annotations().get(contract::RANK))
                .and_then(|rank| rank.parse::<usize>().ok());
            // A worker that was replaced has the next free rank: it goes next to those of its node.
            let node = pod.and_then(|pod| pod.spec.node_name.clone()).unwrap_or_default();
            (node, rank)
        };
        let first_rank = |node: &str| {
            names.iter().map(rank).filter(|(n, _)| n == node).map(|(_, rank)| rank).min()
        };
        let mut keyed: Vec<_> = names
            .iter()
            .map(|name| (first_rank(&rank(name).0), rank(name), name.clone()))
            .collect();
        keyed.sort();
        names = keyed.into_iter().map(|(_, _, name)| name).collect();
    }
    names
}

/// The launcher is made when all workers are ready. When one is lost while it runs and retries are left, it is held until
/// all are ready again; without retries mpirun's failure is the job's.
fn launcher(
    observed: &Observed,
    memory: &mut Memory,
    state: Launch,
    count: usize,
    ready: usize,
    agent_image: &str,
    todo: &mut Todo,
) {
    let job = &observed.job;
    let held = observed
        .launcher
        .as_ref()
        .and_then(|launcher| launcher.spec.as_ref()?.suspend)
        .unwrap_or(false);
    if state == Launch::Active && ready < count {
        let failed = observed
            .launcher
            .as_ref()
            .and_then(|launcher| launcher.status.as_ref()?.failed)
            .unwrap_or(0);
        let retries = job.spec.backoff_limit.unwrap_or(0) - failed;
        if !held && retries > 0 {
            let message =
                format!("{ready} of {count} workers are ready; the launcher waits for all");
            todo.actions.push(Action::Event { kind: "Warning", reason: "LauncherHeld", message });
            todo.actions.push(Action::SuspendLauncher(true));
        }
        return;
    }
    if ready < count || (state == Launch::Active && !held) {
        return;
    }
    let hostfile = objects::hostfile(job, &order(observed, count));
    match &observed.hostfile {
        None => todo.actions.push(Action::Create {
            path: format!("/api/v1/namespaces/{}/configmaps", job.namespace()),
            object: objects::config(job, &hostfile),
        }),
        Some(there) if *there != hostfile => todo.actions.push(Action::SetHostfile(hostfile)),
        Some(_) => {}
    }
    if state == Launch::Active {
        todo.actions.push(Action::SuspendLauncher(false));
        return;
    }
    if observed
        .launcher
        .as_ref()
        .is_some_and(|launcher| launcher.metadata.deletion_timestamp.is_none())
    {
        let name = objects::launcher_name(job.name());
        memory.warn(
            todo,
            "ErrResourceExists",
            format!("Resource {name:?} already exists and is not managed by MPIJob"),
        );
        return;
    }
    if observed.launcher.is_none() {
        todo.actions.push(Action::Create {
            path: format!("/apis/batch/v1/namespaces/{}/jobs", job.namespace()),
            object: objects::launcher(job, agent_image),
        });
    }
}

impl Memory {
    /// One second after the first failure, doubling to a minute.
    fn failed(&mut self, index: usize, now: Timestamp) {
        let (failures, not_before) = self.failures.entry(index).or_insert((0, now));
        let seconds = (1_i64 << (*failures).min(6)).min(60);
        *failures += 1;
        *not_before = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    }

    fn not_before(&self, index: usize) -> Option<Timestamp> {
        self.failures.get(&index).map(|(_, time)| *time)
    }

    /// Warns once.
    fn warn(&mut self, todo: &mut Todo, reason: &'static str, message: String) {
        if !self.warned.contains(&message) {
            self.warned.push(message.clone());
            todo.actions.push(Action::Event { kind: "Warning", reason, message });
        }
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
