//! What to do next for one job: a pure function of what is observed and remembered. Doing it twice does it once.

use std::collections::BTreeMap;

use api::{MpiJob, MpiJobStatus, Pod, contract};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    Options,
    launcher::{Config, Launcher, launcher},
    objects,
    shape::{Shape, is_topology},
    worker::{no_host_identity, worker},
};

/// One job and its children, as last seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    /// The job.
    pub(crate) job: MpiJob,
    /// Pods that say they are the job's, by name, whoever owns them.
    pub(crate) workers: BTreeMap<String, Pod>,
    /// The Job of the launcher's name, whoever owns it.
    pub(crate) launcher: Option<Launcher>,
    /// The ConfigMap of the hostfile's name, whoever owns it.
    pub(crate) config: Option<Config>,
}

/// What is remembered of a job between looks. Losing it costs a repeated event or an early retry, nothing more.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Whether account, role and role binding were made.
    pub(crate) access: bool,
    /// Whether the times of the status were written: a definition without these fields drops them, and they would be
    /// written for ever.
    times: bool,
    told: Option<Launch>,
    warned: Vec<String>,
    workers: BTreeMap<usize, Past>,
}

/// What is remembered of the workers of one index.
#[derive(Debug, Default)]
struct Past {
    /// The one seen last.
    uid: String,
    /// The one whose loss was counted last.
    lost: String,
    losses: u32,
    /// When another may be made.
    not_before: Option<Timestamp>,
    /// When one was made that is not seen yet.
    made: Option<Timestamp>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Make an object under this path unless it is there.
    Create { path: String, object: Value },
    /// Write the hostfiles into the ConfigMap that is there.
    SetHostfiles { uid: String, hostfiles: Value },
    /// Delete a worker.
    DeleteWorker { name: String, uid: String },
    /// Hold the launcher, noting how often it was started again, or let it run.
    Suspend { uid: String, suspend: bool, restarts: i32 },
    /// Write the status.
    Status(MpiJobStatus),
    /// Tell an event of the job.
    Event { warning: bool, reason: &'static str, message: String },
}

/// What to do, and when to look again without a change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Todo {
    pub(crate) actions: Vec<Action>,
    pub(crate) again: Option<Timestamp>,
}

/// How a launcher stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launch {
    Absent,
    Active,
    Succeeded,
    Failed,
}

/// To whom an object of one of our names belongs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This job.
    Us,
    /// A job of this name that was deleted, or it is on its way out anyhow: the name will be free.
    Past,
    /// Somebody else.
    Other,
}

/// To whom an object belongs.
pub(crate) fn owner(meta: &ObjectMeta, job: &MpiJob) -> Owner {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| owner.uid == job.uid()) {
        Owner::Us
    } else if meta.deletion_timestamp.is_some()
        || owners.iter().any(|owner| owner.kind == "MPIJob" && owner.name == job.name())
    {
        Owner::Past
    } else {
        Owner::Other
    }
}

/// What to do for a job now.
pub(crate) fn reconcile(
    observed: &Observed,
    memory: &mut Memory,
    options: &Options,
    now: Timestamp,
) -> Todo {
    let mut todo = Todo::default();
    let job = &observed.job;
    let annotations = job.metadata.annotations.as_ref();
    let suspended = annotations
        .is_some_and(|all| all.get(contract::SUSPEND).is_some_and(|value| value == "true"));
    if job.metadata.deletion_timestamp.is_some() || suspended {
        return todo;
    }
    let shape = match Shape::of(job, options.gpus_per_node) {
        Ok(shape) => shape,
        Err(message) => {
            memory.warn(&mut todo, "InvalidMPIJob", message);
            return todo;
        }
    };
    let look = Look { observed, shape, options, now };
    let state = look.launch();
    look.status(memory, state, &mut todo);
    if matches!(state, Launch::Succeeded | Launch::Failed) {
        look.clean(&mut todo);
        return todo;
    }
    let synced = !memory.access;
    if synced {
        let made = objects::access(job, look.shape.workers);
        todo.actions.extend(made.map(|(path, object)| Action::Create { path, object }));
    }
    // In this order: if we are killed in between, the worker is still missing, and the launcher is held by the next look.
    look.hold(&mut todo);
    look.workers(memory, &mut todo);
    if let Some(message) = no_host_identity(job, &look.shape) {
        memory.warn(&mut todo, "NoHostIdentity", message);
    }
    look.launcher(memory, &mut todo);
    if synced {
        let message = "MPIJob synced successfully".to_owned();
        todo.actions.push(Action::Event { warning: false, reason: "Synced", message });
    }
    todo
}

/// One look at a job that can be run.
struct Look<'a> {
    observed: &'a Observed,
    shape: Shape,
    options: &'a Options,
    now: Timestamp,
}

