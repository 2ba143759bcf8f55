//! Discovery: which groups, versions and resources are served.

use axum::body::Body;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use crate::resource::{Registry, Resource, group_version};
use crate::status::Status;

/// The Kubernetes version whose API this is.
const MINOR: &str = "37";

/// `/version`
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": format!("v1.{MINOR}.0+ringmaster"),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `/api`
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

/// `/apis`
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry
        .groups()
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_value(group, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`
pub(crate) fn group(registry: &Registry, name: &str) -> Result<Value, Status> {
    let groups = registry.groups();
    let (group, versions) =
        groups.iter().find(|(group, _)| group == name).ok_or_else(Status::no_such_path)?;
    let mut value = group_value(group, versions);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Ok(value)
}

fn group_value(group: &str, versions: &[String]) -> Value {
    let version = |v: &String| json!({"groupVersion": group_version(group, v), "version": v});
    json!({
        "name": group,
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version),
    })
}

/// `/api/v1`, `/apis/GROUP/VERSION`
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Result<Value, Status> {
    if !registry.has_version(group, version) {
        return Err(Status::no_such_path());
    }
    let mut list = Vec::new();
    for resource in registry.all().filter(|r| r.group == group && r.version == version) {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs.names(),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        list.push(entry);
        for sub in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if (sub.group, sub.version) != (group, version) {
                entry["group"] = sub.group.into();
                entry["version"] = sub.version.into();
            }
            list.push(entry);
        }
    }
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": list,
    }))
}

/// A subresource as discovery shows it.
struct Shown<'a> {
    name: &'a str,
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    verbs: &'a [&'a str],
}

fn subresources(resource: &Resource) -> Vec<Shown<'_>> {
    let mut list = Vec::new();
    if resource.scale.is_some() {
        list.push(Shown {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind: "Scale",
            verbs: &["get", "patch", "update"],
        });
    }
    if resource.status {
        list.push(Shown {
            name: "status",
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
            verbs: &["get", "patch", "update"],
        });
    }
    list.extend(resource.others.iter().map(|sub| Shown {
        name: sub.name,
        group: sub.body.0,
        version: sub.body.1,
        kind: sub.body.2,
        verbs: sub.verbs,
    }));
    list
}

/// `/api` and `/apis` in one document, as clients since 1.26 ask.
pub(crate) fn aggregated(registry: &Registry, core: bool, version: &str) -> Value {
    let items: Vec<Value> = registry
        .groups()
        .iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> =
                versions.iter().map(|v| aggregated_version(registry, group, v)).collect();
            let metadata = if core { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_version(registry: &Registry, group: &str, version: &str) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let resources: Vec<Value> = registry
        .all()
        .filter(|r| r.group == group && r.version == version)
        .map(|resource| {
            let subresources: Vec<Value> = subresources(resource)
                .iter()
                .map(|sub| {
                    json!({
                        "subresource": sub.name,
                        "responseKind": kind(sub.group, sub.version, sub.kind),
                        "verbs": sub.verbs,
                    })
                })
                .collect();
            let mut entry = json!({
                "resource": resource.plural,
                "responseKind": kind(group, version, &resource.kind),
                "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": resource.singular,
                "verbs": resource.verbs.names(),
            });
            if !resource.short_names.is_empty() {
                entry["shortNames"] = json!(resource.short_names);
            }
            if !resource.categories.is_empty() {
                entry["categories"] = json!(resource.categories);
            }
            if !subresources.is_empty() {
                entry["subresources"] = subresources.into();
            }
            entry
        })
        .collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

/// Clients recognise the aggregated form by the content type alone.
pub(crate) fn answer(version: &str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::OK;
    let kind =
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    if let Ok(kind) = kind.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}
