//! Writes and subresources.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use super::accept;
use super::answer;
use super::path::Target;
use super::query::{DeleteOptions, Query};
use super::read::one;
use super::selection::Selection;
use super::{BODY_LIMIT, Front};
use crate::api::{Deleted, Part, Write};
use crate::field::{self, object, set};
use crate::kinds::pods;
use crate::patch::{self, PatchKind};
use crate::resource::Scale;
use crate::status::{Details, Reason, Status};
use crate::store::Object;
use crate::{fresh, protobuf};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const BODIES: &[&str] = &["application/json", "application/yaml", PROTOBUF];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Reads a body up to the limit.
pub(super) async fn read_body(body: Body) -> Result<Bytes, Status> {
    axum::body::to_bytes(body, BODY_LIMIT).await.map_err(|_| {
        let message = format!("Request entity too large: limit is {BODY_LIMIT}");
        Status::new(Reason::RequestEntityTooLarge, message)
    })
}

/// The media type of the body, without parameters; JSON if none is stated.
fn media_type(headers: &HeaderMap) -> &str {
    let stated = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let kind = stated.and_then(|kind| kind.split(';').next()).map_or("", str::trim);
    if kind.is_empty() { "application/json" } else { kind }
}

/// Decodes a body by its content type. An empty body is null.
pub(super) fn decode(headers: &HeaderMap, body: &Bytes) -> Result<Value, Status> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    match media_type(headers) {
        "application/json" => serde_json::from_slice(body)
            .map_err(|e| Status::bad_request(format!("the body is not valid JSON: {e}"))),
        "application/yaml" => {
            let text = std::str::from_utf8(body)
                .map_err(|_| Status::bad_request("the body is not UTF-8"))?;
            serde_saphyr::from_str(text)
                .map_err(|e| Status::bad_request(format!("the body is not valid YAML: {e}")))
        }
        PROTOBUF => protobuf::to_json(body).map_err(|e| Status::bad_request(e.to_string())),
        _ => Err(Status::unsupported_media_type(BODIES)),
    }
}

/// How the query and the client want a write to be done.
fn write_of(query: &Query, headers: &HeaderMap) -> Result<Write, Status> {
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("unknown");
    let agent = agent.split(['/', ' ']).next().unwrap_or(agent);
    let validation = query.get("fieldValidation").unwrap_or("Ignore");
    if !matches!(validation, "Strict" | "Warn" | "Ignore") {
        return Err(Status::bad_request(format!(
            "fieldValidation: Unsupported value: {validation:?}: supported values: \"Ignore\", \"Warn\", \"Strict\""
        )));
    }
    Ok(Write {
        dry_run: query.dry_run()?,
        manager: query.get("fieldManager").unwrap_or(agent).to_owned(),
        strict: validation == "Strict",
        force: query.flag("force"),
        applies: false,
    })
}

impl Front {
    pub(super) async fn create(
        &self,
        target: Target,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let form = accept::form(&parts.headers)?;
        if target.resource.namespaced && target.namespace.is_empty() {
            return Err(Status::method_not_allowed());
        }
        let write = write_of(query, &parts.headers)?;
        let value = decode(&parts.headers, &read_body(body).await?)?;
        let made = self.api.create(&target, value, &write)?;
        one(StatusCode::CREATED, &target.resource, &form, query, &made)
    }

    pub(super) async fn put(
        &self,
        target: Target,
        name: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let form = accept::form(&parts.headers)?;
        let write = write_of(query, &parts.headers)?;
        let value = decode(&parts.headers, &read_body(body).await?)?;
        let part = part_of(&target)?;
        let updated = self.api.update(&target, name, part, &value, &write)?;
        one(StatusCode::OK, &target.resource, &form, query, &updated)
    }

    pub(super) async fn patch(
        &self,
        target: Target,
        name: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let form = accept::form(&parts.headers)?;
        let mut write = write_of(query, &parts.headers)?;
        let body = read_body(body).await?;
        let kind = patch_kind(&parts.headers)?;
        write.applies = kind == PatchKind::Apply;
        let part = part_of(&target)?;
        let resource = &target.resource;
        let subresource = target.subresource.as_deref().unwrap_or_default();
        let request = patch::Request {
            kind,
            body: &body,
            manager: &write.manager,
            force: write.force,
            strict: write.strict,
            subresource,
        };
        if kind == PatchKind::Apply {
            if query.get("fieldManager").is_none() {
                return Err(Status::bad_request(
                    "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
                ));
            }
            // Applying what does not exist creates it, unless somebody was faster: then it is changed.
            while self.api.get(&target, name).is_err() && subresource.is_empty() {
                let value = patch::apply(&request, &Value::Null, resource)?;
                let mut value = value;
                set(object(&mut value, "metadata"), "name", name);
                match self.api.create(&target, value, &write) {
                    Ok(made) => return one(StatusCode::CREATED, resource, &form, query, &made),
                    Err(status) if status.reason == Reason::AlreadyExists => {}
                    Err(status) => return Err(status),
                }
            }
        }
        let step = |current: &Value| patch::apply(&request, current, resource);
        let patched = self.api.modify(&target, name, part, &write, step)?;
        one(StatusCode::OK, resource, &form, query, &patched)
    }

