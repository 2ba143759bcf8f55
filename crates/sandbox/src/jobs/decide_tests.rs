use serde_json::from_value;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn job(spec: Value) -> Job {
    let mut full =
        json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}});
    json_patch::merge(&mut full, &spec);
    from_value(json!({"metadata": {"name": "j", "uid": "ju"}, "spec": full})).unwrap()
}

fn pod(uid: &str, phase: &str, terminating: bool) -> Pod {
    let mut pod = json!({
        "metadata": {"name": uid, "uid": uid, "finalizers": [TRACKING]},
        "status": {"phase": phase, "containerStatuses": [{
            "name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": {"terminated": {"exitCode": 1, "finishedAt": Time(at(0))}}}]},
    });
    if terminating {
        pod["metadata"]["deletionTimestamp"] = json!(Time(at(0)));
    }
    from_value(pod).unwrap()
}

/// Looks until nothing changes, carrying out what is said; returns the sum of it.
fn settle(job: &mut Job, pods: &mut [Pod], now: Timestamp) -> Decision {
    let mut sum = Decision::default();
    for _ in 0..10 {
        let seen: Vec<&Pod> = pods.iter().collect();
        let next = decide(job, &seen, true, now);
        if let Some(status) = &next.status {
            let mut all = serde_json::to_value(&*job).unwrap();
            json_patch::merge(&mut all, &json!({"status": status}));
            *job = from_value(all).unwrap();
        }
        for pod in pods.iter_mut().filter(|pod| next.release.contains(&name(pod))) {
            pod.metadata.finalizers = None;
        }
        let is_last = next.status.is_none() && next.release.is_empty();
        sum.create = next.create;
        sum.delete = next.delete;
        sum.wake = next.wake;
        sum.events.extend(next.events);
        if is_last {
            return sum;
        }
    }
    panic!("it never settles: {job:?}")
}

fn conditions(job: &Job) -> Vec<String> {
    let conditions = job.status.as_ref().unwrap().conditions.clone().unwrap_or_default();
    conditions.iter().map(|c| format!("{}={}", c.type_, c.status)).collect()
}

fn counts(job: &Job) -> (Option<i32>, Option<i32>, Option<i32>) {
    let status = job.status.as_ref().unwrap();
    (status.active, status.succeeded, status.failed)
}

#[test]
fn a_job_makes_its_pod_and_completes_with_it() {
    let mut job = job(json!({}));
    assert_eq!(settle(&mut job, &mut [], at(0)).create, 1);
    let mut running = [pod("a", "Running", false)];
    assert_eq!(settle(&mut job, &mut running, at(1)).create, 0);
    assert_eq!(counts(&job), (Some(1), None, None));
    let mut done = [pod("a", "Succeeded", false)];
    let decision = settle(&mut job, &mut done, at(2));
    assert_eq!((decision.create, counts(&job)), (0, (None, Some(1), None)));
    assert_eq!(conditions(&job), ["SuccessCriteriaMet=True", "Complete=True"]);
    assert_eq!(decision.events.len(), 1);
    assert_eq!(settle(&mut job, &mut [], at(3)), Decision::default(), "the pod may go");
}

#[test]
fn a_pod_that_was_made_and_not_seen_is_not_made_again() {
    assert_eq!(decide(&job(json!({})), &[], false, at(0)).create, 0);
}

#[test]
fn a_failure_is_tried_again_after_a_pause_until_the_limit() {
    let mut job = job(json!({"backoffLimit": 1}));
    let mut pods = vec![pod("a", "Failed", false)];
    let decision = settle(&mut job, &mut pods, at(5));
    assert_eq!((decision.create, decision.wake, counts(&job).2), (0, Some(at(10)), Some(1)));
    assert_eq!(settle(&mut job, &mut pods, at(10)).create, 1);
    pods.push(pod("b", "Failed", false));
    let decision = settle(&mut job, &mut pods, at(60));
    assert_eq!((decision.create, counts(&job).2), (0, Some(2)));
    assert_eq!(conditions(&job), ["FailureTarget=True", "Failed=True"]);
    assert_eq!(decision.events[0].1, "BackoffLimitExceeded");
}

#[test]
fn a_deleted_pod_counts_as_failed_and_is_replaced_once_it_is_gone() {
    let mut job = job(json!({"backoffLimit": 3}));
    let mut pods = [pod("a", "Running", true)];
    assert_eq!(settle(&mut job, &mut pods, at(0)).create, 0);
    assert_eq!(settle(&mut job, &mut [], at(1)).create, 1);
    assert_eq!(counts(&job).2, Some(1));
}

#[test]
fn suspending_deletes_pods_that_have_not_failed() {
    let mut job = job(json!({"backoffLimit": 0}));
    let mut pods = [pod("a", "Running", false)];
    settle(&mut job, &mut pods, at(0));
    assert!(job.status.as_ref().unwrap().start_time.is_some());
    job.spec.as_mut().unwrap().suspend = Some(true);
    assert_eq!(settle(&mut job, &mut pods, at(1)).delete, ["a"]);
    assert!(job.status.as_ref().unwrap().start_time.is_none());
    let mut pods = [pod("a", "Running", true)];
    settle(&mut job, &mut pods, at(2));
    assert_eq!(
        (counts(&job), conditions(&job)),
        ((None, None, None), vec!["Suspended=True".to_owned()])
    );
    job.spec.as_mut().unwrap().suspend = Some(false);
    assert_eq!(settle(&mut job, &mut [], at(3)).create, 1);
    assert_eq!(conditions(&job), ["Suspended=False"]);
}

#[test]
fn a_deadline_ends_it() {
    let mut job = job(json!({"activeDeadlineSeconds": 30}));
    let mut pods = [pod("a", "Running", false)];
    assert_eq!(settle(&mut job, &mut pods, at(0)).wake, Some(at(30)));
    assert_eq!(settle(&mut job, &mut pods, at(30)).delete, ["a"]);
    settle(&mut job, &mut [], at(31));
    let failed = job.status.as_ref().unwrap().conditions.clone().unwrap();
    assert_eq!(failed.last().unwrap().reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn restarts_in_place_count_against_the_limit() {
    let mut job =
        job(json!({"backoffLimit": 0, "template": {"spec": {"restartPolicy": "OnFailure"}}}));
    let mut again = pod("a", "Running", false);
    again.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].restart_count = 1;
    assert_eq!(settle(&mut job, &mut [again], at(0)).delete, ["a"]);
    settle(&mut job, &mut [], at(1));
    assert_eq!(conditions(&job), ["FailureTarget=True", "Failed=True"]);
}

#[test]
fn several_pods_at_once() {
    let mut job = job(json!({"parallelism": 2, "completions": 3}));
    assert_eq!(settle(&mut job, &mut [], at(0)).create, 2);
    let mut pods =
        [pod("a", "Succeeded", false), pod("b", "Succeeded", false), pod("c", "Running", false)];
    assert_eq!(settle(&mut job, &mut pods, at(1)).create, 0);
    assert_eq!(counts(&job), (Some(1), Some(2), None));
}
