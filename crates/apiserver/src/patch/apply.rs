//! Server-side apply: a manager states what it wants of an object; what others own and it contradicts is a conflict, and
//! what it no longer states goes, unless somebody else owns it too.

use serde_json::{Value, json};

use super::Request;
use super::fields::{Fields, children, spelled};
use crate::field::{self, items, object, set};
use crate::resource::{ListRule, MergeRules, Resource};
use crate::status::{Cause, Status};

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    manager: String,
    applies: bool,
    subresource: String,
    api_version: String,
    time: Value,
    fields: Fields,
}

impl Entry {
    fn read(json: &Value) -> Self {
        let text = |name: &str| field::text(json, &[name]).to_owned();
        Self {
            manager: text("manager"),
            applies: json["operation"] == "Apply",
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            time: json["time"].clone(),
            fields: Fields::read(&json["fieldsV1"]),
        }
    }

    fn json(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager, "operation": if self.applies { "Apply" } else { "Update" },
            "apiVersion": self.api_version, "time": self.time, "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.json(),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.clone().into();
        }
        entry
    }

    /// How a conflict names it.
    fn named(&self) -> String {
        let mut name = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            name.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.applies {
            name.push_str(&format!(" using {}", self.api_version));
            if let Some(time) = self.time.as_str() {
                name.push_str(&format!(" at {time}"));
            }
        }
        name
    }
}

fn entries(value: &Value) -> Vec<Entry> {
    items(&value["metadata"]["managedFields"]).map(Entry::read).collect()
}

fn store(value: &mut Value, entries: &[Entry]) {
    let list: Vec<Value> =
        entries.iter().filter(|entry| !entry.fields.is_empty()).map(Entry::json).collect();
    let metadata = object(value, "metadata");
    if list.is_empty() {
        field::remove(metadata, "managedFields");
    } else {
        set(metadata, "managedFields", list);
    }
}

fn now() -> Value {
    crate::fresh::now().into()
}

/// What an object states of itself, less what nobody owns.
fn stated(value: &Value) -> Value {
    let mut stated = value.clone();
    for name in ["apiVersion", "kind"] {
        field::remove(&mut stated, name);
    }
    let metadata = object(&mut stated, "metadata");
    for name in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
        "generateName",
    ] {
        field::remove(metadata, name);
    }
    if metadata.as_object().is_some_and(serde_json::Map::is_empty) {
        field::remove(&mut stated, "metadata");
    }
    stated
}

/// Applies what `request` wants to `current`, which is null for an object that is not there.
pub(super) fn apply(
    request: &Request<'_>,
    wanted: &Value,
    current: &Value,
    resource: &Resource,
) -> Result<Value, Status> {
    if items(&wanted["metadata"]["managedFields"]).next().is_some() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let rules = resource.merge.as_ref();
    let config = stated(wanted);
    let fields = Fields::of(rules, "", &config);
    let mut entries = entries(current);
    let is_mine = |entry: &Entry| {
        entry.applies
            && entry.manager == request.manager
            && entry.subresource == request.subresource
    };
    let before = entries.iter().position(is_mine).map(|at| entries.remove(at).fields);
    let mut conflicts = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let mut found = Vec::new();
        contradictions(rules, "", (&entry.fields, &fields), (current, &config), "", &mut found);
        conflicts.extend(found.into_iter().map(|path| (index, path)));
    }
    if !conflicts.is_empty() && !request.force {
        return Err(conflict(&entries, &conflicts));
    }
    if request.force {
        for entry in &mut entries {
            let mut lost = Fields::default();
            contradicted(rules, "", (&entry.fields, &fields), (current, &config), &mut lost);
            entry.fields.subtract(&lost);
        }
    }
    let mut next = if current.is_null() { json!({}) } else { current.clone() };
    merge(rules, "", &mut next, &config);
    if let Some(mut gone) = before {
        gone.subtract(&fields);
        let mut others = fields.clone();
        for entry in &entries {
            others.union(&entry.fields);
        }
        remove(rules, "", &mut next, &gone, Some(&others));
    }
    for name in ["apiVersion", "kind"] {
        field::copy(wanted, &mut next, name);
    }
    let metadata = object(&mut next, "metadata");
    for name in ["name", "namespace", "uid", "resourceVersion"] {
        if let Some(value) = wanted["metadata"].get(name) {
            set(metadata, name, value.clone());
        }
    }
    entries.push(Entry {
        manager: request.manager.to_owned(),
        applies: true,
        subresource: request.subresource.to_owned(),
        api_version: resource.api_version(),
        time: now(),
        fields,
    });
    store(&mut next, &entries);
    // The same again changes nothing, not even the time.
    let same = |a: &Value, b: &Value| {
        let timeless = |value: &Value| {
            let entries = self::entries(value).into_iter();
            entries.map(|e| Entry { time: Value::Null, ..e }).collect::<Vec<_>>()
        };
        let bare = |value: &Value| {
            let mut value = value.clone();
            field::remove(object(&mut value, "metadata"), "managedFields");
            value
        };
        bare(a) == bare(b) && {
            let (mut a, mut b) = (timeless(a), timeless(b));
            let key = |e: &Entry| (e.manager.clone(), e.applies, e.subresource.clone());
            a.sort_by_key(key);
            b.sort_by_key(key);
            a == b
        }
    };
    if same(&next, current) {
        return Ok(current.clone());
    }
    Ok(next)
}

