//! Raw posts, and events: the same few fields for whoever tells them.

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

/// Posts `body` to `path`, as it is.
///
/// # Errors
/// Whatever the API server says.
pub async fn post(client: &Client, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// The object that an event is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// `v1`, `batch/v1`, …
    pub api_version: &'a str,
    /// `Pod`, `Job`, …
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The part of it, as `spec.containers{main}`; empty for all of it.
    pub field_path: &'a str,
}

/// An event (`v1`) that happens now. `kind` is `Normal` or `Warning`; `reporter` and `host` say who tells it and where.
/// Two of one object need distinct moments, which the clock's nanoseconds give.
pub fn event(
    about: About<'_>,
    kind: &str,
    reason: &str,
    message: &str,
    reporter: &str,
    host: &str,
) -> Value {
    let now = Timestamp::now();
    let seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut involved = json!({
        "apiVersion": about.api_version, "kind": about.kind, "namespace": about.namespace, "name": about.name,
        "uid": about.uid,
    });
    if !about.field_path.is_empty() {
        involved["fieldPath"] = about.field_path.into();
    }
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{}.{:x}", about.name, now.as_nanosecond()), "namespace": about.namespace},
        "involvedObject": involved,
        "type": kind, "reason": reason, "message": message, "count": 1,
        "firstTimestamp": seconds, "lastTimestamp": seconds,
        "source": {"component": reporter, "host": host},
        "reportingComponent": reporter, "reportingInstance": host,
    })
}

/// Posts an event. One that cannot be told is lost: nothing depends on it.
pub async fn tell(client: &Client, event: &Value) {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    if let Err(error) = post(client, &format!("/api/v1/namespaces/{namespace}/events"), event).await
    {
        tracing::debug!(event = %event["message"], %error, "event not written");
    }
}
