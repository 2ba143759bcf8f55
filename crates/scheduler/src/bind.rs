//! One bind: node and GPUs are committed in the same write.

use std::{sync::Arc, time::Duration};

use api::contract;
use scheduling::Assignment;
use serde_json::json;

/// How a bind ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The pod is where the plan says.
    Bound,
    /// It never will be: it is gone, bound elsewhere, or refused.
    Failed(String),
}

/// Between tries.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Tries before the plan is given up; half a minute.
const TRIES: u32 = 20;

/// Binds a pod to the place of its plan, as often as it takes. A try whose answer was lost may have succeeded, so
/// before another the pod is looked at.
pub(crate) async fn bind(
    clients: &client::Clients,
    assignment: &Assignment,
    bandwidth: Option<f64>,
) -> Outcome {
    let mut pause = FIRST_PAUSE;
    let mut last = String::new();
    for _ in 0..TRIES {
        match post(&clients.writes, assignment, bandwidth).await {
            Ok(()) => return Outcome::Bound,
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 422) => {
                return Outcome::Failed(status.message);
            }
            Err(error) => last = error.to_string(),
        }
        match look(&clients.writes, assignment).await {
            Ok(Some(outcome)) => return outcome,
            Ok(None) => {}
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Outcome::Failed(last)
}

async fn post(
    writes: &kube::Client,
    assignment: &Assignment,
    bandwidth: Option<f64>,
) -> Result<(), kube::Error> {
    let mut annotations = serde_json::Map::new();
    let mut note = |key: &str, value: String| annotations.insert(key.to_owned(), value.into());
    if !assignment.gpus.is_empty() {
        note(contract::GPU_GROUP, assignment.gpus.to_string());
        note(contract::GPU_VISIBLE, assignment.visible.to_string());
        if !assignment.uuids.is_empty() {
            note(contract::GPU_UUIDS, assignment.uuids.join(","));
        }
        if let Some(bandwidth) = bandwidth {
            note(contract::BUS_BANDWIDTH, format!("{bandwidth:.2}"));
        }
        note(contract::RANK, assignment.rank.to_string());
    }
    let Assignment { namespace, pod, .. } = assignment;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace, "uid": assignment.uid, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": assignment.node},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding");
    client::post(writes, &path, &body).await.map(|_| ())
}

/// Where the pod is; `None` while it is nowhere.
async fn look(
    reads: &kube::Client,
    assignment: &Assignment,
) -> Result<Option<Outcome>, kube::Error> {
    let pods: kube::Api<api::Pod> = kube::Api::namespaced(reads.clone(), &assignment.namespace);
    let Some(pod) = pods.get_opt(&assignment.pod).await? else {
        return Ok(Some(Outcome::Failed("the pod is gone".to_owned())));
    };
    if pod.uid() != &*assignment.uid {
        return Ok(Some(Outcome::Failed("another pod has its name".to_owned())));
    }
    Ok(match pod.spec.node_name.as_deref() {
        None | Some("") => None,
        Some(node) if node == &*assignment.node => {
            let own = pod.gpu_group().ok().flatten().unwrap_or_default();
            Some(if own == assignment.gpus {
                Outcome::Bound
            } else {
                Outcome::Failed(format!("it was bound there with GPUs {own}"))
            })
        }
        Some(node) => Some(Outcome::Failed(format!("it was bound to {node}"))),
    })
}

/// An outcome with the pod it is of.
pub(crate) type Landed = (Arc<str>, Outcome);
