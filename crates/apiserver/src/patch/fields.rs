//! Sets of fields, as `managedFields` states them (`fieldsV1`): `f:NAME` is a field, `k:{KEYS}` an entry of a list that is
//! told apart by keys, `v:VALUE` an entry of a set; `.` is the thing itself beside what is below it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::resource::{ListRule, MergeRules};

/// A set of fields below one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// Whether the place itself is in the set.
    pub(super) here: bool,
    pub(super) below: BTreeMap<String, Self>,
}

/// A field or an entry, and where it stands in the table of merge rules.
pub(super) struct Child<'a> {
    pub(super) element: String,
    pub(super) path: String,
    pub(super) value: &'a Value,
    /// Entries of lists are owned themselves, beside their fields.
    pub(super) is_entry: bool,
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// What a value consists of; `None` for a value that is one piece.
pub(super) fn children<'a>(
    rules: &MergeRules,
    path: &str,
    value: &'a Value,
) -> Option<Vec<Child<'a>>> {
    match value {
        Value::Object(fields) if !rules.is_atomic_map(path) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let child = |(name, value): (&String, &'a Value)| Child {
                element: format!("f:{name}"),
                path: join(path, name),
                value,
                is_entry: false,
            };
            Some(fields.map(child).collect())
        }
        Value::Array(entries) => {
            let element: Box<dyn Fn(&Value) -> String> = match rules.list(path)? {
                ListRule::Map { keys, .. } => Box::new(move |entry| key(keys, entry)),
                ListRule::Set => Box::new(|entry| format!("v:{entry}")),
                ListRule::AtomicPatched { .. } => return None,
            };
            let child = |value| Child {
                element: element(value),
                path: path.to_owned(),
                value,
                is_entry: true,
            };
            Some(entries.iter().map(child).collect())
        }
        _ => None,
    }
}

/// The keys of an entry. A port's protocol is the one key that may be left out.
fn key(keys: &[String], entry: &Value) -> String {
    let mut values = Map::new();
    for name in keys {
        let value = entry.get(name).cloned();
        let value = value.or_else(|| (name == "protocol").then(|| "TCP".into()));
        values.extend(value.map(|value| (name.clone(), value)));
    }
    format!("k:{}", Value::Object(values))
}

impl Fields {
    /// Everything that `value` states.
    pub(super) fn of(rules: &MergeRules, path: &str, value: &Value) -> Self {
        match children(rules, path, value).filter(|children| !children.is_empty()) {
            None => Self { here: true, below: BTreeMap::new() },
            Some(children) => {
                let below = children.into_iter().map(|child| {
                    let mut fields = Self::of(rules, &child.path, child.value);
                    fields.here |= child.is_entry;
                    (child.element, fields)
                });
                Self { here: false, below: below.collect() }
            }
        }
    }

    /// What is new or different in `new`, and what is gone.
    pub(super) fn changes(
        rules: &MergeRules,
        path: &str,
        old: &Value,
        new: &Value,
    ) -> (Self, Self) {
        let (mut changed, mut gone) = (Self::default(), Self::default());
        if old == new {
            return (changed, gone);
        }
        let (before, after) = (children(rules, path, old), children(rules, path, new));
        let (Some(before), Some(after)) = (before, after) else {
            changed.here = true;
            return (changed, gone);
        };
        if before.is_empty() && after.is_empty() {
            changed.here = true;
        }
        let known: BTreeMap<&str, &Child<'_>> =
            before.iter().map(|child| (child.element.as_str(), child)).collect();
        for child in &after {
            let (new, removed) = match known.get(child.element.as_str()) {
                Some(before) => Self::changes(rules, &child.path, before.value, child.value),
                None => {
                    let mut all = Self::of(rules, &child.path, child.value);
                    // A map that was made belongs to whoever made it, as do its entries.
                    all.here |= child.is_entry || !all.below.is_empty();
                    (all, Self::default())
                }
            };
            changed.put(&child.element, new);
            gone.put(&child.element, removed);
        }
        for child in before {
            if !after.iter().any(|kept| kept.element == child.element) {
                let mut all = Self::of(rules, &child.path, child.value);
                all.here = true;
                gone.put(&child.element, all);
            }
        }
        (changed, gone)
    }

