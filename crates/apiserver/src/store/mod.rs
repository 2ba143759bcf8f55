//! The store: all objects of all resources under one revision counter, with the recent changes for watches.
//!
//! A write is a compare-and-swap on the object's revision, done under one lock together with its effect on the
//! indexes and its delivery to watches, so that every watch sees every change in the order of revisions.

mod object;
mod watchers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) use object::{Change, Object, selectable, watch_line};
pub(crate) use watchers::Lane;
use watchers::Watchers;

/// Changes kept per storage for watches that start in the past. A list of thousands of objects and the watch after it
/// are less apart than that.
const HISTORY: usize = 8_192;

/// Names one object: where it is stored and its key there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id {
    /// The resource's `storage`.
    pub(crate) storage: Arc<str>,
    /// `NAMESPACE/NAME`, or the name.
    pub(crate) key: String,
}

/// Why a write was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The name is taken.
    Exists,
    /// There is no such object.
    Missing,
    /// The object is of another revision.
    Stale,
    /// The namespace does not exist.
    NoNamespace,
    /// The namespace is being deleted.
    TerminatingNamespace,
}

/// A part of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// The objects, in order of their keys.
    pub(crate) objects: Vec<Arc<Object>>,
    /// The store's revision at that moment.
    pub(crate) revision: u64,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// With the objects as they are now.
    Now,
    /// After this revision.
    Revision(u64),
}

/// A started watch.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The objects that exist (only for [`Since::Now`]); not yet selected from.
    pub(crate) initial: Vec<Arc<Object>>,
    /// The changes between the start and the present; not yet selected from.
    pub(crate) missed: Vec<Arc<Change>>,
    /// The store's revision when the watch was started.
    pub(crate) revision: u64,
    /// The changes from then on.
    pub(crate) changes: mpsc::Receiver<Arc<Change>>,
}

/// The oldest revision that a watch may start after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOld(pub u64);

/// The objects of one storage.
#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<String, Arc<Object>>,
    history: VecDeque<Arc<Change>>,
    /// The revision of the newest change that is no longer in the history.
    forgotten: u64,
    watchers: Watchers,
}

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    collections: FxHashMap<Arc<str>, Collection>,
    /// Every object by its uid.
    uids: FxHashMap<String, Id>,
    /// The objects that name an owner, by the owner's uid.
    dependents: FxHashMap<String, BTreeSet<Id>>,
}

/// A change with its storage.
pub(crate) type Fed = (Arc<str>, Arc<Change>);

/// The store. Cheap to share.
#[derive(Debug)]
pub(crate) struct Store {
    inner: RwLock<Inner>,
    /// Every change with its storage, for the collector.
    feed: mpsc::UnboundedSender<Fed>,
}

