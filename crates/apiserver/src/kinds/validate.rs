//! What is wrong with an object: metadata of every kind, and the fields of kinds that tools get wrong.

use serde_json::Value;

use crate::field::{self, items};
use crate::resource::Resource;
use crate::status::Cause;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// The most bytes that all annotations of an object may have together.
const ANNOTATIONS: usize = 256 * 1024;

/// What is wrong with the metadata.
pub(crate) fn metadata(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    let name = field::text(metadata, &["name"]);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = name_error(resource, name) {
        causes.push(Cause::invalid("metadata.name", &metadata["name"], &why));
    }
    causes.extend(labels("metadata.labels", &metadata["labels"]));
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        if let Some(why) = qualified_error(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &Value::from(key.as_str()), &why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS {
        causes.push(Cause::new(
            "FieldValueTooLong",
            "metadata.annotations",
            format!("Too long: may not be more than {ANNOTATIONS} bytes"),
        ));
    }
    for (i, owner) in items(&metadata["ownerReferences"]).enumerate() {
        for required in ["apiVersion", "kind", "name", "uid"] {
            if field::text(owner, &[required]).is_empty() {
                let path = format!("metadata.ownerReferences[{i}].{required}");
                causes.push(Cause::required(path, "must not be empty"));
            }
        }
    }
    causes
}

/// What is wrong with a map of labels.
fn labels(path: &str, labels: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Some(why) = qualified_error(key) {
            causes.push(Cause::invalid(path, &Value::from(key.as_str()), &why));
        }
        let text = value.as_str().unwrap_or_default();
        if text.len() > 63 {
            causes.push(Cause::invalid(path, value, "must be no more than 63 characters"));
        } else if !text.is_empty() && !is_name_part(text) {
            causes.push(Cause::invalid(path, value, LABEL_VALUE));
        }
    }
    causes
}

fn name_error(resource: &Resource, name: &str) -> Option<String> {
    match resource.storage.as_ref() {
        "roles.rbac.authorization.k8s.io"
        | "rolebindings.rbac.authorization.k8s.io"
        | "clusterroles.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => {
            let bad = name == "." || name == ".." || name.contains(['/', '%']);
            bad.then(|| "may not be '.' or '..' and may not contain '/' or '%'".to_owned())
        }
        "namespaces" | "services" => {
            if name.len() > 63 {
                Some("must be no more than 63 characters".to_owned())
            } else {
                (!is_label(name)).then(|| LABEL.to_owned())
            }
        }
        _ if name.len() > 253 => Some("must be no more than 253 characters".to_owned()),
        _ => (!name.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned()),
    }
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || c == '-')
}

fn is_name_part(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// What is wrong with `[PREFIX/]NAME`.
fn qualified_error(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    match prefix {
        Some("") => return Some("prefix part must be non-empty".to_owned()),
        Some(prefix) if prefix.len() > 253 || !prefix.split('.').all(is_label) => {
            return Some(format!("prefix part {SUBDOMAIN}"));
        }
        _ => {}
    }
    if name.is_empty() {
        Some("name part must be non-empty".to_owned())
    } else if name.len() > 63 {
        Some("name part must be no more than 63 characters".to_owned())
    } else {
        (!is_name_part(name)).then(|| QUALIFIED.to_owned())
    }
}

/// What is wrong with the fields of a built-in kind.
pub(crate) fn fields(storage: &str, object: &Value) -> Vec<Cause> {
    match storage {
        "pods" => pod_spec("spec", &object["spec"]),
        "jobs.batch" => {
            let mut causes = templated(object, false);
            let policy = &object["spec"]["template"]["spec"]["restartPolicy"];
            if policy == "Always" {
                causes.push(Cause::unsupported(
                    "spec.template.spec.restartPolicy",
                    policy,
                    &["OnFailure", "Never"],
                ));
            }
            causes
        }
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            templated(object, true)
        }
        "services" => items(&object["spec"]["ports"])
            .enumerate()
            .filter(|(_, port)| !port["port"].as_i64().is_some_and(|p| (1..=65535).contains(&p)))
            .map(|(i, port)| {
                let path = format!("spec.ports[{i}].port");
                Cause::invalid(path, &port["port"], "must be between 1 and 65535, inclusive")
            })
            .collect(),
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io"
            if field::text(object, &["roleRef", "name"]).is_empty() =>
        {
            vec![Cause::required("roleRef.name", "")]
        }
        _ => Vec::new(),
    }
}

fn templated(object: &Value, selected: bool) -> Vec<Cause> {
    let spec = &object["spec"];
    let mut causes = pod_spec("spec.template.spec", &spec["template"]["spec"]);
    if selected {
        let wanted = spec["selector"]["matchLabels"].as_object();
        let labels = &spec["template"]["metadata"]["labels"];
        if spec["selector"].is_null() {
            causes.push(Cause::required("spec.selector", ""));
        } else if wanted.into_iter().flatten().any(|(key, value)| labels[key] != *value) {
            causes.push(Cause::invalid(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            ));
        }
    }
    causes.extend(labels("spec.template.metadata.labels", &spec["template"]["metadata"]["labels"]));
    causes
}

