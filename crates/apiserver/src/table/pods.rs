//! The row of a pod, with upstream's one-word status.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, or_none};
use crate::field::{self, items};

/// Ready, Status, Restarts, Age, IP, Node, Nominated Node, Readiness Gates.
pub(super) fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &pod["spec"];
    let status = &pod["status"];
    let mut state = State::of(pod);
    if let Some(stopped) = state.init_containers(pod) {
        state.word = stopped;
    } else {
        state.containers(status);
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        let ended = matches!(field::text(status, &["phase"]), "Succeeded" | "Failed");
        if field::text(status, &["reason"]) == "NodeLost" {
            state.word = "Unknown".to_owned();
        } else if !ended {
            state.word = "Terminating".to_owned();
        }
    }
    let restarts = match state.last_restart {
        Some(last) if state.restarts > 0 => {
            format!("{} ({} ago)", state.restarts, age::human(last, now))
        }
        _ => state.restarts.to_string(),
    };
    let gates = items(&spec["readinessGates"]);
    let all = gates.clone().count();
    let met = gates
        .filter(|gate| {
            let kind = &gate["conditionType"];
            items(&status["conditions"]).any(|c| c["type"] == *kind && c["status"] == "True")
        })
        .count();
    vec![
        pod["metadata"]["name"].clone(),
        format!("{}/{}", state.ready, state.total).into(),
        state.word.into(),
        restarts.into(),
        age::since(pod, now).into(),
        or_none(field::text(status, &["podIP"])),
        or_none(field::text(spec, &["nodeName"])),
        or_none(field::text(status, &["nominatedNodeName"])),
        if all == 0 { json!("<none>") } else { format!("{met}/{all}").into() },
    ]
}

struct State {
    word: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl State {
    fn of(pod: &Value) -> Self {
        let status = &pod["status"];
        let reason = field::text(status, &["reason"]);
        let gated = items(&status["conditions"])
            .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
        let word = match (reason, gated) {
            (_, true) => "SchedulingGated",
            ("", false) => field::text(status, &["phase"]),
            (reason, false) => reason,
        };
        Self {
            word: word.to_owned(),
            ready: 0,
            total: items(&pod["spec"]["containers"]).count(),
            restarts: 0,
            last_restart: None,
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let last = field::text(container, &["lastState", "terminated", "finishedAt"]);
        if let Ok(last) = last.parse::<Timestamp>() {
            self.last_restart = self.last_restart.max(Some(last));
        }
    }

    /// The word of a pod that its init containers hold up.
    fn init_containers(&mut self, pod: &Value) -> Option<String> {
        let statuses = &pod["status"]["initContainerStatuses"];
        let specs = &pod["spec"]["initContainers"];
        let count = items(specs).count();
        let sidecar = |name: &Value| {
            items(specs).any(|c| c["name"] == *name && c["restartPolicy"] == "Always")
        };
        self.total += items(specs).filter(|c| c["restartPolicy"] == "Always").count();
        for (i, container) in items(statuses).enumerate() {
            self.count_restarts(container);
            let state = &container["state"];
            if sidecar(&container["name"]) && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            if state["terminated"]["exitCode"] == 0 {
                continue;
            }
            let terminated = &state["terminated"];
            let waiting = field::text(state, &["waiting", "reason"]);
            return Some(if terminated.is_object() {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{i}/{count}")
            });
        }
        None
    }

    fn containers(&mut self, status: &Value) {
        let mut running = false;
        let list: Vec<&Value> = items(&status["containerStatuses"]).collect();
        for container in list.into_iter().rev() {
            self.count_restarts(container);
            let state = &container["state"];
            let waiting = field::text(state, &["waiting", "reason"]);
            if !waiting.is_empty() {
                self.word = waiting.to_owned();
            } else if state["terminated"].is_object() {
                self.word = ended(&state["terminated"]);
            } else if container["ready"] == true && state["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.word == "Completed" && running {
            let ready =
                items(&status["conditions"]).any(|c| c["type"] == "Ready" && c["status"] == "True");
            self.word = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
}

/// Why a container ended, in one word.
fn ended(terminated: &Value) -> String {
    let reason = field::text(terminated, &["reason"]);
    let signal = terminated["signal"].as_i64().unwrap_or(0);
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0))
    }
}
