//! What the cluster is: nodes, pods, and who holds which GPU. Changes come one object at a time; losing one and hearing
//! the next leads to the same state.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{Mode, Node, Pod, PodError, contract, node::Image, pod::Taint};
use placement::{Class, Classes, NodeOption};
use topology::{GpuSet, LinkTable, NodeReport, PcieLevel, Product, Topology};

use crate::{
    gang::{Gang, GangKey, Membership},
    shape::{Demand, Shape},
};

/// UID of a pod.
pub type Uid = Arc<str>;

/// A node.
#[derive(Debug)]
pub struct NodeRecord {
    /// Its name.
    pub name: Arc<str>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Whether new pods are kept off.
    pub unschedulable: bool,
    /// The mode in force.
    pub mode: Mode,
    /// What pods may use.
    pub allocatable: Demand,
    /// Images that need no pull.
    pub images: Vec<Image>,
    /// Its topology class: the node report's, else as many unlinked GPUs as it serves.
    pub class: Arc<Class>,
    /// UUIDs of its GPUs, from the report.
    pub uuids: Vec<String>,
    /// What its pods use.
    pub used: Demand,
    /// Pods on it.
    pub pods: BTreeSet<Uid>,
    /// Pods whose GPUs are not known: they hold the whole node.
    pub holders_of_all: BTreeSet<Uid>,
}

/// A pod.
#[derive(Debug, Clone)]
pub struct PodRecord {
    /// UID.
    pub uid: Uid,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Seconds since 1970 at which it was made.
    pub created: i64,
    /// What decides where it fits.
    pub shape: Arc<Shape>,
    /// Priority.
    pub priority: i32,
    /// Its gang, if labels name one; launchers are alone.
    pub membership: Membership,
    /// Whether a controller makes it anew.
    pub controlled: bool,
    /// Whether it waits for us to place it.
    pub ours: bool,
    /// A node that it names itself without being bound there by us.
    pub node: Option<Arc<str>>,
    /// GPUs that it holds on its node.
    pub gpus: GpuSet,
    /// Its rank in its gang, once bound.
    pub rank: Option<usize>,
    /// Whether the placement is ours and not yet seen in the API.
    pub assumed: bool,
    /// Being deleted.
    pub terminating: bool,
    /// Ended.
    pub finished: bool,
    /// Succeeded, or failed after a container ran: it counts for its gang.
    pub satisfied: bool,
    /// A gate or a malformed label holds it back, in words.
    pub held_back: Option<String>,
}

impl PodRecord {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it takes room on a node.
    pub fn holds(&self) -> bool {
        self.node.is_some() && !self.finished
    }

    /// Whether it waits for a node.
    pub fn is_waiting(&self) -> bool {
        self.ours && self.node.is_none() && !self.terminating && !self.finished
    }
}

/// The state of the cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Scheduler names that we answer to.
    names: Vec<String>,
    classes: Classes,
    nodes: BTreeMap<Arc<str>, NodeRecord>,
    pods: BTreeMap<Uid, PodRecord>,
    gangs: BTreeMap<GangKey, Gang>,
    reports: BTreeMap<String, NodeReport>,
    /// Pod selectors of services, by namespace and name, for default spreading.
    services: BTreeMap<(String, String), BTreeMap<String, String>>,
    /// Pods of a node that is not known (yet).
    homeless: BTreeMap<Arc<str>, BTreeSet<Uid>>,
    /// What could not be understood, by object.
    warnings: BTreeMap<String, String>,
}

impl Cluster {
    /// An empty cluster. `names` are the scheduler names that we answer to.
    pub fn new(names: Vec<String>, links: LinkTable) -> Self {
        Self {
            names,
            classes: Classes::new(links),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            gangs: BTreeMap::new(),
            reports: BTreeMap::new(),
            services: BTreeMap::new(),
            homeless: BTreeMap::new(),
            warnings: BTreeMap::new(),
        }
    }

