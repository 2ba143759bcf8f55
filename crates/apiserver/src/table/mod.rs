//! Tables: what `kubectl get` prints, made by the server.

mod age;
mod jsonpath;
mod pods;
mod rows;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::field;
use crate::resource::{Cells, Column, Columns, Resource};
use crate::status::Status;

pub(crate) use rows::columns_of;

/// What comes with each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// The object's metadata.
    Metadata,
    /// The object.
    Object,
}

impl Include {
    /// Reads `includeObject`.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, Status> {
        match text {
            Some("None") => Ok(Self::None),
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("Object") => Ok(Self::Object),
            Some(other) => {
                Err(Status::bad_request(format!("unrecognized includeObject value: {other:?}")))
            }
        }
    }
}

/// The text, or `<none>`.
fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// The metadata of an object alone.
pub(crate) fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object["metadata"],
    })
}

/// A table of `rows`, objects as the resource shows them.
pub(crate) fn table(
    resource: &Resource,
    version: &str,
    meta: Value,
    rows: impl Iterator<Item = Value>,
    include: Include,
    headings: bool,
) -> Value {
    let now = Timestamp::now();
    let rows: Vec<Value> = rows
        .map(|object| {
            let mut row = json!({"cells": cells(&resource.columns, &object, now)});
            match include {
                Include::None => {}
                Include::Metadata => field::set(&mut row, "object", partial(&object, version)),
                Include::Object => field::set(&mut row, "object", object),
            }
            row
        })
        .collect();
    let columns: Vec<Value> = if headings {
        resource.columns.columns.iter().map(definition).collect()
    } else {
        Vec::new()
    };
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta,
        "columnDefinitions": columns, "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": column.format,
        "description": column.description, "priority": column.priority,
    })
}

fn cells(columns: &Columns, object: &Value, now: Timestamp) -> Vec<Value> {
    match columns.cells {
        Cells::NameAndAge => {
            vec![object["metadata"]["name"].clone(), age::since(object, now).into()]
        }
        Cells::Printed(print) => print(object, now),
        Cells::Paths => columns
            .columns
            .iter()
            .map(|column| match &column.path {
                None => object["metadata"]["name"].clone(),
                Some(path) => cell(column, path, object, now),
            })
            .collect(),
    }
}

/// A cell of a custom resource: of the column's type, or null.
fn cell(column: &Column, path: &str, object: &Value, now: Timestamp) -> Value {
    let found = jsonpath::find(path, object);
    let Some(first) = found.first() else { return Value::Null };
    match column.kind.as_str() {
        "integer" | "number" | "boolean" => (*first).clone(),
        "date" => match first.as_str().map(str::parse::<Timestamp>) {
            Some(Ok(time)) => age::human(time, now).into(),
            _ => "<invalid>".into(),
        },
        _ => {
            let texts: Vec<String> = found
                .iter()
                .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                .collect();
            texts.join(",").into()
        }
    }
}
