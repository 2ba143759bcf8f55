//! What a Job needs next: a pure function of the Job, its pods and the time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Map, Value, json};

/// The finalizer that keeps a pod until it is counted.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Pause after the first failure; doubles with each.
const FIRST_PAUSE: i64 = 10;
const LONGEST_PAUSE: i64 = 600;
/// Failures that a Job stands unless it says otherwise.
const BACKOFF_LIMIT: i32 = 6;
/// Reason and message of either failure, in upstream's words.
const BACKOFF: (&str, &str) =
    ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
const DEADLINE: (&str, &str) =
    ("DeadlineExceeded", "Job was active longer than specified deadline");

/// What is to be done for a Job, in this order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    /// The new status, if it is another.
    pub(super) status: Option<Value>,
    /// Pods to make.
    pub(super) create: usize,
    /// Pods to delete, by name.
    pub(super) delete: Vec<String>,
    /// Pods that have been counted, by name.
    pub(super) release: Vec<String>,
    /// Type, reason and message of events.
    pub(super) events: Vec<(&'static str, &'static str, String)>,
    /// When to look again, though nothing happens.
    pub(super) wake: Option<Timestamp>,
}

/// What a pod counts as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    Active,
    Terminating,
    Succeeded,
    Failed,
}

fn count(pod: &Pod) -> Count {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    match phase {
        Some("Succeeded") => Count::Succeeded,
        Some("Failed") => Count::Failed,
        _ if pod.metadata.deletion_timestamp.is_some() => Count::Terminating,
        _ => Count::Active,
    }
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|list| list.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.map_or(0, |list| list.iter().map(|container| container.restart_count).sum())
}

fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let ends = statuses
        .iter()
        .filter_map(|c| Some(c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0));
    ends.max()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastProbeTime": Time(now), "lastTransitionTime": Time(now),
    })
}

/// Counts of one kind: those that are final, and the pods that are counted but not released.
struct Tally {
    total: i32,
    uncounted: Vec<String>,
}

impl Tally {
    /// Of the pods that wait to be counted, those that are released or gone are final now.
    fn new(total: Option<i32>, uncounted: Option<&Vec<String>>, pods: &[&Pod]) -> Self {
        let held = |id: &String| pods.iter().any(|pod| uid(pod) == id && is_tracked(pod));
        let (kept, done): (Vec<String>, Vec<String>) =
            uncounted.cloned().unwrap_or_default().into_iter().partition(held);
        let done = i32::try_from(done.len()).unwrap_or(0);
        Self { total: total.unwrap_or(0) + done, uncounted: kept }
    }

    fn add(&mut self, pod: &Pod) {
        if !self.uncounted.iter().any(|id| id == uid(pod)) {
            self.uncounted.push(uid(pod).to_owned());
        }
    }

    fn sum(&self) -> i32 {
        self.total + i32::try_from(self.uncounted.len()).unwrap_or(0)
    }
}

