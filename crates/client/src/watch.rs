//! A watch that never ends: it lists, watches, and after any loss lists again.

use std::{fmt::Debug, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;

use crate::readable::Readable;

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
/// An object that cannot be read is logged and left out; what was known of it before stays.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Change<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let namespace = api.namespace().map(str::to_owned);
    let client = api.into_client();
    let api: Api<Readable<K>> = match namespace {
        Some(namespace) => Api::namespaced_with(client, &namespace, &()),
        None => Api::all_with(client, &()),
    };
    let mut arriving = Vec::new();
    let mut last_warning = String::new();
    watcher(api, config).backoff(Backoff::default()).filter_map(move |event| {
        if matches!(&event, Ok(event) if !matches!(event, watcher::Event::Init)) {
            last_warning.clear();
        }
        let change = match event {
            Ok(watcher::Event::Init) => {
                arriving = Vec::new();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                arriving.extend(lean(object));
                None
            }
            Ok(watcher::Event::InitDone) => Some(Change::Restarted(std::mem::take(&mut arriving))),
            Ok(watcher::Event::Apply(object)) => lean(object).map(Change::Applied),
            Ok(watcher::Event::Delete(object)) => lean(object).map(Change::Deleted),
            Err(error) => {
                // A server that is down says the same every two seconds; once is enough.
                let warning = error.to_string();
                let kind = K::kind(&());
                if warning == last_warning {
                    tracing::debug!(%kind, %warning, "watch interrupted");
                } else {
                    tracing::warn!(%kind, %warning, "watch interrupted; it goes on when it can");
                    last_warning = warning;
                }
                None
            }
        };
        std::future::ready(change)
    })
}

/// Who wrote which field is nobody's concern here, and half an object's size.
fn lean<K: Resource<DynamicType = ()>>(object: Readable<K>) -> Option<K> {
    match object {
        Readable::Whole(mut object) => {
            object.meta_mut().managed_fields = None;
            Some(object)
        }
        Readable::Named(meta, problem) => {
            let kind = K::kind(&());
            let namespace = meta.namespace.unwrap_or_default();
            let name = meta.name.unwrap_or_default();
            tracing::error!(%kind, %namespace, %name, %problem, "an object cannot be read; it is left out");
            None
        }
    }
}

/// 50 ms doubling to 2 s, for as long as it takes. The watcher says that it is well whenever it begins anew, which is no
/// proof: only a while without a loss is.
#[derive(Debug, Clone)]
struct Backoff {
    pause: Duration,
    last: Option<tokio::time::Instant>,
}

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
const WELL: Duration = Duration::from_secs(10);

impl Default for Backoff {
    fn default() -> Self {
        Self { pause: FIRST, last: None }
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = tokio::time::Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) > WELL) {
            self.pause = FIRST;
        }
        self.last = Some(now);
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST);
        Some(pause)
    }
}

impl kube::runtime::utils::Backoff for Backoff {
    fn reset(&mut self) {}
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
