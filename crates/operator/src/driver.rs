//! Watches in, actions out. One task owns the world and looks at jobs; what is to be done for different jobs is done side
//! by side, for one job in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{MpiJob, Pod, contract};
use client::{Clients, watch};
use futures::{Stream, StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use kube::{Api, runtime::watcher};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    act::{ActError, act},
    launcher::{Config, Launcher},
    reconcile::{Action, Memory, Todo, reconcile},
    shape::is_topology,
    world::{Heard, Key, World},
};

/// Jobs that are acted for at once. Each writes one object at a time, or a few workers: a connection each.
const JOBS_AT_ONCE: usize = 16;
/// Workers of one job that are made at once, when a gang is scheduled whatever their order.
const WORKERS_AT_ONCE: usize = 8;
/// After the first failure in a row; doubles with each.
const FIRST_PAUSE: i64 = 1;
/// However many failures there were.
const LONGEST_PAUSE: i64 = 30;
/// How long writes that were begun are waited for at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// When nothing happens.
const IDLE: Duration = Duration::from_secs(60);

pub(crate) struct Driver {
    clients: Clients,
    options: Options,
    world: World,
    remembered: BTreeMap<Key, Remembered>,
    /// Jobs to look at, and when.
    due: BTreeMap<Key, Timestamp>,
    /// Jobs for which something is being done.
    busy: BTreeSet<Key>,
    acting: JoinSet<(Key, Result<(), ActError>)>,
}

/// What is remembered of one job; of another of its name, nothing.
#[derive(Default)]
struct Remembered {
    uid: String,
    memory: Memory,
    /// Failures in a row.
    failures: u32,
}

impl Driver {
    pub(crate) fn new(clients: Clients, options: Options) -> Self {
        Self {
            clients,
            options,
            world: World::default(),
            remembered: BTreeMap::new(),
            due: BTreeMap::new(),
            busy: BTreeSet::new(),
            acting: JoinSet::new(),
        }
    }

    fn watches(&self) -> impl Stream<Item = Heard> + Send + use<> {
        let reads = || self.clients.reads.clone();
        let of_jobs = || watcher::Config::default().labels(contract::MPI_JOB_NAME);
        stream::select_all([
            watch(Api::<MpiJob>::all(reads()), watcher::Config::default()).map(Heard::Job).boxed(),
            watch(Api::<Pod>::all(reads()), of_jobs()).map(Heard::Worker).boxed(),
            watch(Api::<Launcher>::all(reads()), of_jobs()).map(Heard::Launcher).boxed(),
            watch(Api::<Config>::all(reads()), of_jobs()).map(Heard::Config).boxed(),
        ])
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        // Changes that are there already are taken in together: each is a reason to look, and one look is enough.
        let mut watches = std::pin::pin!(self.watches().ready_chunks(256));
        loop {
            self.look_at_due();
            let idle = self.until_due();
            tokio::select! {
                () = shutdown.cancelled() => break,
                heard = watches.next() => {
                    let Some(heard) = heard else { break };
                    let now = Timestamp::now();
                    for change in heard {
                        for key in self.world.hear(change) {
                            // What is put off after a failure stays put off no longer: something changed.
                            self.due.insert(key, now);
                        }
                    }
                }
                Some(done) = self.acting.join_next(), if !self.acting.is_empty() => {
                    match done {
                        Ok((key, result)) => self.done(&key, result),
                        Err(error) => tracing::error!(%error, "an action ended badly"),
                    }
                }
                () = tokio::time::sleep(idle) => {}
            }
        }
        // What was begun may end, though it could be cut off anywhere; a server that does not answer is not waited for.
        let rest = async { while self.acting.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WORDS, rest).await.is_err() {
            tracing::debug!("the API server does not answer; some writes are left");
        }
    }

