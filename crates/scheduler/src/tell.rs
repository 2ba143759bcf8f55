//! What the scheduler tells people: events and the PodScheduled condition. It follows behind the binds, one write at a
//! time, so that a bind never waits for an event.

use std::{collections::BTreeMap, sync::Arc};

use client::About;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::mpsc;

/// Something to tell.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) pod: Arc<str>,
    /// `Normal` or `Warning`.
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Whether the pod's condition says so too.
    pub(crate) unschedulable: bool,
}

/// More than this waiting to be told is dropped: the condition is told again with the next attempt.
const BACKLOG: usize = 20_000;

/// Where news goes.
pub(crate) fn teller(writes: kube::Client) -> mpsc::Sender<News> {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    tokio::spawn(tell_all(writes, receiver));
    sender
}

async fn tell_all(writes: kube::Client, mut news: mpsc::Receiver<News>) {
    let mut batch = Vec::new();
    while news.recv_many(&mut batch, BACKLOG).await > 0 {
        // Of several conditions of one pod only the last is still true.
        let mut last: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (index, item) in batch.iter().enumerate() {
            last.insert(Arc::clone(&item.uid), index);
        }
        for (index, item) in batch.drain(..).enumerate() {
            let is_last = last.get(&item.uid) == Some(&index);
            if item.unschedulable && is_last {
                condition(&writes, &item).await;
            }
            if is_last {
                event(&writes, &item).await;
            }
        }
    }
}

async fn condition(writes: &kube::Client, news: &News) {
    let pods: kube::Api<api::Pod> = kube::Api::namespaced(writes.clone(), &news.namespace);
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({
        "metadata": {"uid": news.uid},
        "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": news.message,
            "lastProbeTime": null, "lastTransitionTime": now,
        }]},
    });
    if let Err(error) =
        pods.patch_status(&news.pod, &PatchParams::default(), &Patch::Strategic(patch)).await
    {
        tracing::debug!(pod = %news.pod, %error, "condition not written");
    }
}

async fn event(writes: &kube::Client, news: &News) {
    let about = About {
        api_version: "v1",
        kind: "Pod",
        namespace: &news.namespace,
        name: &news.pod,
        uid: &news.uid,
        field_path: "",
    };
    let by = api::contract::RINGMASTER;
    client::tell(writes, &client::event(about, news.kind, news.reason, &news.message, by, ""))
        .await;
}