    /// Nodes by name.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes.get(name)
    }

    /// Pods by UID.
    pub fn pods(&self) -> impl Iterator<Item = &PodRecord> {
        self.pods.values()
    }

    /// A pod.
    pub fn pod(&self, uid: &str) -> Option<&PodRecord> {
        self.pods.get(uid)
    }

    /// Gangs by key.
    pub fn gangs(&self) -> impl Iterator<Item = (&GangKey, &Gang)> {
        self.gangs.iter()
    }

    /// A gang.
    pub fn gang(&self, key: &GangKey) -> Option<&Gang> {
        self.gangs.get(key)
    }

    /// Objects that could not be understood, and why.
    pub fn warnings(&self) -> &BTreeMap<String, String> {
        &self.warnings
    }

    /// Selectors of the services of a namespace.
    pub(crate) fn service_selectors(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = &BTreeMap<String, String>> {
        self.services
            .iter()
            .filter(move |((ns, _), _)| ns == namespace)
            .map(|(_, selector)| selector)
    }

    /// A service was made or changed; `None` when it is gone.
    pub fn set_service(
        &mut self,
        namespace: &str,
        name: &str,
        selector: Option<BTreeMap<String, String>>,
    ) {
        let key = (namespace.to_owned(), name.to_owned());
        match selector.filter(|selector| !selector.is_empty()) {
            Some(selector) => self.services.insert(key, selector),
            None => self.services.remove(&key),
        };
    }

    /// A node report was made or changed; `None` when it is gone.
    pub fn set_report(&mut self, node: &str, data: Option<&BTreeMap<String, String>>) {
        let object = format!("report of {node}");
        self.warnings.remove(&object);
        match data.map(|data| NodeReport::from_data(node, data)) {
            Some(Ok(report)) => {
                self.reports.insert(node.to_owned(), report);
            }
            Some(Err(error)) => {
                self.warnings.insert(object, error.to_string());
                self.reports.remove(node);
            }
            None => {
                self.reports.remove(node);
            }
        }
        self.refresh_class(node);
    }

    fn refresh_class(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let (topology, uuids) = match self.reports.get(name) {
            Some(report) if node.mode == Mode::Topology => {
                (report.topology.clone(), report.uuids.clone())
            }
            _ => {
                let resource = match node.mode {
                    Mode::Topology => contract::ALIYUN_GPU,
                    Mode::Default => contract::NVIDIA_GPU,
                };
                let gpus = node.allocatable.other.get(resource).copied().unwrap_or_default();
                let gpus = usize::try_from(gpus).unwrap_or_default().min(GpuSet::CAPACITY);
                let label = node.labels.get("nvidia.com/gpu.product");
                let product =
                    label.and_then(|label| Product::from_label(label)).unwrap_or(Product::Pcie);
                (Topology::unlinked(product, gpus, PcieLevel::Sys), Vec::new())
            }
        };
        if node.class.topology() != &topology {
            node.class = self.classes.of(topology);
        }
        node.uuids = uuids;
    }

    /// A node was made or changed. Returns whether anything that placement looks at is new.
    pub fn set_node(&mut self, node: &Node) -> bool {
        let name: Arc<str> = node.name().into();
        let mut taints = node.spec.taints.clone();
        if !node.is_ready()
            && !taints.iter().any(|taint| taint.key.starts_with("node.kubernetes.io/"))
        {
            // What the node life-cycle controller will say, said at once.
            taints.push(Taint {
                key: "node.kubernetes.io/not-ready".into(),
                value: String::new(),
                effect: "NoSchedule".into(),
            });
        }
        let allocatable = Demand::of_node(&node.status.allocatable);
        let mut record = NodeRecord {
            labels: node.labels().clone(),
            taints,
            unschedulable: node.spec.unschedulable,
            mode: node.mode(),
            allocatable,
            images: node.status.images.clone(),
            class: self.classes.of(Topology::unlinked(Product::Pcie, 0, PcieLevel::Sys)),
            uuids: Vec::new(),
            used: Demand::default(),
            pods: BTreeSet::new(),
            holders_of_all: BTreeSet::new(),
            name: Arc::clone(&name),
        };
        let changed = match self.nodes.remove(&name) {
            Some(old) => {
                let same = old.labels == record.labels
                    && old.taints == record.taints
                    && old.unschedulable == record.unschedulable
                    && old.mode == record.mode
                    && old.allocatable == record.allocatable
                    && old.images == record.images;
                record.class = old.class;
                record.used = old.used;
                record.pods = old.pods;
                record.holders_of_all = old.holders_of_all;
                !same
            }
            None => true,
        };
        self.nodes.insert(Arc::clone(&name), record);
        self.refresh_class(&name);
        for uid in self.homeless.remove(&name).unwrap_or_default() {
            self.settle(&uid, 1);
        }
        changed
    }

    /// A node is gone. Its pods stay until they are gone too.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name)
            && !node.pods.is_empty()
        {
            self.homeless.insert(node.name, node.pods);
        }
    }

    /// A pod was made or changed. Returns whether room may have become free, or a pod come that waits.
    pub fn set_pod(&mut self, pod: &Pod) -> bool {
        let uid: Uid = pod.uid().into();
        let old = self.take_pod(&uid);
        let mut record = self.record(pod);
        if let Some(old) = &old {
            // The shape of a pod does not change; share it.
            if old.shape == record.shape {
                record.shape = Arc::clone(&old.shape);
            }
            if record.node.is_none() && old.assumed && !record.terminating && !record.finished {
                record.node.clone_from(&old.node);
                record.gpus = old.gpus;
                record.assumed = true;
            }
        }
        let freed = old.as_ref().is_some_and(|old| old.holds() && !record.holds());
        let waits = record.is_waiting()
            && old.is_none_or(|old| !old.is_waiting() || old.held_back != record.held_back);
        self.put_pod(record);
        freed || waits
    }

    /// A pod is gone. Returns whether that made room.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let gone = self.take_pod(uid);
        if let Some(pod) = &gone {
            self.warnings.remove(&format!("pod {}", pod.full_name()));
        }
        gone.is_some_and(|pod| pod.holds())
    }

    /// Forgets all pods that are not among `uids`, as after a new list.
    pub fn retain_pods(&mut self, uids: &BTreeSet<Uid>) {
        let gone: Vec<Uid> = self.pods.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        for uid in gone {
            self.remove_pod(&uid);
        }
    }

    /// Takes a pod out of every index.
    fn take_pod(&mut self, uid: &str) -> Option<PodRecord> {
        self.settle(uid, -1);
        let pod = self.pods.remove(uid)?;
        if let Membership::Of(key, _) = &pod.membership
            && let Some(gang) = self.gangs.get_mut(key)
        {
            gang.members.remove(uid);
            if gang.members.is_empty() {
                self.gangs.remove(key);
            }
        }
        Some(pod)
    }

    fn put_pod(&mut self, pod: PodRecord) {
        if let Membership::Of(key, minimum) = &pod.membership {
            let gang = self.gangs.entry(key.clone()).or_default();
            gang.members.insert(Arc::clone(&pod.uid));
            gang.minimum = gang.minimum.max(*minimum);
        }
        let uid = Arc::clone(&pod.uid);
        self.pods.insert(Arc::clone(&uid), pod);
        self.settle(&uid, 1);
    }

    /// Adds (1) or takes away (−1) what a pod takes on its node.
    fn settle(&mut self, uid: &str, sign: i64) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Some(name) = pod.node.clone().filter(|_| pod.holds()) else { return };
        let Some(node) = self.nodes.get_mut(&name) else {
            let lost = self.homeless.entry(Arc::clone(&name)).or_default();
            if sign > 0 {
                lost.insert(Arc::clone(&pod.uid));
            } else {
                lost.remove(uid);
                if lost.is_empty() {
                    self.homeless.remove(&name);
                }
            }
            return;
        };
        node.used.add(&pod.shape.demand, sign);
        // A pod of GPUs that does not say which holds them all, until somebody knows better.
        let unknown = pod.shape.gpus.total() > 0 && pod.gpus.is_empty();
        if sign > 0 {
            node.pods.insert(Arc::clone(&pod.uid));
            if unknown {
                node.holders_of_all.insert(Arc::clone(&pod.uid));
            }
        } else {
            node.pods.remove(uid);
            node.holders_of_all.remove(uid);
        }
    }

    fn record(&mut self, pod: &Pod) -> PodRecord {
        let object = format!("pod {}", pod.full_name());
        self.warnings.remove(&object);
        let mut warn = |error: PodError| {
            self.warnings.insert(object.clone(), error.to_string());
            error.to_string()
        };
        let gpus = match (pod.gpu_group(), pod.simulated_gpus()) {
            (Ok(own), Ok(simulated)) => own.or(simulated).unwrap_or_default(),
            (Err(error), _) | (_, Err(error)) => {
                warn(error);
                GpuSet::EMPTY
            }
        };
        let mut held_back = pod
            .spec
            .scheduling_gates
            .first()
            .map(|gate| format!("scheduling gate {:?}", gate.name));
        let shape = Arc::new(Shape::of(pod));
        let membership = match pod.gang_labels() {
            Ok(labels) => Membership::of(pod, labels),
            Err(error) => {
                held_back = Some(warn(error));
                Membership::Alone
            }
        };
        let ours = self.names.contains(&pod.spec.scheduler_name);
        PodRecord {
            uid: pod.uid().into(),
            namespace: pod.namespace().into(),
            name: pod.name().into(),
            created: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            priority: pod.spec.priority,
            membership,
            controlled: pod.controller().is_some(),
            ours,
            node: pod.spec.node_name.as_deref().filter(|name| !name.is_empty()).map(Arc::from),
            gpus,
            rank: pod.rank().ok().flatten(),
            assumed: false,
            terminating: pod.is_terminating(),
            finished: pod.is_finished(),
            satisfied: pod.status.phase == "Succeeded"
                || (pod.status.phase == "Failed" && pod.ever_started()),
            held_back,
            shape,
        }
    }

    /// Reserves a node and GPUs for a pod that waits: from now on it holds them. False when it does not wait, the node is
    /// not there, or a GPU is not free; the state is then as before.
    pub fn assume(&mut self, uid: &str, node: &str, gpus: GpuSet) -> bool {
        let waits = self.pods.get(uid).is_some_and(PodRecord::is_waiting);
        let free =
            self.nodes.get(node).is_some_and(|record| gpus.is_subset(self.free_gpus(record)));
        if !waits || !free {
            return false;
        }
        let Some((name, pod)) =
            self.nodes.get(node).map(|node| Arc::clone(&node.name)).zip(self.pods.get_mut(uid))
        else {
            return false;
        };
        pod.node = Some(name);
        pod.gpus = gpus;
        pod.assumed = true;
        self.settle(uid, 1);
        true
    }

    /// Takes back a reservation that no API object confirms.
    pub fn forget(&mut self, uid: &str) {
        if !self.pods.get(uid).is_some_and(|pod| pod.assumed) {
            return;
        }
        self.settle(uid, -1);
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.node = None;
            pod.gpus = GpuSet::EMPTY;
            pod.assumed = false;
        }
    }

    /// GPUs of a topology node that nobody holds.
    pub fn free_gpus(&self, node: &NodeRecord) -> GpuSet {
        if !node.holders_of_all.is_empty() {
            return GpuSet::EMPTY;
        }
        let held = node
            .pods
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            .fold(GpuSet::EMPTY, |set, pod| set.union(pod.gpus));
        node.class.topology().healthy.difference(held)
    }

    /// How many more of `resource` a node serves.
    pub fn room_for(&self, node: &NodeRecord, resource: &str) -> usize {
        let amount = |demand: &Demand| demand.other.get(resource).copied().unwrap_or_default();
        usize::try_from(amount(&node.allocatable) - amount(&node.used)).unwrap_or_default()
    }

    /// A node as placement sees it: for GPUs placed by topology the free ones, for others as many as are free.
    pub(crate) fn option(
        &self,
        node: &NodeRecord,
        shape: &Shape,
        max_workers: usize,
        preferred: i64,
        siblings: GpuSet,
    ) -> NodeOption {
        let free = if shape.gpus.aliyun > 0 {
            self.free_gpus(node)
        } else {
            // Which ones the kubelet gives is its choice; only their number counts.
            let held = node.class.topology().len()
                - self.room_for(node, contract::NVIDIA_GPU).min(node.class.topology().len());
            node.class.topology().gpus().difference(GpuSet::first(held))
        };
        let resource =
            if shape.gpus.aliyun > 0 { contract::ALIYUN_GPU } else { contract::NVIDIA_GPU };
        let by_count =
            self.room_for(node, resource).checked_div(shape.gpus.total()).unwrap_or(usize::MAX);
        NodeOption {
            name: Arc::clone(&node.name),
            class: Arc::clone(&node.class),
            free,
            max_workers: max_workers.min(by_count),
            preferred,
            siblings,
        }
    }
}
