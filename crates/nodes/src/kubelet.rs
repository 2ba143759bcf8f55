//! One node's kubelet: whom it takes, what it offers, and what it says of itself.

use std::{collections::BTreeMap, sync::Arc};

use api::{Mode, Node, Pod, contract};
use jiff::Timestamp;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::watch;
use topology::{GpuSet, LinkTable, NodeSpec};

use crate::{
    devices::{Devices, Refusal},
    images::Images,
    life::Fate,
    machine::{self, Endpoint},
};

/// A kubelet's own state; what is true of its pods is in the API.
pub(crate) struct Kubelet {
    pub(crate) spec: NodeSpec,
    pub(crate) images: Arc<Images>,
    /// Number of the node, for the addresses of its pods.
    number: usize,
    endpoint: Endpoint,
    since: Timestamp,
    devices: Devices,
    mode: Mode,
    /// Pods that it has taken, and how to tell them their fate.
    pub(crate) lives: BTreeMap<String, watch::Sender<Fate>>,
    addresses: usize,
    refusals: Refusals,
    /// The last words of the node's annotation that says which links are down.
    pub(crate) down_links: Option<String>,
    /// A change that has not been told.
    pub(crate) is_changed: bool,
    /// Whether it is being told right now.
    pub(crate) is_telling: bool,
}

/// Pods that it was asked to refuse.
#[derive(Default)]
struct Refusals {
    asked: Option<String>,
    left: u32,
}

/// What a kubelet is about to tell of its node.
pub(crate) struct Report {
    node: String,
    status: Value,
    mode: Mode,
    report: Value,
}

impl Kubelet {
    /// The node.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn new(spec: NodeSpec, number: usize, endpoint: Endpoint) -> Self {
        Self {
            devices: Devices::new(spec.free),
            spec,
            images: Arc::default(),
            number,
            endpoint,
            since: Timestamp::now(),
            mode: Mode::Default,
            lives: BTreeMap::new(),
            addresses: 0,
            refusals: Refusals::default(),
            down_links: None,
            is_changed: true,
            is_telling: false,
        }
    }

    /// Reads the node's labels and annotations.
    pub(crate) fn look(&mut self, node: &Node) {
        let note = |key: &str| node.annotations().get(key).map(String::as_str);
        if node.mode() != self.mode {
            tracing::info!(node = node.name(), mode = machine::mode_name(node.mode()), "mode");
            self.mode = node.mode();
            self.is_changed = true;
        }
        if note(contract::MODE_ANNOTATION) != Some(machine::mode_name(self.mode)) {
            self.is_changed = true;
        }
        for image in note(contract::SIMULATED_IMAGES).unwrap_or_default().split(',') {
            self.is_changed |= self.images.add(image.trim());
        }
        let asked = note(contract::SIMULATED_REFUSALS).map(str::to_owned);
        if asked != self.refusals.asked {
            let left = asked.as_deref().and_then(|count| count.trim().parse().ok()).unwrap_or(0);
            self.refusals = Refusals { asked, left };
        }
    }

    /// Gives a pod its GPUs. The answer says what the pod was given in default mode, which has to be recorded.
    pub(crate) fn admit(&mut self, pod: &Pod) -> Result<Option<GpuSet>, Refusal> {
        if pod.gpus().total() == 0 {
            return Ok(None);
        }
        if self.refusals.left > 0 && !pod.ever_started() {
            self.refusals.left -= 1;
            return Err(Refusal::Unexpected(
                "the node's request to refuse it (simulated)".to_owned(),
            ));
        }
        let gpus = self.devices.allocate(pod)?;
        self.is_changed = true;
        let is_recorded = pod.gpu_group().ok().flatten().is_some()
            || pod.simulated_gpus().ok().flatten() == Some(gpus);
        Ok((!is_recorded).then_some(gpus))
    }

    /// A pod holds nothing any more.
    pub(crate) fn release(&mut self, uid: &str) {
        self.is_changed |= self.devices.release(uid);
    }

    /// Addresses of the node and of a pod on it; one on the host's network has the node's.
    pub(crate) fn addresses(&mut self, pod: &Pod) -> (String, String) {
        let host = self.endpoint.address.clone();
        if pod.spec.host_network {
            return (host.clone(), host);
        }
        self.addresses += 1;
        // A /16 for 250 nodes of 250 pods each; nothing listens there.
        let (node, pod) = (self.number % 250, 2 + self.addresses % 250);
        (host, format!("10.244.{node}.{pod}"))
    }

    fn status(&self) -> Value {
        let offered = self.devices.offered(self.mode);
        machine::status(&self.spec, offered, &self.images, &self.endpoint, self.since)
    }

    /// The node as it is registered.
    fn node(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.spec.name, "labels": machine::labels(&self.spec)},
            "status": self.status(),
        })
    }

    /// What there is to tell now; `topology` is without the links that are down.
    pub(crate) fn report(&self, topology: &topology::Topology, links: &LinkTable) -> Report {
        Report {
            node: self.spec.name.clone(),
            status: self.status(),
            mode: self.mode,
            report: machine::report(&self.spec, topology, links),
        }
    }
}

