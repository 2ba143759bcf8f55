//! What the simulated machines know of each other: bound pods, and the links of every node as they are now. A program
//! that trains over several nodes asks it where its workers stand.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{Node, Pod, contract};
use parking_lot::RwLock;
use placement::{Class, Classes};
use tokio::sync::watch;
use topology::{LinkTable, NodeSpec, Topology};

/// Namespace and name.
pub(crate) type Key = (String, String);

/// Pods and machines.
pub(crate) struct World {
    pods: RwLock<HashMap<Key, Arc<Pod>>>,
    machines: RwLock<Machines>,
    /// Counts changes of pods; wakes those who wait for one.
    changed: watch::Sender<u64>,
}

struct Machines {
    classes: Classes,
    /// As they were made.
    whole: BTreeMap<String, Topology>,
    /// As they are, less the links that are down.
    now: BTreeMap<String, Arc<Class>>,
}

impl World {
    pub(crate) fn new(nodes: &[NodeSpec], links: LinkTable) -> Self {
        let mut classes = Classes::new(links);
        let whole: BTreeMap<String, Topology> =
            nodes.iter().map(|node| (node.name.clone(), node.topology.clone())).collect();
        let now =
            whole.iter().map(|(name, whole)| (name.clone(), classes.of(whole.clone()))).collect();
        Self {
            pods: RwLock::default(),
            machines: RwLock::new(Machines { classes, whole, now }),
            changed: watch::Sender::new(0),
        }
    }

    /// The links of a node as they are now.
    pub(crate) fn machine(&self, node: &str) -> Option<Arc<Class>> {
        self.machines.read().now.get(node).cloned()
    }

    /// Takes the links out that a node's annotation says are down. What is wrong with the annotation is returned, and
    /// then nothing changes.
    pub(crate) fn set_links(&self, node: &Node) -> Result<(), String> {
        let mut machines = self.machines.write();
        let Machines { classes, whole, now } = &mut *machines;
        let Some(whole) = whole.get(node.name()) else { return Ok(()) };
        let down = node.annotations().get(contract::DOWN_LINKS).map_or("", String::as_str);
        let mut topology = whole.clone();
        for (a, b) in pairs(down, whole.len())? {
            topology = topology.without_link(a, b);
        }
        now.insert(node.name().to_owned(), classes.of(topology));
        Ok(())
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.pods.read().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(crate) fn set_pod(&self, pod: Arc<Pod>) {
        self.pods.write().insert(key(&pod), pod);
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn remove_pod(&self, pod: &Pod) {
        let mut pods = self.pods.write();
        // The event of a deleted pod may come after a namesake was made.
        if pods.get(&key(pod)).is_some_and(|known| known.uid() == pod.uid()) {
            pods.remove(&key(pod));
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Wakes at every change of a pod from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

pub(crate) fn key(pod: &Pod) -> Key {
    (pod.namespace().to_owned(), pod.name().to_owned())
}

/// `0-3,1-2`.
fn pairs(text: &str, gpus: usize) -> Result<Vec<(usize, usize)>, String> {
    let wrong = |pair: &str| {
        format!(
            "annotation {}: {pair:?} is not a pair of its {gpus} GPUs, as 0-3",
            contract::DOWN_LINKS
        )
    };
    let pair = |pair: &str| {
        let (a, b) = pair.trim().split_once('-').ok_or_else(|| wrong(pair))?;
        let gpu = |text: &str| {
            text.trim().parse().ok().filter(|&gpu: &usize| gpu < gpus).ok_or_else(|| wrong(pair))
        };
        let (a, b) = (gpu(a)?, gpu(b)?);
        if a == b { Err(wrong(pair)) } else { Ok((a, b)) }
    };
    text.split(',').filter(|text| !text.trim().is_empty()).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_are_down() {
        assert_eq!(pairs("0-3, 1-2", 8), Ok(vec![(0, 3), (1, 2)]));
        assert_eq!(pairs("", 8), Ok(vec![]));
        for wrong in ["0", "0-8", "a-b", "1-1", "0:3"] {
            let error = pairs(wrong, 8).unwrap_err();
            assert!(error.contains(wrong) && error.contains(contract::DOWN_LINKS), "{error}");
        }
    }

    #[test]
    fn a_dropped_link_changes_the_machine_and_comes_back() {
        let nodes = topology::ClusterFile::from_machines("gn6v=1").unwrap().nodes;
        let world = World::new(&nodes, LinkTable::default());
        let node = |down: &str| Node {
            metadata: kube::core::ObjectMeta {
                name: Some("gn6v-1".into()),
                annotations: Some([(contract::DOWN_LINKS.to_owned(), down.to_owned())].into()),
                ..Default::default()
            },
            ..Node::default()
        };
        let links = || world.machine("gn6v-1").unwrap().topology().link(0, 3);
        assert_eq!(links(), 2);
        world.set_links(&node("0-3")).unwrap();
        assert_eq!(links(), 0);
        assert!(world.set_links(&node("0-9")).is_err());
        world.set_links(&node("")).unwrap();
        assert_eq!(links(), 2);
    }
}
