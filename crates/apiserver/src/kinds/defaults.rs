//! Defaults of the built-in kinds, as far as tools depend on them.

use serde_json::{Value, json};

use super::pod_spec;
use crate::field::{self, default, items_mut, object, set};

/// Fills what the object of `storage` leaves out.
pub(crate) fn fill(storage: &str, value: &mut Value) {
    match storage {
        "pods" => pod_spec::pod(value),
        "jobs.batch" => job(value),
        "cronjobs.batch" => {
            let spec = object(value, "spec");
            default(spec, "concurrencyPolicy", "Allow");
            default(spec, "suspend", false);
            default(spec, "successfulJobsHistoryLimit", 3);
            default(spec, "failedJobsHistoryLimit", 1);
            template(object(object(spec, "jobTemplate"), "spec"));
        }
        "deployments.apps" => {
            let spec = object(value, "spec");
            default(spec, "replicas", 1);
            default(spec, "revisionHistoryLimit", 10);
            default(spec, "progressDeadlineSeconds", 600);
            let strategy = object(spec, "strategy");
            default(strategy, "type", "RollingUpdate");
            if strategy["type"] == "RollingUpdate" {
                let rolling = object(strategy, "rollingUpdate");
                default(rolling, "maxUnavailable", "25%");
                default(rolling, "maxSurge", "25%");
            }
            template(spec);
        }
        "replicasets.apps" | "replicationcontrollers" => {
            let spec = object(value, "spec");
            default(spec, "replicas", 1);
            template(spec);
        }
        "statefulsets.apps" => {
            let spec = object(value, "spec");
            default(spec, "replicas", 1);
            default(spec, "podManagementPolicy", "OrderedReady");
            default(spec, "revisionHistoryLimit", 10);
            default(
                spec,
                "updateStrategy",
                json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
            );
            template(spec);
        }
        "daemonsets.apps" => {
            let spec = object(value, "spec");
            default(spec, "revisionHistoryLimit", 10);
            default(
                spec,
                "updateStrategy",
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
            );
            template(spec);
        }
        "services" => service(value),
        "namespaces" => {
            let name = field::text(value, &["metadata", "name"]).to_owned();
            set(object(object(value, "metadata"), "labels"), "kubernetes.io/metadata.name", name);
            default(object(value, "spec"), "finalizers", json!(["kubernetes"]));
            default(object(value, "status"), "phase", "Active");
        }
        "secrets" => {
            default(value, "type", "Opaque");
            secret_texts(value);
        }
        "persistentvolumeclaims" => {
            default(object(value, "spec"), "volumeMode", "Filesystem");
            default(object(value, "status"), "phase", "Pending");
        }
        "persistentvolumes" => {
            let spec = object(value, "spec");
            default(spec, "volumeMode", "Filesystem");
            default(spec, "persistentVolumeReclaimPolicy", "Retain");
            default(object(value, "status"), "phase", "Available");
        }
        "priorityclasses.scheduling.k8s.io" => {
            default(value, "preemptionPolicy", "PreemptLowerPriority");
            default(value, "value", 0);
        }
        "storageclasses.storage.k8s.io" => {
            default(value, "reclaimPolicy", "Delete");
            default(value, "volumeBindingMode", "Immediate");
        }
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => {
            default(object(value, "roleRef"), "apiGroup", "rbac.authorization.k8s.io");
            for subject in items_mut(value, "subjects") {
                if subject["kind"] != "ServiceAccount" {
                    default(subject, "apiGroup", "rbac.authorization.k8s.io");
                }
            }
        }
        _ => {}
    }
}

fn template(spec: &mut Value) {
    if spec["template"].is_object() {
        pod_spec::template(object(&mut spec["template"], "spec"));
        default(object(&mut spec["template"], "metadata"), "creationTimestamp", Value::Null);
    }
}

fn job(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() && job["metadata"]["labels"].as_object().is_none_or(|l| l.is_empty()) {
        set(object(job, "metadata"), "labels", labels);
    }
    let spec = object(job, "spec");
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        set(spec, "completions", 1);
    }
    default(spec, "parallelism", 1);
    default(spec, "backoffLimit", 6);
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    default(spec, "manualSelector", false);
    default(spec, "podReplacementPolicy", "TerminatingOrFailed");
    template(spec);
}

/// The selector and the pod labels that tie a job to its pods, unless the user brings a selector.
pub(crate) fn job_selector(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let uid = field::text(job, &["metadata", "uid"]).to_owned();
    let name = field::text(job, &["metadata", "name"]).to_owned();
    let spec = object(job, "spec");
    set(spec, "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    let labels = object(object(object(spec, "template"), "metadata"), "labels");
    for prefix in ["", "batch.kubernetes.io/"] {
        set(labels, &format!("{prefix}controller-uid"), uid.as_str());
        set(labels, &format!("{prefix}job-name"), name.as_str());
    }
}

fn service(service: &mut Value) {
    let spec = object(service, "spec");
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    for port in items_mut(spec, "ports") {
        default(port, "protocol", "TCP");
        let number = port["port"].clone();
        default(port, "targetPort", number);
    }
    if spec["type"] != "ExternalName" {
        default(spec, "internalTrafficPolicy", "Cluster");
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", "SingleStack");
    }
    default(object(service, "status"), "loadBalancer", json!({}));
}

/// `stringData` is a way to write `data`, and is not kept.
fn secret_texts(secret: &mut Value) {
    use base64::Engine as _;
    let Some(Value::Object(texts)) = field::remove(secret, "stringData") else { return };
    let data = object(secret, "data");
    for (name, text) in texts {
        let text = text.as_str().unwrap_or_default().to_owned();
        set(data, &name, base64::engine::general_purpose::STANDARD.encode(text));
    }
}
