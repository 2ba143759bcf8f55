//! A watch that never ends: it lists, watches, and after any loss lists again.

use std::{fmt::Debug, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;

/// What happened to the objects that are watched.
#[derive(Debug, Clone)]
pub enum Change<K> {
    /// All of them, anew: whatever was known and is not here is gone.
    Restarted(Vec<K>),
    /// One was made or changed.
    Applied(K),
    /// One is gone.
    Deleted(K),
}

/// Watches `api` for ever. The first change is a [`Change::Restarted`]; losses are logged, and followed by another.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Change<K>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut arriving = Vec::new();
    watcher(api, config).backoff(Backoff::default()).filter_map(move |event| {
        let change = match event {
            Ok(watcher::Event::Init) => {
                arriving = Vec::new();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                arriving.push(lean(object));
                None
            }
            Ok(watcher::Event::InitDone) => Some(Change::Restarted(std::mem::take(&mut arriving))),
            Ok(watcher::Event::Apply(object)) => Some(Change::Applied(lean(object))),
            Ok(watcher::Event::Delete(object)) => Some(Change::Deleted(lean(object))),
            Err(error) => {
                tracing::debug!(%error, "watch interrupted");
                None
            }
        };
        std::future::ready(change)
    })
}

/// Who wrote which field is nobody's concern here, and half an object's size.
fn lean<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// 50 ms doubling to 2 s, for as long as it takes.
#[derive(Debug, Clone)]
struct Backoff(Duration);

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = self.0;
        self.0 = (now * 2).min(LONGEST);
        Some(now)
    }
}

impl kube::runtime::utils::Backoff for Backoff {
    fn reset(&mut self) {
        self.0 = FIRST;
    }
}