    fn put(&mut self, element: &str, fields: Self) {
        if !fields.is_empty() {
            self.below.insert(element.to_owned(), fields);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    pub(super) fn union(&mut self, other: &Self) {
        self.here |= other.here;
        for (element, fields) in &other.below {
            self.below.entry(element.clone()).or_default().union(fields);
        }
    }

    /// Takes out what is in `other`.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.here &= !other.here;
        for (element, gone) in &other.below {
            if let Some(fields) = self.below.get_mut(element) {
                fields.subtract(gone);
                if fields.is_empty() {
                    self.below.remove(element);
                }
            }
        }
    }

    /// Takes out what is in `other`, and all that is below it: it is there no more.
    pub(super) fn cut(&mut self, other: &Self) {
        for (element, gone) in &other.below {
            if gone.here {
                self.below.remove(element);
            } else if let Some(fields) = self.below.get_mut(element) {
                fields.cut(gone);
                if fields.is_empty() {
                    self.below.remove(element);
                }
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut fields = Map::new();
        if self.here && !self.below.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        fields.extend(self.below.iter().map(|(element, fields)| (element.clone(), fields.json())));
        Value::Object(fields)
    }

    pub(super) fn read(json: &Value) -> Self {
        let Value::Object(fields) = json else { return Self::default() };
        let below = fields.iter().filter(|(element, _)| *element != ".");
        Self {
            here: fields.is_empty() || fields.contains_key("."),
            below: below.map(|(element, fields)| (element.clone(), Self::read(fields))).collect(),
        }
    }
}

/// How an error names an element: `.name`, `[name="c"]`.
pub(super) fn spelled(element: &str) -> String {
    let (kind, rest) = element.split_once(':').unwrap_or(("f", element));
    match kind {
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys = keys.iter().map(|(name, value)| format!("{name}={value}"));
            format!("[{}]", keys.collect::<Vec<_>>().join(","))
        }
        "v" => format!("[={rest}]"),
        _ => format!(".{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> std::sync::Arc<MergeRules> {
        crate::resource::Registry::builtin().find("", "v1", "pods").unwrap().merge.clone()
    }

    #[test]
    fn the_fields_of_a_pod() {
        let pod = json!({
            "metadata": {"labels": {"a": "1"}, "finalizers": ["x"]},
            "spec": {"nodeSelector": {"k": "v"}, "containers": [
                {"name": "c", "args": ["1"], "ports": [{"containerPort": 80}]}]},
        });
        let fields = Fields::of(&rules(), "", &pod);
        assert_eq!(
            fields.json(),
            json!({
                "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
                "f:spec": {"f:nodeSelector": {}, "f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:name": {}, "f:args": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}},
            })
        );
        assert_eq!(Fields::read(&fields.json()), fields);
    }

    #[test]
    fn changes_name_what_is_new_and_what_is_gone() {
        let old = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let new = json!({"metadata": {"labels": {"a": "3"}}, "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d"}]}});
        let (changed, gone) = Fields::changes(&rules(), "", &old, &new);
        assert_eq!(
            changed.json(),
            json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"d\"}": {".": {}, "f:name": {}}}}})
        );
        assert_eq!(gone.json(), json!({"f:metadata": {"f:labels": {"f:b": {}}}}));
    }

    #[test]
    fn names_in_errors() {
        for (element, expected) in
            [("f:spec", ".spec"), ("k:{\"name\":\"c\"}", "[name=\"c\"]"), ("v:\"x\"", "[=\"x\"]")]
        {
            assert_eq!(spelled(element), expected);
        }
    }
}
