//! Creation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Api, Write, check_fields, stored};
use crate::field::{self, object, set};
use crate::http::path::{self, Target};
use crate::kinds::{self, services};
use crate::resource::Resource;
use crate::status::{Cause, Reason, Status};
use crate::store::{Id, Object, Refused};
use crate::{fresh, patch};

/// How often a generated name is tried.
const NAME_TRIES: usize = 8;

impl Api {
    /// Creates an object, which `target` gives its namespace.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` (the namespace), `Forbidden`, `Invalid`, `BadRequest`.
    pub(crate) fn create(
        &self,
        target: &Target,
        value: Value,
        write: &Write,
    ) -> Result<Arc<Object>, Status> {
        let resource = &target.resource;
        check_kind(resource, &value)?;
        check_fields(resource, &value, write)?;
        let mut value = stored(resource, value);
        self.new_metadata(target, &mut value)?;
        let generated = field::text(&value, &["metadata", "name"]).is_empty()
            && !field::text(&value, &["metadata", "generateName"]).is_empty();
        let mut tries = if generated { NAME_TRIES } else { 1 };
        loop {
            tries -= 1;
            let mut value = value.clone();
            if generated {
                let base = field::text(&value, &["metadata", "generateName"]).to_owned();
                set(object(&mut value, "metadata"), "name", fresh::name(&base));
            }
            match self.create_named(target, value, write) {
                Err(status) if status.reason == Reason::AlreadyExists && tries > 0 => {}
                other => return other,
            }
        }
    }

    fn create_named(
        &self,
        target: &Target,
        mut value: Value,
        write: &Write,
    ) -> Result<Arc<Object>, Status> {
        let resource = &target.resource;
        let namespace = target.namespace.as_str();
        self.check_namespace(target, &value)?;
        // What a kind fills in by itself is nobody's.
        if !write.applies {
            patch::track(resource, "", None, &mut value, &write.manager);
        }
        kinds::create(&self.store, resource, &mut value)?;
        let name = field::text(&value, &["metadata", "name"]).to_owned();
        let id = target.id(&name);
        if write.dry_run {
            if self.store.get(&id.storage, &id.key).is_some() {
                return Err(Status::already_exists(resource, &name));
            }
            return Ok(Arc::new(Object::unstored(&id, 0, value)));
        }
        let made = self.store.create(&id, value, namespace);
        let made = made.map_err(|refused| match refused {
            Refused::NoNamespace => no_namespace(self, namespace),
            Refused::TerminatingNamespace => terminating(resource, &name, namespace),
            _ => Status::already_exists(resource, &name),
        })?;
        self.settle(resource, &made);
        Ok(made)
    }

    /// Refused before admission looks at what the namespace should hold.
    fn check_namespace(&self, target: &Target, value: &Value) -> Result<(), Status> {
        let namespace = target.namespace.as_str();
        if !target.resource.namespaced {
            return Ok(());
        }
        match self.store.get("namespaces", namespace) {
            None => Err(no_namespace(self, namespace)),
            Some(found) if found.is_terminating() => {
                let name = field::text(value, &["metadata", "name"]);
                Err(terminating(&target.resource, name, namespace))
            }
            Some(_) => Ok(()),
        }
    }

    /// The metadata that the server gives.
    fn new_metadata(&self, target: &Target, value: &mut Value) -> Result<(), Status> {
        let metadata = object(value, "metadata");
        let given = field::text(metadata, &["namespace"]);
        if !given.is_empty() && given != target.namespace {
            let message = if target.resource.namespaced {
                "the namespace of the provided object does not match the namespace sent on the request"
            } else {
                "namespace may not be set on cluster-scoped objects"
            };
            return Err(Status::bad_request(message));
        }
        if !matches!(field::text(metadata, &["resourceVersion"]), "" | "0") {
            return Err(Status::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            field::remove(metadata, field);
        }
        if target.resource.namespaced {
            set(metadata, "namespace", target.namespace.as_str());
        }
        set(metadata, "uid", fresh::uid());
        set(metadata, "creationTimestamp", fresh::now());
        if kinds::has_generation(&target.resource) {
            set(metadata, "generation", 1);
        }
        Ok(())
    }

    /// What every namespace has from its first moment.
    pub(super) fn furnish(&self, namespace: &str) {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let authority = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "kube-root-ca.crt",
                "annotations": {
                    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver \
                     when using internal endpoints such as the internal service IP or kubernetes.default.svc. No \
                     other usage is guaranteed across distributions of Kubernetes clusters.",
                },
            },
            "data": {"ca.crt": self.ca},
        });
        for (plural, object) in [("serviceaccounts", account), ("configmaps", authority)] {
            self.install("", "v1", plural, namespace, object);
        }
    }

    /// The objects of a new cluster.
    pub(crate) fn bootstrap(&self) {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.install("", "v1", "namespaces", "", namespace);
        }
        let classes = [
            (
                "system-cluster-critical",
                2_000_000_000,
                "system critical pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
            (
                "system-node-critical",
                2_000_001_000,
                "system critical pods that must not be moved from their current node.",
            ),
        ];
        for (name, value, description) in classes {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "description": format!("Used for {description}"),
            });
            self.install("scheduling.k8s.io", "v1", "priorityclasses", "", class);
        }
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "kubernetes",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": services::FIRST_ADDRESS,
                "ports": [{"name": "https", "port": 443, "targetPort": 6443}],
            },
        });
        self.install("", "v1", "services", "default", service);
    }

    /// Creates an object of the server's own; one that exists is left as it is.
    fn install(&self, group: &str, version: &str, plural: &str, namespace: &str, object: Value) {
        let Some(resource) = self.registry().find(group, version, plural).cloned() else { return };
        let target =
            Target { resource, namespace: namespace.to_owned(), name: None, subresource: None };
        let write = Write { manager: "kube-apiserver".to_owned(), ..Write::default() };
        if let Err(status) = self.create(&target, object, &write)
            && status.reason != Reason::AlreadyExists
        {
            tracing::warn!(plural, namespace, %status, "cannot create an object of the server's own");
        }
    }
}

/// Refuses an object of another kind than the resource's. Absent means the resource's.
pub(super) fn check_kind(resource: &Resource, value: &Value) -> Result<(), Status> {
    if !value.is_object() {
        return Err(Status::bad_request("the body is not an object"));
    }
    let given = field::text(value, &["apiVersion"]);
    let expected = resource.api_version();
    if !given.is_empty() && given != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        )));
    }
    let kind = field::text(value, &["kind"]);
    if !kind.is_empty() && kind != resource.kind {
        return Err(Status::bad_request(format!(
            "the kind in the data ({kind}) does not match the expected kind ({})",
            resource.kind
        )));
    }
    Ok(())
}

fn no_namespace(api: &Api, namespace: &str) -> Status {
    match api.registry().find("", "v1", "namespaces") {
        Some(namespaces) => Status::not_found(namespaces, namespace),
        None => Status::no_such_path(),
    }
}

fn terminating(resource: &Resource, name: &str, namespace: &str) -> Status {
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut status = Status::forbidden(resource, name, why);
    if let Some(details) = &mut status.details {
        details.causes = vec![Cause::new(
            "NamespaceTerminating",
            "metadata.namespace",
            format!("namespace {namespace} is being terminated"),
        )];
    }
    status
}

impl Object {
    /// The answer to a dry run: an object that is in no store.
    pub(super) fn unstored(id: &Id, revision: u64, value: Value) -> Self {
        Self::new(&id.storage, path::key("", &id.key), revision, value)
    }
}
