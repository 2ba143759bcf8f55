//! Small steps on JSON that many places take.

use serde_json::{Map, Value};

/// Sets `object[name]` if it is absent or null.
pub(crate) fn default(object: &mut Value, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(Value::is_null) {
        set(object, name, value);
    }
}

/// Sets `object[name]`; what is no object becomes one.
pub(crate) fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    map(object).insert(name.to_owned(), value.into());
}

/// The object as a map; what is no object becomes an empty one.
pub(crate) fn map(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    match object {
        Value::Object(map) => map,
        // Just made one.
        _ => unreachable!("an object"),
    }
}

/// The field called `name`, made an object if it is none.
pub(crate) fn object<'a>(parent: &'a mut Value, name: &str) -> &'a mut Value {
    let entry = map(parent).entry(name.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    map(entry);
    entry
}

/// Removes a field.
pub(crate) fn remove(object: &mut Value, name: &str) -> Option<Value> {
    object.as_object_mut()?.remove(name)
}

/// Copies `name` from one object to another: absent there means absent here.
pub(crate) fn copy(from: &Value, to: &mut Value, name: &str) {
    match from.get(name) {
        Some(value) => set(to, name, value.clone()),
        None => {
            remove(to, name);
        }
    }
}

/// The elements of a list; nothing if it is none.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

/// The elements of the list `object[name]`; nothing if it is none.
pub(crate) fn items_mut<'a>(
    object: &'a mut Value,
    name: &str,
) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The text at `path`; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// What is at `path`; null if nothing is.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, name| &value[*name])
}
