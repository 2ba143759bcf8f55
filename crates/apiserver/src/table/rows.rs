//! Columns and rows of the built-in kinds, as upstream prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, or_none, pods};
use crate::field::{self, items};
use crate::resource::{Cells, Column, Columns};

type Print = fn(&Value, Timestamp) -> Vec<Value>;

/// The headings after the name (`!` marks those of `-o wide`), and the function that fills them with the name.
fn printing(group: &str, plural: &str) -> Option<(&'static [&'static str], Print)> {
    Some(match (group, plural) {
        ("", "pods") => (
            &[
                "Ready",
                "Status",
                "Restarts",
                "Age",
                "!IP",
                "!Node",
                "!Nominated Node",
                "!Readiness Gates",
            ],
            pods::row,
        ),
        ("", "nodes") => (
            &[
                "Status",
                "Roles",
                "Age",
                "Version",
                "!Internal-IP",
                "!External-IP",
                "!OS-Image",
                "!Kernel-Version",
                "!Container-Runtime",
            ],
            node,
        ),
        ("", "namespaces") => (&["Status", "Age"], namespace),
        ("", "configmaps") => (&["Data", "Age"], config_map),
        ("", "secrets") => (&["Type", "Data", "Age"], secret),
        ("", "serviceaccounts") => (&["Secrets", "Age"], service_account),
        ("", "services") => {
            (&["Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "!Selector"], service)
        }
        ("", "persistentvolumeclaims") => (
            &[
                "Status",
                "Volume",
                "Capacity",
                "Access Modes",
                "StorageClass",
                "VolumeAttributesClass",
                "Age",
                "!VolumeMode",
            ],
            claim,
        ),
        ("apps", "deployments") => (
            &["Ready", "Up-to-date", "Available", "Age", "!Containers", "!Images", "!Selector"],
            deployment,
        ),
        ("apps", "replicasets") | ("", "replicationcontrollers") => (
            &["Desired", "Current", "Ready", "Age", "!Containers", "!Images", "!Selector"],
            replica_set,
        ),
        ("apps", "statefulsets") => (&["Ready", "Age", "!Containers", "!Images"], stateful_set),
        ("apps", "daemonsets") => (
            &[
                "Desired",
                "Current",
                "Ready",
                "Up-to-date",
                "Available",
                "Node Selector",
                "Age",
                "!Containers",
                "!Images",
                "!Selector",
            ],
            daemon_set,
        ),
        ("batch", "jobs") => (
            &["Status", "Completions", "Duration", "Age", "!Containers", "!Images", "!Selector"],
            job,
        ),
        ("batch", "cronjobs") => (
            &[
                "Schedule",
                "Timezone",
                "Suspend",
                "Active",
                "Last Schedule",
                "Age",
                "!Containers",
                "!Images",
                "!Selector",
            ],
            cron_job,
        ),
        ("coordination.k8s.io", "leases") => (&["Holder", "Age"], lease),
        ("scheduling.k8s.io", "priorityclasses") => {
            (&["Value", "Global-Default", "Age", "PreemptionPolicy"], priority_class)
        }
        ("policy", "poddisruptionbudgets") => {
            (&["Min Available", "Max Unavailable", "Allowed Disruptions", "Age"], budget)
        }
        ("rbac.authorization.k8s.io", "roles" | "clusterroles")
        | ("apiextensions.k8s.io", "customresourcedefinitions") => (&["Created At"], created_at),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            (&["Role", "Age", "!Users", "!Groups", "!ServiceAccounts"], role_binding)
        }
        _ => return None,
    })
}

/// The columns of a built-in resource that has its own.
pub(crate) fn columns_of(group: &str, plural: &str) -> Option<Columns> {
    if plural == "events" {
        return Some(events());
    }
    let (headings, print) = printing(group, plural)?;
    let mut columns = vec![Column::name()];
    columns.extend(headings.iter().map(|heading| column(heading)));
    Some(Columns { columns, cells: Cells::Printed(print) })
}

fn column(heading: &str) -> Column {
    let name = heading.trim_start_matches('!');
    let mut column = Column::string(name, "");
    column.priority = i64::from(heading.starts_with('!'));
    let counts =
        ["Desired", "Current", "Up-to-date", "Available", "Data", "Active", "Count", "Secrets"];
    if counts.contains(&name) || (name == "Value" || name == "Allowed Disruptions") {
        column.kind = "integer".to_owned();
    }
    column
}

/// Events begin with their time; the name comes last.
fn events() -> Columns {
    let headings = [
        "Last Seen",
        "Type",
        "Reason",
        "Object",
        "!Subobject",
        "!Source",
        "Message",
        "!First Seen",
        "!Count",
    ];
    let mut columns: Vec<Column> = headings.iter().map(|heading| column(heading)).collect();
    let mut name = Column::name();
    name.priority = 1;
    columns.push(name);
    Columns { columns, cells: Cells::Printed(event) }
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    // Both faces of an event are printed alike.
    let either = |core: &str, new: &str| {
        let found = &event[core];
        if found.is_null() { event[new].clone() } else { found.clone() }
    };
    let object = either("involvedObject", "regarding");
    let kind = field::text(&object, &["kind"]).to_lowercase();
    let name = field::text(&object, &["name"]);
    let first = either("firstTimestamp", "deprecatedFirstTimestamp");
    let last = either("lastTimestamp", "deprecatedLastTimestamp");
    let time = field::text(event, &["eventTime"]);
    let moment = |own: &Value| age::of(own.as_str().unwrap_or(time), now);
    let series = &event["series"];
    let last_seen = match series["lastObservedTime"].as_str() {
        Some(observed) => age::of(observed, now),
        None => moment(&last),
    };
    let count = match (&series["count"], either("count", "deprecatedCount")) {
        (Value::Number(n), _) => Value::Number(n.clone()),
        (_, Value::Number(n)) => Value::Number(n),
        _ => json!(1),
    };
    let source = either("source", "deprecatedSource");
    let component = match field::text(&source, &["component"]) {
        "" => either("reportingComponent", "reportingController").as_str().unwrap_or("").to_owned(),
        component => component.to_owned(),
    };
    let host = match field::text(&source, &["host"]) {
        "" => field::text(event, &["reportingInstance"]).to_owned(),
        host => host.to_owned(),
    };
    let from = if host.is_empty() { component } else { format!("{component}, {host}") };
    let message = either("message", "note");
    vec![
        last_seen.into(),
        event["type"].clone(),
        event["reason"].clone(),
        if kind.is_empty() { name.into() } else { format!("{kind}/{name}").into() },
        field::text(&object, &["fieldPath"]).into(),
        from.into(),
        message.as_str().unwrap_or_default().trim().into(),
        moment(&first).into(),
        count,
        event["metadata"]["name"].clone(),
    ]
}

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

fn age_of(object: &Value, now: Timestamp) -> Value {
    age::since(object, now).into()
}

fn count(object: &Value, path: &[&str]) -> i64 {
    field::at(object, path).as_i64().unwrap_or(0)
}

fn size(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let ready = items(&node["status"]["conditions"]).find(|c| c["type"] == "Ready");
    let mut state = match ready.map(|c| field::text(c, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role).filter(|role| !role.is_empty()),
            None => (key == "kubernetes.io/role").then_some(value.as_str()).flatten(),
        })
        .collect();
    let address = |kind: &str| {
        let found = items(&node["status"]["addresses"]).find(|a| a["type"] == kind);
        or_none(found.map_or("", |a| field::text(a, &["address"])))
    };
    let info = |name: &str| match field::text(node, &["status", "nodeInfo", name]) {
        "" => json!("<unknown>"),
        text => text.into(),
    };
    vec![
        name(node),
        state.into(),
        or_none(&roles.join(",")),
        age_of(node, now),
        field::text(node, &["status", "nodeInfo", "kubeletVersion"]).into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn namespace(namespace: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(namespace),
        field::text(namespace, &["status", "phase"]).into(),
        age_of(namespace, now),
    ]
}

fn config_map(map: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(map), (size(&map["data"]) + size(&map["binaryData"])).into(), age_of(map, now)]
}

