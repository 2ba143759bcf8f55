//! What a kubelet tells of pods. Events follow behind the work: nothing waits for them.

use api::Pod;
use client::About;
use serde_json::Value;
use tokio::sync::mpsc;

/// More than this waiting to be told is dropped.
const BACKLOG: usize = 20_000;

/// Tells events, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Events(mpsc::Sender<Value>);

impl Events {
    pub(crate) fn new(writes: kube::Client) -> Self {
        let (sender, mut receiver) = mpsc::channel(BACKLOG);
        tokio::spawn(async move {
            while let Some(event) = receiver.recv().await {
                client::tell(&writes, &event).await;
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
        let node = pod.spec.node_name.as_deref().unwrap_or_default();
        let field = container.map(|name| format!("spec.containers{{{name}}}"));
        let about = About {
            api_version: "v1",
            kind: "Pod",
            namespace: pod.namespace(),
            name: pod.name(),
            uid: pod.uid(),
            field_path: field.as_deref().unwrap_or_default(),
        };
        // A full backlog loses events, never work.
        let _ = self.0.try_send(client::event(about, kind, reason, message, "kubelet", node));
    }
}
