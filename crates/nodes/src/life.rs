//! The life of one pod on its node: pull, init containers, run, restart, end, deletion.

use std::{sync::Arc, time::Duration};

use api::{Pod, contract};
use client::Clients;
use jiff::Timestamp;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use topology::GpuSet;

use crate::{
    containers::Containers,
    events::Events,
    fleet::Message,
    images::Images,
    log::Log,
    program::{self, Channel, Io, Output, Pace, Place},
    status::{Ending, State, Status},
    world::World,
};

/// Modelled seconds that an image takes to arrive.
const PULL: f64 = 2.0;
/// How long a program takes to stop when it is asked to.
const STOPPING: Duration = Duration::from_millis(200);
/// Exit code of a program that SIGTERM ended.
const TERMINATED: u8 = 143;
/// A kubelet's pauses between restarts; the first restart is at once.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(1);

/// What a pod's life needs of its node.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) clients: Clients,
    pub(crate) world: Arc<World>,
    pub(crate) containers: Arc<Containers>,
    pub(crate) events: Events,
    pub(crate) images: Arc<Images>,
    pub(crate) pace: Pace,
    pub(crate) kubelet: mpsc::UnboundedSender<Message>,
    pub(crate) node: String,
}

/// What is to become of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It lives.
    Lives,
    /// It is being deleted: its programs are stopped, then the object goes.
    Stops,
    /// The object is gone.
    Gone,
}

/// A pod that a kubelet has taken.
struct Life {
    around: Surroundings,
    pod: Arc<Pod>,
    status: Mutex<Status>,
    /// The status changed.
    changed: Notify,
    kill: CancellationToken,
}

impl Output for Log {
    fn write(&self, _: Channel, text: &str) {
        self.append(text);
    }
}

/// Lives a pod's life to its end. `given` is what it got as `nvidia.com/gpu`.
pub(crate) async fn live(
    around: Surroundings,
    pod: Arc<Pod>,
    addresses: (String, String),
    given: Option<GpuSet>,
    mut fate: watch::Receiver<Fate>,
) {
    let pod = match given {
        Some(gpus) => match note(&around, &pod, gpus, &mut fate).await {
            Some(noted) => noted,
            None => return,
        },
        None => pod,
    };
    let (host_ip, pod_ip) = addresses;
    let mut status = Status::new(Arc::clone(&pod), host_ip, pod_ip);
    let is_over = pod.ever_started() && status.resume();
    let life = Arc::new(Life {
        around,
        pod,
        status: Mutex::new(status),
        changed: Notify::new(),
        kill: CancellationToken::new(),
    });
    life.changed.notify_one();
    if is_over {
        life.kill.cancel();
    }
    let mut programs = tokio::spawn(Arc::clone(&life).programs());
    let over = loop {
        tokio::select! {
            _ = &mut programs => break Fate::Lives,
            () = life.changed.notified() => life.publish(false).await,
            fate = decided(&mut fate) => break fate,
        }
    };
    if over != Fate::Lives {
        life.kill.cancel();
    }
    if over == Fate::Stops {
        for container in &life.pod.spec.containers {
            let message = format!("Stopping container {}", container.name);
            life.tell(Some(&container.name), "Normal", "Killing", &message);
        }
        // What panics in a program is no reason to leave the pod.
        let _ = programs.await;
    }
    if over != Fate::Gone {
        life.publish(true).await;
    }
    if over == Fate::Stops {
        delete(&life.around, &life.pod).await;
    }
    let node = life.around.node.clone();
    let _ = life.around.kubelet.send(Message::Over { node, uid: life.pod.uid().to_owned() });
}

/// The pod's fate, once it is decided.
async fn decided(fate: &mut watch::Receiver<Fate>) -> Fate {
    fate.wait_for(|fate| *fate != Fate::Lives).await.map_or(Fate::Gone, |fate| *fate)
}

/// Once the pod is gone.
async fn gone(fate: &mut watch::Receiver<Fate>) {
    let _ = fate.wait_for(|fate| *fate == Fate::Gone).await;
}