    pub(super) async fn delete(
        &self,
        target: Target,
        name: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let form = accept::form(&parts.headers)?;
        let options =
            DeleteOptions::read(query, &decode(&parts.headers, &read_body(body).await?)?)?;
        let resource = &target.resource;
        match self.api.delete(&target, name, &options)? {
            Deleted::Going(object) => one(StatusCode::OK, resource, &form, query, &object),
            // As upstream: pods come back as they were, of other kinds their uid.
            Deleted::Gone(object) if resource.storage.as_ref() == "pods" => {
                one(StatusCode::OK, resource, &form, query, &object)
            }
            Deleted::Gone(object) => {
                let details = Details {
                    name: name.to_owned(),
                    group: resource.group.clone(),
                    kind: resource.plural.clone(),
                    uid: object.uid().to_owned(),
                    ..Details::default()
                };
                Ok(answer::success(StatusCode::OK, Some(&details)))
            }
        }
    }

    pub(super) async fn delete_all(
        &self,
        target: Target,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let options =
            DeleteOptions::read(query, &decode(&parts.headers, &read_body(body).await?)?)?;
        let resource = Arc::clone(&target.resource);
        if matches!(resource.storage.as_ref(), "namespaces" | "services")
            || (resource.namespaced && target.namespace.is_empty())
        {
            return Err(Status::method_not_allowed());
        }
        let selection = Selection::read(&target, query)?;
        let page = self.api.store.list(&resource.storage, &target.namespace, None);
        let mut deleted = Vec::new();
        for found in page.objects.iter().filter(|o| selection.selects(o)) {
            match self.api.delete(&target, found.name(), &options) {
                Ok(Deleted::Gone(object) | Deleted::Going(object)) => {
                    deleted.push(crate::api::shown(&resource, object.value()));
                }
                Err(status) if status.reason == Reason::NotFound => {}
                Err(status) => return Err(status),
            }
        }
        let list = json!({
            "kind": resource.list_kind, "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.api.store.revision().to_string()},
            "items": deleted,
        });
        Ok(answer::value(StatusCode::OK, &list))
    }

    pub(super) async fn subresource(
        &self,
        target: Target,
        name: &str,
        subresource: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let resource = Arc::clone(&target.resource);
        let pod = resource.storage.as_ref() == "pods";
        match (subresource, request.method().clone()) {
            ("status", method) if resource.status => match method {
                Method::GET => self.get(&target, name, query, request.headers()),
                Method::PUT => self.put(target, name, query, request).await,
                Method::PATCH => self.patch(target, name, query, request).await,
                _ => Err(Status::method_not_allowed()),
            },
            ("scale", method) if resource.scale.is_some() => {
                self.scale(target, name, &method, query, request).await
            }
            ("finalize", Method::PUT) if resource.storage.as_ref() == "namespaces" => {
                self.finalize(target, name, query, request).await
            }
            ("binding", Method::POST) if pod => self.bind(target, name, query, request).await,
            ("eviction", Method::POST) if pod => self.evict(target, name, query, request).await,
            ("log", Method::GET) if pod => self.log(&target, name, query, request).await,
            ("exec" | "attach", Method::GET | Method::POST) if pod => {
                self.exec(&target, name, subresource, query, request).await
            }
            ("token", Method::POST) if resource.storage.as_ref() == "serviceaccounts" => {
                self.token(&target, name, request).await
            }
            _ if resource.others.iter().any(|s| s.name == subresource) => {
                Err(Status::method_not_allowed())
            }
            _ => Err(Status::no_such_path()),
        }
    }

    async fn bind(
        &self,
        target: Target,
        name: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let write = write_of(query, &parts.headers)?;
        let binding = decode(&parts.headers, &read_body(body).await?)?;
        let resource = Arc::clone(&target.resource);
        let step = |pod: &Value| pods::bind(&resource, pod, &binding);
        self.api.modify(&target, name, Part::Own("binding"), &write, step)?;
        Ok(answer::success(StatusCode::CREATED, None))
    }

    async fn evict(
        &self,
        target: Target,
        name: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let eviction = decode(&parts.headers, &read_body(body).await?)?;
        let mut options = DeleteOptions::read(query, &eviction["deleteOptions"])?;
        options.dry_run |= query.dry_run()?;
        let pod = self.api.get(&target, name)?.value();
        pods::check_budgets(&self.api.store, &pod)?;
        self.api.delete(&target, name, &options)?;
        Ok(answer::success(StatusCode::CREATED, None))
    }