fn conflict(entries: &[Entry], conflicts: &[(usize, String)]) -> Status {
    let named = |index: usize| entries.get(index).map(Entry::named).unwrap_or_default();
    let causes = conflicts.iter().map(|(index, path)| {
        Cause::new(
            "FieldManagerConflict",
            path.as_str(),
            format!("conflict with {}", named(*index)),
        )
    });
    Status::apply_conflict(causes.collect())
}

/// The value of an element.
fn value_of<'a>(
    rules: &MergeRules,
    path: &str,
    value: &'a Value,
    element: &str,
) -> Option<(String, &'a Value)> {
    let children = children(rules, path, value)?;
    children
        .into_iter()
        .find(|child| child.element == element)
        .map(|child| (child.path, child.value))
}

/// Fields in both sets whose values differ, spelled out.
fn contradictions(
    rules: &MergeRules,
    path: &str,
    (theirs, mine): (&Fields, &Fields),
    (live, wanted): (&Value, &Value),
    spelled_path: &str,
    found: &mut Vec<String>,
) {
    let mut lost = Fields::default();
    contradicted(rules, path, (theirs, mine), (live, wanted), &mut lost);
    spell(&lost, spelled_path, found);
}

fn spell(fields: &Fields, at: &str, found: &mut Vec<String>) {
    if fields.here {
        found.push(at.to_owned());
    }
    for (element, below) in &fields.below {
        spell(below, &format!("{at}{}", spelled(element)), found);
    }
}

/// Fields in both sets whose values differ.
fn contradicted(
    rules: &MergeRules,
    path: &str,
    (theirs, mine): (&Fields, &Fields),
    (live, wanted): (&Value, &Value),
    lost: &mut Fields,
) {
    for (element, mine) in &mine.below {
        let Some(theirs) = theirs.below.get(element) else { continue };
        let Some((below, wanted)) = value_of(rules, path, wanted, element) else { continue };
        let live = value_of(rules, path, live, element).map_or(&Value::Null, |(_, live)| live);
        let mut inner = Fields::default();
        let is_leaf = mine.below.is_empty() || theirs.below.is_empty();
        if is_leaf && theirs.here && mine.here {
            inner.here = live != wanted;
        } else {
            contradicted(rules, &below, (theirs, mine), (live, wanted), &mut inner);
        }
        if !inner.is_empty() {
            lost.below.insert(element.clone(), inner);
        }
    }
}

