//! What the API does with pods: admission, binding, graceful deletion.

use serde_json::{Map, Value, json};

use super::pod_spec;
use crate::field::{self, default, items, object, set};
use crate::fresh;
use crate::resource::Resource;
use crate::status::{Cause, Reason, Status};
use crate::store::Store;

/// Priority, service account, default tolerations and first status of a new pod.
pub(super) fn admit(store: &Store, resource: &Resource, pod: &mut Value) -> Result<(), Status> {
    let name = field::text(pod, &["metadata", "name"]).to_owned();
    let namespace = field::text(pod, &["metadata", "namespace"]).to_owned();
    let spec = object(pod, "spec");
    default(spec, "serviceAccountName", "default");
    let account = field::text(spec, &["serviceAccountName"]).to_owned();
    set(spec, "serviceAccount", account.as_str());
    if store.get("serviceaccounts", &format!("{namespace}/{account}")).is_none() {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
        );
        return Err(Status::forbidden(resource, &name, why));
    }
    priority(store, resource, &name, spec)?;
    tolerations(spec);
    let class = pod_spec::qos_class(spec);
    set(pod, "status", json!({"phase": "Pending", "qosClass": class}));
    if items(&pod["spec"]["schedulingGates"]).next().is_some() {
        let status = object(pod, "status");
        set(
            status,
            "conditions",
            json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": fresh::now(),
            }]),
        );
    }
    Ok(())
}

fn priority(
    store: &Store,
    resource: &Resource,
    name: &str,
    spec: &mut Value,
) -> Result<(), Status> {
    let wanted = field::text(spec, &["priorityClassName"]).to_owned();
    let storage = "priorityclasses.scheduling.k8s.io";
    let class = if wanted.is_empty() {
        // The default class, if there is one: of several the one of the highest value.
        let classes = store.list(storage, "", None).objects;
        let global = classes.iter().map(|c| c.value()).filter(|c| c["globalDefault"] == true);
        global.max_by_key(|c| c["value"].as_i64())
    } else {
        let found = store.get(storage, &wanted).ok_or_else(|| {
            let why = format!("no PriorityClass with name {wanted} was found");
            Status::forbidden(resource, name, why)
        })?;
        Some(found.value())
    };
    let value = class.as_ref().and_then(|c| c["value"].as_i64()).unwrap_or(0);
    let given = &spec["priority"];
    if !given.is_null() && given.as_i64() != Some(value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(Status::forbidden(resource, name, why));
    }
    set(spec, "priority", value);
    if let Some(class) = &class {
        set(spec, "priorityClassName", class["metadata"]["name"].clone());
    }
    let policy = class.as_ref().and_then(|c| c["preemptionPolicy"].as_str());
    default(spec, "preemptionPolicy", policy.unwrap_or("PreemptLowerPriority"));
    Ok(())
}

fn tolerations(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(&spec["tolerations"]).any(|t| {
            let key_fits = t["key"] == key || field::text(t, &["key"]).is_empty();
            key_fits && matches!(field::text(t, &["effect"]), "" | "NoExecute")
        });
        if !tolerated {
            default(spec, "tolerations", json!([]));
            if let Some(list) = spec["tolerations"].as_array_mut() {
                list.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
                }));
            }
        }
    }
}

/// The pod as a Binding makes it: node, the Binding's annotations, and the PodScheduled condition, in one write.
pub(crate) fn bind(resource: &Resource, pod: &Value, binding: &Value) -> Result<Value, Status> {
    let name = field::text(pod, &["metadata", "name"]);
    let node = field::text(binding, &["target", "name"]);
    if node.is_empty() {
        return Err(Status::invalid(resource, name, vec![Cause::required("target.name", "")]));
    }
    let kind = field::text(binding, &["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        let cause =
            Cause::unsupported("target.kind", &binding["target"]["kind"], &["Node", "<empty>"]);
        return Err(Status::invalid(resource, name, vec![cause]));
    }
    let wanted = field::text(binding, &["metadata", "uid"]);
    let uid = field::text(pod, &["metadata", "uid"]);
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
        );
        return Err(Status::conflict(resource, name, why));
    }
    let revision = field::text(binding, &["metadata", "resourceVersion"]);
    if !revision.is_empty() && revision != field::text(pod, &["metadata", "resourceVersion"]) {
        return Err(Status::stale(resource, name));
    }
    let conflict = |why: String| Status::conflict(resource, name, why);
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let bound = field::text(pod, &["spec", "nodeName"]);
    if !bound.is_empty() {
        return Err(conflict(format!("pod {name} is already assigned to node {bound:?}")));
    }
    if items(&pod["spec"]["schedulingGates"]).next().is_some() {
        return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    let mut pod = pod.clone();
    set(object(&mut pod, "spec"), "nodeName", node);
    if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
        let all = object(object(&mut pod, "metadata"), "annotations");
        for (key, value) in annotations {
            set(all, key, value.clone());
        }
    }
    set_condition(&mut pod, "PodScheduled", "True");
    Ok(pod)
}

/// Sets a condition that says nothing but its status.
fn set_condition(pod: &mut Value, kind: &str, status: &str) {
    let conditions = object(pod, "status");
    default(conditions, "conditions", json!([]));
    let Some(list) = conditions["conditions"].as_array_mut() else { return };
    let mut new = Map::new();
    new.insert("type".to_owned(), kind.into());
    new.insert("status".to_owned(), status.into());
    new.insert("lastProbeTime".to_owned(), Value::Null);
    new.insert("lastTransitionTime".to_owned(), fresh::now().into());
    match list.iter_mut().find(|c| c["type"] == kind) {
        Some(old) if old["status"] == status => {
            new.insert("lastTransitionTime".to_owned(), old["lastTransitionTime"].clone());
            *old = Value::Object(new);
        }
        Some(old) => *old = Value::Object(new),
        None => list.push(Value::Object(new)),
    }
}

/// How many seconds a pod gets to end; 0 removes it at once.
pub(crate) fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let phase = field::text(pod, &["status", "phase"]);
    let ended = matches!(phase, "Succeeded" | "Failed");
    if field::text(pod, &["spec", "nodeName"]).is_empty() || ended {
        return 0;
    }
    asked.unwrap_or(own).max(0)
}

/// Whether a disruption budget forbids the eviction of this pod now.
///
/// # Errors
/// 429, naming the budget.
pub(crate) fn check_budgets(store: &Store, pod: &Value) -> Result<(), Status> {
    let namespace = field::text(pod, &["metadata", "namespace"]);
    if matches!(field::text(pod, &["status", "phase"]), "Succeeded" | "Failed")
        || field::text(pod, &["spec", "nodeName"]).is_empty()
    {
        return Ok(());
    }
    for budget in store.list("poddisruptionbudgets.policy", namespace, None).objects {
        let value = budget.value();
        let wanted = value["spec"]["selector"]["matchLabels"].as_object();
        let labels = &pod["metadata"]["labels"];
        let selects = wanted.is_some_and(|w| w.iter().all(|(k, v)| labels[k] == *v));
        if selects && value["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) < 1 {
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            let mut status = Status::new(Reason::TooManyRequests, message);
            status.details = Some(Box::new(crate::status::Details {
                causes: vec![Cause::new(
                    "DisruptionBudget",
                    "",
                    format!("The disruption budget {} needs healthy pods", budget.name()),
                )],
                ..Default::default()
            }));
            return Err(status);
        }
    }
    Ok(())
}