    fn look_at_due(&mut self) {
        if !self.world.is_complete() {
            return;
        }
        let now = Timestamp::now();
        let due: Vec<Key> = self
            .due
            .iter()
            .filter(|(key, time)| **time <= now && !self.busy.contains(*key))
            .take(JOBS_AT_ONCE.saturating_sub(self.busy.len()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.due.remove(&key);
            self.look(key, now);
        }
    }

    /// How long nothing is due.
    fn until_due(&self) -> Duration {
        if !self.world.is_complete() || self.busy.len() >= JOBS_AT_ONCE {
            return IDLE;
        }
        let waiting = self.due.iter().filter(|(key, _)| !self.busy.contains(*key));
        let Some(next) = waiting.map(|(_, time)| *time).min() else { return IDLE };
        let wait = next.duration_since(Timestamp::now());
        if wait.is_positive() { wait.unsigned_abs().min(IDLE) } else { Duration::ZERO }
    }

    /// Looks at one job and starts what is to be done.
    fn look(&mut self, key: Key, now: Timestamp) {
        let Some(observed) = self.world.job(&key) else {
            self.remembered.remove(&key);
            return;
        };
        let remembered = self.remembered.entry(key.clone()).or_default();
        if remembered.uid != observed.job.uid() {
            let uid = observed.job.uid().to_owned();
            *remembered = Remembered { uid, ..Remembered::default() };
        }
        let todo = reconcile(observed, &mut remembered.memory, &self.options, now);
        if let Some(again) = todo.again {
            self.due.insert(key.clone(), again);
        }
        if todo.actions.is_empty() {
            return;
        }
        // The spec is not needed: what is to be made has been made of it.
        let job = MpiJob { metadata: observed.job.metadata.clone(), ..MpiJob::default() };
        self.start(key, Arc::new(job), todo.actions);
    }

    fn start(&mut self, key: Key, job: Arc<MpiJob>, actions: Vec<Action>) {
        self.busy.insert(key.clone());
        let clients = self.clients.clone();
        self.acting.spawn(async move {
            let result = carry_out(&clients, &job, actions).await;
            (key, result)
        });
    }

    /// Takes note of how actions ended.
    fn done(&mut self, key: &Key, result: Result<(), ActError>) {
        self.busy.remove(key);
        let Some(observed) = self.world.job(key) else { return };
        let Some(remembered) = self.remembered.get_mut(key) else { return };
        let now = Timestamp::now();
        let Err(error) = result else {
            remembered.failures = 0;
            remembered.memory.access = true;
            return;
        };
        tracing::debug!(job = key.1, %error, "not done; it is tried again");
        remembered.memory.undone();
        let mut told = Todo::default();
        let pause = match &error {
            ActError::Waiting { .. } => FIRST_PAUSE,
            ActError::Unanswered { .. } => remembered.pause(),
            ActError::Foreign { name } => {
                remembered.memory.foreign(&mut told, name);
                remembered.pause()
            }
            ActError::Refused { .. } => {
                remembered.memory.warn(&mut told, "FailedSync", error.to_string());
                remembered.pause()
            }
        };
        let again = now.checked_add(SignedDuration::from_secs(pause)).unwrap_or(now);
        self.due.entry(key.clone()).or_insert(again);
        if !told.actions.is_empty() {
            let job = MpiJob { metadata: observed.job.metadata.clone(), ..MpiJob::default() };
            let clients = self.clients.clone();
            tokio::spawn(async move {
                for action in &told.actions {
                    tell(&clients, &job, action).await;
                }
            });
        }
    }
}

impl Remembered {
    /// Seconds to wait after one more failure.
    fn pause(&mut self) -> i64 {
        let pause = (FIRST_PAUSE << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures += 1;
        pause
    }
}

/// Carries out actions in order, up to the first that fails; workers in a row are made together. An event that cannot be
/// told stops nothing.
async fn carry_out(clients: &Clients, job: &MpiJob, actions: Vec<Action>) -> Result<(), ActError> {
    let mut actions = actions.into_iter().peekable();
    // Where the default scheduler places them one by one they come in the order of their indices, as a StatefulSet's do:
    // neighbours in the ring of ranks are neighbours in time.
    let at_once = if is_topology(job) { WORKERS_AT_ONCE } else { 1 };
    while let Some(action) = actions.next() {
        if matches!(action, Action::Event { .. }) {
            tell(clients, job, &action).await;
            continue;
        }
        let mut group = vec![action];
        while is_worker(&group[0])
            && let Some(next) = actions.next_if(is_worker)
        {
            group.push(next);
        }
        let mut results = stream::iter(group)
            .map(|action| async move { act(clients, job, &action).await })
            .buffered(at_once);
        let mut first = Ok(());
        while let Some(result) = results.next().await {
            first = first.and(result);
        }
        first?;
    }
    Ok(())
}

/// Whether a worker is made.
fn is_worker(action: &Action) -> bool {
    matches!(action, Action::Create { path, .. } if path.ends_with("/pods"))
}

async fn tell(clients: &Clients, job: &MpiJob, event: &Action) {
    if let Err(error) = act(clients, job, event).await {
        tracing::debug!(job = job.name(), %error, "an event could not be told");
    }
}
