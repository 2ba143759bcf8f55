//! What a request's path names.

use std::sync::Arc;

use crate::resource::{Registry, Resource};
use crate::status::Status;

/// What a path names.
#[derive(Debug, Clone)]
pub(crate) enum Path {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    Resources(String, String),
    /// A resource, an object, or a subresource of one.
    Target(Target),
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiV3,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`
    OpenApiV3Of(String, String),
    /// `/version`
    Version,
    /// `/healthz`, `/livez`, `/readyz` and what is below them.
    Health,
}

/// A resource, an object, or a subresource of one.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    /// Empty for cluster-wide resources, and for lists over all namespaces.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// The key in the store of the object called `name`.
    pub(crate) fn key(&self, name: &str) -> String {
        key(&self.namespace, name)
    }
}

/// The store's key of an object.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Reads a path.
pub(crate) fn parse(path: &str, registry: &Registry) -> Result<Path, Status> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(Path::Health),
        ["version"] => Ok(Path::Version),
        ["openapi", "v2"] => Ok(Path::OpenApiV2),
        ["openapi", "v3"] => Ok(Path::OpenApiV3),
        ["openapi", "v3", "api", version] => {
            Ok(Path::OpenApiV3Of(String::new(), (*version).to_owned()))
        }
        ["openapi", "v3", "apis", group, version] => {
            Ok(Path::OpenApiV3Of((*group).to_owned(), (*version).to_owned()))
        }
        ["api"] => Ok(Path::CoreVersions),
        ["apis"] => Ok(Path::Groups),
        ["apis", group] => Ok(Path::Group((*group).to_owned())),
        ["api", version, rest @ ..] => below("", version, rest, registry),
        ["apis", group, version, rest @ ..] => below(group, version, rest, registry),
        _ => Err(Status::no_such_path()),
    }
}

fn below(group: &str, version: &str, rest: &[&str], registry: &Registry) -> Result<Path, Status> {
    let (namespace, rest) = match rest {
        [] => return Ok(Path::Resources(group.to_owned(), version.to_owned())),
        // `namespaces/NAME/status` is the namespace's own.
        ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, below @ ..] if !below.is_empty() => (*namespace, below),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some((*name).to_owned()), None),
        [plural, name, sub] => (plural, Some((*name).to_owned()), Some((*sub).to_owned())),
        _ => return Err(Status::no_such_path()),
    };
    let resource = registry.find(group, version, plural).ok_or_else(Status::no_such_path)?;
    // Objects with namespace are reached through it; only lists go over all of them.
    if resource.namespaced == namespace.is_empty() && (name.is_some() || !resource.namespaced) {
        return Err(Status::no_such_path());
    }
    let name = name.map(|name| decode(&name));
    Ok(Path::Target(Target {
        resource: Arc::clone(resource),
        namespace: namespace.to_owned(),
        name,
        subresource,
    }))
}

/// RBAC names may hold colons, which some clients escape.
fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = (first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|two| std::str::from_utf8(two).ok())
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        match hex {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}
