//! The verbs on objects, below HTTP: what a create, an update, a deletion does to the store.

mod create;
mod delete;
mod update;

use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) use delete::{Deleted, FOREGROUND, ORPHAN};
pub(crate) use update::Part;

use crate::http::path::Target;
use crate::kinds::reviews::User;
use crate::kinds::{definitions, events};
use crate::patch;
use crate::resource::{Registry, Resource};
use crate::status::Status;
use crate::store::{Change, Id, Object, Store};

/// Every change, with its storage.
pub(crate) type Feed = mpsc::UnboundedReceiver<(Arc<str>, Arc<Change>)>;

/// The API: objects, what is served of them, and who may ask.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) store: Store,
    registry: RwLock<Arc<Registry>>,
    /// The certificate authority in PEM, which every namespace's `kube-root-ca.crt` holds.
    ca: String,
    /// The bearer token of the kubeconfig.
    pub(crate) token: String,
}

/// How a write is to be done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Write {
    /// Do everything but the write.
    pub(crate) dry_run: bool,
    /// Who is noted as the manager of the fields.
    pub(crate) manager: String,
    /// What becomes of fields that the kind does not have.
    pub(crate) strict: bool,
    /// Take fields from their managers (server-side apply).
    pub(crate) force: bool,
    /// It is a server-side apply, which has noted its manager itself.
    pub(crate) applies: bool,
}

impl Api {
    /// An API without objects; [`Self::bootstrap`] makes the first ones.
    pub(crate) fn new(ca: String, token: String) -> (Arc<Self>, Feed) {
        let (store, feed) = Store::new();
        let registry = RwLock::new(Arc::new(Registry::builtin()));
        (Arc::new(Self { store, registry, ca, token }), feed)
    }

    /// What is served now.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read())
    }

    /// Whose a bearer token is.
    pub(crate) fn user(&self, token: &str) -> Option<User> {
        (token == self.token).then(User::admin)
    }

    /// The stored object.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn get(&self, target: &Target, name: &str) -> Result<Arc<Object>, Status> {
        self.store
            .get(&target.resource.storage, &target.key(name))
            .ok_or_else(|| Status::not_found(&target.resource, name))
    }

    /// After a write: what the object's kind makes of it at once.
    fn settle(&self, resource: &Resource, object: &Object) {
        match resource.storage.as_ref() {
            definitions::STORAGE => self.register(object.name(), &object.value()),
            "namespaces" if !object.is_terminating() => self.furnish(object.name()),
            _ => {}
        }
    }

    /// Serves what a definition says; one without versions serves nothing.
    fn register(&self, name: &str, definition: &Value) {
        let resources = definitions::resources(definition);
        let mut registry = self.registry.write();
        *registry = Arc::new(registry.with_definition(name, resources));
    }
}

impl Target {
    /// Where the object called `name` is stored.
    pub(crate) fn id(&self, name: &str) -> Id {
        Id { storage: Arc::clone(&self.resource.storage), key: self.key(name) }
    }
}

/// Whether the resource shows objects as they are stored.
fn is_stored_form(resource: &Resource) -> bool {
    resource.storage_version == resource.api_version()
}

/// A stored object as `resource` shows it.
pub(crate) fn shown(resource: &Resource, mut value: Value) -> Value {
    if is_stored_form(resource) {
        return value;
    }
    if resource.storage.as_ref() == "events" {
        events::to_new(&mut value);
    } else {
        value["apiVersion"] = resource.api_version().into();
    }
    value
}

/// The JSON of a stored object as `resource` shows it.
pub(crate) fn shown_json(resource: &Resource, object: &Object) -> bytes::Bytes {
    if is_stored_form(resource) {
        object.json.clone()
    } else {
        shown(resource, object.value()).to_string().into()
    }
}

/// An object that came in through `resource` as it is stored.
fn stored(resource: &Resource, mut value: Value) -> Value {
    if resource.storage.as_ref() == "events" && !is_stored_form(resource) {
        events::to_core(&mut value);
    }
    value["apiVersion"] = resource.storage_version.as_str().into();
    value["kind"] = resource.kind.as_str().into();
    value
}

/// Refuses fields that the kind does not have, when the client asked for that.
fn check_fields(resource: &Resource, value: &Value, write: &Write) -> Result<(), Status> {
    if write.strict { patch::check_unknown_fields(resource, value) } else { Ok(()) }
}
