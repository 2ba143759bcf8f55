//! Validation of custom resources against their structural schemas: types, required fields, enumerations, bounds.

use serde_json::Value;

use crate::field::items;
use crate::status::Cause;

/// What is wrong with `value`, field by field.
pub(crate) fn validate(schema: &Value, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(schema, value, String::new(), &mut causes);
    causes
}

fn check(schema: &Value, value: &Value, path: String, causes: &mut Vec<Cause>) {
    if value.is_null() {
        // Pruned or nullable; a null that is neither reads as absent.
        return;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        if !(value.is_i64() || value.is_u64() || value.is_string()) {
            causes.push(mistyped(&path, "integer,string", value));
        }
    } else if let Some(kind) = schema["type"].as_str()
        && !is_of(kind, value)
    {
        causes.push(mistyped(&path, kind, value));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let texts: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.push(Cause::unsupported(path.clone(), value, &texts));
    }
    bounds(schema, value, &path, causes);
    match value {
        Value::Object(fields) => {
            for required in items(&schema["required"]).filter_map(Value::as_str) {
                if fields.get(required).is_none_or(Value::is_null) {
                    causes.push(Cause::required(join(&path, required), ""));
                }
            }
            for (name, field) in fields {
                let known = &schema["properties"][name];
                let known = if known.is_object() { known } else { &schema["additionalProperties"] };
                if known.is_object() && !(path.is_empty() && name == "metadata") {
                    check(known, field, join(&path, name), causes);
                }
            }
        }
        Value::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                check(&schema["items"], element, format!("{path}[{i}]"), causes);
            }
        }
        _ => {}
    }
}

fn bounds(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut wrong = |detail: String| causes.push(Cause::invalid(path, value, &detail));
    if let Some(number) = value.as_f64() {
        if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
            wrong(format!("{path} in body should be greater than or equal to {least}"));
        }
        if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
            wrong(format!("{path} in body should be less than or equal to {most}"));
        }
    }
    let length = match value {
        Value::String(text) => Some((text.chars().count(), "minLength", "maxLength", "chars")),
        Value::Array(list) => Some((list.len(), "minItems", "maxItems", "items")),
        _ => None,
    };
    if let Some((length, least, most, unit)) = length {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        if let Some(least) = schema[least].as_u64().filter(|least| length < *least) {
            wrong(format!("{path} in body should be at least {least} {unit} long"));
        }
        if let Some(most) = schema[most].as_u64().filter(|most| length > *most) {
            wrong(format!("{path} in body should be at most {most} {unit} long"));
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn mistyped(path: &str, kind: &str, value: &Value) -> Cause {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let detail = format!("{path} in body must be of type {kind}: {found:?}");
    Cause::new("FieldValueTypeInvalid", path, format!("Invalid value: {found:?}: {detail}"))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