impl Look<'_> {
    fn ours(&self, meta: &ObjectMeta) -> bool {
        owner(meta, &self.observed.job) == Owner::Us
    }

    fn our_launcher(&self) -> Option<&Launcher> {
        self.observed.launcher.as_ref().filter(|launcher| self.ours(&launcher.metadata))
    }

    /// The worker of an index, if it is ours.
    fn our_worker(&self, index: usize) -> Option<&Pod> {
        let name = contract::worker_name(self.observed.job.name(), index);
        self.observed.workers.get(&name).filter(|pod| self.ours(&pod.metadata))
    }

    /// Workers that are ready.
    fn ready(&self) -> usize {
        (0..self.shape.workers)
            .filter_map(|index| self.our_worker(index))
            .filter(|pod| pod.is_ready() && !pod.is_terminating() && !pod.is_finished())
            .count()
    }

    /// Workers that no rank can be running in: gone, going, ended, or made and not started yet. One that is only not ready,
    /// as when its node is slow to report, is not lost: training would be stopped for nothing.
    fn lost(&self) -> usize {
        let lost = |pod: &Pod| {
            pod.is_terminating() || pod.is_finished() || !(pod.is_ready() || pod.ever_started())
        };
        (0..self.shape.workers).filter(|index| self.our_worker(*index).is_none_or(lost)).count()
    }

    fn launch(&self) -> Launch {
        match self.our_launcher() {
            Some(launcher) if launcher.complete() => Launch::Succeeded,
            Some(launcher) if launcher.failure().is_some() => Launch::Failed,
            Some(_) => Launch::Active,
            // A job that is done stays done when somebody removes its launcher.
            None => match self.observed.job.launcher_status() {
                "Succeeded" => Launch::Succeeded,
                "Failed" => Launch::Failed,
                _ => Launch::Absent,
            },
        }
    }

    fn status(&self, memory: &mut Memory, state: Launch, todo: &mut Todo) {
        let old = self.observed.job.status.clone().unwrap_or_default();
        let mut new = old.clone();
        new.worker_replicas = Some(i32::try_from(self.ready()).unwrap_or(i32::MAX));
        if let (Some(word), Some(launcher)) = (state.word(), self.our_launcher()) {
            new.launcher_status = Some(word.to_owned());
            let began = launcher.status.start_time.clone();
            let made = || launcher.metadata.creation_timestamp.clone();
            new.start_time = new.start_time.or(began).or_else(made);
            let completed = launcher.status.completion_time.clone();
            let failed = || launcher.failure().and_then(|c| c.last_transition_time.clone());
            new.completion_time = new.completion_time.or(completed).or_else(failed);
            if old.launcher_status.as_deref() != Some(word) && memory.told != Some(state) {
                memory.told = Some(state);
                todo.actions.push(told(state, launcher));
            }
        }
        let replicas = |status: &MpiJobStatus| status.worker_replicas.unwrap_or(0);
        let counts = new.launcher_status != old.launcher_status || replicas(&new) != replicas(&old);
        if counts || (new != old && !memory.times && new.start_time != old.start_time) {
            memory.times |= new.start_time.is_some();
            todo.actions.push(Action::Status(new));
        }
    }

    /// The launcher is done: workers go, unless they are to stay.
    fn clean(&self, todo: &mut Todo) {
        if self.observed.job.spec.clean_pod_policy.as_deref() == Some("None") {
            return;
        }
        let pods = self.observed.workers.values();
        let going = pods.filter(|pod| self.ours(&pod.metadata) && !pod.is_terminating());
        todo.actions.extend(going.map(delete));
    }

    /// Every index has a worker that runs or is on its way; what is lost or was refused is made anew, after a while.
    fn workers(&self, memory: &mut Memory, todo: &mut Todo) {
        let job = &self.observed.job;
        for index in 0..self.shape.workers {
            let name = contract::worker_name(job.name(), index);
            let pod = self.observed.workers.get(&name);
            match pod.map(|pod| (pod, owner(&pod.metadata, job))) {
                Some((_, Owner::Other)) => memory.foreign(todo, &name),
                Some((_, Owner::Past)) => {}
                Some((pod, Owner::Us)) => {
                    let ended = pod.is_finished() && !pod.is_terminating();
                    if memory.seen(index, pod, ended, self.now) {
                        let why =
                            [pod.status.reason.as_str(), pod.status.message.as_str()].join(" ");
                        todo.lost(format!("worker {name} ended ({}); it is made anew", why.trim()));
                    }
                    if ended {
                        todo.actions.push(delete(pod));
                    }
                }
                None => match memory.missing(index, self.now) {
                    Missing::Until(time) => todo.look_again(time),
                    Missing::Make { gone } => {
                        if gone {
                            todo.lost(format!("worker {name} is gone; it is made anew"));
                        }
                        todo.actions.push(Action::Create {
                            path: format!("/api/v1/namespaces/{}/pods", job.namespace()),
                            object: worker(job, &self.shape, index),
                        });
                    }
                },
            }
        }
    }

    /// Workers in the order of the hostfile: for topology jobs that of their ranks, contiguous by node and along the ring
    /// inside it; for others, and where there are no ranks, that of their indices.
    fn order(&self) -> Vec<String> {
        let job = &self.observed.job;
        let ranked = is_topology(job);
        let place = |index: usize| {
            let pod = self.our_worker(index);
            let rank = pod.and_then(|pod| pod.rank().ok().flatten());
            let node = pod.and_then(|pod| pod.spec.node_name.clone()).unwrap_or_default();
            (node, rank.filter(|_| ranked).unwrap_or(usize::MAX), index)
        };
        let mut places: Vec<_> = (0..self.shape.workers).map(place).collect();
        if ranked {
            // Nodes in the order of their first ranks. A worker that was replaced has a later rank: it goes beside those of
            // its node all the same.
            let mut first: BTreeMap<String, (usize, usize)> = BTreeMap::new();
            for (node, rank, index) in &places {
                let entry = first.entry(node.clone()).or_insert((*rank, *index));
                *entry = (*entry).min((*rank, *index));
            }
            places.sort_by_key(|(node, rank, index)| (first.get(node).copied(), *rank, *index));
        }
        places.iter().map(|(_, _, index)| contract::worker_name(job.name(), *index)).collect()
    }

    /// The launcher is made when all workers are ready, and one that we held starts again then.
    fn launcher(&self, memory: &mut Memory, todo: &mut Todo) {
        let job = &self.observed.job;
        let name = contract::launcher_name(job.name());
        match self.observed.launcher.as_ref().map(|there| (there, owner(&there.metadata, job))) {
            Some((_, Owner::Other)) => memory.foreign(todo, &name),
            Some((_, Owner::Past)) => {}
            Some((there, Owner::Us)) if there.metadata.deletion_timestamp.is_some() => {}
            Some((there, Owner::Us)) if there.spec.suspend == Some(true) => {
                // One that we did not hold is somebody else's to let go.
                if let Some(restarts) = there.restarts()
                    && self.ready() == self.shape.workers
                    && self.hostfile_is_there(memory, todo)
                {
                    todo.actions.push(suspend(there, false, restarts));
                }
            }
            Some((_, Owner::Us)) => {}
            None => {
                let ready = self.ready() == self.shape.workers;
                if ready && self.hostfile_is_there(memory, todo) {
                    todo.actions.push(Action::Create {
                        path: format!("/apis/batch/v1/namespaces/{}/jobs", job.namespace()),
                        object: launcher(job, &self.options.agent_image),
                    });
                }
            }
        }
    }

    /// A launcher that loses a worker is held until all are ready again, if retries are left: that costs one. Without
    /// retries mpirun's failure is the job's. One that does not run yet is held for nothing: mpirun would only fail.
    fn hold(&self, todo: &mut Todo) {
        let Some(there) = self.our_launcher() else { return };
        let lost = self.lost();
        let held = there.spec.suspend == Some(true) || there.metadata.deletion_timestamp.is_some();
        if lost == 0 || held || there.is_deciding() {
            return;
        }
        let restarts = there.restarts().unwrap_or(0);
        let cost = i32::from(there.is_running());
        let spent = there.status.failed.unwrap_or(0) + restarts + cost;
        if spent > self.observed.job.spec.backoff_limit.unwrap_or(0) {
            return;
        }
        let message = format!(
            "{lost} of {} workers are lost; the launcher starts again when all are ready",
            self.shape.workers
        );
        todo.actions.push(suspend(there, true, restarts + cost));
        todo.actions.push(Action::Event { warning: true, reason: "LauncherHeld", message });
    }

    /// Whether a launcher would find the hostfile of the workers that are ready now, after the actions so far.
    fn hostfile_is_there(&self, memory: &mut Memory, todo: &mut Todo) -> bool {
        let job = &self.observed.job;
        let hostfiles = objects::hostfiles(&self.shape, &self.order());
        let name = contract::config_name(job.name());
        match self.observed.config.as_ref().map(|there| (there, owner(&there.metadata, job))) {
            None => todo.actions.push(Action::Create {
                path: format!("/api/v1/namespaces/{}/configmaps", job.namespace()),
                object: objects::config(job, &hostfiles),
            }),
            Some((_, Owner::Past)) => return false,
            Some((_, Owner::Other)) => {
                memory.foreign(todo, &name);
                return false;
            }
            Some((there, Owner::Us)) => {
                let same =
                    |key: &str| there.data.get(key).map(String::as_str) == hostfiles[key].as_str();
                if !(same(contract::HOSTFILE) && same(contract::MACHINEFILE)) {
                    let uid = there.metadata.uid.clone().unwrap_or_default();
                    todo.actions.push(Action::SetHostfiles { uid, hostfiles });
                }
            }
        }
        true
    }
}

