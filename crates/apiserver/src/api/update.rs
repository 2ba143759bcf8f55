//! Changes of objects.

use std::sync::Arc;

use serde_json::Value;

use super::create::check_kind;
use super::{Api, Write, check_fields, shown, stored};
use crate::field::{self, copy, items, object, set};
use crate::http::path::Target;
use crate::kinds;
use crate::patch;
use crate::resource::Resource;
use crate::status::{Cause, Status};
use crate::store::{Object, Refused};

/// Which part of an object a write may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status, if that is apart.
    Main,
    /// The status alone.
    Status,
    /// What the server itself does: nothing is checked.
    Own(&'static str),
}

/// How often a write without resource version is tried again when others write in between.
const TRIES: usize = 64;

impl Api {
    /// Replaces an object.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` (a stale resource version), `Invalid`, `BadRequest`.
    pub(crate) fn update(
        &self,
        target: &Target,
        name: &str,
        part: Part,
        value: &Value,
        write: &Write,
    ) -> Result<Arc<Object>, Status> {
        check_kind(&target.resource, value)?;
        check_fields(&target.resource, value, write)?;
        self.modify(target, name, part, write, |_| Ok(value.clone()))
    }

    /// Changes an object by a function of its present state (as the resource shows it), which is called again when
    /// somebody else writes in between.
    ///
    /// # Errors
    /// The function's; `NotFound`; `Conflict`, if it states a resource version that is not the stored one; `Invalid`.
    pub(crate) fn modify(
        &self,
        target: &Target,
        name: &str,
        part: Part,
        write: &Write,
        mut step: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Arc<Object>, Status> {
        let resource = &target.resource;
        let id = target.id(name);
        for _ in 0..TRIES {
            let current = self.get(target, name)?;
            let old = current.value();
            let next = step(&shown(resource, old.clone()))?;
            let mut next = stored(resource, next);
            let stated = field::text(&next, &["metadata", "resourceVersion"]);
            if !matches!(stated, "" | "0") && stated != current.revision.to_string() {
                return Err(Status::stale(resource, name));
            }
            self.finish(target, part, &old, &mut next, write)?;
            if next == old {
                return Ok(current);
            }
            if write.dry_run {
                return Ok(Arc::new(Object::unstored(&id, current.revision, next)));
            }
            let result = if is_released(&next) {
                // The last thing that held it is gone. The last state is worth an event of its own.
                self.store.update(&id, current.revision, next).and_then(|updated| {
                    // Somebody may have written in between: then that write sees the same and removes it.
                    match self.store.remove(&id, updated.revision) {
                        Ok(_) | Err(Refused::Missing) => Ok(updated),
                        Err(refused) => Err(refused),
                    }
                })
            } else {
                self.store.update(&id, current.revision, next)
            };
            match result {
                Ok(object) => {
                    self.settle_unless_removed(resource, &object);
                    return Ok(object);
                }
                Err(Refused::Missing) => return Err(Status::not_found(resource, name)),
                Err(_) => {}
            }
        }
        Err(Status::stale(resource, name))
    }

    fn settle_unless_removed(&self, resource: &Resource, object: &Object) {
        if !object.is_terminating() {
            self.settle(resource, object);
        }
    }

    /// Brings the wanted state into the form that may be stored.
    fn finish(
        &self,
        target: &Target,
        part: Part,
        old: &Value,
        next: &mut Value,
        write: &Write,
    ) -> Result<(), Status> {
        let resource = &target.resource;
        keep_metadata(resource, old, next)?;
        match part {
            Part::Main if resource.status => copy(old, next, "status"),
            Part::Status => {
                let status = next.get("status").cloned();
                let metadata = next["metadata"].clone();
                *next = old.clone();
                match status {
                    Some(status) => set(next, "status", status),
                    None => {
                        field::remove(next, "status");
                    }
                }
                // Built-in kinds let metadata through with the status, custom ones do not.
                if !resource.is_custom() {
                    set(next, "metadata", metadata);
                    copy(&old["metadata"], object(next, "metadata"), "ownerReferences");
                }
            }
            _ => {}
        }
        match part {
            Part::Own(_) => {}
            Part::Status if !resource.is_custom() => {
                let causes = kinds::validate::metadata(resource, next);
                if !causes.is_empty() {
                    let name = field::text(next, &["metadata", "name"]);
                    return Err(Status::invalid(resource, name, causes));
                }
            }
            _ => kinds::update(&self.store, resource, old, next)?,
        }
        if kinds::has_generation(resource) && part != Part::Status && spec_differs(old, next) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            set(object(next, "metadata"), "generation", generation);
        }
        let subresource = match part {
            Part::Main => "",
            Part::Status => "status",
            Part::Own(name) => name,
        };
        if !write.applies {
            patch::track(resource, subresource, Some(old), next, &write.manager);
        }
        Ok(())
    }
}

/// What an update cannot change stays; what it must not try to change is an error.
fn keep_metadata(resource: &Resource, old: &Value, next: &mut Value) -> Result<(), Status> {
    let name = field::text(old, &["metadata", "name"]);
    let metadata = object(next, "metadata");
    let given = field::text(metadata, &["name"]);
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let namespace = field::text(old, &["metadata", "namespace"]);
    let given = field::text(metadata, &["namespace"]);
    if !given.is_empty() && given != namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({given}) does not match the namespace on the URL ({namespace})"
        )));
    }
    let uid = field::text(old, &["metadata", "uid"]);
    let given = field::text(metadata, &["uid"]);
    if !given.is_empty() && given != uid {
        let why =
            format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
        return Err(Status::conflict(resource, name, why));
    }
    let added: Vec<&Value> = items(&metadata["finalizers"])
        .filter(|f| !items(&old["metadata"]["finalizers"]).any(|o| o == *f))
        .collect();
    if old["metadata"]["deletionTimestamp"].is_string() && !added.is_empty() {
        let cause = Cause::forbidden(
            "metadata.finalizers",
            &format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {}",
                serde_json::json!(added)
            ),
        );
        return Err(Status::invalid(resource, name, vec![cause]));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ] {
        copy(&old["metadata"], metadata, field);
    }
    if items(&metadata["finalizers"]).next().is_none() {
        field::remove(metadata, "finalizers");
    }
    Ok(())
}

/// Whether anything besides metadata and status differs.
fn spec_differs(old: &Value, new: &Value) -> bool {
    let rest = |value: &Value| -> Vec<(String, Value)> {
        let fields = value.as_object().into_iter().flatten();
        fields
            .filter(|(name, _)| *name != "metadata" && *name != "status")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    rest(old) != rest(new)
}

/// Whether a terminating object is held by nothing any more.
pub(super) fn is_released(value: &Value) -> bool {
    let metadata = &value["metadata"];
    let holds_content = value["kind"] == "Namespace"
        && value["apiVersion"] == "v1"
        && items(&value["spec"]["finalizers"]).next().is_some();
    metadata["deletionTimestamp"].is_string()
        && items(&metadata["finalizers"]).next().is_none()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !holds_content
}
