//! Custom resource definitions: what they make the server serve, and what their schemas do to objects.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::field::{self, default, items, object, set};
use crate::fresh;
use crate::resource::{Cells, Column, Columns, MergeRules, Resource, Scale, Verbs};
use crate::status::Cause;

/// Where definitions are stored.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Keeps a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Defaults of a definition, and the status that says that it is served.
pub(crate) fn establish(definition: &mut Value) {
    let spec = object(definition, "spec");
    default(spec, "conversion", json!({"strategy": "None"}));
    let names = object(spec, "names");
    let kind = field::text(names, &["kind"]).to_owned();
    default(names, "singular", kind.to_lowercase());
    default(names, "listKind", format!("{kind}List"));
    let names = names.clone();
    let stored: Vec<Value> = items(&spec["versions"])
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let status = object(definition, "status");
    set(status, "acceptedNames", names);
    set(status, "storedVersions", stored);
    let condition = |kind: &str, reason: &str, message: &str| {
        let old = items(&status["conditions"]).find(|c| c["type"] == kind);
        let since = old.map_or_else(|| fresh::now().into(), |c| c["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since,
        })
    };
    let conditions = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]);
    set(status, "conditions", conditions);
}

/// What is wrong with a definition.
pub(crate) fn validate(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &definition["spec"];
    for path in [&["group"][..], &["names", "plural"], &["names", "kind"], &["scope"]] {
        if field::text(spec, path).is_empty() {
            causes.push(Cause::required(format!("spec.{}", path.join(".")), ""));
        }
    }
    let group = field::text(spec, &["group"]);
    let plural = field::text(spec, &["names", "plural"]);
    let name = field::text(definition, &["metadata", "name"]);
    if name != format!("{plural}.{group}") {
        causes.push(Cause::invalid(
            "metadata.name",
            &Value::from(name),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if !matches!(field::text(spec, &["scope"]), "Cluster" | "Namespaced" | "") {
        causes.push(Cause::unsupported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]));
    }
    let stored = items(&spec["versions"]).filter(|v| v["storage"] == true).count();
    if stored != 1 {
        causes.push(Cause::invalid(
            "spec.versions",
            &spec["versions"],
            "must have exactly one version marked as storage version",
        ));
    }
    for (i, version) in items(&spec["versions"]).enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let path = format!("spec.versions[{i}].schema.openAPIV3Schema");
            causes.push(Cause::required(path, "schemas are required"));
        }
    }
    causes
}

