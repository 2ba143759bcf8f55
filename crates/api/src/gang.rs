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
    /// A number.
    #[error("pod {pod}: annotation {annotation}={value:?}: it is no {wanted}")]
    Number {
        /// Namespace and name.
        pod: String,
        /// The annotation.
        annotation: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Two annotations that must agree.
    #[error("pod {pod}: annotation {annotation} {problem}")]
    Disagreement {
        /// Namespace and name.
        pod: String,
        /// The annotation.
        annotation: &'static str,
        /// With what, and how.
        problem: String,
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
            if group.is_empty() {
                return Err(fail(name, group, "it is empty"));
            }
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

    /// The GPUs of all its gang's pods on its node, as the scheduler wrote them beside [`Pod::gpu_group`].
    ///
    /// # Errors
    /// An annotation that is no list of GPUs, or one that lacks GPUs of the pod's own.
    pub fn gpu_visible(&self) -> Result<Option<GpuSet>, PodError> {
        let Some(visible) = self.gpu_list(contract::GPU_VISIBLE)? else { return Ok(None) };
        let own = self.gpu_group()?.unwrap_or_default();
        if own.is_subset(visible) {
            return Ok(Some(visible));
        }
        Err(PodError::Disagreement {
            pod: self.full_name(),
            annotation: contract::GPU_VISIBLE,
            problem: format!("is {visible}, which lacks some of the pod's own {own}"),
        })
    }

    /// UUIDs of its GPUs in the order of [`Pod::gpu_group`]; empty if it carries no such annotation.
    ///
    /// # Errors
    /// Not as many as the pod has GPUs, an empty one, or one twice.
    pub fn gpu_uuids(&self) -> Result<Vec<&str>, PodError> {
        let Some(list) = self.annotations().get(contract::GPU_UUIDS) else { return Ok(Vec::new()) };
        let uuids: Vec<&str> = list.split(',').map(str::trim).collect();
        let own = self.gpu_group()?.unwrap_or_default();
        let distinct = uuids.iter().collect::<std::collections::BTreeSet<_>>().len();
        let problem = if uuids.contains(&"") {
            "has an empty entry".to_owned()
        } else if distinct != uuids.len() {
            "names a GPU twice".to_owned()
        } else if uuids.len() != own.len() {
            format!("names {} GPUs, but the pod has {own}", uuids.len())
        } else {
            return Ok(uuids);
        };
        Err(PodError::Disagreement {
            pod: self.full_name(),
            annotation: contract::GPU_UUIDS,
            problem,
        })
    }

    /// Its rank in the gang, from 0, in placement order.
    ///
    /// # Errors
    /// An annotation that is no whole number.
    pub fn rank(&self) -> Result<Option<usize>, PodError> {
        self.number(contract::RANK, "whole number from 0")
    }

    /// The bus bandwidth of its gang, GB/s.
    ///
    /// # Errors
    /// An annotation that is no positive number.
    pub fn bus_bandwidth(&self) -> Result<Option<f64>, PodError> {
        let wanted = "positive number of GB/s";
        let bandwidth: Option<f64> = self.number(contract::BUS_BANDWIDTH, wanted)?;
        if bandwidth.is_none_or(|value| value.is_finite() && value > 0.0) {
            return Ok(bandwidth);
        }
        Err(self.no_number(contract::BUS_BANDWIDTH, wanted))
    }

    fn number<T: std::str::FromStr>(
        &self,
        annotation: &'static str,
        wanted: &'static str,
    ) -> Result<Option<T>, PodError> {
        let Some(value) = self.annotations().get(annotation) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| self.no_number(annotation, wanted))
    }

    fn no_number(&self, annotation: &'static str, wanted: &'static str) -> PodError {
        let value = self.annotations().get(annotation).cloned().unwrap_or_default();
        PodError::Number { pod: self.full_name(), annotation, value, wanted }
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
            (vec![(T, ""), (R, "4")], T),
            (vec![(T, "a"), (R, "99999999999999999999")], R),
            (vec![(T, "a"), (R, "4"), (G, "b"), (M, "four")], M),
            (vec![(G, "a"), (M, "0")], M),
            (vec![(G, "a"), (M, "-1")], M),
        ] {
            let error = pod(&labels).gang_labels().unwrap_err().to_string();
            assert!(error.contains(label), "{error}");
        }
    }

    fn bound(annotations: &[(&str, &str)]) -> Pod {
        let mut pod = pod(&[]);
        (pod.metadata.name, pod.metadata.namespace) = (Some("w-0".into()), Some("default".into()));
        pod.metadata.annotations =
            Some(annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        pod
    }

    #[test]
    fn what_the_scheduler_wrote_is_read_back() {
        let pod = bound(&[
            (contract::GPU_GROUP, "0,3"),
            (contract::GPU_VISIBLE, "0,1,2,3"),
            (contract::GPU_UUIDS, "GPU-a,GPU-d"),
            (contract::RANK, "2"),
            (contract::BUS_BANDWIDTH, "48.20"),
        ]);
        assert_eq!(pod.gpu_group().unwrap().unwrap().to_string(), "0,3");
        assert_eq!(pod.gpu_visible().unwrap().unwrap().to_string(), "0,1,2,3");
        assert_eq!(pod.gpu_uuids(), Ok(vec!["GPU-a", "GPU-d"]));
        assert_eq!((pod.rank(), pod.bus_bandwidth()), (Ok(Some(2)), Ok(Some(48.2))));
        let none = bound(&[]);
        assert_eq!((none.gpu_visible(), none.gpu_uuids()), (Ok(None), Ok(vec![])));
        assert_eq!((none.rank(), none.bus_bandwidth()), (Ok(None), Ok(None)));
    }

    #[test]
    fn a_malformed_annotation_names_pod_and_annotation() {
        const OWN: (&str, &str) = (contract::GPU_GROUP, "0,3");
        for (annotations, wrong) in [
            (vec![(contract::GPU_GROUP, "0,x")], contract::GPU_GROUP),
            (vec![(contract::SIMULATED_GPUS, "-1")], contract::SIMULATED_GPUS),
            (vec![OWN, (contract::GPU_VISIBLE, "0,,1")], contract::GPU_VISIBLE),
            (vec![OWN, (contract::GPU_VISIBLE, "0,1")], contract::GPU_VISIBLE),
            (vec![OWN, (contract::GPU_UUIDS, "GPU-a")], contract::GPU_UUIDS),
            (vec![OWN, (contract::GPU_UUIDS, "GPU-a,GPU-a")], contract::GPU_UUIDS),
            (vec![OWN, (contract::GPU_UUIDS, "GPU-a,")], contract::GPU_UUIDS),
            (vec![(contract::RANK, "-1")], contract::RANK),
            (vec![(contract::BUS_BANDWIDTH, "fast")], contract::BUS_BANDWIDTH),
            (vec![(contract::BUS_BANDWIDTH, "NaN")], contract::BUS_BANDWIDTH),
        ] {
            let pod = bound(&annotations);
            let errors = [
                pod.gpu_group().err(),
                pod.simulated_gpus().err(),
                pod.gpu_visible().err(),
                pod.gpu_uuids().err(),
                pod.rank().err(),
                pod.bus_bandwidth().err(),
            ];
            let error = errors.into_iter().flatten().next().unwrap().to_string();
            assert!(error.contains("default/w-0") && error.contains(wrong), "{error}");
        }
    }
}
