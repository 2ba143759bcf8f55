//! Fields that a kind does not have, for clients that want to hear of them (`fieldValidation=Strict`).

use k8s_openapi::api as k8s;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::resource::Resource;
use crate::status::Status;

/// # Errors
/// `BadRequest`, in upstream's words, naming the unknown fields or the one of a wrong type.
pub(crate) fn check(resource: &Resource, value: &Value) -> Result<(), Status> {
    let mut unknown = Vec::new();
    match &resource.schema {
        Some(schema) => against_schema(schema, value, "", &mut unknown),
        None => {
            let read = read_again(resource, value).map_err(|problem| {
                let kind = &resource.kind;
                Status::bad_request(format!(
                    "{kind} in version {:?} cannot be handled as a {kind}: json: {problem}",
                    resource.version
                ))
            })?;
            if let Some(read) = read {
                lost(value, &read, "", &mut unknown);
            }
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let fields: Vec<String> =
        unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    Err(Status::bad_request(format!("strict decoding error: {}", fields.join(", "))))
}

/// Reads the value as upstream's type and writes it again, which loses what the type does not have. `None` for kinds whose
/// type is not known here.
fn read_again(resource: &Resource, value: &Value) -> Result<Option<Value>, serde_json::Error> {
    fn again<K: Serialize + DeserializeOwned>(
        value: &Value,
    ) -> Result<Option<Value>, serde_json::Error> {
        let typed: K = serde_json::from_value(value.clone())?;
        serde_json::to_value(typed).map(Some)
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "ConfigMap") => again::<k8s::core::v1::ConfigMap>(value),
        ("", "Namespace") => again::<k8s::core::v1::Namespace>(value),
        ("", "Node") => again::<k8s::core::v1::Node>(value),
        ("", "PersistentVolumeClaim") => again::<k8s::core::v1::PersistentVolumeClaim>(value),
        ("", "Pod") => again::<k8s::core::v1::Pod>(value),
        ("", "Secret") => again::<k8s::core::v1::Secret>(value),
        ("", "Service") => again::<k8s::core::v1::Service>(value),
        ("", "ServiceAccount") => again::<k8s::core::v1::ServiceAccount>(value),
        ("apps", "DaemonSet") => again::<k8s::apps::v1::DaemonSet>(value),
        ("apps", "Deployment") => again::<k8s::apps::v1::Deployment>(value),
        ("apps", "ReplicaSet") => again::<k8s::apps::v1::ReplicaSet>(value),
        ("apps", "StatefulSet") => again::<k8s::apps::v1::StatefulSet>(value),
        ("batch", "CronJob") => again::<k8s::batch::v1::CronJob>(value),
        ("batch", "Job") => again::<k8s::batch::v1::Job>(value),
        ("coordination.k8s.io", "Lease") => again::<k8s::coordination::v1::Lease>(value),
        ("policy", "PodDisruptionBudget") => again::<k8s::policy::v1::PodDisruptionBudget>(value),
        ("rbac.authorization.k8s.io", "ClusterRole") => again::<k8s::rbac::v1::ClusterRole>(value),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => {
            again::<k8s::rbac::v1::ClusterRoleBinding>(value)
        }
        ("rbac.authorization.k8s.io", "Role") => again::<k8s::rbac::v1::Role>(value),
        ("rbac.authorization.k8s.io", "RoleBinding") => again::<k8s::rbac::v1::RoleBinding>(value),
        ("scheduling.k8s.io", "PriorityClass") => {
            again::<k8s::scheduling::v1::PriorityClass>(value)
        }
        _ => Ok(None),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether nothing is said: what a type leaves out when it writes.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Array(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Fields that are in `given` and not in `read`.
fn lost(given: &Value, read: &Value, path: &str, unknown: &mut Vec<String>) {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            for (name, value) in given {
                match read.get(name) {
                    Some(read) => lost(value, read, &join(path, name), unknown),
                    None if is_nothing(value) => {}
                    None => unknown.push(join(path, name)),
                }
            }
        }
        (Value::Array(given), Value::Array(read)) => {
            for (index, (given, read)) in given.iter().zip(read).enumerate() {
                lost(given, read, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

fn against_schema(schema: &Value, value: &Value, path: &str, unknown: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["x-kubernetes-embedded-resource"] == true
    {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // Every object has these, whatever its schema says.
                if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let known = &schema["properties"][name];
                let known = if known.is_object() { known } else { &schema["additionalProperties"] };
                match known {
                    Value::Object(_) => against_schema(known, value, &join(path, name), unknown),
                    Value::Bool(true) => {}
                    _ => unknown.push(join(path, name)),
                }
            }
        }
        Value::Array(entries) => {
            for (index, value) in entries.iter().enumerate() {
                against_schema(&schema["items"], value, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Registry;

    #[test]
    fn unknown_fields_of_built_in_kinds_are_named() {
        let pods = Registry::builtin();
        let pods = pods.find("", "v1", "pods").unwrap();
        let pod = |extra: Value| {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {}, "args": []}]}});
            json_patch::merge(&mut pod, &extra);
            check(pods, &pod).map_err(|status| status.message)
        };
        assert_eq!(pod(json!({})), Ok(()));
        assert_eq!(
            pod(json!({"spec": {"foo": 1, "hostNetwork": true}})),
            Err("strict decoding error: unknown field \"spec.foo\"".to_owned())
        );
        assert_eq!(
            pod(json!({"spec": {"containers": [{"name": "c", "imge": "x"}]}})),
            Err("strict decoding error: unknown field \"spec.containers[0].imge\"".to_owned())
        );
        assert!(
            pod(json!({"spec": {"hostNetwork": "maybe"}}))
                .unwrap_err()
                .contains("cannot be handled as a Pod")
        );
    }

    #[test]
    fn unknown_fields_of_custom_kinds_are_named() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "n": {"type": "integer"}, "any": {"x-kubernetes-preserve-unknown-fields": true}, "map": {"additionalProperties": {"type": "string"}}}}}});
        let mut unknown = Vec::new();
        let value = json!({"kind": "K", "metadata": {"name": "a"}, "spec": {"n": 1, "m": 2, "any": {"x": 1}, "map": {"k": "v"}}});
        against_schema(&schema, &value, "", &mut unknown);
        assert_eq!(unknown, ["spec.m"]);
    }
}
