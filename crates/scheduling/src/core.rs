//! The scheduler without its daemon: changes go in, plans and evictions come out. It has no clock and does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{Node, Pod};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    cluster::{Cluster, PodRecord, Uid},
    framework::Profile,
    gang::{GangKey, Membership},
    plan::{self, Choices, Plan, Unit, plan},
    queue::{Place, Queue},
    rejection::Rejection,
};

/// What an administrator may set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Scheduler names that we answer to.
    pub names: Vec<String>,
    /// GB/s of links.
    pub links: topology::LinkTable,
    /// Order of products, ε, network.
    pub choices: Choices,
    /// A gang that has waited longer is not overtaken by smaller later ones.
    pub max_wait: Duration,
    /// How long a gang may stay between nothing and its minimum after its last successful bind.
    pub grace: Duration,
    /// How long a gang that once ran may stay below its minimum.
    pub stale_after: Duration,
}

impl Default for Settings {
    /// Answers to `default-scheduler` and `ringmaster`; 30 min, 60 s, 10 min.
    fn default() -> Self {
        Self {
            names: vec![
                api::contract::DEFAULT_SCHEDULER.to_owned(),
                api::contract::RINGMASTER.to_owned(),
            ],
            links: topology::LinkTable::default(),
            choices: Choices::default(),
            max_wait: Duration::from_secs(30 * 60),
            grace: Duration::from_secs(60),
            stale_after: Duration::from_secs(600),
        }
    }
}

/// What comes of one attempt.
#[derive(Debug)]
pub enum Attempt {
    /// The unit has its place, which is reserved: bind these.
    Planned(Plan),
    /// It has none now: tell these pods.
    Rejected {
        /// The unit.
        unit: Unit,
        /// Its waiting pods: UID, namespace, name.
        pods: Vec<(Uid, Arc<str>, Arc<str>)>,
        /// Why.
        rejection: Rejection,
    },
}

/// A gang that must start again as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The gang.
    pub gang: GangKey,
    /// Its bound pods: UID, namespace, name.
    pub pods: Vec<(Uid, Arc<str>, Arc<str>)>,
    /// Whether each has a controller that makes it anew; without, it only gets a warning.
    pub possible: bool,
    /// Why, for the event.
    pub why: String,
}

/// What is remembered of a gang between changes.
#[derive(Debug, Default, Clone)]
struct History {
    /// It was complete once.
    complete_once: bool,
    /// When it was last seen partly started: since then the grace runs.
    partial_since: Option<Timestamp>,
    /// A warning was given.
    warned: bool,
}

/// The scheduler's core.
pub struct Core {
    settings: Settings,
    cluster: Cluster,
    queue: Queue,
    topology: Profile,
    default: Profile,
    history: BTreeMap<GangKey, History>,
    /// Units whose pods changed since the queue last looked.
    dirty: BTreeSet<Unit>,
    /// Last plan of each gang that has one, for explanations.
    plans: BTreeMap<Unit, Arc<Plan>>,
}

impl Core {
    /// A core of an empty cluster.
    pub fn new(settings: Settings) -> Self {
        let cluster = Cluster::new(settings.names.clone(), settings.links.clone());
        Self {
            settings,
            cluster,
            queue: Queue::default(),
            topology: Profile::ringmaster(),
            default: Profile::default_scheduler(),
            history: BTreeMap::new(),
            dirty: BTreeSet::new(),
            plans: BTreeMap::new(),
        }
    }

    /// The cluster as it is known.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The plan by which a unit was placed.
    pub fn plan_of(&self, unit: &Unit) -> Option<&Arc<Plan>> {
        self.plans.get(unit)
    }

    fn unit_of(pod: &PodRecord, cluster: &Cluster) -> Unit {
        match &pod.membership {
            Membership::Of(key, _) => {
                let launcher = pod.shape.gpus.total() == 0
                    && cluster.gang(key).is_some_and(|gang| {
                        gang.members.iter().any(|uid| {
                            cluster.pod(uid).is_some_and(|pod| pod.shape.gpus.total() > 0)
                        })
                    });
                if launcher { Unit::Pod(Arc::clone(&pod.uid)) } else { Unit::Gang(key.clone()) }
            }
            Membership::Alone => Unit::Pod(Arc::clone(&pod.uid)),
        }
    }

