//! How many workers a job has, and how many ranks each runs.

use api::{MpiJob, Quantity, contract};
use serde_json::Value;

/// Workers beyond this are a slip of the finger: their names alone would fill the API server.
const MOST_WORKERS: i32 = 10_000;

/// The shape of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of workers.
    pub(crate) workers: usize,
    /// Ranks that a worker runs: what the job says, else its GPUs, else one.
    pub(crate) slots: i64,
    /// For jobs that state a total: the resource, and how many of it each worker is given.
    pub(crate) share: Option<(String, i64)>,
}

impl Shape {
    /// Of a job. The message of an error is for the job's user.
    pub(crate) fn of(job: &MpiJob, gpus_per_node: i32) -> Result<Self, String> {
        let spec = &job.spec;
        if let Some(problem) = &spec.problem {
            return Err(problem.clone());
        }
        if spec.template["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
            return Err("spec.template.spec.containers is empty".to_owned());
        }
        let total = match (spec.gpus, spec.processing_units) {
            (Some(_), Some(_)) => {
                return Err("spec.gpus and spec.processingUnits exclude each other".to_owned());
            }
            (Some(total), None) => Some((total, spec.gpus_per_node)),
            (None, total) => total.map(|total| (total, spec.processing_units_per_node)),
        };
        let (workers, share) = match (spec.replicas, total) {
            (Some(_), Some(_)) => {
                return Err("spec.replicas and a total of GPUs exclude each other".to_owned());
            }
            (replicas, None) => (replicas.unwrap_or(1), None),
            (None, Some((total, per_node))) => {
                let per_node = per_node.unwrap_or(gpus_per_node);
                let (workers, each) = divide(total, per_node)?;
                (workers, Some((unit(job), i64::from(each))))
            }
        };
        if !(0..=MOST_WORKERS).contains(&workers) {
            return Err(format!("{workers} workers; there can be 0 to {MOST_WORKERS}"));
        }
        let asked = || {
            [contract::ALIYUN_GPU, contract::NVIDIA_GPU]
                .into_iter()
                .find_map(|name| asks(job, name))
        };
        let slots = match (spec.slots_per_worker, &share) {
            (Some(slots), _) if slots < 1 => return Err(format!("spec.slotsPerWorker is {slots}")),
            (Some(slots), _) => i64::from(slots),
            (None, Some((_, each))) => *each,
            (None, None) => asked().unwrap_or(1),
        };
        let workers = usize::try_from(workers).map_err(|e| e.to_string())?;
        Ok(Self { workers, slots, share })
    }
}

/// Workers, and units of each, for a total.
fn divide(total: i32, per_node: i32) -> Result<(i32, i32), String> {
    if total < 1 || per_node < 1 {
        return Err(format!("a total of {total} GPUs, {per_node} per node: both must be positive"));
    }
    if total < per_node {
        return Ok((1, total));
    }
    if total % per_node != 0 {
        return Err(format!("specified #GPUs is not a multiple of GPUs per node ({per_node})"));
    }
    Ok((total / per_node, per_node))
}

/// The resource that a total counts: the one stated, the GPU that the template asks for already, or that of its label.
fn unit(job: &MpiJob) -> String {
    match job.spec.processing_resource_type.as_deref() {
        Some("cpu") => "cpu".to_owned(),
        Some(resource) if resource.contains('/') => resource.to_owned(),
        _ if is_topology(job) => contract::ALIYUN_GPU.to_owned(),
        _ => contract::NVIDIA_GPU.to_owned(),
    }
}

/// How many of a resource the template's containers ask for together; `None` for none.
fn asks(job: &MpiJob, resource: &str) -> Option<i64> {
    let containers = job.spec.template["spec"]["containers"].as_array()?;
    let amount = |value: &Value| match value {
        Value::Number(number) => number.as_i64(),
        value => value.as_str()?.parse().ok().map(Quantity::value),
    };
    let of = |container: &Value| {
        let resources = &container["resources"];
        amount(&resources["limits"][resource]).or_else(|| amount(&resources["requests"][resource]))
    };
    let sum: i64 = containers.iter().filter_map(of).sum();
    (sum > 0).then_some(sum)
}