/// Looks at a Job and its pods. `is_settled` says that all pods made before have been seen.
pub(super) fn decide(job: &Job, pods: &[&Pod], is_settled: bool, now: Timestamp) -> Decision {
    let spec = job.spec.clone().unwrap_or_default();
    let before = job.status.clone().unwrap_or_default();
    let is = |kind: &str| {
        let mut conditions = before.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let mut decision = Decision::default();
    let is_suspended = spec.suspend == Some(true);
    let uncounted = before.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut succeeded = Tally::new(before.succeeded, uncounted.succeeded.as_ref(), pods);
    let mut failed = Tally::new(before.failed, uncounted.failed.as_ref(), pods);
    let was_done = is("Complete") || is("Failed");
    for pod in pods.iter().filter(|pod| is_tracked(pod)) {
        match count(pod) {
            Count::Active => continue,
            Count::Succeeded => succeeded.add(pod),
            Count::Failed => failed.add(pod),
            // What a suspended Job takes away has not failed.
            Count::Terminating if is_suspended || was_done => {}
            Count::Terminating => failed.add(pod),
        }
        decision.release.push(name(pod));
    }
    let of = |kind: Count| pods.iter().copied().filter(move |pod| count(pod) == kind);
    let active: Vec<&Pod> = of(Count::Active).collect();
    let terminating = of(Count::Terminating).count();
    let completions = spec.completions.or(spec.parallelism).unwrap_or(1);
    let limit = spec.backoff_limit.unwrap_or(BACKOFF_LIMIT);

    let mut conditions: Vec<Value> =
        before.conditions.iter().flatten().filter_map(|c| serde_json::to_value(c).ok()).collect();
    let set = |conditions: &mut Vec<Value>, new: Value| {
        let known = conditions.iter_mut().find(|condition| condition["type"] == new["type"]);
        match known {
            Some(known) if known["status"] == new["status"] => {}
            Some(known) => *known = new,
            None => conditions.push(new),
        }
    };
    let mut start = before.start_time.as_ref().map(|time| time.0);
    let mut completion = before.completion_time.as_ref().map(|time| time.0);
    let mut is_done = was_done;
    if !was_done {
        let in_place = match spec.template.spec.as_ref().and_then(|s| s.restart_policy.as_deref()) {
            Some("OnFailure") => active.iter().map(|pod| restarts(pod)).sum(),
            _ => 0,
        };
        let deadline = spec
            .active_deadline_seconds
            .filter(|_| !is_suspended)
            .and_then(|seconds| Some(start? + SignedDuration::from_secs(seconds)));
        // Once it is to fail, it does, though its pods are gone.
        let target = before.conditions.iter().flatten().find(|c| c.type_ == "FailureTarget");
        let failure = if target.is_some_and(|c| c.reason.as_deref() == Some(DEADLINE.0)) {
            Some(DEADLINE)
        } else if target.is_some() || failed.sum() > limit || (in_place > 0 && in_place > limit) {
            Some(BACKOFF)
        } else if deadline.is_some_and(|deadline| deadline <= now) {
            Some(DEADLINE)
        } else {
            None
        };
        decision.wake = deadline;
        if succeeded.sum() >= completions {
            let (reason, message) =
                ("CompletionsReached", "Reached expected number of succeeded pods");
            set(&mut conditions, condition("SuccessCriteriaMet", "True", reason, message, now));
            if terminating == 0 && active.is_empty() {
                set(&mut conditions, condition("Complete", "True", reason, message, now));
                completion = Some(now);
                is_done = true;
                decision.events.push(("Normal", "Completed", "Job completed".to_owned()));
            }
            decision.delete.extend(active.iter().map(|pod| name(pod)));
        } else if let Some((reason, message)) = failure {
            set(&mut conditions, condition("FailureTarget", "True", reason, message, now));
            decision.delete.extend(active.iter().map(|pod| name(pod)));
            if active.is_empty() && terminating == 0 {
                set(&mut conditions, condition("Failed", "True", reason, message, now));
                is_done = true;
                decision.events.push(("Warning", reason, message.to_owned()));
            }
        } else if is_suspended {
            if !is("Suspended") {
                set(
                    &mut conditions,
                    condition("Suspended", "True", "JobSuspended", "Job suspended", now),
                );
                decision.events.push(("Normal", "Suspended", "Job suspended".to_owned()));
            }
            start = None;
            decision.delete.extend(active.iter().map(|pod| name(pod)));
        } else {
            if is("Suspended") {
                set(
                    &mut conditions,
                    condition("Suspended", "False", "JobResumed", "Job resumed", now),
                );
                decision.events.push(("Normal", "Resumed", "Job resumed".to_owned()));
            }
            start = start.or(Some(now));
            let parallelism = spec.parallelism.unwrap_or(1).min(completions - succeeded.sum());
            let running = i32::try_from(active.len() + terminating).unwrap_or(0);
            let missing = usize::try_from(parallelism - running).unwrap_or(0);
            let pause = pause(failed.sum(), of(Count::Failed).filter_map(ended_at).max());
            match pause {
                Some(until) if missing > 0 && until > now => {
                    decision.wake = Some(deadline.map_or(until, |deadline| deadline.min(until)));
                }
                _ if is_settled => decision.create = missing,
                _ => {}
            }
        }
    }
    let number = |count: usize| i32::try_from(count).unwrap_or(0);
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    let mut status: Map<String, Value> = Map::new();
    let mut put = |key: &str, value: Value| status.insert(key.to_owned(), value);
    let none_if_zero = |count: i32| if count == 0 { Value::Null } else { count.into() };
    put("active", none_if_zero(if is_done { 0 } else { number(active.len()) }));
    put("ready", number(ready).into());
    put("terminating", number(terminating).into());
    put("succeeded", none_if_zero(succeeded.total));
    put("failed", none_if_zero(failed.total));
    let list = |tally: &Tally| {
        if tally.uncounted.is_empty() { Value::Null } else { json!(tally.uncounted) }
    };
    let waiting = json!({"succeeded": list(&succeeded), "failed": list(&failed)});
    put("uncountedTerminatedPods", waiting);
    put("startTime", start.map_or(Value::Null, |time| json!(Time(time))));
    put("completionTime", completion.map_or(Value::Null, |time| json!(Time(time))));
    put("conditions", if conditions.is_empty() { Value::Null } else { conditions.into() });
    let status = Value::Object(status);
    if differs(&status, &serde_json::to_value(&before).unwrap_or_default()) {
        decision.status = Some(status);
    }
    decision
}

/// Until when the next try waits.
fn pause(failures: i32, last: Option<Timestamp>) -> Option<Timestamp> {
    let doublings = u32::try_from(failures.checked_sub(1)?).ok()?.min(10);
    let seconds = (FIRST_PAUSE << doublings).min(LONGEST_PAUSE);
    Some(last? + SignedDuration::from_secs(seconds))
}

/// Whether a merge of `patch` would change `now`.
fn differs(patch: &Value, now: &Value) -> bool {
    match patch {
        Value::Null => !now.is_null(),
        Value::Object(fields) => fields.iter().any(|(key, value)| differs(value, &now[key])),
        Value::Number(zero) if now.is_null() => zero.as_i64() != Some(0),
        other => other != now,
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
