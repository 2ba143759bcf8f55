//! The fleet: watches in, one task that owns all kubelets, writes out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{Node, Pod};
use client::{Change, Clients, watch};
use futures::{StreamExt, stream};
use kube::{Api, runtime::watcher};
use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use topology::LinkTable;

use crate::{
    containers::Containers,
    events::Events,
    kubelet::{self, Kubelet},
    life::{self, Fate, Surroundings},
    program::Pace,
    world::World,
};

/// What happens inside the fleet.
#[derive(Debug)]
pub(crate) enum Message {
    /// A node has something new to tell.
    Changed { node: String },
    /// A pod's life is over: it ended, or it is gone.
    Over { node: String, uid: String },
}

/// As a kubelet does.
const LEASE: Duration = Duration::from_secs(10);
/// Writes that are under way at once.
const AT_ONCE: usize = 16;
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Fleet {
    pub(crate) clients: Clients,
    pub(crate) kubelets: BTreeMap<String, Kubelet>,
    pub(crate) world: Arc<World>,
    pub(crate) containers: Arc<Containers>,
    pub(crate) links: LinkTable,
    pub(crate) pace: Pace,
}

/// A fleet at work.
struct Driver {
    fleet: Fleet,
    events: Events,
    sender: mpsc::UnboundedSender<Message>,
    /// Nodes that are being told of, and pods that are refused or taken away.
    writes: JoinSet<Option<String>>,
}

impl Fleet {
    /// Registers every node; each must succeed.
    pub(crate) async fn register(&self) -> Result<(), (String, kube::Error)> {
        let one = async |kubelet: &Kubelet| {
            kubelet::register(&self.clients.writes, kubelet).await?;
            kubelet::renew(&self.clients.writes, kubelet.name()).await
        };
        // Made first: a closure over borrowed kubelets would not be general enough for the stream.
        let all: Vec<_> = self
            .kubelets
            .values()
            .map(|kubelet| async { one(kubelet).await.map_err(|e| (kubelet.name().to_owned(), e)) })
            .collect();
        let mut all = stream::iter(all).buffer_unordered(AT_ONCE);
        while let Some(registered) = all.next().await {
            registered?;
        }
        Ok(())
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let events = Events::new(self.clients.writes.clone());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let reads = || self.clients.reads.clone();
        let everything = watcher::Config::default;
        let mut nodes = watch(Api::<Node>::all(reads()), everything()).boxed();
        let bound = everything().fields("spec.nodeName!=");
        let mut pods = watch(Api::<Pod>::all(reads()), bound).boxed();
        let mut leases = tokio::time::interval(LEASE);
        leases.set_missed_tick_behavior(MissedTickBehavior::Delay);
        leases.tick().await;
        let mut driver = Driver { fleet: self, events, sender, writes: JoinSet::new() };
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(change) = nodes.next() => driver.hear_node(change),
                Some(change) = pods.next() => driver.hear_pod(change),
                Some(message) = receiver.recv() => driver.receive(message),
                Some(done) = driver.writes.join_next() => {
                    if let Ok(Some(node)) = done && let Some(kubelet) = driver.fleet.kubelets.get_mut(&node) {
                        kubelet.is_telling = false;
                    }
                }
                _ = leases.tick() => driver.renew(),
            }
            driver.tell();
        }
    }
}

impl Driver {
    fn hear_node(&mut self, change: Change<Node>) {
        let nodes = match change {
            Change::Restarted(nodes) => nodes,
            Change::Applied(node) => vec![node],
            Change::Deleted(node) => {
                if self.fleet.kubelets.contains_key(node.name()) {
                    tracing::warn!(
                        node = node.name(),
                        "the Node object was deleted; it is registered again at the next start"
                    );
                }
                return;
            }
        };
        for node in nodes {
            let Some(kubelet) = self.fleet.kubelets.get_mut(node.name()) else { continue };
            kubelet.look(&node);
            let down = node.annotations().get(api::contract::DOWN_LINKS).cloned();
            if down != kubelet.down_links {
                match self.fleet.world.set_links(&node) {
                    Ok(()) => kubelet.is_changed = true,
                    Err(problem) => tracing::error!(node = node.name(), problem),
                }
                kubelet.down_links = down;
            }
        }
    }

    fn hear_pod(&mut self, change: Change<Pod>) {
        match change {
            Change::Restarted(mut pods) => {
                let there: BTreeSet<&str> = pods.iter().map(Pod::uid).collect();
                for kubelet in self.fleet.kubelets.values_mut() {
                    kubelet.lives.retain(|uid, fate| {
                        let lives = there.contains(uid.as_str());
                        if !lives {
                            fate.send_replace(Fate::Gone);
                        }
                        lives
                    });
                }
                // Whoever held GPUs before this process began holds them first.
                pods.sort_by_key(|pod| {
                    (!pod.ever_started(), pod.metadata.creation_timestamp.clone())
                });
                for pod in pods {
                    self.apply(pod);
                }
            }
            Change::Applied(pod) => self.apply(pod),
            Change::Deleted(pod) => {
                self.fleet.world.remove_pod(&pod);
                self.fleet.containers.remove(&pod);
                let Some(kubelet) = self.kubelet_of(&pod) else { return };
                kubelet.release(pod.uid());
                if let Some(fate) = kubelet.lives.remove(pod.uid()) {
                    fate.send_replace(Fate::Gone);
                }
            }
        }
    }

