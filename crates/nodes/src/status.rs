//! A pod's status, as its kubelet states it: from the states of its containers.

use std::sync::Arc;

use api::Pod;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A moment as the API writes it.
pub(crate) fn instant(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What a container does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Not yet: why, in one word and in words.
    Waiting(&'static str, String),
    /// Since when.
    Running(Timestamp),
    /// It ended.
    Ended(Ending),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Ending {
    /// The end of a program that returned `code`.
    pub(crate) fn of(code: u8, from: Timestamp) -> Self {
        let reason = if code == 0 { "Completed" } else { "Error" };
        Self { code: code.into(), reason, from, to: Timestamp::now() }
    }
}

/// A container and its state.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) state: State,
    pub(crate) last: Option<Ending>,
    pub(crate) restarts: i32,
    pub(crate) is_init: bool,
    /// An init container that goes on beside the others.
    pub(crate) is_sidecar: bool,
}

impl Container {
    fn started(&self) -> bool {
        matches!(self.state, State::Running(_)) || self.last.is_some()
    }

    /// An init container that is done, a container that serves.
    fn ready(&self) -> bool {
        match &self.state {
            State::Running(_) => !self.is_init || self.is_sidecar,
            State::Ended(ending) => self.is_init && ending.code == 0,
            State::Waiting(..) => false,
        }
    }

    fn json(&self, pod: &Pod) -> Value {
        let ended = |ending: &Ending| {
            json!({"terminated": {
                "exitCode": ending.code, "reason": ending.reason, "startedAt": instant(ending.from),
                "finishedAt": instant(ending.to), "containerID": self.id(pod),
            }})
        };
        let state = match &self.state {
            State::Waiting(reason, message) if message.is_empty() => {
                json!({"waiting": {"reason": reason}})
            }
            State::Waiting(reason, message) => {
                json!({"waiting": {"reason": reason, "message": message}})
            }
            State::Running(since) => json!({"running": {"startedAt": instant(*since)}}),
            State::Ended(ending) => ended(ending),
        };
        let has_run = !matches!(self.state, State::Waiting(..)) || self.last.is_some();
        json!({
            "name": self.name, "image": self.image,
            "imageID": if has_run { format!("simulated://{}", self.image) } else { String::new() },
            "containerID": if has_run { self.id(pod) } else { String::new() },
            "ready": self.ready(), "started": matches!(self.state, State::Running(_)),
            "restartCount": self.restarts, "state": state,
            "lastState": self.last.as_ref().map_or_else(|| json!({}), ended),
        })
    }

    /// Of one run of the container.
    fn id(&self, pod: &Pod) -> String {
        format!("simulated://{}/{}/{}", pod.uid(), self.name, self.restarts)
    }
}

/// A pod and its containers.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) pod: Arc<Pod>,
    pub(crate) host_ip: String,
    pub(crate) pod_ip: String,
    pub(crate) since: Timestamp,
    pub(crate) containers: Vec<Container>,
    /// When each of [`CONDITIONS`] last changed, and to what.
    conditions: [(bool, Timestamp); 4],
}

const CONDITIONS: [&str; 4] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];

impl Status {
    pub(crate) fn new(pod: Arc<Pod>, host_ip: String, pod_ip: String) -> Self {
        let now = Timestamp::now();
        let (spec, sidecar) = (&pod.spec, Some("Always"));
        let waiting =
            if spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let of = |container: &api::pod::Container, is_init: bool| Container {
            name: container.name.clone(),
            image: container.image.clone(),
            state: State::Waiting(waiting, String::new()),
            last: None,
            restarts: 0,
            is_init,
            is_sidecar: is_init && container.restart_policy.as_deref() == sidecar,
        };
        let init = spec.init_containers.iter().map(|container| of(container, true));
        let containers =
            init.chain(spec.containers.iter().map(|container| of(container, false))).collect();
        Self { pod, host_ip, pod_ip, since: now, containers, conditions: [(false, now); 4] }
    }

