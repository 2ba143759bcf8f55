//! The GPUs of one node and who holds them: the hand-over from plan to container.

use std::collections::BTreeMap;

use api::{GpuRequest, Mode, Pod, contract};
use topology::GpuSet;

/// Who holds which GPUs, and under which name they were asked for.
#[derive(Debug, Default, Clone)]
pub(crate) struct Devices {
    gpus: GpuSet,
    held: BTreeMap<String, (GpuSet, GpuRequest)>,
}

/// Why a pod gets no GPUs, as the kubelet words it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The plan is missing, malformed, or names what is not free.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Unexpected(String),
}

impl Devices {
    /// Nobody holds any of `gpus`.
    pub(crate) fn new(gpus: GpuSet) -> Self {
        Self { gpus, held: BTreeMap::new() }
    }

    /// GPUs that somebody holds, by the name under which they were asked for.
    fn held_as(&self, pick: fn(&GpuRequest) -> usize) -> GpuSet {
        self.held
            .values()
            .filter(|(_, request)| pick(request) > 0)
            .fold(GpuSet::EMPTY, |set, (gpus, _)| set.union(*gpus))
    }

    /// What the node offers as `aliyun.com/gpu` and as `nvidia.com/gpu`: the name in force all that nobody holds under the
    /// other, the other exactly what is held.
    pub(crate) fn offered(&self, mode: Mode) -> (usize, usize) {
        let (aliyun, nvidia) = (self.held_as(|r| r.aliyun), self.held_as(|r| r.nvidia));
        match mode {
            Mode::Topology => (self.gpus.difference(nvidia).len(), nvidia.len()),
            Mode::Default => (aliyun.len(), self.gpus.difference(aliyun).len()),
        }
    }

    /// Hands a pod its GPUs: those of its plan, exactly, or for `nvidia.com/gpu` the lowest that are free.
    pub(crate) fn allocate(&mut self, pod: &Pod) -> Result<GpuSet, Refusal> {
        let request = pod.gpus();
        if let Some((gpus, _)) = self.held.get(pod.uid()) {
            return Ok(*gpus);
        }
        let taken = self.held.values().fold(GpuSet::EMPTY, |set, (gpus, _)| set.union(*gpus));
        let free = self.gpus.difference(taken);
        let refuse = |why: String| Err(Refusal::Unexpected(why));
        let gpus = if request.aliyun > 0 {
            let planned = match pod.gpu_group() {
                Ok(Some(planned)) => planned,
                Ok(None) => {
                    return refuse(format!(
                        "no plan: annotation {} is missing",
                        contract::GPU_GROUP
                    ));
                }
                Err(error) => return refuse(error.to_string()),
            };
            if planned.len() != request.aliyun {
                return refuse(format!(
                    "a plan of {} GPUs for {} asked for",
                    planned.len(),
                    request.aliyun
                ));
            }
            if !planned.is_subset(free) {
                return refuse(format!(
                    "GPUs {} of the plan that are not free",
                    planned.difference(free)
                ));
            }
            planned
        } else {
            // A kubelet that starts again finds what it gave before.
            match pod.simulated_gpus() {
                Ok(Some(before)) if before.is_subset(free) && before.len() == request.nvidia => {
                    before
                }
                _ if free.len() < request.nvidia => {
                    return refuse(format!(
                        "requested number of devices unavailable for {}. Requested: {}, Available: {}",
                        contract::NVIDIA_GPU,
                        request.nvidia,
                        free.len()
                    ));
                }
                _ => free.iter().take(request.nvidia).collect(),
            }
        };
        if !gpus.is_empty() {
            self.held.insert(pod.uid().to_owned(), (gpus, request));
        }
        Ok(gpus)
    }

    /// A pod is done; true if it held something.
    pub(crate) fn release(&mut self, uid: &str) -> bool {
        self.held.remove(uid).is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(uid: &str, resource: &str, count: usize, plan: Option<&str>) -> Pod {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": uid, "namespace": "d", "uid": uid},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: count.to_string()}}}]},
        }))
        .unwrap();
        pod.metadata.annotations =
            plan.map(|plan| [(contract::GPU_GROUP.to_owned(), plan.to_owned())].into());
        pod
    }

    #[test]
    fn a_plan_is_kept_exactly_or_refused() {
        let mut devices = Devices::new(GpuSet::first(8));
        assert_eq!(
            devices.allocate(&pod("a", contract::ALIYUN_GPU, 2, Some("3,5"))).unwrap().to_string(),
            "3,5"
        );
        for (uid, count, plan, words) in [
            ("b", 1, None, "no plan"),
            ("c", 1, Some("3"), "GPUs 3 of the plan that are not free"),
            ("d", 2, Some("1"), "a plan of 1 GPUs for 2"),
            ("e", 1, Some("9"), "GPUs 9 of the plan"),
            ("f", 1, Some("x"), "gpu-group"),
        ] {
            let error = devices
                .allocate(&pod(uid, contract::ALIYUN_GPU, count, plan))
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(devices.release("a") && !devices.release("a"));
        assert!(devices.allocate(&pod("c", contract::ALIYUN_GPU, 1, Some("3"))).is_ok());
    }

    #[test]
    fn a_switch_of_mode_kills_nothing() {
        let mut devices = Devices::new(GpuSet::first(8));
        devices.allocate(&pod("a", contract::NVIDIA_GPU, 3, None)).unwrap();
        assert_eq!(devices.offered(Mode::Default), (0, 8));
        assert_eq!(devices.offered(Mode::Topology), (5, 3));
        devices.allocate(&pod("b", contract::ALIYUN_GPU, 1, Some("7"))).unwrap();
        assert_eq!(devices.offered(Mode::Default), (1, 7));
        devices.release("a");
        assert_eq!(devices.offered(Mode::Topology), (8, 0));
    }

    proptest! {
        #[test]
        fn no_gpu_is_in_two_pods(steps in proptest::collection::vec((0..12_usize, any::<bool>(), 1..4_usize, any::<u8>(), any::<bool>()), 1..60)) {
            let mut devices = Devices::new(GpuSet::first(8));
            for (number, release, count, plan, aliyun) in steps {
                let uid = format!("p{number}");
                if release {
                    devices.release(&uid);
                } else {
                    let plan = GpuSet::from_bits(plan.into()).to_string();
                    let (resource, plan) = if aliyun { (contract::ALIYUN_GPU, Some(plan.as_str())) } else { (contract::NVIDIA_GPU, None) };
                    let _ = devices.allocate(&pod(&uid, resource, count, plan));
                }
                let mut seen = GpuSet::EMPTY;
                for (gpus, _) in devices.held.values() {
                    prop_assert!(seen.is_disjoint(*gpus) && gpus.is_subset(GpuSet::first(8)));
                    seen = seen.union(*gpus);
                }
                for mode in [Mode::Topology, Mode::Default] {
                    let (a, b) = devices.offered(mode);
                    prop_assert_eq!(a + b, 8);
                }
            }
        }
    }
}