impl Store {
    /// An empty store, and every change that will be made to it.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Fed>) {
        let (feed, changes) = mpsc::unbounded_channel();
        (Self { inner: RwLock::default(), feed }, changes)
    }

    /// The revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.inner.read().revision
    }

    /// The object under `key`.
    pub(crate) fn get(&self, storage: &str, key: &str) -> Option<Arc<Object>> {
        self.inner.read().collections.get(storage)?.objects.get(key).cloned()
    }

    /// Objects of a namespace (all if it is empty), in order of keys, after key `after`.
    pub(crate) fn list(&self, storage: &str, namespace: &str, after: Option<&str>) -> Page {
        let inner = self.inner.read();
        let objects = inner
            .collections
            .get(storage)
            .map(|c| c.range(namespace, after).cloned().collect())
            .unwrap_or_default();
        Page { objects, revision: inner.revision }
    }

    /// Adds an object. With `namespace`, that namespace must exist and must not be terminating.
    ///
    /// # Errors
    /// `Exists`, `NoNamespace`, `TerminatingNamespace`.
    pub(crate) fn create(
        &self,
        id: &Id,
        value: Value,
        namespace: &str,
    ) -> Result<Arc<Object>, Refused> {
        let mut inner = self.inner.write();
        if !namespace.is_empty() {
            let found = inner.collections.get("namespaces").and_then(|c| c.objects.get(namespace));
            match found {
                None => return Err(Refused::NoNamespace),
                Some(found) if found.is_terminating() => return Err(Refused::TerminatingNamespace),
                Some(_) => {}
            }
        }
        if inner.collections.get(&id.storage).is_some_and(|c| c.objects.contains_key(&id.key)) {
            return Err(Refused::Exists);
        }
        Ok(self.commit(&mut inner, id, None, value))
    }

    /// Replaces an object of revision `expected`.
    ///
    /// # Errors
    /// `Missing`, `Stale`.
    pub(crate) fn update(
        &self,
        id: &Id,
        expected: u64,
        value: Value,
    ) -> Result<Arc<Object>, Refused> {
        let mut inner = self.inner.write();
        let before = inner.expect(id, expected)?;
        Ok(self.commit(&mut inner, id, Some(before), value))
    }

    /// Removes an object of revision `expected`; returns its last state.
    ///
    /// # Errors
    /// `Missing`, `Stale`.
    pub(crate) fn remove(&self, id: &Id, expected: u64) -> Result<Arc<Object>, Refused> {
        let mut inner = self.inner.write();
        let before = inner.expect(id, expected)?;
        inner.revision += 1;
        if let Some(collection) = inner.collections.get_mut(&id.storage) {
            collection.objects.remove(&id.key);
        }
        let change = Arc::new(Change::new(inner.revision, Some(Arc::clone(&before)), None));
        self.publish(&mut inner, id, change);
        Ok(before)
    }

    /// Starts a watch of the changes in `lane`.
    ///
    /// # Errors
    /// The changes since then are no longer held.
    pub(crate) fn watch(
        &self,
        storage: &Arc<str>,
        lane: Lane,
        since: Since,
    ) -> Result<Watch, TooOld> {
        let mut inner = self.inner.write();
        let revision = inner.revision;
        let collection = inner.collections.entry(Arc::clone(storage)).or_default();
        let namespace = match &lane {
            Lane::Namespace(namespace) => namespace.clone(),
            Lane::Key(key) => key.rsplit_once('/').map(|(ns, _)| ns.to_owned()).unwrap_or_default(),
            Lane::Any | Lane::Node(_) => String::new(),
        };
        let (initial, missed) = match since {
            Since::Now => (collection.range(&namespace, None).cloned().collect(), Vec::new()),
            Since::Revision(from) if from < collection.forgotten => {
                return Err(TooOld(collection.forgotten));
            }
            Since::Revision(from) => {
                let start = collection.history.partition_point(|c| c.revision <= from);
                (Vec::new(), collection.history.range(start..).cloned().collect())
            }
        };
        Ok(Watch { initial, missed, revision, changes: collection.watchers.add(lane) })
    }

    /// The object of a uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<Object>> {
        let inner = self.inner.read();
        let id = inner.uids.get(uid)?;
        inner.collections.get(&id.storage)?.objects.get(&id.key).cloned()
    }

    /// Where the object of a uid is stored.
    pub(crate) fn id_of(&self, uid: &str) -> Option<Id> {
        self.inner.read().uids.get(uid).cloned()
    }

    /// The objects that name `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Id> {
        self.inner.read().dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Whether any storage for which `select` holds has an object in the namespace.
    pub(crate) fn ids_in(&self, namespace: &str) -> Vec<Id> {
        let inner = self.inner.read();
        let mut ids: Vec<Id> = inner
            .collections
            .iter()
            .flat_map(|(storage, collection)| {
                collection
                    .range(namespace, None)
                    .map(|o| Id { storage: Arc::clone(storage), key: o.key.clone() })
            })
            .collect();
        ids.sort();
        ids
    }

    /// Ends every watch, as the end of the server does.
    pub(crate) fn end_watches(&self) {
        for collection in self.inner.write().collections.values_mut() {
            collection.watchers.clear();
        }
    }

    fn commit(
        &self,
        inner: &mut Inner,
        id: &Id,
        before: Option<Arc<Object>>,
        value: Value,
    ) -> Arc<Object> {
        inner.revision += 1;
        let object = Arc::new(Object::new(&id.storage, id.key.clone(), inner.revision, value));
        let collection = inner.collections.entry(Arc::clone(&id.storage)).or_default();
        collection.objects.insert(id.key.clone(), Arc::clone(&object));
        let change = Arc::new(Change::new(inner.revision, before, Some(Arc::clone(&object))));
        self.publish(inner, id, change);
        object
    }

    fn publish(&self, inner: &mut Inner, id: &Id, change: Arc<Change>) {
        inner.index(id, &change);
        if let Some(collection) = inner.collections.get_mut(&id.storage) {
            collection.watchers.tell(&change);
            if collection.history.len() == HISTORY
                && let Some(oldest) = collection.history.pop_front()
            {
                collection.forgotten = oldest.revision;
            }
            collection.history.push_back(Arc::clone(&change));
        }
        // Without collector (it ends with the server) nobody needs to know.
        let _ = self.feed.send((Arc::clone(&id.storage), change));
    }
}

impl Collection {
    fn range(&self, namespace: &str, after: Option<&str>) -> impl Iterator<Item = &Arc<Object>> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let start = match after {
            Some(after) => Bound::Excluded(after.to_owned()),
            None => Bound::Included(prefix.clone()),
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, object)| object)
    }
}

impl Inner {
    fn expect(&self, id: &Id, expected: u64) -> Result<Arc<Object>, Refused> {
        let found = self.collections.get(&id.storage).and_then(|c| c.objects.get(&id.key));
        match found {
            None => Err(Refused::Missing),
            Some(found) if found.revision != expected => Err(Refused::Stale),
            Some(found) => Ok(Arc::clone(found)),
        }
    }

    fn index(&mut self, id: &Id, change: &Change) {
        let owners = |o: &Option<Arc<Object>>| -> Vec<String> {
            o.iter().flat_map(|o| o.owner_uids()).map(str::to_owned).collect()
        };
        let (was, is) = (owners(&change.before), owners(&change.after));
        for uid in was.iter().filter(|uid| !is.contains(uid)) {
            if let Some(set) = self.dependents.get_mut(uid) {
                set.remove(id);
                if set.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        for uid in is.into_iter().filter(|uid| !was.contains(uid)) {
            self.dependents.entry(uid).or_default().insert(id.clone());
        }
        match (&change.before, &change.after) {
            (None, Some(after)) => {
                self.uids.insert(after.uid().to_owned(), id.clone());
            }
            (Some(before), None) => {
                self.uids.remove(before.uid());
            }
            _ => {}
        }
    }
}
