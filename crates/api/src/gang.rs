//! Which gang a pod belongs to, and which GPUs a bound pod holds, from its labels and annotations.

use topology::{GpuSet, GpuSetError};

use crate::{
    Pod, contract,
    requests::{GpuRequest, requests},
};

/// What a pod's labels say of its gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangLabels {
    /// The gang's name: the topology group's where there is one, else the pod group's.
    pub group: String,
    /// Members that must start together.
    pub minimum: usize,
    /// Whether it is a topology group.
    pub topology: bool,
}

/// A label or annotation whose value cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    /// A gang label.
    #[error("pod {pod}: label {label}={value:?}: {problem}")]
    Label {
        /// Namespace and name.
        pod: String,
        /// The label.
        label: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A list of GPUs.
    #[error("pod {pod}: annotation {annotation}: {problem}")]
    Annotation {
        /// Namespace and name.
        pod: String,
        /// The annotation.
        annotation: &'static str,
        /// What is wrong.
        problem: GpuSetError,
    },
}

impl Pod {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }

    /// The gang that its labels name, by either pair: `gpu-topology` with its replica, `pod-group…/name` with its
    /// minimum. Arena writes both on one pod; they then mean one gang.
    ///
    /// # Errors
    /// A group without its number, a number that is none.
    pub fn gang_labels(&self) -> Result<Option<GangLabels>, PodError> {
        let labels = self.labels();
        let fail = |label: &'static str, value: &str, problem: &'static str| PodError::Label {
            pod: self.full_name(),
            label,
            value: value.to_owned(),
            problem,
        };
        let pair = |name: &'static str,
                    number: &'static str|
         -> Result<Option<(String, usize)>, PodError> {
            let Some(group) = labels.get(name) else { return Ok(None) };
            let Some(count) = labels.get(number) else {
                return Err(fail(number, "", "it is missing beside the group's name"));
            };
            match count.parse() {
                Ok(0) | Err(_) => Err(fail(number, count, "it is not a positive number")),
                Ok(count) => Ok(Some((group.clone(), count))),
            }
        };
        let topology = pair(contract::TOPOLOGY_GROUP, contract::TOPOLOGY_REPLICA)?;
        let gang = pair(contract::GANG_NAME, contract::GANG_MINIMUM)?;
        Ok(match (topology, gang) {
            // The stricter of the two minima holds.
            (Some((group, replicas)), Some((_, minimum))) => {
                Some(GangLabels { group, minimum: replicas.max(minimum), topology: true })
            }
            (Some((group, minimum)), None) => Some(GangLabels { group, minimum, topology: true }),
            (None, Some((group, minimum))) => Some(GangLabels { group, minimum, topology: false }),
            (None, None) => None,
        })
    }

    /// What its role label says: a launcher, or anything else that has a role; `None` without the label.
    pub fn is_labelled_launcher(&self) -> Option<bool> {
        self.labels().get(contract::MPI_ROLE).map(|role| role == contract::LAUNCHER)
    }

    /// GPUs that it asks for.
    pub fn gpus(&self) -> GpuRequest {
        GpuRequest::of(&requests(self))
    }

    /// The GPUs that the scheduler gave it; `None` if it carries no such annotation.
    ///
    /// # Errors
    /// An annotation that is no list of GPUs.
    pub fn gpu_group(&self) -> Result<Option<GpuSet>, PodError> {
        self.gpu_list(contract::GPU_GROUP)
    }

    /// The GPUs that its simulated kubelet gave it in default mode.
    ///
    /// # Errors
    /// An annotation that is no list of GPUs.
    pub fn simulated_gpus(&self) -> Result<Option<GpuSet>, PodError> {
        self.gpu_list(contract::SIMULATED_GPUS)
    }

    fn gpu_list(&self, annotation: &'static str) -> Result<Option<GpuSet>, PodError> {
        let Some(list) = self.annotations().get(annotation) else { return Ok(None) };
        list.parse().map(Some).map_err(|problem| PodError::Annotation {
            pod: self.full_name(),
            annotation,
            problem,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.labels =
            Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        pod
    }

    #[test]
    fn both_pairs_alone_and_together() {
        const T: &str = contract::TOPOLOGY_GROUP;
        const R: &str = contract::TOPOLOGY_REPLICA;
        const G: &str = contract::GANG_NAME;
        const M: &str = contract::GANG_MINIMUM;
        let gang = |group: &str, minimum, topology| {
            Some(GangLabels { group: group.into(), minimum, topology })
        };
        for (labels, expected) in [
            (vec![], None),
            (vec![(T, "a"), (R, "4")], gang("a", 4, true)),
            (vec![(G, "mpijob-a"), (M, "4")], gang("mpijob-a", 4, false)),
            (vec![(T, "a"), (R, "4"), (G, "mpijob-a"), (M, "4")], gang("a", 4, true)),
        ] {
            assert_eq!(pod(&labels).gang_labels(), Ok(expected), "{labels:?}");
        }
        for (labels, label) in [
            (vec![(T, "a")], R),
            (vec![(T, "a"), (R, "x")], R),
            (vec![(G, "a"), (M, "0")], M),
            (vec![(G, "a"), (M, "-1")], M),
        ] {
            let error = pod(&labels).gang_labels().unwrap_err().to_string();
            assert!(error.contains(label), "{error}");
        }
    }

    #[test]
    fn a_malformed_list_names_pod_and_annotation() {
        let mut pod = pod(&[]);
        (pod.metadata.name, pod.metadata.namespace) = (Some("w-0".into()), Some("default".into()));
        pod.metadata.annotations =
            Some([(contract::GPU_GROUP.to_owned(), "0,x".to_owned())].into());
        let error = pod.gpu_group().unwrap_err().to_string();
        assert!(error.contains("default/w-0") && error.contains(contract::GPU_GROUP), "{error}");
    }
}