fn delete(pod: &Pod) -> Action {
    Action::DeleteWorker { name: pod.name().to_owned(), uid: pod.uid().to_owned() }
}

fn suspend(launcher: &Launcher, suspend: bool, restarts: i32) -> Action {
    let uid = launcher.metadata.uid.clone().unwrap_or_default();
    Action::Suspend { uid, suspend, restarts }
}

/// The event of a new state.
fn told(state: Launch, launcher: &Launcher) -> Action {
    let (warning, reason, message) = match state {
        Launch::Succeeded => (false, "MPIJobSucceeded", "launcher completed".to_owned()),
        Launch::Failed => {
            let why = launcher.failure().map(|c| format!("{} {}", c.reason, c.message));
            let why = why.unwrap_or_default();
            (true, "MPIJobFailed", format!("launcher failed ({})", why.trim()))
        }
        _ => (false, "MPIJobRunning", "all workers are ready; launcher was created".to_owned()),
    };
    Action::Event { warning, reason, message }
}

impl Launch {
    /// As the status says it.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Absent => None,
            Self::Active => Some("Active"),
            Self::Succeeded => Some("Succeeded"),
            Self::Failed => Some("Failed"),
        }
    }
}

impl Todo {
    fn lost(&mut self, message: String) {
        self.actions.push(Action::Event { warning: true, reason: "WorkerLost", message });
    }