fn pod_spec(at: &str, spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if items(&spec["containers"]).next().is_none() {
        causes.push(Cause::required(format!("{at}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (i, container) in items(&spec[list]).enumerate() {
            let at = format!("{at}.{list}[{i}]");
            let name = field::text(container, &["name"]);
            if name.is_empty() {
                causes.push(Cause::required(format!("{at}.name"), ""));
            } else if name.len() > 63 || !is_label(name) {
                causes.push(Cause::invalid(format!("{at}.name"), &container["name"], LABEL));
            } else if names.contains(&name) {
                causes.push(Cause::duplicate(format!("{at}.name"), &container["name"]));
            }
            names.push(name);
            if field::text(container, &["image"]).is_empty() {
                causes.push(Cause::required(format!("{at}.image"), ""));
            }
            causes.extend(quantities(&at, &container["resources"]));
            for (j, mount) in items(&container["volumeMounts"]).enumerate() {
                let known = items(&spec["volumes"]).any(|v| v["name"] == mount["name"]);
                if !known {
                    causes.push(Cause::new(
                        "FieldValueNotFound",
                        format!("{at}.volumeMounts[{j}].name"),
                        format!("Not found: {}", mount["name"]),
                    ));
                }
            }
        }
    }
    let policy = &spec["restartPolicy"];
    let policies = ["Always", "OnFailure", "Never"];
    if !policy.as_str().is_some_and(|p| policies.contains(&p)) {
        causes.push(Cause::unsupported(format!("{at}.restartPolicy"), policy, &policies));
    }
    causes
}

/// Extended resources must be whole and asked for as they are limited; no amount is negative.
fn quantities(at: &str, resources: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for side in ["limits", "requests"] {
        for (name, amount) in resources[side].as_object().into_iter().flatten() {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            let path = || format!("{at}.resources.{side}[{name}]");
            if text.starts_with('-') {
                causes.push(Cause::invalid(path(), amount, "must be greater than or equal to 0"));
            } else if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+') {
                causes.push(Cause::invalid(
                    path(),
                    amount,
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                ));
            } else if name.contains('/') && text.parse::<f64>().is_ok_and(|n| n.fract() != 0.0) {
                causes.push(Cause::invalid(path(), amount, "must be an integer"));
            }
        }
    }
    for (name, limit) in resources["limits"].as_object().into_iter().flatten() {
        let request = &resources["requests"][name];
        if name.contains('/') && !request.is_null() && request != limit {
            causes.push(Cause::invalid(
                format!("{at}.resources.requests"),
                request,
                &format!("must be equal to {name} limit of {}", text_of(limit)),
            ));
        }
    }
    causes
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What an update may not change.
pub(crate) fn changes(storage: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let immutable = |path: &str, old: &Value, new: &Value| -> Vec<Cause> {
        if old == new { Vec::new() } else { vec![Cause::invalid(path, new, "field is immutable")] }
    };
    match storage {
        "pods" => pod_changes(&old["spec"], &new["spec"]),
        "jobs.batch" => {
            let (old, new) = (&old["spec"], &new["spec"]);
            let mut causes = immutable("spec.selector", &old["selector"], &new["selector"]);
            if old["suspend"] != true {
                causes.extend(immutable("spec.template", &old["template"], &new["template"]));
            }
            causes
        }
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            immutable("spec.selector", &old["spec"]["selector"], &new["spec"]["selector"])
        }
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io"
            if old["roleRef"] != new["roleRef"] =>
        {
            vec![Cause::invalid("roleRef", &new["roleRef"], "cannot change roleRef")]
        }
        "configmaps" | "secrets" if old["immutable"] == true => {
            let mut causes = Vec::new();
            for part in ["data", "binaryData"] {
                if old[part] != new[part] {
                    causes
                        .push(Cause::forbidden(part, "field is immutable when `immutable` is set"));
                }
            }
            causes
        }
        "services"
            if !new["spec"]["clusterIP"].is_null() && new["spec"]["type"] != "ExternalName" =>
        {
            let (old, new) = (&old["spec"]["clusterIP"], &new["spec"]["clusterIP"]);
            if old.is_null() { Vec::new() } else { immutable("spec.clusterIPs[0]", old, new) }
        }
        "priorityclasses.scheduling.k8s.io" if old["value"] != new["value"] => {
            vec![Cause::forbidden("value", "may not be changed in an update.")]
        }
        _ => Vec::new(),
    }
}

fn pod_changes(old: &Value, new: &Value) -> Vec<Cause> {
    let open = |spec: &Value| {
        let mut spec = spec.clone();
        for list in ["containers", "initContainers"] {
            for container in field::items_mut(&mut spec, list) {
                field::remove(container, "image");
            }
        }
        for field in [
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
            "ephemeralContainers",
        ] {
            field::remove(&mut spec, field);
        }
        // Gates may be lifted, and a gated pod's constraints narrowed.
        let gated = items(&old["schedulingGates"]).next().is_some();
        field::remove(&mut spec, "schedulingGates");
        if gated {
            field::remove(&mut spec, "nodeSelector");
            field::remove(&mut spec, "affinity");
        }
        spec
    };
    let mut causes = Vec::new();
    if open(old) != open(new) {
        causes.push(Cause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
             negative)",
        ));
    }
    let kept = |gate: &Value| items(&old["schedulingGates"]).any(|g| g == gate);
    if !items(&new["schedulingGates"]).all(kept) {
        causes.push(Cause::forbidden(
            "spec.schedulingGates",
            "only deletion is allowed, but found new scheduling gates",
        ));
    }
    causes
}
