//! What a pod asks for in all, by Kubernetes' rule.

use std::collections::BTreeMap;

use crate::{Pod, Quantity, contract, pod::Container};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

fn add(sum: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let entry = sum.entry(name.clone()).or_default();
        *entry = *entry + *amount;
    }
}

fn at_least(most: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let entry = most.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

/// Requests of a container; a limit without a request is one.
fn of_container(container: &Container) -> Amounts {
    let mut amounts = container.resources.limits.clone();
    amounts.extend(container.resources.requests.clone());
    amounts
}

/// Resources that a pod can ask for as a whole (upstream's KEP-2837).
fn of_whole_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// What the pod needs on its node: the containers and sidecars together, or at the worst moment an init container with
/// the sidecars started before it, whichever is more; requests of the pod as a whole instead where it has them; and the
/// overhead.
pub fn requests(pod: &Pod) -> Amounts {
    let mut sum = Amounts::new();
    for container in &pod.spec.containers {
        add(&mut sum, &of_container(container));
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for container in &pod.spec.init_containers {
        let mut moment = of_container(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &moment);
            add(&mut sidecars, &moment);
            at_least(&mut starting, &sidecars);
        } else {
            add(&mut moment, &sidecars);
            at_least(&mut starting, &moment);
        }
    }
    at_least(&mut sum, &starting);
    if let Some(whole) = &pod.spec.resources {
        let mut given = whole.limits.clone();
        given.extend(whole.requests.clone());
        given.retain(|name, _| of_whole_pods(name));
        sum.extend(given);
    }
    add(&mut sum, &pod.spec.overhead);
    sum
}

/// GPUs that a pod asks for, and by which name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuRequest {
    /// `aliyun.com/gpu`.
    pub aliyun: usize,
    /// `nvidia.com/gpu`.
    pub nvidia: usize,
}

impl GpuRequest {
    /// By the pod's requests.
    pub fn of(amounts: &Amounts) -> Self {
        let count = |name: &str| {
            amounts
                .get(name)
                .and_then(|amount| usize::try_from(amount.value()).ok())
                .unwrap_or_default()
        };
        Self { aliyun: count(contract::ALIYUN_GPU), nvidia: count(contract::NVIDIA_GPU) }
    }

    /// Of either name.
    pub fn total(self) -> usize {
        self.aliyun + self.nvidia
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(cpu: &str, sidecar: bool) -> Container {
        let mut container = Container::default();
        container.resources.requests.insert("cpu".into(), cpu.parse().unwrap());
        container.restart_policy = sidecar.then(|| "Always".to_owned());
        container
    }

    #[test]
    fn init_containers_and_sidecars() {
        // (containers, init containers as (cpu, sidecar), total)
        for (containers, inits, total) in [
            (vec!["1", "2"], vec![], "3"),
            (vec!["1"], vec![("5", false)], "5"),
            (vec!["1"], vec![("1", true), ("5", false)], "6"),
            (vec!["4"], vec![("5", false), ("2", true)], "6"),
            (vec!["4"], vec![("1", true), ("1", true)], "6"),
        ] {
            let mut pod = Pod::default();
            pod.spec.containers = containers.iter().map(|cpu| container(cpu, false)).collect();
            pod.spec.init_containers =
                inits.iter().map(|(cpu, sidecar)| container(cpu, *sidecar)).collect();
            assert_eq!(requests(&pod)["cpu"], total.parse().unwrap(), "{containers:?} {inits:?}");
        }
    }

    #[test]
    fn limits_overhead_and_whole_pod() {
        let mut pod = Pod::default();
        let mut gpu = Container::default();
        gpu.resources.limits.insert(contract::ALIYUN_GPU.into(), Quantity::whole(2));
        pod.spec.containers = vec![gpu, container("1", false)];
        pod.spec.overhead.insert("cpu".into(), Quantity::milli(250));
        assert_eq!(GpuRequest::of(&requests(&pod)), GpuRequest { aliyun: 2, nvidia: 0 });
        assert_eq!(requests(&pod)["cpu"], Quantity::milli(1250));
        let mut whole = crate::pod::ResourceRequirements::default();
        whole.requests.insert("cpu".into(), Quantity::whole(8));
        whole.limits.insert("memory".into(), Quantity::bytes(1 << 30));
        whole.limits.insert(contract::ALIYUN_GPU.into(), Quantity::whole(7));
        pod.spec.resources = Some(whole);
        assert_eq!(requests(&pod)["cpu"], Quantity::milli(8250));
        assert_eq!(
            requests(&pod)["memory"],
            Quantity::bytes(1 << 30),
            "a limit without a request is one"
        );
        assert_eq!(GpuRequest::of(&requests(&pod)).aliyun, 2, "devices belong to containers");
    }
}