/// The resources that a definition adds: one per served version, newest version first.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let text = |path: &[&str]| field::text(spec, path).to_owned();
    let texts = |value: &Value| -> Vec<String> {
        items(value).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (group, plural) = (text(&["group"]), text(&["names", "plural"]));
    let stored =
        items(&spec["versions"]).find(|v| v["storage"] == true).cloned().unwrap_or_default();
    let storage_version = format!("{group}/{}", field::text(&stored, &["name"]));
    let storage: Arc<str> = format!("{plural}.{group}").into();
    let mut versions: Vec<&Value> =
        items(&spec["versions"]).filter(|v| v["served"] == true).collect();
    versions.sort_by_key(|v| std::cmp::Reverse(age(field::text(v, &["name"]))));
    versions
        .into_iter()
        .map(|version| {
            let schema = version["schema"]["openAPIV3Schema"].clone();
            Resource {
                group: group.clone(),
                version: field::text(version, &["name"]).to_owned(),
                kind: text(&["names", "kind"]),
                list_kind: text(&["names", "listKind"]),
                plural: plural.clone(),
                singular: text(&["names", "singular"]),
                short_names: texts(&spec["names"]["shortNames"]),
                categories: texts(&spec["names"]["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                verbs: Verbs::All,
                status: version["subresources"]["status"].is_object(),
                scale: scale(&version["subresources"]["scale"]),
                others: Vec::new(),
                columns: columns(&version["additionalPrinterColumns"]),
                merge: Arc::new(MergeRules::of_schema(&schema)),
                schema: Some(Arc::new(schema)),
                storage: Arc::clone(&storage),
                storage_version: storage_version.clone(),
            }
        })
        .collect()
}

/// Orders versions as upstream: v2 over v1 over v1beta2 over v1beta1 over v1alpha1 over anything else.
fn age(version: &str) -> (u8, u32, u32) {
    let digits = |text: &str| -> (u32, usize) {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        (text[..end].parse().unwrap_or(0), end)
    };
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let (major, end) = digits(rest);
    let rest = &rest[end..];
    if rest.is_empty() {
        (3, major, 0)
    } else if let Some(minor) = rest.strip_prefix("beta") {
        (2, major, digits(minor).0)
    } else if let Some(minor) = rest.strip_prefix("alpha") {
        (1, major, digits(minor).0)
    } else {
        (0, 0, 0)
    }
}

fn scale(scale: &Value) -> Option<Scale> {
    let path = |name: &str| scale[name].as_str();
    Some(Scale::of(
        path("specReplicasPath")?,
        path("statusReplicasPath")?,
        path("labelSelectorPath"),
    ))
}

fn columns(given: &Value) -> Columns {
    let mut columns = vec![Column::name()];
    for column in items(given) {
        columns.push(Column {
            name: field::text(column, &["name"]).to_owned(),
            kind: field::text(column, &["type"]).to_owned(),
            format: field::text(column, &["format"]).to_owned(),
            description: field::text(column, &["description"]).to_owned(),
            priority: column["priority"].as_i64().unwrap_or(0),
            path: column["jsonPath"].as_str().map(str::to_owned),
        });
    }
    if columns.len() == 1 {
        let mut age = Column::age();
        age.kind = "date".to_owned();
        age.path = Some(".metadata.creationTimestamp".to_owned());
        columns.push(age);
    }
    Columns { columns, cells: Cells::Paths }
}

/// Removes what the schema does not know and fills its defaults, everywhere but in the root's own fields.
pub(crate) fn prune_and_default(schema: &Value, value: &mut Value) {
    let rooted = rooted(schema);
    prune(&rooted, value);
    fill(schema, value);
}

/// The schema with the fields that every object has, which schemas need not mention.
fn rooted(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let properties = object(&mut schema, "properties");
    set(properties, "metadata", anything);
    set(properties, "apiVersion", json!({"type": "string"}));
    set(properties, "kind", json!({"type": "string"}));
    schema
}

fn prune(schema: &Value, value: &mut Value) {
    let preserve = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match value {
        Value::Object(fields) => {
            if schema["x-kubernetes-embedded-resource"] == true {
                let rooted = rooted(schema);
                return prune_fields(&rooted, preserve, fields);
            }
            prune_fields(schema, preserve, fields);
        }
        Value::Array(elements) => {
            for element in elements {
                prune(&schema["items"], element);
            }
        }
        _ => {}
    }
}

fn prune_fields(schema: &Value, preserve: bool, fields: &mut Map<String, Value>) {
    let properties = schema["properties"].as_object();
    let additional = &schema["additionalProperties"];
    fields.retain(|name, value| {
        if let Some(known) = properties.and_then(|p| p.get(name)) {
            prune(known, value);
            return true;
        }
        if additional.is_object() {
            prune(additional, value);
            return true;
        }
        preserve || additional == &Value::Bool(true)
    });
}

/// Fills defaults where the parent exists, as structural schemas do.
fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, known) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = known.get("default") {
                    // A null in a field that may not be null is as good as absent.
                    let absent = match fields.get(name) {
                        None => true,
                        Some(Value::Null) => known["nullable"] != true,
                        Some(_) => false,
                    };
                    if absent {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                if let Some(field) = fields.get_mut(name) {
                    fill(known, field);
                }
            }
            let additional = &schema["additionalProperties"];
            if additional.is_object() {
                for field in fields.values_mut() {
                    fill(additional, field);
                }
            }
        }
        Value::Array(elements) => {
            for element in elements {
                fill(&schema["items"], element);
            }
        }
        _ => {}
    }
}
