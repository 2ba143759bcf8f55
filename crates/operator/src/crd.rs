//! The MPIJob's definition, for clusters where nobody has installed one.

use serde_json::{Value, json};

/// The CustomResourceDefinition of `mpijobs.kubeflow.org`, `v1alpha1`.
///
/// Everything that the definition which Arena installs accepts is accepted; beside that, pod templates are kept whole
/// (Arena's copy of the pod schema is years old and drops newer fields) and the status has its times. A cluster that has
/// Arena's definition already is served as well.
pub fn crd() -> Value {
    let count = json!({"type": "integer", "format": "int32"});
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let time = json!({"type": "string", "format": "date-time"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "mpijobs.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "scope": "Namespaced",
            "names": {"kind": "MPIJob", "listKind": "MPIJobList", "plural": "mpijobs", "singular": "mpijob"},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    {"name": "State", "type": "string", "jsonPath": ".status.launcherStatus"},
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": {"type": "object", "properties": {
                            "gpus": count,
                            "gpusPerNode": count,
                            "processingUnits": count,
                            "processingUnitsPerNode": count,
                            "processingResourceType": {"type": "string"},
                            "slotsPerWorker": count,
                            "replicas": count,
                            "cleanPodPolicy": {"type": "string"},
                            "backoffLimit": count,
                            "activeDeadlineSeconds": {"type": "integer", "format": "int64"},
                            "launcherOnMaster": {"type": "boolean"},
                            "mountsOnLauncher": {"type": "boolean"},
                            "launcherResources": anything,
                            "template": anything,
                        }},
                        "status": {"type": "object", "properties": {
                            "launcherStatus": {"type": "string"},
                            "workerReplicas": count,
                            "startTime": time,
                            "completionTime": time,
                        }},
                    },
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use api::{MpiJobSpec, MpiJobStatus};

    use super::*;

    /// Each field that is read is in the definition: an API server drops those that are not.
    #[test]
    fn every_field_that_we_read_is_kept() {
        let crd = crd();
        let kept = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let spec = MpiJobSpec {
            gpus: Some(1),
            gpus_per_node: Some(1),
            processing_units: Some(1),
            processing_units_per_node: Some(1),
            processing_resource_type: Some(String::new()),
            slots_per_worker: Some(1),
            replicas: Some(1),
            clean_pod_policy: Some(String::new()),
            backoff_limit: Some(1),
            active_deadline_seconds: Some(1),
            launcher_resources: Some(json!({})),
            launcher_on_master: Some(true),
            mounts_on_launcher: Some(true),
            template: json!({}),
            problem: None,
        };
        let time = || {
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH))
        };
        let status = MpiJobStatus {
            launcher_status: Some(String::new()),
            worker_replicas: Some(1),
            start_time: time(),
            completion_time: time(),
        };
        for (part, fields) in [
            ("spec", serde_json::to_value(spec).unwrap()),
            ("status", serde_json::to_value(status).unwrap()),
        ] {
            for field in fields.as_object().unwrap().keys() {
                assert!(kept[part]["properties"][field].is_object(), "{part}.{field}");
            }
        }
    }
}
