//! Deletion: at once, with grace, or when the finalizers are through.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Api;
use super::update::is_released;
use crate::field::{self, items, object, set};
use crate::fresh;
use crate::http::path::Target;
use crate::http::query::{DeleteOptions, Propagation};
use crate::kinds::{definitions, pods};
use crate::resource::Resource;
use crate::status::Status;
use crate::store::{Object, Refused};

/// Holds an object until what it owns is gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Holds an object until what it owns is let go.
pub(crate) const ORPHAN: &str = "orphan";

/// What a deletion did.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; its last state.
    Gone(Arc<Object>),
    /// The object is marked, and goes when nothing holds it any more.
    Going(Arc<Object>),
}

impl Api {
    /// Deletes an object, or begins to.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when a precondition fails.
    pub(crate) fn delete(
        &self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let resource = &target.resource;
        let id = target.id(name);
        loop {
            let current = self.get(target, name)?;
            check_preconditions(resource, name, &current, options)?;
            let old = current.value();
            let next = marked(resource, &old, options);
            let gone = is_released(&next);
            if options.dry_run {
                return Ok(if gone { Deleted::Gone(current) } else { Deleted::Going(current) });
            }
            let result = if gone {
                self.store.remove(&id, current.revision).map(Deleted::Gone)
            } else if next == old {
                Ok(Deleted::Going(Arc::clone(&current)))
            } else {
                self.store.update(&id, current.revision, next).map(Deleted::Going)
            };
            match result {
                Ok(deleted) => return Ok(deleted),
                Err(Refused::Missing) => return Err(Status::not_found(resource, name)),
                // Somebody wrote in between; look again.
                Err(_) => {}
            }
        }
    }

    /// Takes back what a definition served, when it is gone.
    pub(crate) fn unregister(&self, name: &str) {
        self.register(name, &Value::Null);
    }
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    current: &Object,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let revision = current.revision.to_string();
    for (what, wanted, found) in [
        ("UID", &options.uid, current.uid()),
        ("ResourceVersion", &options.revision, revision.as_str()),
    ] {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(Status::conflict(resource, name, why));
        }
    }
    Ok(())
}

/// The object as the deletion leaves it, if something holds it.
fn marked(resource: &Resource, old: &Value, options: &DeleteOptions) -> Value {
    let mut next = old.clone();
    let storage = resource.storage.as_ref();
    let grace = match storage {
        "pods" => pods::grace(old, options.grace_seconds),
        _ => 0,
    };
    let metadata = object(&mut next, "metadata");
    let was = Some(field::text(metadata, &["deletionTimestamp"]))
        .filter(|text| !text.is_empty())
        .and_then(|text| text.parse::<Timestamp>().ok());
    let grace_was = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    match was {
        None => {
            let at = Timestamp::now() + SignedDuration::from_secs(grace);
            set(metadata, "deletionTimestamp", fresh::second(at));
            set(metadata, "deletionGracePeriodSeconds", grace);
            if let Some(generation) = metadata["generation"].as_i64() {
                set(metadata, "generation", generation + 1);
            }
        }
        // A later deletion can only shorten the grace.
        Some(was) if grace < grace_was => {
            let at = was - SignedDuration::from_secs(grace_was - grace);
            set(metadata, "deletionTimestamp", fresh::second(at));
            set(metadata, "deletionGracePeriodSeconds", grace);
        }
        Some(_) => {}
    }
    finalizers(resource, metadata, options);
    match storage {
        "namespaces" => set(object(&mut next, "status"), "phase", "Terminating"),
        definitions::STORAGE if was.is_none() => {
            let status = object(&mut next, "status");
            field::default(status, "conditions", json!([]));
            if let Some(list) = status["conditions"].as_array_mut() {
                list.push(json!({
                    "type": "Terminating", "status": "True", "reason": "InstanceDeletionInProgress",
                    "message": "CustomResource deletion is in progress", "lastTransitionTime": fresh::now(),
                }));
            }
        }
        _ => {}
    }
    next
}

fn finalizers(resource: &Resource, metadata: &mut Value, options: &DeleteOptions) {
    let storage = resource.storage.as_ref();
    // Upstream keeps the promise of the first batch/v1 clients: a job's pods stay unless the client says otherwise.
    let by_kind = || match storage {
        "jobs.batch" | "replicationcontrollers" => Some(Propagation::Orphan),
        _ => None,
    };
    let mut list: Vec<String> =
        items(&metadata["finalizers"]).filter_map(|f| f.as_str().map(str::to_owned)).collect();
    if let Some(propagation) = options.propagation.or_else(|| {
        let decided = list.iter().any(|f| f == FOREGROUND || f == ORPHAN);
        if decided { None } else { by_kind() }
    }) {
        list.retain(|f| f != FOREGROUND && f != ORPHAN);
        match propagation {
            Propagation::Background => {}
            Propagation::Foreground => list.push(FOREGROUND.to_owned()),
            Propagation::Orphan => list.push(ORPHAN.to_owned()),
        }
    }
    if storage == definitions::STORAGE && !list.iter().any(|f| f == definitions::FINALIZER) {
        list.push(definitions::FINALIZER.to_owned());
    }
    if list.is_empty() {
        field::remove(metadata, "finalizers");
    } else {
        set(metadata, "finalizers", list);
    }
}
