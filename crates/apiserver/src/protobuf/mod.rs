//! Bodies in protobuf, which client-go sends for built-in kinds. Upstream's messages are a table of field names, numbers
//! and types (`messages.txt`): what comes becomes the JSON that it stands for. Answers are always JSON.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::status::Status;

/// The first bytes of a body: after them comes a `runtime.Unknown`.
const MAGIC: &[u8] = b"k8s\0";

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| messages(include_str!("messages.txt")));

type Messages = BTreeMap<&'static str, BTreeMap<u64, Field>>;

#[derive(Debug)]
struct Field {
    name: &'static str,
    kind: &'static str,
    shape: Shape,
    /// Whether JSON leaves it out where it is zero; protobuf has it all the same.
    is_optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Many,
    /// A map from text.
    Map,
}

/// Reads the table: a message's name, then a line a field, indented: number, name and type. `[T]` is a list of T, `{T}` a
/// map from text to T. `T?` is left out where it is zero.
fn messages(table: &'static str) -> Messages {
    let mut messages: Messages = BTreeMap::new();
    let mut message = "";
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            message = words.next().unwrap_or_default();
            messages.entry(message).or_default();
            continue;
        }
        let (Some(number), Some(name), Some(kind)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (kind, is_optional) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
        let inner =
            |open, close| kind.strip_prefix(open).and_then(|kind: &str| kind.strip_suffix(close));
        let (shape, kind) = match (inner('[', ']'), inner('{', '}')) {
            (Some(kind), _) => (Shape::Many, kind),
            (_, Some(kind)) => (Shape::Map, kind),
            _ => (Shape::One, kind),
        };
        if let Ok(number) = number.parse() {
            messages
                .entry(message)
                .or_default()
                .insert(number, Field { name, kind, shape, is_optional });
        }
    }
    messages
}

/// A field as it is on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((tag >> 3, wire))
    }
}

/// The fields of a message; `None` if it is cut.
fn fields(bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut reader = Reader(bytes);
    let mut fields = Vec::new();
    while !reader.0.is_empty() {
        fields.push(reader.field()?);
    }
    Some(fields)
}

fn text(wire: &Wire<'_>) -> Option<String> {
    match wire {
        Wire::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        Wire::Number(_) => None,
    }
}

#[expect(
    clippy::cast_possible_wrap,
    reason = "two's complement is how the wire has negative numbers"
)]
fn signed(number: u64) -> i64 {
    number as i64
}

/// A value of a type of the table.
fn value(kind: &str, wire: &Wire<'_>) -> Option<Value> {
    Some(match (kind, wire) {
        ("string", wire) => text(wire)?.into(),
        ("bytes", Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        ("bool", Wire::Number(number)) => (*number != 0).into(),
        ("int", Wire::Number(number)) => signed(*number).into(),
        ("double", Wire::Number(bits)) => f64::from_bits(*bits).into(),
        ("Quantity", Wire::Bytes(bytes)) => match fields(bytes)?.first() {
            Some((1, wire)) => text(wire)?.into(),
            _ => "0".into(),
        },
        ("IntOrString", Wire::Bytes(bytes)) => int_or_string(bytes)?,
        ("Time" | "MicroTime", Wire::Bytes(bytes)) => time(kind, bytes)?,
        ("FieldsV1", Wire::Bytes(bytes)) => match fields(bytes)?.first() {
            Some((1, Wire::Bytes(raw))) => serde_json::from_slice(raw).ok()?,
            _ => Value::Null,
        },
        // A list of texts that is a message of its own.
        ("ExtraValue" | "Verbs", Wire::Bytes(bytes)) => {
            fields(bytes)?.iter().map(|(_, wire)| text(wire)).collect::<Option<Vec<_>>>()?.into()
        }
        (_, Wire::Bytes(bytes)) => message(kind, bytes)?,
        _ => return None,
    })
}

fn int_or_string(bytes: &[u8]) -> Option<Value> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    for (field, wire) in fields(bytes)? {
        match (field, &wire) {
            (1, Wire::Number(kind)) => is_text = *kind == 1,
            (2, Wire::Number(value)) => number = signed(*value),
            (3, wire) => words = text(wire)?,
            _ => {}
        }
    }
    Some(if is_text { words.into() } else { number.into() })
}