/// Records the GPUs that were given out in default mode; returns the pod with the record, or `None` if it is gone.
async fn note(
    around: &Surroundings,
    pod: &Arc<Pod>,
    gpus: GpuSet,
    fate: &mut watch::Receiver<Fate>,
) -> Option<Arc<Pod>> {
    let pods: Api<Pod> = Api::namespaced(around.clients.writes.clone(), pod.namespace());
    let annotations = json!({contract::SIMULATED_GPUS: gpus.to_string()});
    let patch = json!({"metadata": {"uid": pod.uid(), "annotations": annotations}});
    loop {
        match pods.patch(pod.name(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(noted) => return Some(Arc::new(noted)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return None,
            Err(error) => {
                tracing::warn!(pod = pod.name(), %error, "GPUs not recorded; trying again")
            }
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = gone(fate) => return None,
        }
    }
}

/// Takes the object away: this very pod, at once.
pub(crate) async fn delete(around: &Surroundings, pod: &Pod) {
    let pods: Api<Pod> = Api::namespaced(around.clients.writes.clone(), pod.namespace());
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(pod.uid().to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    loop {
        match pods.delete(pod.name(), &parameters).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
            Err(error) => tracing::warn!(pod = pod.name(), %error, "not deleted; trying again"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

impl Life {
    fn tell(&self, container: Option<&str>, kind: &str, reason: &str, message: &str) {
        self.around.events.tell(&self.pod, container, kind, reason, message);
    }

    /// Writes the status; what fails is tried again with the next change, at the latest after a second.
    async fn publish(&self, over: bool) {
        let pods: Api<Pod> =
            Api::namespaced(self.around.clients.writes.clone(), self.pod.namespace());
        let parameters = PatchParams::default();
        loop {
            let patch = self.status.lock().patch(over);
            let patch = Patch::Strategic(&patch);
            match pods.patch_status(self.pod.name(), &parameters, &patch).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(error) => {
                    tracing::warn!(pod = self.pod.name(), %error, "status not written; trying again");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn set(&self, index: usize, change: impl FnOnce(&mut crate::status::Container)) {
        if let Some(container) = self.status.lock().containers.get_mut(index) {
            change(container);
        }
        self.changed.notify_one();
    }

    /// Runs its containers: the init containers one after the other, then the others side by side.
    async fn programs(self: Arc<Self>) {
        if self.kill.is_cancelled() {
            return;
        }
        let containers = self.status.lock().containers.clone();
        let mut sidecars = tokio::task::JoinSet::new();
        let mut others = Vec::new();
        for (index, container) in containers.iter().enumerate() {
            if container.is_sidecar {
                let life = Arc::clone(&self);
                sidecars.spawn(async move { life.container(index).await });
            } else if container.is_init {
                if self.container(index).await != 0 {
                    return;
                }
            } else {
                let life = Arc::clone(&self);
                others.push(async move { life.container(index).await });
            }
        }
        futures::future::join_all(others).await;
    }

    /// Runs one container, and again as its restart policy says; returns the last exit code.
    async fn container(&self, index: usize) -> u8 {
        let specs = self.pod.spec.init_containers.iter().chain(&self.pod.spec.containers);
        let Some(spec) = specs.clone().nth(index) else { return 0 };
        let (is_init, is_sidecar) = {
            let status = self.status.lock();
            status.containers.get(index).map_or((false, false), |c| (c.is_init, c.is_sidecar))
        };
        let policy = self.pod.spec.restart_policy.as_str();
        let mut pause = Duration::ZERO;
        loop {
            if !self.pull(spec).await {
                return TERMINATED;
            }
            let from = Timestamp::now();
            let code = self.run(index, spec, from).await;
            let ending = Ending::of(code, from);
            self.set(index, |container| container.state = State::Ended(ending.clone()));
            let again = match policy {
                _ if is_sidecar => true,
                "Never" => false,
                "OnFailure" => code != 0,
                _ => code != 0 || !is_init,
            };
            if !again || self.kill.is_cancelled() {
                return code;
            }
            if !pause.is_zero() {
                let message = format!(
                    "back-off {}s restarting failed container={} pod={}_{}({})",
                    pause.as_secs(),
                    spec.name,
                    self.pod.name(),
                    self.pod.namespace(),
                    self.pod.uid()
                );
                self.tell(Some(&spec.name), "Warning", "BackOff", &message);
                self.set(index, |container| {
                    container.state = State::Waiting("CrashLoopBackOff", message);
                    container.last = Some(ending.clone());
                });
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.kill.cancelled() => return code,
                }
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.set(index, |container| {
                container.last = Some(ending);
                container.restarts += 1;
            });
        }
    }

    /// Gets the image; false if the pod is stopped meanwhile.
    async fn pull(&self, spec: &api::pod::Container) -> bool {
        let images = &self.around.images;
        let (name, image) = (spec.name.as_str(), spec.image.as_str());
        let is_there = images.has(image);
        if is_there && spec.image_pull_policy.as_deref() != Some("Always") {
            let message = format!("Container image {image:?} already present on machine");
            self.tell(Some(name), "Normal", "Pulled", &message);
            return true;
        }
        self.tell(Some(name), "Normal", "Pulling", &format!("Pulling image {image:?}"));
        let begin = Timestamp::now();
        if !is_there {
            let pulled = Duration::from_secs_f64(PULL * self.around.pace.scale);
            tokio::select! {
                () = tokio::time::sleep(pulled) => {}
                () = self.kill.cancelled() => return false,
            }
        }
        if images.add(image) {
            let _ = self.around.kubelet.send(Message::Changed { node: self.around.node.clone() });
        }
        let took = Timestamp::now().duration_since(begin).as_millis();
        let message = format!("Successfully pulled image {image:?} in {took}ms (simulated)");
        self.tell(Some(name), "Normal", "Pulled", &message);
        true
    }

    /// One run of a container's program; returns its exit code.
    async fn run(&self, index: usize, spec: &api::pod::Container, from: Timestamp) -> u8 {
        let Surroundings { world, clients, pace, containers, .. } = &self.around;
        let (world, reads) = (Arc::clone(world), clients.reads.clone());
        let place = Place::new(world, reads, Arc::clone(&self.pod), &spec.name, *pace);
        let log = containers.start(place.clone());
        self.tell(
            Some(&spec.name),
            "Normal",
            "Created",
            &format!("Created container: {}", spec.name),
        );
        self.tell(
            Some(&spec.name),
            "Normal",
            "Started",
            &format!("Started container {}", spec.name),
        );
        self.set(index, |container| container.state = State::Running(from));
        let io = Io { output: log, input: None };
        let code = tokio::select! {
            code = program::run_container(place, io) => code,
            () = self.kill.cancelled() => {
                tokio::time::sleep(STOPPING).await;
                TERMINATED
            }
        };
        containers.end(&self.pod, &spec.name);
        code
    }
}