    /// Goes on where a kubelet that is no more left it, as after the node's reboot: what ran has ended, nobody knows how.
    /// True if nothing is to be started any more.
    pub(crate) fn resume(&mut self) -> bool {
        let lost = Ending { code: 255, reason: "Unknown", from: self.since, to: self.since };
        let never = self.pod.spec.restart_policy == "Never";
        let before = &self.pod.status;
        let known = before.init_container_statuses.iter().chain(&before.container_statuses);
        let known: Vec<(&str, i32)> = known.map(|c| (c.name.as_str(), c.restart_count)).collect();
        for container in &mut self.containers {
            let Some((_, restarts)) = known.iter().find(|(name, _)| *name == container.name) else {
                continue;
            };
            if never {
                container.restarts = *restarts;
                container.state = State::Ended(lost.clone());
            } else {
                container.restarts = restarts + 1;
                container.last = Some(lost.clone());
            }
        }
        never
    }

    fn main(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| !container.is_init)
    }

    /// Whether its init containers are done.
    fn initialized(&self) -> bool {
        self.containers.iter().filter(|container| container.is_init).all(Container::ready)
    }

    /// `Pending`, `Running`, `Succeeded` or `Failed`. `over` says that nothing is started any more.
    pub(crate) fn phase(&self, over: bool) -> &'static str {
        let ended = |container: &Container| match &container.state {
            State::Ended(ending) => Some(ending.code),
            _ => None,
        };
        let failed_init = self
            .containers
            .iter()
            .any(|c| c.is_init && !c.is_sidecar && ended(c).is_some_and(|code| code != 0));
        if over && failed_init {
            return "Failed";
        }
        let codes: Option<Vec<i32>> = self.main().map(ended).collect();
        let never = |code: &i32| *code == 0;
        match (codes, self.pod.spec.restart_policy.as_str()) {
            (Some(codes), _) if over => {
                if codes.iter().all(never) {
                    "Succeeded"
                } else {
                    "Failed"
                }
            }
            (Some(codes), "Never") => {
                if codes.iter().all(never) {
                    "Succeeded"
                } else {
                    "Failed"
                }
            }
            (Some(codes), "OnFailure") if codes.iter().all(never) => "Succeeded",
            (Some(_), _) => "Running",
            (None, _) if over && !self.main().any(Container::started) => "Failed",
            (None, _) if self.main().any(|c| c.started() || ended(c).is_some()) => "Running",
            (None, _) => "Pending",
        }
    }

    /// The patch of `pods/status`.
    pub(crate) fn patch(&mut self, over: bool) -> Value {
        let phase = self.phase(over);
        let ready = phase == "Running" && self.main().all(Container::ready);
        let done = phase == "Succeeded";
        let begun =
            self.containers.iter().any(|c| c.started() || !matches!(c.state, State::Waiting(..)));
        let now = Timestamp::now();
        let values =
            [begun && phase != "Succeeded" && phase != "Failed", self.initialized(), ready, ready];
        for (condition, value) in self.conditions.iter_mut().zip(values) {
            if condition.0 != value {
                *condition = (value, now);
            }
        }
        let unready: Vec<&str> =
            self.main().filter(|c| !c.ready()).map(|c| c.name.as_str()).collect();
        let conditions = CONDITIONS.iter().zip(self.conditions).map(|(kind, (value, since))| {
            let mut condition = json!({
                "type": kind, "status": if value { "True" } else { "False" },
                "lastProbeTime": null, "lastTransitionTime": instant(since),
            });
            let why = match *kind {
                "Initialized" if !value => Some((
                    "ContainersNotInitialized",
                    "containers with incomplete status".to_owned(),
                )),
                "Ready" | "ContainersReady" if done => Some(("PodCompleted", String::new())),
                "Ready" | "ContainersReady" if !value && phase == "Failed" => {
                    Some(("PodFailed", String::new()))
                }
                "Ready" | "ContainersReady" if !value => Some((
                    "ContainersNotReady",
                    format!("containers with unready status: [{}]", unready.join(" ")),
                )),
                _ => None,
            };
            if let Some((reason, message)) = why {
                condition["reason"] = reason.into();
                if !message.is_empty() {
                    condition["message"] = message.into();
                }
            }
            condition
        });
        let conditions: Vec<Value> = conditions.collect();
        let states = |is_init: bool| -> Vec<Value> {
            self.containers
                .iter()
                .filter(|c| c.is_init == is_init)
                .map(|c| c.json(&self.pod))
                .collect()
        };
        let mut status = json!({
            "phase": phase, "conditions": conditions,
            "hostIP": self.host_ip, "hostIPs": [{"ip": self.host_ip}],
            "podIP": self.pod_ip, "podIPs": [{"ip": self.pod_ip}],
            "startTime": instant(self.since), "containerStatuses": states(false),
        });
        if self.containers.iter().any(|c| c.is_init) {
            status["initContainerStatuses"] = states(true).into();
        }
        json!({"metadata": {"uid": self.pod.uid()}, "status": status})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(policy: &str, init: usize) -> Status {
        let container = |name: String| json!({"name": name, "image": "i"});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {
                "restartPolicy": policy,
                "initContainers": (0..init).map(|n| container(format!("i{n}"))).collect::<Vec<_>>(),
                "containers": [container("a".into()), container("b".into())],
            },
        }))
        .unwrap();
        Status::new(Arc::new(pod), "10.0.0.1".into(), "10.244.0.1".into())
    }

    fn ended(code: u8) -> State {
        State::Ended(Ending::of(code, Timestamp::now()))
    }

    #[test]
    fn phases() {
        let running = || State::Running(Timestamp::now());
        let waiting = || State::Waiting("CrashLoopBackOff", String::new());
        for (policy, states, over, expected) in [
            ("Always", [running(), running()], false, "Running"),
            ("Always", [ended(0), running()], false, "Running"),
            ("Always", [ended(0), ended(0)], false, "Running"),
            ("Never", [ended(0), ended(0)], false, "Succeeded"),
            ("Never", [ended(0), ended(1)], false, "Failed"),
            ("OnFailure", [ended(0), ended(1)], false, "Running"),
            ("OnFailure", [ended(0), ended(0)], false, "Succeeded"),
            ("Always", [waiting(), waiting()], false, "Pending"),
            ("Always", [waiting(), running()], false, "Running"),
            ("Always", [ended(0), ended(137)], true, "Failed"),
            ("Always", [ended(0), ended(0)], true, "Succeeded"),
        ] {
            let mut status = status(policy, 0);
            for (container, state) in status.containers.iter_mut().zip(states.clone()) {
                container.state = state;
            }
            assert_eq!(status.phase(over), expected, "{policy} {states:?} {over}");
        }
    }

    #[test]
    fn a_pod_is_ready_when_all_its_containers_run() {
        let mut status = status("Always", 1);
        let condition = |patch: &Value, kind: &str| {
            let list = patch["status"]["conditions"].as_array().unwrap();
            list.iter().find(|c| c["type"] == kind).unwrap().clone()
        };
        let patch = status.patch(false);
        assert_eq!(patch["status"]["phase"], "Pending");
        assert_eq!(condition(&patch, "Initialized")["status"], "False");
        status.containers[0].state = ended(0);
        status.containers[1].state = State::Running(Timestamp::now());
        let patch = status.patch(false);
        assert_eq!(condition(&patch, "Initialized")["status"], "True");
        assert_eq!(condition(&patch, "Ready")["message"], "containers with unready status: [b]");
        status.containers[2].state = State::Running(Timestamp::now());
        let patch = status.patch(false);
        assert_eq!(condition(&patch, "Ready")["status"], "True");
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["status"]["initContainerStatuses"][0]["ready"], true);
    }
}