/// Whether the job's GPUs are placed by topology.
pub(crate) fn is_topology(job: &MpiJob) -> bool {
    let labels = &job.spec.template["metadata"]["labels"];
    asks(job, contract::ALIYUN_GPU).is_some() || labels[contract::TOPOLOGY_GROUP].is_string()
}

/// Whether the workers share their hosts' network.
pub(crate) fn host_network(job: &MpiJob) -> bool {
    job.spec.template["spec"]["hostNetwork"] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Parts = (usize, i64, Option<(String, i64)>);

    fn shape(spec: Value, limits: Value) -> Result<Parts, String> {
        let mut spec = spec;
        spec["template"] = json!({"spec": {"containers": [{"resources": {"limits": limits}}]}});
        let job: MpiJob = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        Shape::of(&job, 8).map(|shape| (shape.workers, shape.slots, shape.share))
    }

    fn share(resource: &str, each: i64) -> Option<(String, i64)> {
        Some((resource.to_owned(), each))
    }

    #[test]
    fn workers_and_slots() {
        let (none, topo, nvidia) =
            (json!({}), json!({"aliyun.com/gpu": "2"}), json!({"nvidia.com/gpu": 4}));
        for (spec, limits, expected) in [
            (json!({"replicas": 4}), &none, (4, 1, None)),
            (json!({"replicas": 4}), &topo, (4, 2, None)),
            (json!({"replicas": 2}), &nvidia, (2, 4, None)),
            (json!({"replicas": 2, "slotsPerWorker": 1}), &nvidia, (2, 1, None)),
            (json!({"replicas": 0}), &none, (0, 1, None)),
            (json!({}), &none, (1, 1, None)),
            (json!({"gpus": 1}), &none, (1, 1, share("nvidia.com/gpu", 1))),
            (json!({"gpus": 8}), &none, (1, 8, share("nvidia.com/gpu", 8))),
            (json!({"gpus": 16}), &none, (2, 8, share("nvidia.com/gpu", 8))),
            (json!({"gpus": 16, "gpusPerNode": 4}), &none, (4, 4, share("nvidia.com/gpu", 4))),
            (json!({"gpus": 16}), &topo, (2, 8, share("aliyun.com/gpu", 8))),
            (
                json!({"processingUnits": 6, "processingUnitsPerNode": 3, "processingResourceType": "cpu"}),
                &none,
                (2, 3, share("cpu", 3)),
            ),
            (
                json!({"processingUnits": 2, "processingResourceType": "gpu"}),
                &none,
                (1, 2, share("nvidia.com/gpu", 2)),
            ),
        ] {
            assert_eq!(shape(spec.clone(), limits.clone()), Ok(expected), "{spec} {limits}");
        }
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        for (spec, why) in [
            (json!({"replicas": -1}), "-1 workers"),
            (json!({"replicas": 2_000_000_000}), "2000000000 workers"),
            (json!({"replicas": "two"}), "two"),
            (json!({"gpus": 12}), "specified #GPUs is not a multiple of GPUs per node (8)"),
            (json!({"gpus": 0}), "positive"),
            (json!({"gpus": 8, "gpusPerNode": 0}), "positive"),
            (json!({"gpus": 8, "replicas": 1}), "exclude each other"),
            (json!({"gpus": 8, "processingUnits": 8}), "exclude each other"),
            (json!({"replicas": 1, "slotsPerWorker": 0}), "slotsPerWorker is 0"),
        ] {
            let error = shape(spec.clone(), json!({})).unwrap_err();
            assert!(error.contains(why), "{spec}: {error}");
        }
        let job: MpiJob =
            serde_json::from_value(json!({"metadata": {}, "spec": {"replicas": 1}})).unwrap();
        assert!(Shape::of(&job, 8).unwrap_err().contains("containers is empty"));
    }
}
