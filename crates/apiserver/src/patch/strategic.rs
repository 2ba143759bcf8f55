//! Strategic merge patches: lists of objects are merged by the key that upstream's types state, and directives in the
//! patch delete, replace and order.

use serde_json::{Map, Value};

use crate::resource::{ListRule, MergeRules};
use crate::status::Status;

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Merges `patch` into `value`.
///
/// # Errors
/// `BadRequest` for an entry of a list without the list's merge key, or an unknown directive.
pub(super) fn merge(rules: &MergeRules, value: &mut Value, patch: &Value) -> Result<(), Status> {
    let Value::Object(patch) = patch else {
        return Err(Status::bad_request("a strategic merge patch must be an object".to_owned()));
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    if let Value::Object(value) = value {
        object(rules, "", value, patch)?;
    }
    Ok(())
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn directive(patch: &Map<String, Value>) -> Result<&str, Status> {
    match patch.get(DIRECTIVE).map(|word| word.as_str().unwrap_or_default()) {
        None => Ok("merge"),
        Some(word @ ("merge" | "replace" | "delete")) => Ok(word),
        Some(word) => {
            Err(Status::bad_request(format!("unknown patch type: {word} in map: {patch:?}")))
        }
    }
}

/// A value of the patch where there was none: its nulls delete nothing, its directives direct nothing.
fn fresh(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept =
                fields.iter().filter(|(name, value)| !name.starts_with('$') && !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), fresh(value))).collect())
        }
        Value::Array(entries) => {
            let is_directive = |entry: &Value| entry.get(DIRECTIVE).is_some();
            entries.iter().filter(|entry| !is_directive(entry)).map(fresh).collect()
        }
        other => other.clone(),
    }
}

fn object(
    rules: &MergeRules,
    path: &str,
    value: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Status> {
    match directive(patch)? {
        "replace" => {
            if let Value::Object(made) = fresh(&Value::Object(patch.clone())) {
                *value = made;
            }
            return Ok(());
        }
        "delete" => {
            value.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(Value::Array(kept)) = patch.get(RETAIN) {
        value.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, change) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            let (Some(Value::Array(entries)), Value::Array(gone)) = (value.get_mut(list), change)
            else {
                continue;
            };
            entries.retain(|entry| !gone.contains(entry));
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        let path = below(path, name);
        match change {
            Value::Null => {
                value.remove(name);
            }
            Value::Object(change) => match value.get_mut(name) {
                Some(Value::Object(known)) => object(rules, &path, known, change)?,
                _ => {
                    let mut made = Map::new();
                    object(rules, &path, &mut made, change)?;
                    value.insert(name.clone(), Value::Object(made));
                }
            },
            Value::Array(change) => {
                let known = value.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new()));
                if !known.is_array() {
                    *known = Value::Array(Vec::new());
                }
                if let Value::Array(known) = known {
                    list(rules, &path, known, change)?;
                }
            }
            other => {
                value.insert(name.clone(), other.clone());
            }
        }
    }
    for (name, order) in patch {
        let Some(list) = name.strip_prefix(ORDER) else { continue };
        let key = patch_key(rules, &below(path, list));
        if let (Some(Value::Array(entries)), Value::Array(order)) = (value.get_mut(list), order) {
            sort(entries, order, key);
        }
    }
    Ok(())
}

/// The field by which entries of a list are told apart; `None` for scalars and lists that are replaced.
fn patch_key<'a>(rules: &'a MergeRules, path: &str) -> Option<&'a str> {
    match rules.list(path)? {
        ListRule::Map { patch_key, .. } => patch_key.as_deref(),
        ListRule::AtomicPatched { patch_key } => Some(patch_key),
        ListRule::Set => None,
    }
}

