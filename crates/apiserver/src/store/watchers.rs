//! Who is told of a change: watches, indexed by the one thing that most of them select by.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::mpsc;

use super::object::{Change, Object};

/// Changes that one watch may lag behind before it is ended. A client that is told so lists again, which is cheaper
/// than what it has not read.
const BACKLOG: usize = 16_384;

/// What a watch certainly selects by. 250 kubelets that watch their own node's pods are one lookup per change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Anything.
    Any,
    /// Objects of a namespace.
    Namespace(String),
    /// The object of this key.
    Key(String),
    /// Pods whose `spec.nodeName` is this; empty for pods without node.
    Node(String),
}

/// A watch by its number, and where its changes go.
type Watcher = (u64, mpsc::Sender<Arc<Change>>);

#[derive(Debug, Default)]
pub(super) struct Watchers {
    next: u64,
    lanes: FxHashMap<Lane, Vec<Watcher>>,
}

impl Watchers {
    pub(super) fn add(&mut self, lane: Lane) -> mpsc::Receiver<Arc<Change>> {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        self.next += 1;
        let watches = self.lanes.entry(lane).or_default();
        // Ended watches of a quiet lane would stay for ever otherwise.
        watches.retain(|(_, sender)| !sender.is_closed());
        watches.push((self.next, sender));
        receiver
    }

    pub(super) fn tell(&mut self, change: &Arc<Change>) {
        let Some(object) = change.newest() else { return };
        self.tell_lane(&Lane::Any, change);
        self.tell_lane(&Lane::Key(object.key.clone()), change);
        if !object.namespace().is_empty() {
            self.tell_lane(&Lane::Namespace(object.namespace().to_owned()), change);
        }
        let after = change.after.as_deref().map(node_of);
        let before = change.before.as_deref().map(node_of);
        for node in [before, after.filter(|_| after != before)].into_iter().flatten() {
            self.tell_lane(&Lane::Node(node.to_owned()), change);
        }
    }

    fn tell_lane(&mut self, lane: &Lane, change: &Arc<Change>) {
        let Some(watches) = self.lanes.get_mut(lane) else { return };
        watches.retain(|(_, sender)| sender.try_send(Arc::clone(change)).is_ok());
        if watches.is_empty() {
            self.lanes.remove(lane);
        }
    }

    /// Ends every watch.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
    }
}

fn node_of(object: &Object) -> &str {
    object.head["spec"]["nodeName"].as_str().unwrap_or_default()
}
