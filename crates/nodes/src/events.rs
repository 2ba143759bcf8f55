//! What a kubelet tells of pods. Events follow behind the work: nothing waits for them.

use api::Pod;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::status::instant;

/// More than this waiting to be told is dropped.
const BACKLOG: usize = 20_000;

/// Tells events, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Events(mpsc::Sender<(String, Value)>);

impl Events {
    pub(crate) fn new(writes: kube::Client) -> Self {
        let (sender, mut receiver) = mpsc::channel::<(String, Value)>(BACKLOG);
        tokio::spawn(async move {
            while let Some((namespace, event)) = receiver.recv().await {
                let path = format!("/api/v1/namespaces/{namespace}/events");
                let request = http::Request::post(path)
                    .header(http::header::CONTENT_TYPE, "application/json")
                    .body(event.to_string().into_bytes());
                let Ok(request) = request else { continue };
                if let Err(error) = writes.request::<Value>(request).await {
                    tracing::debug!(%error, "event not written");
                }
            }
        });
        Self(sender)
    }

    /// An event of a pod, or of one container of it.
    pub(crate) fn tell(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: &str,
        reason: &str,
        message: &str,
    ) {
        let now = Timestamp::now();
        let node = pod.spec.node_name.as_deref().unwrap_or_default();
        let field = container.map(|name| format!("spec.containers{{{name}}}"));
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {
                "name": format!("{}.{:x}", pod.name(), now.as_nanosecond()),
                "namespace": pod.namespace(),
            },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace(), "name": pod.name(),
                "uid": pod.uid(), "fieldPath": field.unwrap_or_default(),
            },
            "type": kind, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": instant(now), "lastTimestamp": instant(now),
            "source": {"component": "kubelet", "host": node},
            "reportingComponent": "kubelet", "reportingInstance": node,
        });
        // A full backlog loses events, never work.
        let _ = self.0.try_send((pod.namespace().to_owned(), event));
    }
}