/// Brings what is wanted into the value.
fn merge(rules: &MergeRules, path: &str, value: &mut Value, wanted: &Value) {
    match wanted {
        Value::Object(fields) if !rules.is_atomic_map(path) => {
            if !value.is_object() {
                *value = json!({});
            }
            for (name, wanted) in fields.iter().filter(|(_, wanted)| !wanted.is_null()) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let mut below = field::remove(value, name).unwrap_or_default();
                merge(rules, &path, &mut below, wanted);
                set(value, name, below);
            }
        }
        Value::Array(entries) => match rules.list(path) {
            Some(rule @ (ListRule::Map { .. } | ListRule::Set)) => {
                let mut merged = value.as_array().cloned().unwrap_or_default();
                let elements: Vec<String> = children(rules, path, &Value::Array(merged.clone()))
                    .into_iter()
                    .flatten()
                    .map(|child| child.element)
                    .collect();
                let wanted = Value::Array(entries.clone());
                for child in children(rules, path, &wanted).into_iter().flatten() {
                    let at = elements.iter().position(|element| *element == child.element);
                    match at.and_then(|at| merged.get_mut(at)) {
                        Some(known) if *rule != ListRule::Set => {
                            merge(rules, path, known, child.value)
                        }
                        Some(_) => {}
                        None => merged.push(child.value.clone()),
                    }
                }
                *value = Value::Array(merged);
            }
            _ => *value = wanted.clone(),
        },
        other => *value = other.clone(),
    }
}

/// Takes out what is no longer wanted and nobody else owns.
fn remove(rules: &MergeRules, path: &str, value: &mut Value, gone: &Fields, kept: Option<&Fields>) {
    for (element, gone) in &gone.below {
        let kept = kept.and_then(|kept| kept.below.get(element));
        let is_whole = gone.here && kept.is_none_or(Fields::is_empty);
        let name = element.strip_prefix("f:");
        if let Some(name) = name {
            let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            if is_whole && gone.below.is_empty() {
                field::remove(value, name);
            } else if let Some(inner) = value.get_mut(name) {
                remove(rules, &below, inner, gone, kept);
                let is_empty = inner.as_object().is_some_and(serde_json::Map::is_empty)
                    || inner.as_array().is_some_and(Vec::is_empty);
                if is_empty && kept.is_none_or(Fields::is_empty) {
                    field::remove(value, name);
                }
            }
            continue;
        }
        let Some(at) = children(rules, path, value)
            .and_then(|children| children.iter().position(|child| child.element == *element))
        else {
            continue;
        };
        let Some(entries) = value.as_array_mut() else { continue };
        if is_whole {
            entries.remove(at);
        } else if let Some(entry) = entries.get_mut(at) {
            remove(rules, path, entry, gone, kept);
        }
    }
}

/// Records that `manager` made `value` of `old`: what it changed is its own now, and no longer anybody else's.
pub(crate) fn track(
    resource: &Resource,
    subresource: &str,
    old: Option<&Value>,
    value: &mut Value,
    manager: &str,
) {
    let base = match value["metadata"].get("managedFields") {
        Some(Value::Array(_)) => entries(value),
        _ => old.map(entries).unwrap_or_default(),
    };
    let mut entries: Vec<Entry> = base.into_iter().filter(|e| !e.manager.is_empty()).collect();
    let before = old.map_or_else(|| json!({}), stated);
    let after = stated(value);
    let (changed, gone) = Fields::changes(&resource.merge, "", &before, &after);
    if changed.is_empty() && gone.is_empty() {
        store(value, &entries);
        return;
    }
    let api_version = resource.api_version();
    let is_mine = |entry: &Entry| {
        !entry.applies
            && entry.manager == manager
            && entry.subresource == subresource
            && entry.api_version == api_version
    };
    let mine = entries.iter().position(is_mine).map(|at| entries.remove(at));
    for entry in &mut entries {
        entry.fields.subtract(&changed);
        entry.fields.cut(&gone);
    }
    let mut fields = mine.map(|mine| mine.fields).unwrap_or_default();
    fields.cut(&gone);
    fields.union(&changed);
    entries.push(Entry {
        manager: manager.to_owned(),
        applies: false,
        subresource: subresource.to_owned(),
        api_version,
        time: now(),
        fields,
    });
    store(value, &entries);
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
