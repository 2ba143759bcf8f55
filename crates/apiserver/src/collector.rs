//! What follows from a change: owners take their objects with them, namespaces and definitions end when they are empty,
//! old events go.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, FOREGROUND, Feed, ORPHAN, Part, Write};
use crate::field::{self, object, set};
use crate::http::path::Target;
use crate::http::query::{DeleteOptions, Propagation};
use crate::kinds::definitions;
use crate::store::{Change, Id, Object};

/// How long events are kept, as upstream's default.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
const EVENT_SWEEP: Duration = Duration::from_secs(60);

/// Follows the changes until `stop`.
pub(crate) async fn run(api: Arc<Api>, mut feed: Feed, stop: CancellationToken) {
    let mut sweep = tokio::time::interval(EVENT_SWEEP);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = sweep.tick() => api.sweep_events(),
            change = feed.recv() => match change {
                Some((storage, change)) => api.follow(&storage, &change),
                None => return,
            },
        }
        // Deleting a namespace makes thousands of changes; requests come in between.
        tokio::task::yield_now().await;
    }
}

impl Api {
    fn follow(&self, storage: &Arc<str>, change: &Change) {
        match (&change.before, &change.after) {
            (_, Some(after)) => self.follow_write(storage, change, after),
            (Some(before), None) => self.follow_removal(storage, before),
            (None, None) => {}
        }
    }

    fn follow_write(&self, storage: &Arc<str>, change: &Change, after: &Arc<Object>) {
        let id = Id { storage: Arc::clone(storage), key: after.key.clone() };
        let before = change.before.as_deref();
        let owned_anew = after.owners().next().is_some()
            && before.is_none_or(|b| !b.owner_uids().eq(after.owner_uids()));
        if owned_anew {
            self.collect(&id);
        }
        if !after.is_terminating() {
            return;
        }
        if after.finalizers().any(|f| f == FOREGROUND || f == ORPHAN) {
            self.finish_owner(&id);
        }
        match storage.as_ref() {
            "namespaces" => self.end_namespace(after.name()),
            definitions::STORAGE => self.end_definition(after.name()),
            _ => {}
        }
    }

    fn follow_removal(&self, storage: &Arc<str>, before: &Arc<Object>) {
        for dependent in self.store.dependents(before.uid()) {
            self.collect(&dependent);
        }
        for owner in before.owner_uids() {
            if let Some(id) = self.store.id_of(owner) {
                self.finish_owner(&id);
            }
        }
        if storage.as_ref() == definitions::STORAGE {
            self.unregister(before.name());
        }
        let is_terminating = |storage: &str, key: &str| {
            self.store.get(storage, key).is_some_and(|o| o.is_terminating())
        };
        let namespace = before.namespace();
        if !namespace.is_empty() && is_terminating("namespaces", namespace) {
            self.end_namespace(namespace);
        }
        if is_terminating(definitions::STORAGE, storage) {
            self.end_definition(storage);
        }
    }