/// Makes the node, or takes it over if it is there.
pub(crate) async fn register(writes: &kube::Client, kubelet: &Kubelet) -> Result<(), kube::Error> {
    match client::post(writes, "/api/v1/nodes", &kubelet.node()).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let patch = json!({"metadata": {"labels": machine::labels(&kubelet.spec)}});
            let nodes: Api<Node> = Api::all(writes.clone());
            let patch = Patch::Merge(&patch);
            nodes.patch(&kubelet.spec.name, &PatchParams::default(), &patch).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

impl Report {
    /// Writes it: before the capacity of topology mode comes the report that placement needs, and after the capacity is gone the
    /// report goes too.
    pub(crate) async fn tell(&self, writes: &kube::Client) -> Result<(), kube::Error> {
        use k8s_openapi::api::core::v1::ConfigMap;
        let maps: Api<ConfigMap> = Api::namespaced(writes.clone(), contract::REPORT_NAMESPACE);
        let nodes: Api<Node> = Api::all(writes.clone());
        let name = contract::report_name(&self.node);
        if self.mode == Mode::Topology {
            let report: ConfigMap =
                serde_json::from_value(self.report.clone()).map_err(kube::Error::SerdeError)?;
            match maps.create(&PostParams::default(), &report).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let patch =
                        json!({"metadata": self.report["metadata"], "data": self.report["data"]});
                    maps.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
                }
                other => {
                    other?;
                }
            }
        }
        let status = json!({"status": self.status});
        nodes.patch_status(&self.node, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let mode = json!({"metadata": {"annotations": {contract::MODE_ANNOTATION: machine::mode_name(self.mode)}}});
        nodes.patch(&self.node, &PatchParams::default(), &Patch::Merge(&mode)).await?;
        if self.mode == Mode::Default {
            match maps.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }
}

/// The lease by which a node is known to be alive.
pub(crate) async fn renew(writes: &kube::Client, node: &str) -> Result<(), kube::Error> {
    use k8s_openapi::{
        api::coordination::v1::{Lease, LeaseSpec},
        apimachinery::pkg::apis::meta::v1::MicroTime,
    };
    let leases: Api<Lease> = Api::namespaced(writes.clone(), "kube-node-lease");
    let spec = LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: Some(40),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let patch = json!({"spec": spec});
    match leases.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let metadata = ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(spec) };
            leases.create(&PostParams::default(), &lease).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

/// Says that a pod is not taken.
pub(crate) async fn refuse(writes: &kube::Client, pod: &Pod, why: &str) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(writes.clone(), pod.namespace());
    let patch = json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": "Failed", "reason": "UnexpectedAdmissionError", "message": format!("Pod was rejected: {why}"),
            "startTime": crate::status::instant(Timestamp::now()),
        },
    });
    let patched =
        pods.patch_status(pod.name(), &PatchParams::default(), &Patch::Strategic(&patch)).await;
    match patched {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other.map(|_| ()),
    }
}