    fn kubelet_of(&mut self, pod: &Pod) -> Option<&mut Kubelet> {
        self.fleet.kubelets.get_mut(pod.spec.node_name.as_deref()?)
    }

    fn apply(&mut self, pod: Pod) {
        if pod.spec.node_name.is_none() {
            return;
        }
        let pod = Arc::new(pod);
        self.fleet.world.set_pod(Arc::clone(&pod));
        let Some(kubelet) = self.kubelet_of(&pod) else { return };
        if let Some(fate) = kubelet.lives.get(pod.uid()) {
            if pod.is_terminating() {
                fate.send_if_modified(|fate| {
                    let lives = *fate == Fate::Lives;
                    if lives {
                        *fate = Fate::Stops;
                    }
                    lives
                });
            }
        } else if pod.is_finished() || pod.is_terminating() {
            kubelet.release(pod.uid());
            if pod.is_terminating() {
                let around = self.around(&pod);
                self.writes.spawn(async move {
                    life::delete(&around, &pod).await;
                    None
                });
            }
        } else {
            self.admit(pod);
        }
    }

    fn around(&self, pod: &Pod) -> Surroundings {
        let node = pod.spec.node_name.clone().unwrap_or_default();
        let Fleet { clients, world, containers, pace, kubelets, .. } = &self.fleet;
        Surroundings {
            clients: clients.clone(),
            world: Arc::clone(world),
            containers: Arc::clone(containers),
            events: self.events.clone(),
            images: kubelets
                .get(&node)
                .map(|kubelet| Arc::clone(&kubelet.images))
                .unwrap_or_default(),
            pace: *pace,
            kubelet: self.sender.clone(),
            node,
        }
    }

    fn admit(&mut self, pod: Arc<Pod>) {
        let around = self.around(&pod);
        let Some(kubelet) = self.kubelet_of(&pod) else { return };
        match kubelet.admit(&pod) {
            Ok(given) => {
                let addresses = kubelet.addresses(&pod);
                let (fate, receiver) = tokio::sync::watch::channel(Fate::Lives);
                kubelet.lives.insert(pod.uid().to_owned(), fate);
                tokio::spawn(life::live(around, pod, addresses, given, receiver));
            }
            Err(refusal) => {
                let why = refusal.to_string();
                self.events.tell(&pod, None, "Warning", "UnexpectedAdmissionError", &why);
                let writes = self.fleet.clients.writes.clone();
                self.writes.spawn(async move {
                    while let Err(error) = kubelet::refuse(&writes, &pod, &why).await {
                        tracing::warn!(pod = pod.name(), %error, "refusal not written; trying again");
                        tokio::time::sleep(RETRY).await;
                    }
                    None
                });
            }
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Changed { node } => {
                if let Some(kubelet) = self.fleet.kubelets.get_mut(&node) {
                    kubelet.is_changed = true;
                }
            }
            Message::Over { node, uid } => {
                if let Some(kubelet) = self.fleet.kubelets.get_mut(&node) {
                    kubelet.lives.remove(&uid);
                    kubelet.release(&uid);
                }
            }
        }
    }

    fn renew(&mut self) {
        let writes = self.fleet.clients.writes.clone();
        let names: Vec<String> = self.fleet.kubelets.keys().cloned().collect();
        self.writes.spawn(async move {
            let renewed = stream::iter(names).map(|name| {
                let writes = &writes;
                async move {
                    if let Err(error) = kubelet::renew(writes, &name).await {
                        tracing::warn!(node = name, %error, "lease not renewed");
                    }
                }
            });
            renewed.buffer_unordered(AT_ONCE).collect::<()>().await;
            None
        });
    }

    /// Tells of every node that changed, one write of a node at a time.
    fn tell(&mut self) {
        for kubelet in self.fleet.kubelets.values_mut() {
            if !kubelet.is_changed || kubelet.is_telling {
                continue;
            }
            let Some(machine) = self.fleet.world.machine(&kubelet.spec.name) else { continue };
            (kubelet.is_changed, kubelet.is_telling) = (false, true);
            let report = kubelet.report(machine.topology(), &self.fleet.links);
            let (writes, name) = (self.fleet.clients.writes.clone(), kubelet.spec.name.clone());
            self.writes.spawn(async move {
                loop {
                    match report.tell(&writes).await {
                        Ok(()) => return Some(name),
                        // It was deleted; the watch has said so.
                        Err(kube::Error::Api(status)) if status.code == 404 => return Some(name),
                        Err(error) => tracing::warn!(node = name, %error, "node status not written; trying again"),
                    }
                    tokio::time::sleep(RETRY).await;
                }
            });
        }
    }
}
