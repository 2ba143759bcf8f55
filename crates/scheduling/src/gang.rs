//! Gangs: pods of one namespace, group label and controller, which start together or not at all.

use std::{collections::BTreeSet, fmt, sync::Arc};

use api::{GangLabels, Pod};

use crate::cluster::{Cluster, PodRecord, Uid};

/// What makes pods one gang. A job deleted and submitted again under its name has another controller, so it is another
/// gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Value of the group label.
    pub group: Arc<str>,
    /// UID of the controller; empty without one.
    pub controller: Arc<str>,
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.group)
    }
}

/// Whether a pod belongs to a gang, and the minimum that it states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// A pod by itself, launchers among them: those carry their gang's labels but are never held by it.
    Alone,
    /// A member, with the minimum that its labels state.
    Of(GangKey, usize),
}

impl Membership {
    /// Of a pod, by its labels and its role.
    pub fn of(pod: &Pod, labels: Option<GangLabels>) -> Self {
        match labels {
            Some(labels) if pod.is_labelled_launcher() != Some(true) => {
                let key = GangKey {
                    namespace: pod.namespace().into(),
                    group: labels.group.into(),
                    controller: pod.controller().unwrap_or_default().into(),
                };
                Self::Of(key, labels.minimum)
            }
            _ => Self::Alone,
        }
    }
}

/// The members of a gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gang {
    /// UIDs.
    pub members: BTreeSet<Uid>,
    /// Members that must start together.
    pub minimum: usize,
}

/// How the members of a gang stand.
#[derive(Debug, Default)]
pub struct Standing<'a> {
    /// Waiting for a node, in the order of their names' numbers.
    pub waiting: Vec<&'a PodRecord>,
    /// Bound or assumed, alive.
    pub placed: Vec<&'a PodRecord>,
    /// Done: they count as started.
    pub satisfied: usize,
    /// Unlabelled launchers: without GPUs where others have some. They are placed one by one.
    pub launchers: Vec<&'a PodRecord>,
}

impl Standing<'_> {
    /// Members that count as started.
    pub fn started(&self) -> usize {
        self.placed.len() + self.satisfied
    }
}

impl Cluster {
    /// How the members of a gang stand now. Terminating members count for nothing.
    pub fn standing(&self, gang: &Gang) -> Standing<'_> {
        let members: Vec<&PodRecord> =
            gang.members.iter().filter_map(|uid| self.pod(uid)).collect();
        let some_gpus = members.iter().any(|pod| pod.shape.gpus.total() > 0);
        let mut standing = Standing::default();
        for pod in members {
            let launcher = some_gpus && pod.shape.gpus.total() == 0;
            if launcher {
                standing.launchers.push(pod);
            } else if pod.satisfied {
                standing.satisfied += 1;
            } else if pod.terminating || pod.finished {
                // Missing.
            } else if pod.node.is_some() {
                standing.placed.push(pod);
            } else if pod.is_waiting() {
                standing.waiting.push(pod);
            }
        }
        standing.waiting.sort_by(|a, b| by_number(&a.name, &b.name));
        standing
    }
}

/// Names in the order of the number they end with: worker-2 before worker-10.
pub(crate) fn by_number(a: &str, b: &str) -> std::cmp::Ordering {
    let split = |name: &str| {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = name.split_at(name.len() - digits);
        (stem.to_owned(), number.parse::<u64>().unwrap_or_default())
    };
    split(a).cmp(&split(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_as_numbers() {
        let mut names = ["job-worker-10", "job-worker-2", "job-launcher", "job-worker-0"];
        names.sort_by(|a, b| by_number(a, b));
        assert_eq!(names, ["job-launcher", "job-worker-0", "job-worker-2", "job-worker-10"]);
    }
}
