//! What the watches have shown, by job.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::Discriminant,
};

use api::{MpiJob, Pod, contract};
use client::Change;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    launcher::{Config, Launcher},
    reconcile::Observed,
};

/// Namespace and name of a job.
pub(crate) type Key = (String, String);

/// A change of one of the four kinds that are watched.
#[expect(clippy::large_enum_variant, reason = "each lives for one loop")]
pub(crate) enum Heard {
    Job(Change<MpiJob>),
    Worker(Change<Pod>),
    Launcher(Change<Launcher>),
    Config(Change<Config>),
}

/// Every job with its children. Children are kept by the job that their labels name, though it may not be known yet.
#[derive(Default)]
pub(crate) struct World {
    jobs: BTreeMap<Key, Observed>,
    /// Kinds of which there was a whole list.
    listed: Vec<Discriminant<Heard>>,
}

impl World {
    /// Whether everything was listed once. Before that what is not seen may be there all the same.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed.len() == 4
    }

    /// A job and its children; `None` for one that is not there.
    pub(crate) fn job(&self, key: &Key) -> Option<&Observed> {
        self.jobs.get(key).filter(|observed| !observed.job.uid().is_empty())
    }

    /// Takes a change in; says which jobs it concerns.
    pub(crate) fn hear(&mut self, heard: Heard) -> BTreeSet<Key> {
        let kind = std::mem::discriminant(&heard);
        let jobs = &mut self.jobs;
        let (touched, whole) = match heard {
            Heard::Job(change) => take(
                jobs,
                change,
                |job| job.name().to_owned(),
                |observed| observed.job = MpiJob::default(),
                |observed, job, there| observed.job = if there { job } else { MpiJob::default() },
            ),
            Heard::Worker(change) => take(
                jobs,
                change,
                |pod| job_of(&pod.metadata),
                |observed| observed.workers.clear(),
                |observed, pod, there| {
                    let name = pod.name().to_owned();
                    if !there {
                        observed.workers.remove(&name);
                    } else if pod.is_labelled_launcher() != Some(true) {
                        observed.workers.insert(name, pod);
                    }
                },
            ),
            Heard::Launcher(change) => take(
                jobs,
                change,
                |launcher| job_of(&launcher.metadata),
                |observed| observed.launcher = None,
                |observed, launcher, there| {
                    if is_named(&launcher.metadata, contract::launcher_name) {
                        observed.launcher = there.then_some(launcher);
                    }
                },
            ),
            Heard::Config(change) => take(
                jobs,
                change,
                |config| job_of(&config.metadata),
                |observed| observed.config = None,
                |observed, config, there| {
                    if is_named(&config.metadata, contract::config_name) {
                        observed.config = there.then_some(config);
                    }
                },
            ),
        };
        if whole && !self.listed.contains(&kind) {
            self.listed.push(kind);
        }
        self.jobs.retain(|_, observed| {
            !observed.job.uid().is_empty()
                || !observed.workers.is_empty()
                || observed.launcher.is_some()
                || observed.config.is_some()
        });
        touched
    }
}

/// Puts objects of one kind where they belong, by the job that they are of; a whole list first clears all of that kind.
/// Returns the jobs that are concerned, and whether it was a whole list.
fn take<K: kube::Resource>(
    jobs: &mut BTreeMap<Key, Observed>,
    change: Change<K>,
    job_of: fn(&K) -> String,
    clear: fn(&mut Observed),
    put: fn(&mut Observed, K, bool),
) -> (BTreeSet<Key>, bool) {
    let mut touched = BTreeSet::new();
    let mut one = |jobs: &mut BTreeMap<Key, Observed>, object: K, there| {
        let key = (object.meta().namespace.clone().unwrap_or_default(), job_of(&object));
        put(jobs.entry(key.clone()).or_default(), object, there);
        touched.insert(key);
    };
    match change {
        Change::Applied(object) => one(jobs, object, true),
        Change::Deleted(object) => one(jobs, object, false),
        Change::Restarted(all) => {
            jobs.values_mut().for_each(clear);
            all.into_iter().for_each(|object| one(jobs, object, true));
            return (jobs.keys().cloned().collect(), true);
        }
    }
    (touched, false)
}

