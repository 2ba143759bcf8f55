//! The small objects around a job: the ConfigMap with its hostfile, and what its launcher may do. Each is a pure function
//! of the job; names are deterministic, so making one twice makes one.

use api::{MpiJob, contract};
use serde_json::{Map, Value, json};

use crate::shape::Shape;

/// The operator's name in events.
pub(crate) const COMPONENT: &str = "mpi-job-controller";

/// Name, labels and owner of an object of the job.
pub(crate) fn metadata(job: &MpiJob, name: String, labels: Value) -> Value {
    json!({
        "name": name,
        "namespace": job.namespace(),
        "labels": labels,
        "ownerReferences": [{
            "apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob", "name": job.name(), "uid": job.uid(),
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

/// Labels of what plays a role in the job.
pub(crate) fn role_labels(job: &str, role: &str) -> Map<String, Value> {
    [
        (contract::GROUP_NAME, contract::MPI_GROUP),
        (contract::MPI_JOB_NAME, job),
        (contract::MPI_ROLE, role),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.into()))
    .collect()
}

/// Labels of the template with ours; those by which Arena finds a job's pods are added where the user gave none.
pub(crate) fn pod_labels(job: &MpiJob, role: &str) -> Map<String, Value> {
    let mut labels =
        job.spec.template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.entry(contract::RELEASE).or_insert_with(|| job.name().into());
    labels.entry(contract::APP).or_insert_with(|| contract::MPI_APP.into());
    labels.extend(role_labels(job.name(), role));
    labels
}

/// Adds to a list, or makes one of it.
pub(crate) fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

/// Without the nulls that Arena's chart leaves.
pub(crate) fn prune(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            for value in map.values_mut() {
                *value = prune(value.take());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = prune(item.take())),
        _ => {}
    }
    value
}

/// The two notations of one hostfile, by key of the ConfigMap: one line a worker, in the order given.
pub(crate) fn hostfiles(shape: &Shape, order: &[String]) -> Value {
    let slots = shape.slots;
    let lines = |line: &dyn Fn(&String) -> String| order.iter().map(line).collect::<String>();
    json!({
        contract::HOSTFILE: lines(&|worker| format!("{worker} slots={slots}\n")),
        contract::MACHINEFILE: lines(&|worker| format!("{worker}:{slots}\n")),
    })
}

/// The ConfigMap with the hostfile.
pub(crate) fn config(job: &MpiJob, hostfiles: &Value) -> Value {
    let labels = json!({contract::APP: job.name(), contract::MPI_JOB_NAME: job.name()});
    let metadata = metadata(job, contract::config_name(job.name()), labels);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": hostfiles})
}

/// Account, role and role binding of the launcher, each with the path under which its kind is made: it may look at its
/// workers and start programs in them, and at nothing else.
pub(crate) fn access(job: &MpiJob, workers: usize) -> [(String, Value); 3] {
    let name = contract::launcher_name(job.name());
    let namespace = job.namespace();
    let meta = || metadata(job, name.clone(), json!({contract::APP: job.name()}));
    let pods: Vec<String> =
        (0..workers).map(|index| contract::worker_name(job.name(), index)).collect();
    let group = "rbac.authorization.k8s.io";
    let path = |plural: &str| format!("/apis/{group}/v1/namespaces/{namespace}/{plural}");
    [
        (
            format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta()}),
        ),
        (
            path("roles"),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta(),
                // An empty list of names would mean every pod.
                "rules": if pods.is_empty() { json!([]) } else { json!([
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": pods},
                    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": pods},
                ]) },
            }),
        ),
        (
            path("rolebindings"),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta(),
                "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::tests::job;

    #[test]
    fn the_config_of_arenas_job() {
        let shape = Shape { workers: 2, slots: 2, share: None };
        let order = ["vgg-worker-1".to_owned(), "vgg-worker-0".to_owned()];
        insta::assert_json_snapshot!(config(&job(), &hostfiles(&shape, &order)));
    }

    #[test]
    fn the_launcher_may_reach_its_workers_and_nothing_else() {
        insta::assert_json_snapshot!(access(&job(), 2));
        let [_, (_, role), _] = access(&job(), 0);
        assert_eq!(role["rules"], json!([]), "no worker is not every worker");
    }
}
