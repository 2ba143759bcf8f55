//! Answers: objects, statuses, plain text.

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use crate::status::{Details, Status};

/// An answer with a JSON body.
pub(crate) fn json(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    typed(code, "application/json", body)
}

/// An answer with a JSON value.
pub(crate) fn value(code: StatusCode, value: &Value) -> Response<Body> {
    json(code, value.to_string())
}

/// An answer with a content type.
pub(crate) fn typed(
    code: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = code;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The answer that an error is.
pub(crate) fn error(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = value(code, &status.to_value());
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(retry));
    }
    response
}

/// The status of a success that has no object.
pub(crate) fn success(code: StatusCode, details: Option<&Details>) -> Response<Body> {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
    });
    match details {
        Some(d) => {
            status["details"] = json!({"name": d.name, "kind": d.kind, "uid": d.uid});
            if !d.group.is_empty() {
                status["details"]["group"] = d.group.as_str().into();
            }
        }
        None => status["code"] = code.as_u16().into(),
    }
    value(code, &status)
}