fn list(
    rules: &MergeRules,
    path: &str,
    known: &mut Vec<Value>,
    patch: &[Value],
) -> Result<(), Status> {
    let is_replaced = patch.iter().any(|entry| entry[DIRECTIVE] == "replace");
    let Some(rule) = rules.list(path).filter(|_| !is_replaced) else {
        *known = patch.iter().filter(|entry| entry.get(DIRECTIVE).is_none()).map(fresh).collect();
        return Ok(());
    };
    let Some(key) = patch_key(rules, path) else {
        if *rule == ListRule::Set {
            for entry in patch {
                if !known.contains(entry) {
                    known.push(entry.clone());
                }
            }
        } else {
            *known = patch.iter().map(fresh).collect();
        }
        return Ok(());
    };
    let retains = matches!(rule, ListRule::Map { retain_keys: true, .. });
    for entry in patch {
        let Value::Object(change) = entry else {
            return Err(Status::bad_request(format!("{path}: entries of this list are objects")));
        };
        let id = change.get(key).ok_or_else(|| {
            Status::bad_request(format!("map: {entry} does not contain declared merge key: {key}"))
        })?;
        let found = known.iter().position(|candidate| candidate.get(key) == Some(id));
        match (directive(change)?, found) {
            ("delete", found) => {
                if found.is_some() {
                    known.retain(|candidate| candidate.get(key) != Some(id));
                }
            }
            (_, Some(at)) => {
                if let Some(Value::Object(candidate)) = known.get_mut(at) {
                    // A volume of another kind must not keep the fields of the one before.
                    if retains && let Some(Value::Array(kept)) = change.get(RETAIN) {
                        candidate.retain(|name, _| kept.iter().any(|kept| kept == name));
                    }
                    object(rules, path, candidate, change)?;
                }
            }
            (_, None) => {
                let mut made = Map::new();
                object(rules, path, &mut made, change)?;
                known.push(Value::Object(made));
            }
        }
    }
    Ok(())
}

/// Brings entries into the order stated; those that it does not name keep their place behind the one before them.
fn sort(entries: &mut Vec<Value>, order: &[Value], key: Option<&str>) {
    let id = |entry: &Value| match key {
        Some(key) => entry.get(key).cloned().unwrap_or_default(),
        None => entry.clone(),
    };
    let place = |entry: &Value| order.iter().position(|wanted| id(wanted) == id(entry));
    let mut last = 0;
    let mut placed: Vec<(usize, usize, Value)> = Vec::new();
    for (index, entry) in std::mem::take(entries).into_iter().enumerate() {
        let at = place(&entry).map_or(last, |at| at + 1);
        last = at;
        placed.push((at, index, entry));
    }
    placed.sort_by_key(|(at, index, _)| (*at, *index));
    entries.extend(placed.into_iter().map(|(_, _, entry)| entry));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Registry;

    fn rules() -> std::sync::Arc<MergeRules> {
        let registry = Registry::builtin();
        registry.find("", "v1", "pods").unwrap().merge.clone()
    }

    #[test]
    fn patches_of_a_pod() {
        let pod = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]},
            "spec": {
                "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "args": ["1", "2"]}, {"name": "d"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "tolerations": [{"key": "k"}],
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]},
        });
        for (patch, pointer, expected) in [
            (
                json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
                "/metadata/labels",
                json!({"b": "2", "c": "3"}),
            ),
            (
                json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
                "/status/conditions",
                json!([{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]),
            ),
            (
                json!({"spec": {"containers": [{"name": "c", "image": "j", "env": [{"name": "B", "value": "2"}]}]}}),
                "/spec/containers/0",
                json!({"name": "c", "image": "j", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["1", "2"]}),
            ),
            (
                json!({"spec": {"containers": [{"name": "c", "args": ["3"]}]}}),
                "/spec/containers/0/args",
                json!(["3"]),
            ),
            (
                json!({"spec": {"containers": [{"name": "c", "$patch": "delete"}]}}),
                "/spec/containers",
                json!([{"name": "d"}]),
            ),
            (
                json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "e"}]}}),
                "/spec/containers",
                json!([{"name": "e"}]),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}]}}),
                "/spec/containers/0",
                json!({"name": "d"}),
            ),
            (
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
                "/spec/volumes",
                json!([{"name": "v", "hostPath": {"path": "/"}}]),
            ),
            (
                json!({"metadata": {"finalizers": ["z"]}}),
                "/metadata/finalizers",
                json!(["x", "y", "z"]),
            ),
            (
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}),
                "/metadata/finalizers",
                json!(["y"]),
            ),
            (
                json!({"spec": {"tolerations": [{"key": "l"}]}}),
                "/spec/tolerations",
                json!([{"key": "l"}]),
            ),
            (json!({"spec": {"affinity": {"nodeAffinity": null}}}), "/spec/affinity", json!({})),
            (
                json!({"metadata": {"labels": {"$patch": "replace", "z": "1"}}}),
                "/metadata/labels",
                json!({"z": "1"}),
            ),
        ] {
            let mut value = pod.clone();
            merge(&rules(), &mut value, &patch).unwrap();
            assert_eq!(value.pointer(pointer), Some(&expected), "{patch}");
        }
    }

    #[test]
    fn an_entry_without_its_key_is_an_error() {
        for patch in [
            json!({"spec": {"containers": [{"image": "i"}]}}),
            json!({"spec": {"containers": [7]}}),
            json!({"spec": {"$patch": "turn"}}),
            json!([]),
        ] {
            assert!(merge(&rules(), &mut json!({}), &patch).is_err(), "{patch}");
        }
    }
}
