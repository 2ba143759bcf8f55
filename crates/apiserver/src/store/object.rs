//! A stored object: its bytes as they are sent, and the few fields that the server itself looks at.

use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};

/// One version of one object, never changed.
///
/// A parsed pod takes ten times the memory of its JSON, and most objects are written once and sent often. So the JSON
/// is what is kept; a write parses it again.
#[derive(Debug)]
pub(crate) struct Object {
    /// `NAMESPACE/NAME`, or the name of an object without namespace.
    pub(crate) key: String,
    /// The revision of the write that made it.
    pub(crate) revision: u64,
    /// The JSON of the storage version.
    pub(crate) json: Bytes,
    /// What selectors and the collector look at: the object reduced to those fields, in their places.
    pub(crate) head: Value,
}

/// The fields besides metadata that a field selector may name, by storage. `metadata.name` and `metadata.namespace` go
/// without saying.
pub(crate) fn selectable(storage: &str) -> &'static [&'static str] {
    match storage {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "jobs.batch" => &["status.successful"],
        "replicationcontrollers" | "replicasets.apps" => &["status.replicas"],
        _ => &[],
    }
}

const METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "labels",
    "ownerReferences",
    "finalizers",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "creationTimestamp",
];

impl Object {
    /// Serialises `value`, whose `resourceVersion` becomes `revision`.
    pub(crate) fn new(storage: &str, key: String, revision: u64, mut value: Value) -> Self {
        value["metadata"]["resourceVersion"] = Value::from(revision.to_string());
        let json = Bytes::from(value.to_string());
        let mut metadata = Map::new();
        for field in METADATA {
            if let Some(found) = value["metadata"].get_mut(*field) {
                metadata.insert((*field).to_owned(), found.take());
            }
        }
        let mut head = json!({ "metadata": metadata });
        for path in selectable(storage) {
            let mut from = &mut value;
            let mut names = path.split('.').peekable();
            let mut to = &mut head;
            while let Some(name) = names.next() {
                let Some(next) = from.get_mut(name) else { break };
                if names.peek().is_none() {
                    to[name] = next.take();
                    break;
                }
                if !to[name].is_object() {
                    to[name] = json!({});
                }
                to = &mut to[name];
                from = next;
            }
        }
        Self { key, revision, json, head }
    }

    /// The whole object, parsed.
    pub(crate) fn value(&self) -> Value {
        // What was serialised from a `Value` parses; were it otherwise, Null fails every later check.
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The object with another resource version: what a watch says of an object that is gone.
    pub(crate) fn value_at(&self, revision: u64) -> Value {
        let mut value = self.value();
        value["metadata"]["resourceVersion"] = Value::from(revision.to_string());
        value
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(self.key.as_str(), |(_, name)| name)
    }

    /// Its namespace; empty if it has none.
    pub(crate) fn namespace(&self) -> &str {
        self.key.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Its uid.
    pub(crate) fn uid(&self) -> &str {
        self.head["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// Whether its deletion has begun.
    pub(crate) fn is_terminating(&self) -> bool {
        self.head["metadata"]["deletionTimestamp"].is_string()
    }

    /// Its finalizers.
    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &str> {
        let list = self.head["metadata"]["finalizers"].as_array();
        list.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Its owner references.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Value> {
        self.head["metadata"]["ownerReferences"].as_array().into_iter().flatten()
    }

    /// The uids of its owners.
    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        self.owners().filter_map(|owner| owner["uid"].as_str())
    }
}

/// What a watch says of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It appeared, or entered the selection.
    Added,
    /// It changed within the selection.
    Modified,
    /// It went, or left the selection.
    Deleted,
}

impl Verb {
    /// As it is spelled on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One write, as watches see it.
#[derive(Debug)]
pub(crate) struct Change {
    /// The revision of the write.
    pub(crate) revision: u64,
    /// What it was before; absent after a creation.
    pub(crate) before: Option<Arc<Object>>,
    /// What it is now; absent after a deletion.
    pub(crate) after: Option<Arc<Object>>,
    /// The lines sent to plain watches, made once for all of them.
    lines: [OnceLock<Bytes>; 3],
}

impl Change {
    pub(super) fn new(
        revision: u64,
        before: Option<Arc<Object>>,
        after: Option<Arc<Object>>,
    ) -> Self {
        Self { revision, before, after, lines: Default::default() }
    }

    /// What a watch with this selection says of it; `None` is nothing.
    pub(crate) fn verb(&self, mut selects: impl FnMut(&Object) -> bool) -> Option<Verb> {
        let was = self.before.as_deref().is_some_and(&mut selects);
        let is = self.after.as_deref().is_some_and(&mut selects);
        match (was, is) {
            (false, true) => Some(Verb::Added),
            (true, true) => Some(Verb::Modified),
            (true, false) => Some(Verb::Deleted),
            (false, false) => None,
        }
    }

    /// The object that goes with a verb: the last state, under this revision, of one that went.
    pub(crate) fn object(&self, verb: Verb) -> Value {
        match (verb, &self.after, &self.before) {
            (Verb::Added | Verb::Modified, Some(after), _) => after.value(),
            (_, _, Some(before)) => before.value_at(self.revision),
            _ => Value::Null,
        }
    }

    /// The line of a plain watch, with its newline.
    pub(crate) fn line(&self, verb: Verb) -> Bytes {
        let slot = match verb {
            Verb::Added => 0,
            Verb::Modified => 1,
            Verb::Deleted => 2,
        };
        let make = || match (verb, &self.after) {
            (Verb::Added | Verb::Modified, Some(after)) => watch_line(verb.as_str(), &after.json),
            _ => watch_line(verb.as_str(), self.object(verb).to_string().as_bytes()),
        };
        self.lines[slot].get_or_init(make).clone()
    }

    /// The newest state that is known.
    pub(crate) fn newest(&self) -> Option<&Arc<Object>> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// `{"type":TYPE,"object":OBJECT}` and a newline.
pub(crate) fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}