fn secret(secret: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(secret), secret["type"].clone(), size(&secret["data"]).into(), age_of(secret, now)]
}

fn service_account(account: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(account), items(&account["secrets"]).count().into(), age_of(account, now)]
}

fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &service["spec"];
    let ports: Vec<String> = items(&spec["ports"])
        .map(|port| {
            let node_port = port["nodePort"].as_u64().filter(|p| *p > 0);
            let node_port = node_port.map(|p| format!(":{p}")).unwrap_or_default();
            format!("{}{node_port}/{}", port["port"], field::text(port, &["protocol"]))
        })
        .collect();
    let external: Vec<&str> = items(&spec["externalIPs"]).filter_map(Value::as_str).collect();
    let external = match field::text(spec, &["type"]) {
        "ExternalName" => field::text(spec, &["externalName"]).to_owned(),
        "LoadBalancer" if external.is_empty() => "<pending>".to_owned(),
        _ => external.join(","),
    };
    vec![
        name(service),
        spec["type"].clone(),
        or_none(field::text(spec, &["clusterIP"])),
        or_none(&external),
        or_none(&ports.join(",")),
        age_of(service, now),
        or_none(&equalities(&spec["selector"])),
    ]
}

fn claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &claim["spec"];
    let status = &claim["status"];
    let modes: Vec<&str> = items(&status["accessModes"])
        .filter_map(Value::as_str)
        .map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        })
        .collect();
    let bound = !field::text(spec, &["volumeName"]).is_empty();
    let shown = |text: String| if bound { text } else { String::new() };
    let phase = if claim["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        field::text(status, &["phase"])
    };
    vec![
        name(claim),
        phase.into(),
        field::text(spec, &["volumeName"]).into(),
        shown(field::text(status, &["capacity", "storage"]).to_owned()).into(),
        shown(modes.join(",")).into(),
        field::text(spec, &["storageClassName"]).into(),
        match field::text(spec, &["volumeAttributesClassName"]) {
            "" => json!("<unset>"),
            class => class.into(),
        },
        age_of(claim, now),
        match field::text(spec, &["volumeMode"]) {
            "" => json!("<unset>"),
            mode => mode.into(),
        },
    ]
}

