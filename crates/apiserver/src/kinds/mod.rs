//! What single kinds need beyond the generic store. Everything here is a function of JSON objects.

mod defaults;
pub(crate) mod definitions;
pub(crate) mod events;
mod pod_spec;
pub(crate) mod pods;
pub(crate) mod reviews;
pub(crate) mod schema;
pub(crate) mod services;
pub(crate) mod validate;

use serde_json::Value;

use crate::field::{self, object, set};
use crate::resource::Resource;
use crate::status::{Cause, Status};
use crate::store::Store;

/// Whether objects carry `metadata.generation`, which counts the changes of their spec.
pub(crate) fn has_generation(resource: &Resource) -> bool {
    resource.is_custom()
        || matches!(
            resource.storage.as_ref(),
            "pods"
                | "jobs.batch"
                | "cronjobs.batch"
                | "deployments.apps"
                | "replicasets.apps"
                | "statefulsets.apps"
                | "daemonsets.apps"
                | "replicationcontrollers"
                | "customresourcedefinitions.apiextensions.k8s.io"
                | "poddisruptionbudgets.policy"
                | "networkpolicies.networking.k8s.io"
                | "ingresses.networking.k8s.io"
                | "priorityclasses.scheduling.k8s.io"
        )
}

/// Prepares a new object, whose metadata is complete: status, defaults, admission, validation.
///
/// # Errors
/// `Invalid` with every wrong field; `Forbidden` by admission.
pub(crate) fn create(store: &Store, resource: &Resource, value: &mut Value) -> Result<(), Status> {
    let storage = resource.storage.as_ref();
    // A kubelet registers its node with its status in one write.
    if resource.status && resource.plural != "nodes" {
        field::remove(value, "status");
    }
    complete(resource, value);
    let mut causes = wrong(resource, value);
    match storage {
        "pods" => pods::admit(store, resource, value)?,
        "jobs.batch" => {
            set(value, "status", serde_json::json!({}));
            defaults::job_selector(value);
        }
        "services" => causes.extend(services::allocate(store, value)),
        _ => {}
    }
    refuse(resource, value, causes)
}

/// Prepares the next state of an object: defaults, validation, what may not change.
///
/// # Errors
/// `Invalid` with every wrong field.
pub(crate) fn update(
    store: &Store,
    resource: &Resource,
    old: &Value,
    value: &mut Value,
) -> Result<(), Status> {
    let storage = resource.storage.as_ref();
    if storage == "services" {
        services::keep_address(old, value);
    }
    complete(resource, value);
    let mut causes = wrong(resource, value);
    if storage == "services" {
        causes.extend(services::allocate(store, value));
    }
    causes.extend(validate::changes(storage, old, value));
    refuse(resource, value, causes)
}

/// Defaults, and for custom resources pruning.
fn complete(resource: &Resource, value: &mut Value) {
    match &resource.schema {
        Some(schema) => definitions::prune_and_default(schema, value),
        None => defaults::fill(&resource.storage, value),
    }
    if resource.storage.as_ref() == definitions::STORAGE {
        definitions::establish(value);
    }
    // A null creationTimestamp is how Go writes an unset one.
    let metadata = object(value, "metadata");
    if metadata["creationTimestamp"].is_null() {
        field::remove(metadata, "creationTimestamp");
    }
}

fn wrong(resource: &Resource, value: &Value) -> Vec<Cause> {
    let mut causes = validate::metadata(resource, value);
    match &resource.schema {
        Some(schema) => causes.extend(schema::validate(schema, value)),
        None => causes.extend(validate::fields(&resource.storage, value)),
    }
    if resource.storage.as_ref() == definitions::STORAGE {
        causes.extend(definitions::validate(value));
    }
    causes
}

fn refuse(resource: &Resource, value: &Value, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(resource, field::text(value, &["metadata", "name"]), causes))
}