    fn touch(&mut self, uid: &str) {
        let Some(pod) = self.cluster.pod(uid) else { return };
        // Which pods are launchers depends on the others: look at all of the gang.
        if let Membership::Of(key, _) = &pod.membership {
            let members =
                self.cluster.gang(key).map(|gang| gang.members.clone()).unwrap_or_default();
            for member in members {
                if let Some(pod) = self.cluster.pod(&member) {
                    self.dirty.insert(Self::unit_of(pod, &self.cluster));
                }
            }
            self.dirty.insert(Unit::Gang(key.clone()));
        }
        self.dirty.insert(Unit::Pod(Arc::clone(&pod.uid)));
    }

    /// A pod was made or changed.
    pub fn set_pod(&mut self, pod: &Pod) {
        let waited = self.cluster.pod(pod.uid()).is_some_and(PodRecord::is_waiting);
        let news = self.cluster.set_pod(pod);
        self.touch(pod.uid());
        let waits = self.cluster.pod(pod.uid()).is_some_and(PodRecord::is_waiting);
        if news && (waited || !waits) {
            self.queue.stir();
        }
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, uid: &str) {
        self.touch(uid);
        if self.cluster.remove_pod(uid) {
            self.queue.stir();
        }
    }

    /// These are all pods there are.
    pub fn reset_pods(&mut self, pods: &[Pod]) {
        let uids: BTreeSet<Uid> = pods.iter().map(|pod| Uid::from(pod.uid())).collect();
        let gone: Vec<Uid> = self
            .cluster
            .pods()
            .map(|pod| Arc::clone(&pod.uid))
            .filter(|uid| !uids.contains(uid))
            .collect();
        for uid in gone {
            self.remove_pod(&uid);
        }
        for pod in pods {
            self.set_pod(pod);
        }
    }

    /// A node was made or changed.
    pub fn set_node(&mut self, node: &Node) {
        if self.cluster.set_node(node) {
            self.queue.stir();
        }
    }

    /// A node is gone.
    pub fn remove_node(&mut self, name: &str) {
        self.cluster.remove_node(name);
    }

    /// A node's report was made, changed, or (`None`) removed.
    pub fn set_report(&mut self, node: &str, data: Option<&BTreeMap<String, String>>) {
        self.cluster.set_report(node, data);
        self.queue.stir();
    }

    /// A service was made, changed, or (`None`) removed.
    pub fn set_service(
        &mut self,
        namespace: &str,
        name: &str,
        selector: Option<BTreeMap<String, String>>,
    ) {
        self.cluster.set_service(namespace, name, selector);
    }

    /// Brings the queue up to date with the units that changed.
    fn refresh(&mut self, now: Timestamp) {
        for unit in std::mem::take(&mut self.dirty) {
            let waiting = self.waiting(&unit);
            match waiting.first() {
                Some(first) => {
                    let priority = first.priority;
                    let created = waiting.iter().map(|pod| pod.created).min().unwrap_or_default();
                    let gpus = waiting.iter().map(|pod| pod.shape.gpus.total()).sum();
                    self.queue.put(unit.clone(), priority, created, gpus, true);
                }
                None => self.queue.remove(&unit),
            }
            self.remember(&unit, now);
        }
    }

    /// The pods of a unit that wait for a place.
    fn waiting(&self, unit: &Unit) -> Vec<&PodRecord> {
        match unit {
            Unit::Gang(key) => self
                .cluster
                .gang(key)
                .map(|gang| self.cluster.standing(gang).waiting)
                .unwrap_or_default(),
            Unit::Pod(uid) => {
                let pod = self
                    .cluster
                    .pod(uid)
                    .filter(|pod| pod.is_waiting() && Self::unit_of(pod, &self.cluster) == *unit);
                pod.into_iter().collect()
            }
        }
    }

    fn remember(&mut self, unit: &Unit, now: Timestamp) {
        let Unit::Gang(key) = unit else { return };
        let Some(gang) = self.cluster.gang(key) else {
            self.history.remove(key);
            self.plans.remove(unit);
            return;
        };
        let standing = self.cluster.standing(gang);
        let confirmed =
            standing.placed.iter().filter(|pod| !pod.assumed).count() + standing.satisfied;
        let history = self.history.entry(key.clone()).or_default();
        if confirmed >= gang.minimum {
            *history = History { complete_once: true, ..History::default() };
        } else if standing.placed.is_empty() {
            // Nothing stands: a gang that starts again as a whole is a new start.
            *history = History::default();
        } else if history.partial_since.is_none() {
            history.partial_since = Some(now);
        }
    }