/// No time at all is an empty message.
fn time(kind: &str, bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return Some(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    for (field, wire) in fields(bytes)? {
        match (field, wire) {
            (1, Wire::Number(value)) => seconds = signed(value),
            (2, Wire::Number(value)) => nanoseconds = i32::try_from(value).ok()?,
            _ => {}
        }
    }
    let moment = Timestamp::new(seconds, nanoseconds).ok()?;
    let form = if kind == "Time" { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    Some(moment.strftime(form).to_string().into())
}

/// A message of the table; fields that it does not have are left out, as upstream leaves out what it does not know.
fn message(kind: &str, bytes: &[u8]) -> Option<Value> {
    let table = MESSAGES.get(kind)?;
    let mut object = Map::new();
    for (number, wire) in fields(bytes)? {
        let Some(field) = table.get(&number) else { continue };
        match field.shape {
            // The fields of an inlined struct stand beside its own.
            Shape::One if field.name == "-" => {
                if let Value::Object(inner) = value(field.kind, &wire)? {
                    object.extend(inner);
                }
            }
            Shape::One => {
                let value = value(field.kind, &wire)?;
                let is_zero = value == "" || value == 0 || value == false;
                if !(value.is_null() || field.is_optional && is_zero) {
                    object.insert(field.name.to_owned(), value);
                }
            }
            Shape::Many => {
                let list =
                    object.entry(field.name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut()?.push(value(field.kind, &wire)?);
            }
            Shape::Map => {
                let Wire::Bytes(entry) = wire else { return None };
                let (mut key, mut held) = (String::new(), None);
                for (number, wire) in fields(entry)? {
                    match number {
                        1 => key = text(&wire)?,
                        2 => held = Some(value(field.kind, &wire)?),
                        _ => {}
                    }
                }
                let map = object
                    .entry(field.name.to_owned())
                    .or_insert_with(|| Value::Object(Map::new()));
                map.as_object_mut()?.insert(key, held.unwrap_or_else(|| empty(field.kind)));
            }
        }
    }
    Some(Value::Object(object))
}

/// What a map holds when the entry leaves its value out.
fn empty(kind: &str) -> Value {
    match kind {
        "string" | "bytes" => "".into(),
        "Quantity" => "0".into(),
        _ => Value::Object(Map::new()),
    }
}

/// The JSON of a body.
///
/// # Errors
/// `BadRequest` for what is no such body or is cut, and for kinds that are not in the table.
pub(crate) fn to_json(body: &[u8]) -> Result<Value, Status> {
    let cut = || Status::bad_request("the protobuf body is cut or malformed");
    let unknown = body.strip_prefix(MAGIC).ok_or_else(cut)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, wire) in fields(unknown).ok_or_else(cut)? {
        match (number, wire) {
            (1, Wire::Bytes(type_meta)) => {
                for (number, wire) in fields(type_meta).ok_or_else(cut)? {
                    match number {
                        1 => api_version = text(&wire).ok_or_else(cut)?,
                        2 => kind = text(&wire).ok_or_else(cut)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    if !MESSAGES.contains_key(kind.as_str()) {
        return Err(Status::bad_request(format!(
            "protobuf bodies of kind {kind:?} are not supported; send JSON"
        )));
    }
    let mut value = message(&kind, raw).ok_or_else(cut)?;
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A field of bytes.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        field.extend(content);
        field
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
    }

    #[test]
    fn a_config_map() {
        let entry = [bytes(1, b"x"), bytes(2, b"1")].concat();
        let raw = [bytes(1, &bytes(1, b"name")), bytes(2, &entry)].concat();
        assert_eq!(
            to_json(&body("ConfigMap", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "name"}, "data": {"x": "1"}})
        );
    }

    #[test]
    fn numbers_times_and_lists() {
        let mut options = vec![1 << 3, 30];
        options.extend(bytes(5, b"All"));
        assert_eq!(
            to_json(&body("DeleteOptions", &options)).unwrap()["gracePeriodSeconds"],
            json!(30)
        );
        assert_eq!(to_json(&body("DeleteOptions", &options)).unwrap()["dryRun"], json!(["All"]));
        let created = bytes(1, &bytes(8, &[1 << 3, 60]));
        let map = to_json(&body("ConfigMap", &created)).unwrap();
        assert_eq!(map["metadata"]["creationTimestamp"], "1970-01-01T00:01:00Z");
    }

    #[test]
    fn what_json_leaves_out_is_left_out() {
        let raw = bytes(1, &[bytes(1, b"n"), bytes(2, b""), bytes(8, b"")].concat());
        let map = to_json(&body("ConfigMap", &raw)).unwrap();
        assert_eq!(map["metadata"], json!({"name": "n"}));
        // A pointer to zero is a value: no retries.
        let job = to_json(&body("Job", &bytes(2, &[7 << 3, 0]))).unwrap();
        assert_eq!(job["spec"], json!({"backoffLimit": 0}));
    }

    #[test]
    fn cut_and_unknown_bodies_are_refused() {
        let whole = body("ConfigMap", &bytes(1, &bytes(1, b"name")));
        for end in 0..whole.len() {
            // Where a field ends, a cut body is a whole one.
            let _ = to_json(&whole[..end]);
        }
        assert!(to_json(&whole[..whole.len() - 1]).is_err());
        let error = to_json(&body("Gizmo", &[])).unwrap_err().message;
        assert!(error.contains("Gizmo"), "{error}");
    }

    #[test]
    fn every_type_of_the_table_is_in_it() {
        let plain = [
            "string",
            "bytes",
            "bool",
            "int",
            "double",
            "Quantity",
            "IntOrString",
            "Time",
            "MicroTime",
            "FieldsV1",
            "ExtraValue",
            "Verbs",
        ];
        for (name, fields) in MESSAGES.iter() {
            for field in fields.values() {
                let is_known = plain.contains(&field.kind) || MESSAGES.contains_key(field.kind);
                assert!(is_known, "{name}.{}: {}", field.name, field.kind);
            }
        }
    }
}
