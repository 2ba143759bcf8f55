//! A pod as its user sees it: status word, age, GPUs.

use api::{Pod, contract, pod::ContainerStatus};
use jiff::Timestamp;
use topology::GpuSet;

/// The status word that kubectl and Arena print: the phase, or what keeps a container.
pub fn status(pod: &Pod) -> String {
    let status = &pod.status;
    if pod.is_terminating() {
        let lost = status.reason == "NodeLost";
        return if lost { "Unknown" } else { "Terminating" }.to_owned();
    }
    if let Some(word) = initialising(pod) {
        return word;
    }
    let mut word =
        if status.reason.is_empty() { status.phase.clone() } else { status.reason.clone() };
    let mut running = false;
    for container in status.container_statuses.iter().rev() {
        let state = &container.state;
        if let Some(waiting) = state.waiting.as_ref().filter(|w| !w.reason.is_empty()) {
            word = waiting.reason.clone();
        } else if let Some(ended) = &state.terminated {
            word = match (ended.reason.as_str(), ended.signal) {
                ("", 0) => format!("ExitCode:{}", ended.exit_code),
                ("", signal) => format!("Signal:{signal}"),
                (reason, _) => reason.to_owned(),
            };
        } else if container.ready && state.running.is_some() {
            running = true;
        }
    }
    if word == "Completed" && running { "Running".to_owned() } else { word }
}

/// `Init:…` while an init container runs or has failed.
fn initialising(pod: &Pod) -> Option<String> {
    let all = pod.spec.init_containers.len();
    for (index, container) in pod.status.init_container_statuses.iter().enumerate() {
        let sidecar = pod
            .spec
            .init_containers
            .iter()
            .any(|spec| spec.name == container.name && spec.restart_policy.is_some());
        if sidecar && container.state.running.is_some() {
            continue;
        }
        let state = &container.state;
        return Some(match (&state.terminated, &state.waiting) {
            (Some(ended), _) if ended.exit_code == 0 => continue,
            (Some(ended), _) => match (ended.reason.as_str(), ended.signal) {
                ("", 0) => format!("Init:ExitCode:{}", ended.exit_code),
                ("", signal) => format!("Init:Signal:{signal}"),
                (reason, _) => format!("Init:{reason}"),
            },
            (None, Some(waiting))
                if !waiting.reason.is_empty() && waiting.reason != "PodInitializing" =>
            {
                format!("Init:{}", waiting.reason)
            }
            _ => format!("Init:{index}/{all}"),
        });
    }
    None
}

/// Whether it holds nothing any more: it is done or being deleted.
pub fn is_completed(pod: &Pod) -> bool {
    pod.is_terminating() || matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

/// Whether no container of it has been started yet.
pub fn is_pending(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "" | "Pending")
}

/// GPUs of a resource that its containers are limited to.
pub fn limit(pod: &Pod, resource: &str) -> i64 {
    pod.spec
        .containers
        .iter()
        .filter_map(|container| container.resources.limits.get(resource))
        .map(|quantity| quantity.value())
        .sum()
}

/// GPUs of either kind.
pub fn gpus(pod: &Pod) -> i64 {
    limit(pod, contract::NVIDIA_GPU) + limit(pod, contract::ALIYUN_GPU)
}

/// The GPUs that it holds, where an annotation tells; those of a simulated kubelet count too.
pub fn held(pod: &Pod) -> Option<GpuSet> {
    [contract::GPU_GROUP, contract::SIMULATED_GPUS]
        .into_iter()
        .find_map(|key| pod.annotations().get(key))
        .and_then(|list| list.parse().ok())
}

/// Seconds that it has waited, or run: from its first container's start to its last one's end, or to now.
pub fn age(pod: &Pod, now: Timestamp) -> i64 {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let Some(created) = created else { return 0 };
    if is_pending(pod) {
        return seconds(created, now);
    }
    let containers =
        || pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let start = containers()
        .filter_map(started)
        .min()
        .or_else(|| pod.status.start_time.as_ref().map(|time| time.0))
        .unwrap_or(created);
    let end = containers()
        .filter_map(|container| container.state.terminated.as_ref()?.finished_at.as_ref())
        .map(|time| time.0)
        .max()
        .filter(|_| pod.status.phase != "Running")
        .unwrap_or(now);
    seconds(start, end)
}