/// Containers and images of a pod template.
fn images(spec: &Value) -> [Value; 2] {
    let list = |field_name: &str| {
        let texts: Vec<&str> =
            items(&spec["containers"]).map(|c| field::text(c, &[field_name])).collect();
        texts.join(",").into()
    };
    [list("name"), list("image")]
}

fn equalities(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs = pairs.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    pairs.collect::<Vec<_>>().join(",")
}

fn selector(spec: &Value) -> Value {
    let mut parts = vec![equalities(&spec["selector"]["matchLabels"])];
    parts.extend(items(&spec["selector"]["matchExpressions"]).map(|e| {
        let values: Vec<&str> = items(&e["values"]).filter_map(Value::as_str).collect();
        let key = field::text(e, &["key"]);
        match field::text(e, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    }));
    parts.retain(|part| !part.is_empty());
    or_none(&parts.join(","))
}

fn with_template(object: &Value, mut cells: Vec<Value>, selected: bool) -> Vec<Value> {
    let spec = &object["spec"];
    cells.extend(images(&spec["template"]["spec"]));
    if selected {
        cells.push(selector(spec));
    }
    cells
}

fn deployment(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let ready = count(deployment, &["status", "readyReplicas"]);
    let wanted = count(deployment, &["spec", "replicas"]);
    let cells = vec![
        name(deployment),
        format!("{ready}/{wanted}").into(),
        count(deployment, &["status", "updatedReplicas"]).into(),
        count(deployment, &["status", "availableReplicas"]).into(),
        age_of(deployment, now),
    ];
    with_template(deployment, cells, true)
}

fn replica_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let cells = vec![
        name(set),
        count(set, &["spec", "replicas"]).into(),
        count(set, &["status", "replicas"]).into(),
        count(set, &["status", "readyReplicas"]).into(),
        age_of(set, now),
    ];
    with_template(set, cells, true)
}

