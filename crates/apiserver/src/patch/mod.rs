//! The four kinds of patch.

mod apply;
mod fields;
mod strategic;
mod unknown;

use serde_json::Value;

pub(crate) use apply::track;
pub(crate) use unknown::check as check_unknown_fields;

use crate::resource::Resource;
use crate::status::{Reason, Status};

/// How a patch's body is meant, by its content type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// `application/json-patch+json`: a list of operations.
    Json,
    /// `application/merge-patch+json`: fields that replace, nulls that remove.
    Merge,
    /// `application/strategic-merge-patch+json`: the same, with lists merged by key.
    Strategic,
    /// `application/apply-patch+yaml`: what a manager wants, server-side.
    Apply,
}

/// A patch.
pub(crate) struct Request<'a> {
    pub(crate) kind: PatchKind,
    pub(crate) body: &'a [u8],
    pub(crate) manager: &'a str,
    pub(crate) force: bool,
    pub(crate) strict: bool,
    pub(crate) subresource: &'a str,
}

/// The object that a patch makes of `current`. A null `current` is an object that is not there; only an apply takes it.
///
/// # Errors
/// `BadRequest` for a body that is no such patch, `Invalid` for operations that do not fit, `Conflict` with other managers.
pub(crate) fn apply(
    request: &Request<'_>,
    current: &Value,
    resource: &Resource,
) -> Result<Value, Status> {
    let malformed =
        |why: &dyn std::fmt::Display| Status::bad_request(format!("error decoding patch: {why}"));
    if request.kind == PatchKind::Apply {
        let text = std::str::from_utf8(request.body).map_err(|e| malformed(&e))?;
        let wanted: Value = serde_saphyr::from_str(text).map_err(|e| malformed(&e))?;
        if request.strict {
            unknown::check(resource, &wanted)?;
        }
        return apply::apply(request, &wanted, current, resource);
    }
    let body: Value = serde_json::from_slice(request.body).map_err(|e| malformed(&e))?;
    let mut next = current.clone();
    match request.kind {
        PatchKind::Json => {
            let patch: json_patch::Patch =
                serde_json::from_value(body).map_err(|e| malformed(&e))?;
            json_patch::patch(&mut next, &patch).map_err(|error| {
                let why = format!(
                    "the server rejected our request due to an error in our request: {error}"
                );
                Status::new(Reason::Invalid, why)
            })?;
        }
        PatchKind::Merge => json_patch::merge(&mut next, &body),
        PatchKind::Strategic if resource.is_custom() => {
            return Err(Status::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
        PatchKind::Strategic => strategic::merge(&resource.merge, &mut next, &body)?,
        PatchKind::Apply => unreachable!("answered above"),
    }
    if request.strict {
        unknown::check(resource, &next)?;
    }
    Ok(next)
}