fn started(container: &ContainerStatus) -> Option<Timestamp> {
    let state = &container.state;
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    let ended = state.terminated.as_ref().and_then(|ended| ended.started_at.as_ref());
    running.or(ended).map(|time| time.0)
}

/// Whole seconds from one time to another.
pub fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

/// A duration in its largest unit: `11s`, `3m`, `2h`, `5d`, `1y`.
pub fn short_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    match seconds {
        // Clocks of two machines may differ a little.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < MINUTE => format!("{seconds}s"),
        _ if seconds < HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < DAY => format!("{}h", seconds / HOUR),
        _ if seconds < YEAR => format!("{}d", seconds / DAY),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn status_words_are_kubectls() {
        let waiting =
            |reason: &str| json!({ "name": "c", "state": { "waiting": { "reason": reason } } });
        let ended = |code: i32, reason: &str| json!({ "name": "c", "state": { "terminated": { "exitCode": code, "reason": reason } } });
        let spec = json!({ "initContainers": [{ "name": "i" }, { "name": "j" }], "containers": [{ "name": "c" }] });
        let cases = [
            (json!({ "phase": "Pending" }), "Pending"),
            (
                json!({ "phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")] }),
                "ImagePullBackOff",
            ),
            (
                json!({ "phase": "Pending", "initContainerStatuses": [ended(0, "Completed"), waiting("PodInitializing")] }),
                "Init:1/2",
            ),
            (
                json!({ "phase": "Pending", "initContainerStatuses": [waiting("ErrImagePull")] }),
                "Init:ErrImagePull",
            ),
            (
                json!({ "phase": "Pending", "initContainerStatuses": [ended(3, "")] }),
                "Init:ExitCode:3",
            ),
            (json!({ "phase": "Failed", "containerStatuses": [ended(1, "Error")] }), "Error"),
            (json!({ "phase": "Failed", "containerStatuses": [ended(2, "")] }), "ExitCode:2"),
            (
                json!({ "phase": "Failed", "reason": "UnexpectedAdmissionError" }),
                "UnexpectedAdmissionError",
            ),
            (
                json!({ "phase": "Succeeded", "containerStatuses": [ended(0, "Completed")] }),
                "Completed",
            ),
            (
                json!({ "phase": "Running", "containerStatuses": [ended(0, "Completed"), { "name": "d", "ready": true, "state": { "running": {} } }] }),
                "Running",
            ),
        ];
        for (of, word) in cases {
            let value = json!({ "metadata": { "name": "p" }, "spec": spec, "status": of });
            assert_eq!(status(&pod(value.clone())), word, "{value}");
        }
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "status": { "phase": "Running" } });
        assert_eq!(status(&pod(going)), "Terminating");
    }

    #[test]
    fn an_age_is_the_run() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let made = json!({ "creationTimestamp": "2026-01-01T00:00:00Z" });
        let waiting = pod(json!({ "metadata": made, "status": { "phase": "Pending" } }));
        assert_eq!(age(&waiting, now), 600);
        let run = |phase: &str, state: Value| {
            pod(
                json!({ "metadata": made, "status": { "phase": phase, "containerStatuses": [{ "name": "c", "state": state }] } }),
            )
        };
        let running = run("Running", json!({ "running": { "startedAt": "2026-01-01T00:09:00Z" } }));
        assert_eq!(age(&running, now), 60);
        let done = run(
            "Succeeded",
            json!({ "terminated": { "startedAt": "2026-01-01T00:01:00Z", "finishedAt": "2026-01-01T00:01:05Z", "exitCode": 0 } }),
        );
        assert_eq!(age(&done, now), 5);
    }

    #[test]
    fn durations() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_599, "59m"),
            (86_399, "23h"),
            (86_400, "1d"),
            (31_536_000, "1y"),
        ] {
            assert_eq!(short_duration(seconds), text);
        }
    }
}