fn stateful_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let ready = count(set, &["status", "readyReplicas"]);
    let wanted = count(set, &["spec", "replicas"]);
    let cells = vec![name(set), format!("{ready}/{wanted}").into(), age_of(set, now)];
    with_template(set, cells, false)
}

fn daemon_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let cells = vec![
        name(set),
        count(set, &["status", "desiredNumberScheduled"]).into(),
        count(set, &["status", "currentNumberScheduled"]).into(),
        count(set, &["status", "numberReady"]).into(),
        count(set, &["status", "updatedNumberScheduled"]).into(),
        count(set, &["status", "numberAvailable"]).into(),
        or_none(&equalities(&set["spec"]["template"]["spec"]["nodeSelector"])),
        age_of(set, now),
    ];
    with_template(set, cells, true)
}

fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    let status = &job["status"];
    let has = |kind: &str| {
        items(&status["conditions"]).any(|c| c["type"] == kind && c["status"] == "True")
    };
    let word = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if job["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let succeeded = count(job, &["status", "succeeded"]);
    let completions =
        match (job["spec"]["completions"].as_i64(), job["spec"]["parallelism"].as_i64()) {
            (Some(wanted), _) => format!("{succeeded}/{wanted}"),
            (None, Some(parallel)) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
            _ => format!("{succeeded}/1"),
        };
    let started = field::text(status, &["startTime"]).parse::<Timestamp>();
    let duration = started.map_or_else(
        |_| String::new(),
        |started| {
            let ended = field::text(status, &["completionTime"]).parse().unwrap_or(now);
            age::human(started, ended)
        },
    );
    let cells = vec![name(job), word.into(), completions.into(), duration.into(), age_of(job, now)];
    with_template(job, cells, true)
}

fn cron_job(job: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &job["spec"];
    let last = field::text(job, &["status", "lastScheduleTime"]);
    let mut cells = vec![
        name(job),
        spec["schedule"].clone(),
        or_none(field::text(spec, &["timeZone"])),
        if spec["suspend"] == true { json!("True") } else { json!("False") },
        items(&job["status"]["active"]).count().into(),
        if last.is_empty() { json!("<none>") } else { age::of(last, now).into() },
        age_of(job, now),
    ];
    let template = &spec["jobTemplate"]["spec"];
    cells.extend(images(&template["template"]["spec"]));
    cells.push(selector(template));
    cells
}

fn lease(lease: &Value, now: Timestamp) -> Vec<Value> {
    let holder = field::text(lease, &["spec", "holderIdentity"]);
    vec![name(lease), holder.into(), age_of(lease, now)]
}

fn priority_class(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(class),
        count(class, &["value"]).into(),
        (class["globalDefault"] == true).into(),
        age_of(class, now),
        class["preemptionPolicy"].clone(),
    ]
}

fn budget(budget: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |name: &str| match &budget["spec"][name] {
        Value::Null => json!("N/A"),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    vec![
        name(budget),
        bound("minAvailable"),
        bound("maxUnavailable"),
        count(budget, &["status", "disruptionsAllowed"]).into(),
        age_of(budget, now),
    ]
}

fn created_at(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(object), object["metadata"]["creationTimestamp"].clone()]
}

fn role_binding(binding: &Value, now: Timestamp) -> Vec<Value> {
    let role = &binding["roleRef"];
    let role = format!("{}/{}", field::text(role, &["kind"]), field::text(role, &["name"]));
    let subjects = |kind: &str| {
        let names: Vec<String> = items(&binding["subjects"])
            .filter(|s| s["kind"] == kind)
            .map(|s| match field::text(s, &["namespace"]) {
                "" => field::text(s, &["name"]).to_owned(),
                namespace => format!("{namespace}/{}", field::text(s, &["name"])),
            })
            .collect();
        names.join(", ").into()
    };
    vec![
        name(binding),
        role.into(),
        age_of(binding, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
