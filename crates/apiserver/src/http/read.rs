//! Reads: one object, or a list.

use std::sync::Arc;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::Front;
use super::accept::{self, Form};
use super::answer;
use super::path::Target;
use super::query::Query;
use super::selection::Selection;
use crate::api::{shown, shown_json};
use crate::resource::Resource;
use crate::status::{Cause, Details, Reason, Status};
use crate::store::Object;
use crate::table::{self, Include};

/// Where a list stopped.
#[derive(Debug)]
struct Continue {
    /// The revision of the first part.
    revision: u64,
    /// The last key that was given.
    after: String,
}

impl Continue {
    fn read(text: &str) -> Result<Self, Status> {
        let wrong = || Status::bad_request("continue key is not valid: cannot be decoded");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let revision = value["rv"].as_u64().ok_or_else(wrong)?;
        let after = value["after"].as_str().ok_or_else(wrong)?.to_owned();
        Ok(Self { revision, after })
    }

    fn text(&self) -> String {
        let value = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "after": self.after});
        URL_SAFE_NO_PAD.encode(value.to_string())
    }
}

impl Front {
    pub(super) fn get(
        &self,
        target: &Target,
        name: &str,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Status> {
        let form = accept::form(headers)?;
        self.check_revision(query)?;
        let object = self.api.get(target, name)?;
        one(StatusCode::OK, &target.resource, &form, query, &object)
    }

    pub(super) fn list(
        &self,
        target: &Target,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Status> {
        let form = accept::form(headers)?;
        let selection = Selection::read(target, query)?;
        let start = query.get("continue").map(Continue::read).transpose()?;
        if start.is_none() {
            self.check_revision(query)?;
        }
        let resource = &target.resource;
        let after = start.as_ref().map(|start| start.after.as_str());
        let page = self.api.store.list(&resource.storage, &target.namespace, after);
        let mut objects = page.objects;
        objects.retain(|object| selection.selects(object));
        // Parts of one list state the revision of the first: a watch from there sees what changed in between.
        let revision = start.map_or(page.revision, |start| start.revision);
        let limit = query.number("limit")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if limit > 0 && objects.len() > limit {
            let rest = objects.len() - limit;
            objects.truncate(limit);
            if let Some(last) = objects.last() {
                let next = Continue { revision, after: last.key.clone() };
                meta["continue"] = next.text().into();
            }
            if query.get("labelSelector").is_none() && query.get("fieldSelector").is_none() {
                meta["remainingItemCount"] = rest.into();
            }
        }
        let body = match form {
            Form::Table(version) => {
                let include = Include::read(query.get("includeObject"))?;
                let rows = objects.iter().map(|o| shown(resource, o.value()));
                let table = table::table(resource, &version, meta, rows, include, true);
                return Ok(answer::value(StatusCode::OK, &table));
            }
            Form::Metadata(version) => {
                let items: Vec<Value> = objects
                    .iter()
                    .map(|o| table::partial(&shown(resource, o.value()), &version))
                    .collect();
                let list = json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": meta,
                    "items": items,
                });
                return Ok(answer::value(StatusCode::OK, &list));
            }
            Form::Object | Form::Discovery(_) => list_json(resource, &meta, &objects),
        };
        Ok(answer::json(StatusCode::OK, body))
    }

    /// Refuses what cannot be read: the past exactly, or the future.
    pub(super) fn check_revision(&self, query: &Query) -> Result<(), Status> {
        let Some(wanted) = query.revision("resourceVersion")? else { return Ok(()) };
        let present = self.api.store.revision();
        if wanted > present {
            return Err(future(wanted, present));
        }
        let exact = query.get("resourceVersionMatch") == Some("Exact");
        if exact && wanted != present {
            return Err(Status::expired(wanted, present));
        }
        Ok(())
    }
}

/// 504 of a revision that is not reached.
pub(super) fn future(wanted: u64, present: u64) -> Status {
    let message = format!("Too large resource version: {wanted}, current: {present}");
    let cause = Cause::new("ResourceVersionTooLarge", "", "Too large resource version");
    Status::new(Reason::Timeout, format!("Timeout: {message}")).with_details(Details {
        causes: vec![cause],
        retry_after_seconds: 1,
        ..Details::default()
    })
}

fn list_json(resource: &Resource, meta: &Value, objects: &[Arc<Object>]) -> BytesMut {
    let size: usize = objects.iter().map(|o| o.json.len() + 1).sum();
    let mut body = BytesMut::with_capacity(size + 256);
    let head = format!(
        "{{\"kind\":{:?},\"apiVersion\":{:?},\"metadata\":{meta},\"items\":[",
        resource.list_kind,
        resource.api_version()
    );
    body.put_slice(head.as_bytes());
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            body.put_u8(b',');
        }
        body.put_slice(&shown_json(resource, object));
    }
    body.put_slice(b"]}\n");
    body
}

/// One object in the form that the client asked for.
pub(super) fn one(
    code: StatusCode,
    resource: &Resource,
    form: &Form,
    query: &Query,
    object: &Object,
) -> Result<Response<Body>, Status> {
    match form {
        Form::Table(version) => {
            let include = Include::read(query.get("includeObject"))?;
            let meta = json!({"resourceVersion": object.revision.to_string()});
            let rows = [shown(resource, object.value())].into_iter();
            let table = table::table(resource, version, meta, rows, include, true);
            Ok(answer::value(code, &table))
        }
        Form::Metadata(version) => {
            let partial = table::partial(&shown(resource, object.value()), version);
            Ok(answer::value(code, &partial))
        }
        Form::Object | Form::Discovery(_) => Ok(answer::json(code, shown_json(resource, object))),
    }
}
