//! A worker: the template's pod, asleep until mpirun's daemon is started in it.

use api::{MpiJob, contract};
use serde_json::{Value, json};

use crate::{
    objects::{metadata, pod_labels, prune, push},
    shape::{Shape, host_network, is_topology},
};

const SHM: &str = "/dev/shm";

/// The pod of one index.
pub(crate) fn worker(job: &MpiJob, shape: &Shape, index: usize) -> Value {
    let name = contract::worker_name(job.name(), index);
    let mut labels = pod_labels(job, contract::WORKER);
    labels.insert(contract::WORKER_INDEX.into(), index.to_string().into());
    labels.insert(contract::POD_NAME.into(), name.clone().into());
    let mut spec = job.spec.template["spec"].clone();
    // A container that is killed comes back in its place, with its GPUs.
    spec["restartPolicy"] = "Always".into();
    if let Some(container) = spec["containers"].get_mut(0) {
        container["command"] = json!(["sleep"]);
        container["args"] = json!(["365d"]);
        if let Some((resource, each)) = &shape.share {
            container["resources"]["limits"][resource] = each.to_string().into();
            if container["resources"]["requests"].is_object() {
                container["resources"]["requests"][resource] = each.to_string().into();
            }
        }
    }
    if wants_host_memory(job, shape) {
        share_memory(&mut spec);
    }
    let mut metadata = metadata(job, name, labels.into());
    metadata["annotations"] = job.spec.template["metadata"]["annotations"].clone();
    prune(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Whether workers that meet on a node can be one host for NCCL, but for the memory that they share: they have the host's
/// name by its network, and there are two that can meet.
fn wants_host_memory(job: &MpiJob, shape: &Shape) -> bool {
    is_topology(job) && host_network(job) && shape.workers > 1
}

/// Whether a container mounts something of its own at /dev/shm.
fn mounts_memory(container: &Value) -> bool {
    let mounts = container["volumeMounts"].as_array();
    mounts.is_some_and(|mounts| mounts.iter().any(|mount| mount["mountPath"] == SHM))
}

/// Workers of one node share a host for NCCL when they see the same /dev/shm besides the same host name: the host's is
/// mounted, in containers where the user mounts nothing there. With the host's IPC namespace it is there already.
fn share_memory(spec: &mut Value) {
    const VOLUME: &str = "ringmaster-host-shm";
    if spec["hostIPC"] == true {
        return;
    }
    let mut mounted = false;
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if !mounts_memory(container) {
            push(&mut container["volumeMounts"], json!({"name": VOLUME, "mountPath": SHM}));
            mounted = true;
        }
    }
    if mounted {
        push(
            &mut spec["volumes"],
            json!({"name": VOLUME, "hostPath": {"path": SHM, "type": "Directory"}}),
        );
    }
}

/// What keeps NCCL from using NVLink between workers of one node, if anything does.
pub(crate) fn no_host_identity(job: &MpiJob, shape: &Shape) -> Option<String> {
    let cost = "NCCL takes workers of one node for separate hosts and uses TCP between them";
    if !is_topology(job) || shape.workers < 2 {
        return None;
    }
    if !host_network(job) {
        return Some(format!(
            "workers do not share the host's network: {cost}; set hostNetwork, or ask for all GPUs of a node in one worker"
        ));
    }
    let containers = job.spec.template["spec"]["containers"].as_array()?;
    containers.iter().any(mounts_memory).then(|| {
        format!(
            "workers have a {SHM} of their own: {cost}; leave out the volume that is mounted there"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::tests::job;

    fn made(job: &MpiJob) -> Value {
        worker(job, &Shape::of(job, 8).unwrap(), 0)
    }

    fn mounts_host_memory(pod: &Value) -> bool {
        let volumes = pod["spec"]["volumes"].as_array();
        volumes.is_some_and(|volumes| volumes.iter().any(|v| v["hostPath"]["path"] == SHM))
    }

    fn warning(job: &MpiJob) -> Option<String> {
        no_host_identity(job, &Shape::of(job, 8).unwrap())
    }

    #[test]
    fn a_worker_of_arenas_job() {
        insta::assert_json_snapshot!(made(&job()));
    }

    #[test]
    fn host_identity_is_the_hosts_memory_on_the_hosts_network() {
        let topology = job();
        assert!(mounts_host_memory(&made(&topology)) && warning(&topology).is_none());

        let mut alone = job();
        alone.spec.replicas = Some(1);
        assert!(!mounts_host_memory(&made(&alone)) && warning(&alone).is_none(), "nobody to meet");

        let mut ipc = job();
        ipc.spec.template["spec"]["hostIPC"] = true.into();
        assert!(!mounts_host_memory(&made(&ipc)) && warning(&ipc).is_none(), "it is there already");

        let mut own_network = job();
        own_network.spec.template["spec"]["hostNetwork"] = false.into();
        assert!(!mounts_host_memory(&made(&own_network)));
        assert!(warning(&own_network).is_some_and(|text| text.contains("hostNetwork")));

        let mut own_memory = job();
        own_memory.spec.template["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "dshm", "mountPath": SHM}]);
        assert!(!mounts_host_memory(&made(&own_memory)), "the user's mount stays");
        assert!(warning(&own_memory).is_some_and(|text| text.contains(SHM)));

        let mut default = job();
        default.spec.template["metadata"]["labels"] = json!({});
        default.spec.template["spec"]["containers"][0]["resources"] =
            json!({"limits": {"nvidia.com/gpu": "1"}});
        assert!(
            !mounts_host_memory(&made(&default)) && warning(&default).is_none(),
            "not placed by topology"
        );
    }

    #[test]
    fn a_share_of_a_total_becomes_a_limit() {
        let mut total = job();
        (total.spec.replicas, total.spec.gpus) = (None, Some(16));
        total.spec.template["spec"]["containers"][0]["resources"] = Value::Null;
        assert_eq!(
            made(&total)["spec"]["containers"][0]["resources"],
            json!({"limits": {"aliyun.com/gpu": "8"}})
        );
    }
}