    fn look_again(&mut self, time: Timestamp) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}

/// What to do about an index without a worker.
enum Missing {
    /// Nothing before this time.
    Until(Timestamp),
    /// Make one; there may have been another.
    Make { gone: bool },
}

/// A worker that was made and is not seen after this long is looked for again: its watch event was lost, or it was deleted
/// before anybody saw it.
const UNSEEN: SignedDuration = SignedDuration::from_secs(5);

impl Memory {
    /// Takes note of a worker; true the first time that it is seen to have ended.
    fn seen(&mut self, index: usize, pod: &Pod, ended: bool, now: Timestamp) -> bool {
        let past = self.workers.entry(index).or_default();
        pod.uid().clone_into(&mut past.uid);
        past.made = None;
        if pod.is_ready() {
            (past.losses, past.not_before) = (0, None);
        }
        if !ended || past.lost == past.uid {
            return false;
        }
        // One that was refused will be refused again if it comes at once: a second, doubling to a minute.
        past.lose(now, 1);
        true
    }

    /// What to do about an index without a worker.
    fn missing(&mut self, index: usize, now: Timestamp) -> Missing {
        let past = self.workers.entry(index).or_default();
        let gone = !past.uid.is_empty() && past.lost != past.uid;
        if gone {
            // One that was deleted comes back at once, unless it is deleted again and again.
            past.lose(now, 0);
        }
        if let Some(made) = past.made.and_then(|made| made.checked_add(UNSEEN).ok())
            && made > now
        {
            return Missing::Until(made);
        }
        match past.not_before {
            Some(time) if time > now => Missing::Until(time),
            _ => {
                past.made = Some(now);
                Missing::Make { gone }
            }
        }
    }

    /// What was to be done was not, or nobody knows: nothing of it counts.
    pub(crate) fn undone(&mut self) {
        self.times = false;
        for past in self.workers.values_mut() {
            past.made = None;
        }
    }

    /// Warns once of each thing.
    pub(crate) fn warn(&mut self, todo: &mut Todo, reason: &'static str, message: String) {
        if !self.warned.contains(&message) {
            self.warned.push(message.clone());
            todo.actions.push(Action::Event { warning: true, reason, message });
        }
    }

    /// Warns of an object that has the name of one of ours.
    pub(crate) fn foreign(&mut self, todo: &mut Todo, name: &str) {
        let message = format!("Resource {name:?} already exists and is not managed by MPIJob");
        self.warn(todo, "ErrResourceExists", message);
    }
}

impl Past {
    /// Counts a loss: the first costs `first` seconds, each further one twice as much, up to a minute.
    fn lose(&mut self, now: Timestamp, first: i64) {
        self.lost.clone_from(&self.uid);
        self.made = None;
        let seconds = match self.losses {
            0 => first,
            losses => (1_i64 << losses.min(6)).min(60),
        };
        self.losses += 1;
        self.not_before = now.checked_add(SignedDuration::from_secs(seconds)).ok();
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "crash_tests.rs"]
mod crash_tests;
