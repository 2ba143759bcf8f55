//! Containers of which there is a log, and in which a command can be run.

use std::{collections::HashMap, sync::Arc};

use api::Pod;
use parking_lot::RwLock;

use crate::{log::Log, program::Place};

/// The last run of a container.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) log: Arc<Log>,
    /// Of the run before.
    pub(crate) previous: Option<Arc<Log>>,
    pub(crate) place: Place,
    pub(crate) is_running: bool,
}

/// The containers of all nodes, by namespace, pod and name.
#[derive(Default)]
pub(crate) struct Containers(RwLock<HashMap<(String, String, String), Run>>);

fn key(pod: &Pod, container: &str) -> (String, String, String) {
    (pod.namespace().to_owned(), pod.name().to_owned(), container.to_owned())
}

impl Containers {
    /// A container starts; what it prints goes to the log that is returned.
    pub(crate) fn start(&self, place: Place) -> Arc<Log> {
        let log = Arc::new(Log::default());
        let mut runs = self.0.write();
        let key = key(&place.pod, &place.container);
        let same_pod = |run: &Run| run.place.pod.uid() == place.pod.uid();
        let previous = runs.remove(&key).filter(same_pod).map(|run| run.log);
        runs.insert(key, Run { log: Arc::clone(&log), previous, place, is_running: true });
        log
    }

    /// A container ended; its log stays.
    pub(crate) fn end(&self, pod: &Pod, container: &str) {
        if let Some(run) = self.0.write().get_mut(&key(pod, container)) {
            run.is_running = false;
            run.log.end();
        }
    }

    /// A pod is gone, and its logs with it; those who still read are at the end.
    pub(crate) fn remove(&self, pod: &Pod) {
        self.0.write().retain(|_, run| {
            let other = run.place.pod.uid() != pod.uid();
            if !other {
                run.log.end();
            }
            other
        });
    }

    pub(crate) fn find(&self, namespace: &str, pod: &str, container: &str) -> Option<Run> {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.0.read().get(&key).cloned()
    }
}
