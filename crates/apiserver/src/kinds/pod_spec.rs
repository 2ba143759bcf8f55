//! Defaults of pods and pod templates.

use serde_json::{Value, json};

use crate::field::{self, default, items, items_mut, object, set};

/// The defaults of a pod spec, wherever it stands.
pub(super) fn template(spec: &mut Value) {
    default(spec, "restartPolicy", "Always");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "securityContext", json!({}));
    // The old name of the field is kept in step.
    let account = field::text(spec, &["serviceAccountName"]).to_owned();
    let account = if account.is_empty() {
        field::text(spec, &["serviceAccount"]).to_owned()
    } else {
        account
    };
    if !account.is_empty() {
        set(spec, "serviceAccountName", account.as_str());
        set(spec, "serviceAccount", account);
    }
    let host_network = spec["hostNetwork"] == true;
    for list in ["initContainers", "containers"] {
        for each in items_mut(spec, list) {
            container(each, host_network);
        }
    }
    for volume in items_mut(spec, "volumes") {
        self::volume(volume);
    }
    for constraint in items_mut(spec, "topologySpreadConstraints") {
        default(constraint, "whenUnsatisfiable", "DoNotSchedule");
    }
}

fn container(container: &mut Value, host_network: bool) {
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    let pull = pull_policy(field::text(container, &["image"]));
    default(container, "imagePullPolicy", pull);
    default(container, "resources", json!({}));
    for port in items_mut(container, "ports") {
        default(port, "protocol", "TCP");
        if host_network {
            let number = port["containerPort"].clone();
            default(port, "hostPort", number);
        }
    }
    for env in items_mut(container, "env") {
        if env["valueFrom"]["fieldRef"].is_object() {
            default(&mut env["valueFrom"]["fieldRef"], "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).filter(|p| p.is_object()) {
            default(probe, "timeoutSeconds", 1);
            default(probe, "periodSeconds", 10);
            default(probe, "successThreshold", 1);
            default(probe, "failureThreshold", 3);
            if probe["httpGet"].is_object() {
                default(&mut probe["httpGet"], "path", "/");
                default(&mut probe["httpGet"], "scheme", "HTTP");
            }
        }
    }
}

/// `Always` for images without tag or digest and for `latest`.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit_once('/').map_or(image, |(_, last)| last);
    let moving = match last.split_once(':') {
        _ if last.contains('@') => false,
        Some((_, tag)) => tag == "latest",
        None => true,
    };
    if moving { "Always" } else { "IfNotPresent" }
}

fn volume(volume: &mut Value) {
    let sources = volume.as_object().map_or(0, |v| v.values().filter(|v| !v.is_null()).count());
    if sources <= 1 {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if volume[source].is_object() {
            default(&mut volume[source], "defaultMode", 420);
        }
    }
    if volume["hostPath"].is_object() {
        default(&mut volume["hostPath"], "type", "");
    }
}

/// What only a pod gets, not a template.
pub(super) fn pod(pod: &mut Value) {
    let spec = object(pod, "spec");
    template(spec);
    default(spec, "enableServiceLinks", true);
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            requests_from_limits(&mut container["resources"]);
        }
    }
}

fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources["limits"].as_object().cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = object(resources, "requests");
    for (name, limit) in limits {
        default(requests, &name, limit);
    }
}

/// The quality of service that the containers' requests and limits amount to.
pub(super) fn qos_class(spec: &Value) -> &'static str {
    let containers: Vec<&Value> =
        items(&spec["containers"]).chain(items(&spec["initContainers"])).collect();
    let given = |container: &Value, side: &str, name: &str| -> Option<String> {
        let amount = &container["resources"][side][name];
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        (!amount.is_null() && text != "0").then_some(text)
    };
    let any = containers.iter().any(|c| {
        ["limits", "requests"]
            .iter()
            .any(|side| ["cpu", "memory"].iter().any(|name| given(c, side, name).is_some()))
    });
    let all = containers.iter().all(|c| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = given(c, "limits", name);
            limit.is_some() && limit == given(c, "requests", name)
        })
    });
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("busybox:1.36", "IfNotPresent"),
            ("registry:5000/team/busybox", "Always"),
            ("registry:5000/team/busybox:1", "IfNotPresent"),
            ("busybox@sha256:abcd", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn quality_of_service_follows_cpu_and_memory() {
        let spec = |resources: Value| json!({"containers": [{"resources": resources}]});
        for (resources, class) in [
            (json!({}), "BestEffort"),
            (json!({"limits": {"example.com/gpu": "1"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}),
                "Guaranteed",
            ),
        ] {
            assert_eq!(qos_class(&spec(resources)), class);
        }
    }
}