    /// Deletes an object whose owners are all gone; of several owners only the gone ones are struck.
    fn collect(&self, id: &Id) {
        let Some(found) = self.store.get(&id.storage, &id.key) else { return };
        let registry = self.registry();
        let (mut solid, mut waiting, mut gone) = (0, 0, Vec::new());
        for owner in found.owners() {
            let uid = field::text(owner, &["uid"]);
            let kind = registry
                .find_kind(field::text(owner, &["apiVersion"]), field::text(owner, &["kind"]));
            match self.store.by_uid(uid) {
                Some(owner)
                    if owner.is_terminating() && owner.finalizers().any(|f| f == FOREGROUND) =>
                {
                    waiting += 1;
                }
                Some(_) => solid += 1,
                // Of an unknown kind nobody can say that it is gone.
                None if kind.is_none() => solid += 1,
                None => gone.push(uid.to_owned()),
            }
        }
        if solid > 0 {
            if !gone.is_empty() {
                self.strike_owners(id, &gone);
            }
            return;
        }
        if gone.is_empty() && waiting == 0 {
            return;
        }
        let propagation = if found.finalizers().any(|f| f == ORPHAN) {
            Propagation::Orphan
        } else if waiting > 0 && !self.store.dependents(found.uid()).is_empty()
            || found.finalizers().any(|f| f == FOREGROUND)
        {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.remove(id, found.uid(), propagation);
    }

    /// Lets an owner go that waits for what it owns, if nothing is left to wait for.
    fn finish_owner(&self, id: &Id) {
        let Some(owner) = self.store.get(&id.storage, &id.key) else { return };
        if !owner.is_terminating() {
            return;
        }
        let uid = owner.uid();
        let dependents = self.store.dependents(uid);
        if owner.finalizers().any(|f| f == ORPHAN) {
            for dependent in &dependents {
                self.strike_owners(dependent, &[uid.to_owned()]);
            }
            self.strike_finalizer(id, ORPHAN);
        } else if owner.finalizers().any(|f| f == FOREGROUND) {
            let mut blocked = false;
            for dependent in &dependents {
                let Some(found) = self.store.get(&dependent.storage, &dependent.key) else {
                    continue;
                };
                blocked |=
                    found.owners().any(|o| o["uid"] == uid && o["blockOwnerDeletion"] == true);
                if !found.is_terminating() {
                    self.collect(dependent);
                }
            }
            if !blocked {
                self.strike_finalizer(id, FOREGROUND);
            }
        }
    }

    fn end_namespace(&self, name: &str) {
        let content = self.store.ids_in(name);
        for id in &content {
            if let Some(found) = self.store.get(&id.storage, &id.key)
                && !found.is_terminating()
            {
                self.remove(id, found.uid(), Propagation::Background);
            }
        }
        if content.is_empty() {
            let id = Id { storage: "namespaces".into(), key: name.to_owned() };
            self.change(&id, "finalize", |namespace| {
                field::remove(object(namespace, "spec"), "finalizers");
            });
        }
    }

    fn end_definition(&self, name: &str) {
        let objects = self.store.list(name, "", None).objects;
        for found in objects.iter().filter(|found| !found.is_terminating()) {
            let id = Id { storage: name.into(), key: found.key.clone() };
            self.remove(&id, found.uid(), Propagation::Background);
        }
        if objects.is_empty() {
            let id = Id { storage: definitions::STORAGE.into(), key: name.to_owned() };
            self.strike_finalizer(&id, definitions::FINALIZER);
        }
    }

    fn sweep_events(&self) {
        let oldest = Timestamp::now() - EVENT_LIFE;
        for event in self.store.list("events", "", None).objects {
            let created =
                field::text(&event.head, &["metadata", "creationTimestamp"]).parse::<Timestamp>();
            // An event that counts on is young however old its first moment is.
            if created.is_ok_and(|created| created < oldest) && last_seen(&event.value()) < oldest {
                let id = Id { storage: "events".into(), key: event.key.clone() };
                let _ = self.store.remove(&id, event.revision);
            }
        }
    }

    fn remove(&self, id: &Id, uid: &str, propagation: Propagation) {
        let Some(target) = self.target_of(id) else { return };
        let options = DeleteOptions {
            propagation: Some(propagation),
            uid: Some(uid.to_owned()),
            ..DeleteOptions::default()
        };
        // Gone already, or replaced by a namesake: both are what was wanted.
        let _ = self.delete(&target, target.name.as_deref().unwrap_or_default(), &options);
    }

    fn strike_owners(&self, id: &Id, uids: &[String]) {
        self.change(id, "", |value| {
            let metadata = object(value, "metadata");
            let Some(list) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut)
            else {
                return;
            };
            list.retain(|o| !uids.iter().any(|uid| o["uid"] == *uid));
            if list.is_empty() {
                field::remove(metadata, "ownerReferences");
            }
        });
    }

    fn strike_finalizer(&self, id: &Id, finalizer: &str) {
        self.change(id, "", |value| {
            if let Some(list) =
                value.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut)
            {
                list.retain(|f| f != finalizer);
            }
        });
    }

    fn change(&self, id: &Id, subresource: &'static str, change: impl Fn(&mut Value)) {
        let Some(target) = self.target_of(id) else { return };
        let name = target.name.clone().unwrap_or_default();
        let write = Write { manager: "kube-controller-manager".to_owned(), ..Write::default() };
        // Gone already is what was wanted; nothing else can be refused.
        let _ = self.modify(&target, &name, Part::Own(subresource), &write, |old| {
            let mut next = old.clone();
            change(&mut next);
            set(object(&mut next, "metadata"), "resourceVersion", "");
            Ok(next)
        });
    }

    fn target_of(&self, id: &Id) -> Option<Target> {
        let resource = Arc::clone(self.registry().find_storage(&id.storage)?);
        let (namespace, name) = id.key.rsplit_once('/').unwrap_or(("", id.key.as_str()));
        Some(Target {
            resource,
            namespace: namespace.to_owned(),
            name: Some(name.to_owned()),
            subresource: None,
        })
    }
}

fn last_seen(event: &Value) -> Timestamp {
    let times = ["lastTimestamp", "eventTime"].map(|name| field::text(event, &[name]));
    let series = field::text(event, &["series", "lastObservedTime"]);
    let seen = times.into_iter().chain([series]).filter_map(|text| text.parse().ok());
    seen.max().unwrap_or(Timestamp::MIN)
}