    /// Tries the next unit whose turn it is; `None` when none is.
    pub fn attempt(&mut self, now: Timestamp) -> Option<Attempt> {
        self.refresh(now);
        let unit = self.queue.pop(now)?;
        let outcome = self.try_unit(&unit, now);
        match outcome {
            Ok(plan) => {
                if !self.cluster.reserve(&plan) {
                    // Filter success implies Reserve success; the audit and a property test hold us to it.
                    let what = "reservation failed after every filter passed".to_owned();
                    return Some(self.reject(unit, Rejection::Unsupported { what }, now));
                }
                self.dirty.insert(unit.clone());
                if let Some(entry) = self.queue.get_mut(&unit) {
                    entry.place = Place::InFlight;
                    entry.attempts = 0;
                    entry.rejection = None;
                }
                self.plans.insert(unit, Arc::new(plan.clone()));
                Some(Attempt::Planned(plan))
            }
            Err(rejection) => Some(self.reject(unit, rejection, now)),
        }
    }

    fn reject(&mut self, unit: Unit, rejection: Rejection, now: Timestamp) -> Attempt {
        let pods = self
            .waiting(&unit)
            .into_iter()
            .map(|pod| (Arc::clone(&pod.uid), Arc::clone(&pod.namespace), Arc::clone(&pod.name)))
            .collect();
        self.queue.failed(&unit, rejection.clone(), now);
        Attempt::Rejected { unit, pods, rejection }
    }

    fn try_unit(&self, unit: &Unit, now: Timestamp) -> Result<Plan, Rejection> {
        let waiting = self.waiting(unit);
        if let Some(behind) = self.behind(unit, now) {
            return Err(behind);
        }
        let choices = &self.settings.choices;
        match unit {
            Unit::Pod(_) => {
                let topology = waiting.first().is_some_and(|pod| plan::is_topology(pod, false));
                let profile = if topology { &self.topology } else { &self.default };
                plan(&self.cluster, unit, &waiting, &[], profile, choices)
            }
            Unit::Gang(key) => {
                let Some(gang) = self.cluster.gang(key) else {
                    return Err(Rejection::Gathering { members: 0, minimum: 1 });
                };
                let standing = self.cluster.standing(gang);
                let members = standing.started() + waiting.len();
                let complete_once =
                    self.history.get(key).is_some_and(|history| history.complete_once);
                if members < gang.minimum && !complete_once {
                    return Err(Rejection::Gathering { members, minimum: gang.minimum });
                }
                let together =
                    plan(&self.cluster, unit, &waiting, &standing.placed, &self.topology, choices);
                let Err(rejection) = together else { return together };
                // Not all fit. Those that the minimum needs may; and once it was reached, each that fits is a gain.
                let needed = gang.minimum.saturating_sub(standing.started());
                let least = if complete_once { 1 } else { needed.max(1) };
                (least..waiting.len())
                    .rev()
                    .filter(|_| needed < waiting.len() || complete_once)
                    .find_map(|count| {
                        let some = waiting.get(..count).unwrap_or_default();
                        plan(&self.cluster, unit, some, &standing.placed, &self.topology, choices)
                            .ok()
                    })
                    .ok_or(rejection)
            }
        }
    }

    /// A unit that asks for GPUs does not overtake one that has waited too long, is older and at least as important, and
    /// could fit.
    fn behind(&self, unit: &Unit, now: Timestamp) -> Option<Rejection> {
        let me = self.queue.get(unit).filter(|entry| entry.gpus > 0)?;
        let partial = matches!(unit, Unit::Gang(key) if self.history.get(key).is_some_and(|h| h.partial_since.is_some() || h.complete_once));
        if partial {
            return None;
        }
        self.queue
            .entries()
            .filter(|(other, entry)| *other != unit && entry.gpus > 0 && entry.place != Place::InFlight)
            .filter(|(_, entry)| entry.priority >= me.priority && entry.created < me.created)
            .filter(|(_, entry)| matches!(&entry.rejection, Some(r @ Rejection::Shortage { .. }) if !r.never_fits()))
            .find_map(|(other, entry)| {
                let waited = now.as_second() - entry.created;
                let too_long = u64::try_from(waited).is_ok_and(|waited| waited > self.settings.max_wait.as_secs());
                too_long.then(|| Rejection::Behind { gang: self.name(other), minutes: waited / 60 })
            })
    }