/// The job that a child's label names.
fn job_of(meta: &ObjectMeta) -> String {
    let label = meta.labels.as_ref().and_then(|labels| labels.get(contract::MPI_JOB_NAME));
    label.cloned().unwrap_or_default()
}

/// Whether a child has the name that its job's would have.
fn is_named(meta: &ObjectMeta, name: fn(&str) -> String) -> bool {
    meta.name.as_deref() == Some(&name(&job_of(meta)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, job: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(format!("uid-{name}")),
            labels: Some([(contract::MPI_JOB_NAME.to_owned(), job.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    fn job(name: &str) -> MpiJob {
        MpiJob { metadata: meta(name, name), ..MpiJob::default() }
    }

    fn pod(name: &str, job: &str) -> Pod {
        Pod { metadata: meta(name, job), ..Pod::default() }
    }

    fn launcher(name: &str, job: &str) -> Launcher {
        Launcher { metadata: meta(name, job), ..Launcher::default() }
    }

    fn key(job: &str) -> Key {
        ("ns".into(), job.into())
    }

    fn workers(world: &World, job: &str) -> Vec<String> {
        world.job(&key(job)).unwrap().workers.keys().cloned().collect()
    }

    #[test]
    fn a_new_list_forgets_what_it_lacks_and_concerns_everybody() {
        let mut world = World::default();
        world.hear(Heard::Job(Change::Restarted(vec![job("a"), job("b")])));
        let pods = vec![pod("a-worker-0", "a"), pod("b-worker-0", "b")];
        world.hear(Heard::Worker(Change::Restarted(pods)));
        let touched = world.hear(Heard::Worker(Change::Restarted(vec![pod("b-worker-0", "b")])));
        assert_eq!(touched.len(), 2);
        assert_eq!((workers(&world, "a"), workers(&world, "b").len()), (vec![], 1));
        world.hear(Heard::Job(Change::Restarted(vec![job("a")])));
        assert!(world.job(&key("b")).is_none(), "the job is gone, though a pod of it is left");
    }

    #[test]
    fn nothing_is_known_before_everything_was_listed() {
        let mut world = World::default();
        world.hear(Heard::Job(Change::Restarted(vec![])));
        world.hear(Heard::Job(Change::Restarted(vec![])));
        world.hear(Heard::Worker(Change::Restarted(vec![])));
        world.hear(Heard::Launcher(Change::Restarted(vec![])));
        assert!(!world.is_complete());
        world.hear(Heard::Config(Change::Restarted(vec![])));
        assert!(world.is_complete());
    }

    #[test]
    fn children_are_taken_by_label_and_name() {
        let mut world = World::default();
        world.hear(Heard::Job(Change::Applied(job("a"))));
        let mut mpirun = pod("a-launcher-x7", "a");
        mpirun
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .insert(contract::MPI_ROLE.into(), contract::LAUNCHER.into());
        world.hear(Heard::Worker(Change::Applied(mpirun)));
        world.hear(Heard::Worker(Change::Applied(pod("a-worker-0", "a"))));
        assert_eq!(workers(&world, "a"), ["a-worker-0"]);
        world.hear(Heard::Launcher(Change::Applied(launcher("another", "a"))));
        assert!(world.job(&key("a")).unwrap().launcher.is_none());
        world.hear(Heard::Launcher(Change::Applied(launcher("a-launcher", "a"))));
        assert!(world.job(&key("a")).unwrap().launcher.is_some());
        world.hear(Heard::Launcher(Change::Deleted(launcher("a-launcher", "a"))));
        world.hear(Heard::Worker(Change::Deleted(pod("a-worker-0", "a"))));
        let touched = world.hear(Heard::Job(Change::Deleted(job("a"))));
        assert_eq!(touched, [key("a")].into());
        assert!(world.jobs.is_empty(), "nothing is left of it");
    }
}
