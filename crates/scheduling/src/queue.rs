//! The queue: which unit is tried next. Every unit that waits is in exactly one place.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use crate::{plan::Unit, rejection::Rejection};

/// Upstream's back-off: one second after the first failure, doubling to ten.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// A unit that waits for an event is tried again after this long all the same.
const FLUSH: Duration = Duration::from_secs(300);

/// Where a unit is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// To be tried.
    Queued,
    /// To be tried when its back-off ends.
    BackingOff,
    /// Its members are not all there, or a gate holds one.
    Gathering,
    /// Waiting for the cluster to change.
    Waiting,
    /// Planned; binds are on their way.
    InFlight,
}

/// A unit in the queue.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it is.
    pub place: Place,
    /// Priority of its members.
    pub priority: i32,
    /// Seconds since 1970 at which its first member was made; its age survives every failure.
    pub created: i64,
    /// How often it was tried in vain since the cluster last changed for it.
    pub attempts: u32,
    /// Not before this.
    pub not_before: Timestamp,
    /// When it was last tried.
    pub tried: Option<Timestamp>,
    /// Why it has no place, as last found.
    pub rejection: Option<Rejection>,
    /// GPUs that its waiting members ask for.
    pub gpus: usize,
    /// Something changed while it was in flight or being tried.
    pub stirred: bool,
}

/// All units that wait.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<Unit, Entry>,
}

impl Queue {
    /// The units and where they are.
    pub fn entries(&self) -> impl Iterator<Item = (&Unit, &Entry)> {
        self.entries.iter()
    }

    /// A unit's entry.
    pub fn get(&self, unit: &Unit) -> Option<&Entry> {
        self.entries.get(unit)
    }

    pub(crate) fn get_mut(&mut self, unit: &Unit) -> Option<&mut Entry> {
        self.entries.get_mut(unit)
    }

    /// The unit waits: it is queued, or goes on waiting where it is with its new facts.
    pub(crate) fn put(
        &mut self,
        unit: Unit,
        priority: i32,
        created: i64,
        gpus: usize,
        changed: bool,
    ) {
        let entry = self.entries.entry(unit).or_insert_with(|| Entry {
            place: Place::Queued,
            priority,
            created,
            attempts: 0,
            not_before: Timestamp::MIN,
            tried: None,
            rejection: None,
            gpus,
            stirred: false,
        });
        entry.priority = priority;
        entry.created = entry.created.min(created);
        entry.gpus = gpus;
        if changed {
            match entry.place {
                Place::Gathering | Place::Waiting => entry.place = Place::BackingOff,
                Place::InFlight => entry.stirred = true,
                Place::Queued | Place::BackingOff => {}
            }
        }
    }

    /// Nothing of the unit waits any more.
    pub(crate) fn remove(&mut self, unit: &Unit) {
        self.entries.remove(unit);
    }

    /// The cluster changed so that a unit may fit that did not.
    pub(crate) fn stir(&mut self) {
        for entry in self.entries.values_mut() {
            match entry.place {
                Place::Waiting => entry.place = Place::BackingOff,
                Place::InFlight => entry.stirred = true,
                _ => {}
            }
        }
    }

    /// The unit to try now: by priority, then age, then name.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Unit> {
        for entry in self.entries.values_mut() {
            let flushed = entry.place == Place::Waiting
                && entry
                    .tried
                    .is_some_and(|tried| now.duration_since(tried).unsigned_abs() >= FLUSH);
            if flushed || (entry.place == Place::BackingOff && entry.not_before <= now) {
                entry.place = Place::Queued;
            }
        }
        let queued = self.entries.iter().filter(|(_, entry)| entry.place == Place::Queued);
        let (unit, _) = queued.min_by_key(|(unit, entry)| {
            (std::cmp::Reverse(entry.priority), entry.created, (*unit).clone())
        })?;
        Some(unit.clone())
    }

    /// The unit was tried in vain.
    pub(crate) fn failed(&mut self, unit: &Unit, rejection: Rejection, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        entry.attempts += 1;
        let factor = 1_u32 << (entry.attempts - 1).min(8);
        let backoff = FIRST_BACKOFF.saturating_mul(factor).min(LONGEST_BACKOFF);
        entry.not_before = now.checked_add(backoff).unwrap_or(now);
        entry.tried = Some(now);
        entry.place = match rejection {
            Rejection::Gathering { .. } | Rejection::HeldBack { .. } => Place::Gathering,
            _ if entry.stirred => Place::BackingOff,
            _ => Place::Waiting,
        };
        entry.stirred = false;
        entry.rejection = Some(rejection);
    }

    /// When the next back-off or flush ends.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let deadline = |entry: &Entry| match entry.place {
            Place::Queued => Some(Timestamp::MIN),
            Place::BackingOff => Some(entry.not_before),
            Place::Waiting => entry.tried.and_then(|tried| tried.checked_add(FLUSH).ok()),
            Place::Gathering | Place::InFlight => None,
        };
        self.entries.values().filter_map(deadline).min()
    }
}