    /// `namespace/name` of a unit.
    pub fn name(&self, unit: &Unit) -> String {
        match unit {
            Unit::Gang(key) => key.to_string(),
            Unit::Pod(uid) => {
                self.cluster.pod(uid).map_or_else(|| uid.to_string(), PodRecord::full_name)
            }
        }
    }

    /// The API server has bound the pod.
    pub fn bound(&mut self, uid: &str) {
        self.touch(uid);
        self.landed(uid);
    }

    /// The pod cannot be bound there, for good: its reservation is taken back, and its unit tried again.
    pub fn bind_failed(&mut self, uid: &str) {
        self.cluster.forget(uid);
        self.touch(uid);
        self.landed(uid);
        self.queue.stir();
    }

    /// A bind has come to its end; when none of its unit is on the way any more, what still waits is queued again.
    fn landed(&mut self, uid: &str) {
        let Some(pod) = self.cluster.pod(uid) else { return };
        let unit = Self::unit_of(pod, &self.cluster);
        if let Some(entry) = self.queue.get_mut(&unit)
            && entry.place == Place::InFlight
        {
            entry.place = Place::BackingOff;
        }
        self.dirty.insert(unit);
    }

    /// Gangs that stayed partly started for too long: to be evicted and started again as a whole.
    pub fn overdue(&mut self, now: Timestamp) -> Vec<Eviction> {
        self.refresh(now);
        let mut evictions = Vec::new();
        for (key, history) in &mut self.history {
            let Some(since) = history.partial_since else { continue };
            let allowed =
                if history.complete_once { self.settings.stale_after } else { self.settings.grace };
            if now.duration_since(since).unsigned_abs() < allowed || history.warned {
                continue;
            }
            let Some(gang) = self.cluster.gang(key) else { continue };
            let standing = self.cluster.standing(gang);
            if standing.placed.iter().any(|pod| pod.assumed) {
                continue;
            }
            history.warned = true;
            let (started, minimum) = (standing.started(), gang.minimum);
            evictions.push(Eviction {
                gang: key.clone(),
                pods: standing
                    .placed
                    .iter()
                    .map(|pod| {
                        (Arc::clone(&pod.uid), Arc::clone(&pod.namespace), Arc::clone(&pod.name))
                    })
                    .collect(),
                possible: standing.placed.iter().all(|pod| pod.controlled),
                why: format!(
                    "gang {key} has had {started} of {minimum} members for {} s",
                    allowed.as_secs()
                ),
            });
        }
        evictions
    }

    /// When [`Self::attempt`] or [`Self::overdue`] next have something to do without a change.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if !self.dirty.is_empty() {
            return Some(Timestamp::MIN);
        }
        let overdue = |history: &History| {
            let allowed =
                if history.complete_once { self.settings.stale_after } else { self.settings.grace };
            history
                .partial_since
                .filter(|_| !history.warned)
                .and_then(|since| since.checked_add(allowed).ok())
        };
        self.history.values().filter_map(overdue).chain(self.queue.next_deadline()).min()
    }

    /// How a unit stands, for people.
    pub fn explain(&self, unit: &Unit) -> Explanation {
        let entry = self.queue.get(unit);
        Explanation {
            name: self.name(unit),
            place: entry.map(|entry| entry.place.clone()),
            attempts: entry.map_or(0, |entry| entry.attempts),
            rejection: entry.and_then(|entry| entry.rejection.clone()),
            message: entry.and_then(|entry| entry.rejection.as_ref().map(ToString::to_string)),
            plan: self.plans.get(unit).map(|plan| (**plan).clone()),
        }
    }
}

/// How a unit stands.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `namespace/name`.
    pub name: String,
    /// Where in the queue it is; nothing when it does not wait.
    pub place: Option<Place>,
    /// Attempts in vain.
    pub attempts: u32,
    /// Why it has no place.
    pub rejection: Option<Rejection>,
    /// The same in words.
    pub message: Option<String>,
    /// The plan by which it was placed.
    pub plan: Option<Plan>,
}