    /// The namespace's own finalizers, which nothing else can change.
    async fn finalize(
        &self,
        target: Target,
        name: &str,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let form = accept::form(&parts.headers)?;
        let write = write_of(query, &parts.headers)?;
        let value = decode(&parts.headers, &read_body(body).await?)?;
        let step = |current: &Value| {
            let mut next = current.clone();
            field::copy(&value["spec"], object(&mut next, "spec"), "finalizers");
            field::copy(&value["metadata"], object(&mut next, "metadata"), "resourceVersion");
            Ok(next)
        };
        let changed = self.api.modify(&target, name, Part::Own("finalize"), &write, step)?;
        one(StatusCode::OK, &target.resource, &form, query, &changed)
    }

    async fn scale(
        &self,
        target: Target,
        name: &str,
        method: &Method,
        query: &Query,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        let resource = Arc::clone(&target.resource);
        let Some(paths) = resource.scale.clone() else { return Err(Status::no_such_path()) };
        if *method == Method::GET {
            let found = self.api.get(&target, name)?;
            return Ok(answer::value(StatusCode::OK, &scale_of(&found, &paths)));
        }
        let write = write_of(query, &parts.headers)?;
        let body = read_body(body).await?;
        let wanted = |current: &Value| -> Result<Value, Status> {
            if *method == Method::PUT {
                return decode(&parts.headers, &body);
            }
            if *method != Method::PATCH {
                return Err(Status::method_not_allowed());
            }
            let request = patch::Request {
                kind: patch_kind(&parts.headers)?,
                body: &body,
                manager: &write.manager,
                force: write.force,
                strict: false,
                subresource: "scale",
            };
            patch::apply(&request, current, &resource)
        };
        let step = |current: &Value| {
            let scale = wanted(&scale_value(current, &paths))?;
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            if replicas < 0 {
                let cause = crate::status::Cause::invalid(
                    "spec.replicas",
                    &scale["spec"]["replicas"],
                    "must be greater than or equal to 0",
                );
                return Err(Status::invalid(&resource, name, vec![cause]));
            }
            let mut next = current.clone();
            let stated = field::text(&scale, &["metadata", "resourceVersion"]);
            if !stated.is_empty() {
                set(object(&mut next, "metadata"), "resourceVersion", stated);
            }
            put(&mut next, &paths.spec_replicas, replicas.into());
            Ok(next)
        };
        let changed = self.api.modify(&target, name, Part::Main, &write, step)?;
        Ok(answer::value(StatusCode::OK, &scale_of(&changed, &paths)))
    }

    async fn token(
        &self,
        target: &Target,
        name: &str,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        self.api.get(target, name)?;
        let (parts, body) = request.into_parts();
        let mut wanted = decode(&parts.headers, &read_body(body).await?)?;
        let seconds = wanted["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        set(
            &mut wanted,
            "status",
            json!({"token": self.api.token, "expirationTimestamp": fresh::second(until)}),
        );
        set(&mut wanted, "kind", "TokenRequest");
        set(&mut wanted, "apiVersion", "authentication.k8s.io/v1");
        Ok(answer::value(StatusCode::CREATED, &wanted))
    }
}

fn part_of(target: &Target) -> Result<Part, Status> {
    match target.subresource.as_deref() {
        None => Ok(Part::Main),
        Some("status") => Ok(Part::Status),
        Some(_) => Err(Status::no_such_path()),
    }
}

fn patch_kind(headers: &HeaderMap) -> Result<PatchKind, Status> {
    match media_type(headers) {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ => Err(Status::unsupported_media_type(PATCHES)),
    }
}

fn scale_of(object: &Object, paths: &Scale) -> Value {
    scale_value(&object.value(), paths)
}

fn scale_value(value: &Value, paths: &Scale) -> Value {
    let at = |path: &[String]| path.iter().fold(value, |value, name| &value[name]);
    let metadata = &value["metadata"];
    let mut kept = Map::new();
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(field) = metadata.get(name) {
            kept.insert(name.to_owned(), field.clone());
        }
    }
    let mut status = json!({"replicas": at(&paths.status_replicas).as_i64().unwrap_or(0)});
    let selector = paths.selector.as_deref().map(at).unwrap_or(&Value::Null);
    let text = match selector {
        Value::String(text) => Some(text.clone()),
        Value::Object(selector) => {
            let labels = selector.get("matchLabels").and_then(Value::as_object);
            let pairs = labels.unwrap_or(selector).iter();
            let pairs = pairs.filter_map(|(k, v)| Some(format!("{k}={}", v.as_str()?)));
            Some(pairs.collect::<Vec<_>>().join(","))
        }
        _ => None,
    };
    if let Some(text) = text {
        status["selector"] = text.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept,
        "spec": {"replicas": at(&paths.spec_replicas).as_i64().unwrap_or(0)},
        "status": status,
    })
}

fn put(value: &mut Value, path: &[String], new: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().fold(value, |value, name| object(value, name));
    set(parent, last, new);
}
