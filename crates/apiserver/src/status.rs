//! The error of every request: Kubernetes' `Status` object, with upstream's reasons, codes and texts.
//!
//! Clients match on more than the code: kubectl prints `Error from server (REASON): MESSAGE`, and Arena compares that
//! prefix. The constructors therefore take the facts and build the text themselves.

use std::fmt;

use serde_json::{Value, json};

use crate::resource::Resource;

/// A machine-readable reason; each has one HTTP code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// 400: the request cannot be understood.
    BadRequest,
    /// 401: no valid bearer token.
    Unauthorized,
    /// 403: the request is understood and refused.
    Forbidden,
    /// 404: no such object, or no such resource.
    NotFound,
    /// 405: the resource lacks the verb.
    MethodNotAllowed,
    /// 406: none of the accepted content types can be produced.
    NotAcceptable,
    /// 409: the name is taken.
    AlreadyExists,
    /// 409: the object moved on, a precondition failed, or another manager owns a field.
    Conflict,
    /// 410: the resource version asked for is no longer held.
    Expired,
    /// 413: the body is larger than the limit.
    RequestEntityTooLarge,
    /// 415: the body's content type is not known.
    UnsupportedMediaType,
    /// 422: the object is well formed and wrong.
    Invalid,
    /// 429: try again later.
    TooManyRequests,
    /// 500: something this server did not expect, or a kubelet that does not answer.
    InternalError,
    /// 501: part of the API that this server does not have.
    NotImplemented,
    /// 504: the awaited state was not reached.
    Timeout,
}

impl Reason {
    /// The HTTP status code.
    pub fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError => 500,
            Self::NotImplemented => 501,
            Self::Timeout => 504,
        }
    }

    /// The reason as it is spelled on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::NotImplemented => "NotImplemented",
            Self::Timeout => "Timeout",
        }
    }
}

/// One thing that is wrong with an object, at one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldManagerConflict`, …
    pub reason: String,
    /// What is wrong, without the field's path.
    pub message: String,
    /// The field's path, e.g. `spec.containers[0].name`.
    pub field: String,
}

impl Cause {
    /// A field that must be set and is not. `detail` may be empty.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, text("Required value", detail))
    }

    /// A field whose value is wrong; `value` is shown as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, text(&format!("Invalid value: {value}"), detail))
    }

    /// A field whose value is none of `supported`.
    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", list.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    /// A field that may not be set, or may not change.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, text("Forbidden", detail))
    }

    /// A list entry whose key was seen before.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
    }

    /// A cause with its own reason.
    pub fn new(
        reason: impl Into<String>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { reason: reason.into(), message: message.into(), field: field.into() }
    }
}

fn text(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Which object a [`Status`] speaks of, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// The object's name; may be empty.
    pub name: String,
    /// The API group; empty for core.
    pub group: String,
    /// The plural for most reasons, the kind for `Invalid`, as upstream.
    pub kind: String,
    /// The object's uid, when it is known.
    pub uid: String,
    /// Field by field, what is wrong.
    pub causes: Vec<Cause>,
    /// When to try again; zero says nothing.
    pub retry_after_seconds: u32,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The reason, which gives the HTTP code.
    pub reason: Reason,
    /// The sentence that people read.
    pub message: String,
    /// The object it is about.
    pub details: Option<Box<Details>>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Status {
    /// A status without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), details: None }
    }

    /// 400 with a message of the caller's.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 500 with a message of the caller's.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Reason::InternalError, format!("Internal error occurred: {message}"))
    }

    /// 404 of a path that no resource answers.
    pub fn no_such_path() -> Self {
        Self::new(Reason::NotFound, "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// 405: the path exists, the verb does not.
    pub fn method_not_allowed() -> Self {
        Self::new(
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .with_details(Details::default())
    }

    /// 404 of an object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.qualified());
        Self::new(Reason::NotFound, message).about(resource, name)
    }

    /// 409 of a create under a name in use.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Self::new(Reason::AlreadyExists, message).about(resource, name)
    }

    /// 409 of a write; `why` follows the colon.
    pub fn conflict(resource: &Resource, name: &str, why: impl fmt::Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        Self::new(Reason::Conflict, message).about(resource, name)
    }

    /// 409 of a write whose resource version is not the stored one.
    pub fn stale(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(resource, name, why)
    }

    /// 403 of a write; `why` follows the colon.
    pub fn forbidden(resource: &Resource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", resource.qualified());
        Self::new(Reason::Forbidden, message).about(resource, name)
    }

    /// 422: what is wrong with an object, field by field. `causes` must not be empty.
    pub fn invalid(resource: &Resource, name: &str, causes: Vec<Cause>) -> Self {
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        Self::new(Reason::Invalid, format!("{kind} {name:?} is invalid: {list}")).with_details(
            Details {
                name: name.to_owned(),
                group: resource.group.clone(),
                kind: resource.kind.clone(),
                causes,
                ..Details::default()
            },
        )
    }

    /// 409 of a server-side apply: `conflicts` is one cause per field, with reason `FieldManagerConflict`, message
    /// `conflict with "MANAGER" …` and the field's path.
    pub fn apply_conflict(conflicts: Vec<Cause>) -> Self {
        let noun = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
        let mut message = format!("Apply failed with {} {noun}: ", conflicts.len());
        if let [one] = conflicts.as_slice() {
            message.push_str(&format!("{}: {}", one.message, one.field));
        } else {
            // Upstream groups the fields under each manager, one per line.
            let mut managers: Vec<&str> = conflicts.iter().map(|c| c.message.as_str()).collect();
            managers.dedup();
            let groups: Vec<String> = managers
                .iter()
                .map(|m| {
                    let fields = conflicts.iter().filter(|c| c.message == *m);
                    let lines: Vec<String> = fields.map(|c| format!("\n- {}", c.field)).collect();
                    format!("{}:{}", m.replacen("conflict ", "conflicts ", 1), lines.concat())
                })
                .collect();
            message.push_str(&groups.join("\n"));
        }
        Self::new(Reason::Conflict, message)
            .with_details(Details { causes: conflicts, ..Details::default() })
    }

    /// 415 of a body; `supported` are the content types that would do.
    pub fn unsupported_media_type(supported: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            supported.join(", ")
        );
        Self::new(Reason::UnsupportedMediaType, message)
    }

    /// 410: watch or continue from a version that is gone.
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(Reason::Expired, format!("too old resource version: {asked} ({oldest})"))
    }

    /// Adds details, replacing earlier ones.
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Says which object it is about.
    pub fn about(self, resource: &Resource, name: &str) -> Self {
        self.with_details(Details {
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.plural.clone(),
            ..Details::default()
        })
    }

    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.reason.code()
    }

    /// The object as it is sent.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason.as_str(), "code": self.code(),
        });
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut map = serde_json::Map::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                map.insert(key.to_owned(), Value::from(text.as_str()));
            }
        }
        if !self.causes.is_empty() {
            let causes = self
                .causes
                .iter()
                .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}));
            map.insert("causes".to_owned(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            map.insert("retryAfterSeconds".to_owned(), Value::from(self.retry_after_seconds));
        }
        Value::Object(map)
    }
}
