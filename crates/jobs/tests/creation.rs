//! Submitting and deleting against an API server that is a map: what is created, in which order, and what is left when
//! something fails.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use client::Clients;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use jobs::{Cluster, Deleted, JobError, Submission};
use kube::client::Body;
use serde_json::{Value, json};

const JOBS: &str = "/apis/kubeflow.org/v1alpha1/namespaces/default/mpijobs";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Objects by path, writes as they came, and how answers are bent.
#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    writes: Vec<String>,
    /// `METHOD path` that is refused, with this code.
    refuse: Option<(String, u16)>,
    /// `METHOD path` that is carried out, but whose answer is lost.
    lose: Option<String>,
    /// Reads of an object that is being deleted before it is gone.
    going: u32,
    uid: u32,
}

type Shared = Arc<Mutex<Server>>;

fn status(code: u16, message: &str) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Forbidden" };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (code, body)
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let called = format!("{method} {path}");
        if *method != Method::GET && !path.ends_with("selfsubjectreviews") {
            self.writes.push(called.clone());
        }
        if let Some((refused, code)) = &self.refuse
            && called.starts_with(refused)
        {
            return status(*code, "it is forbidden");
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        match method.as_str() {
            "GET" => match self.objects.get(path) {
                Some(object)
                    if object["metadata"]["deletionTimestamp"].is_string() && self.going == 0 =>
                {
                    self.objects.remove(path);
                    status(404, &format!("{name} not found"))
                }
                Some(object) => {
                    self.going = self.going.saturating_sub(1);
                    (200, object.clone())
                }
                None => status(404, &format!("{name:?} not found")),
            },
            "POST" if path.ends_with("selfsubjectreviews") => {
                (201, json!({ "metadata": {}, "status": { "userInfo": { "username": "ann" } } }))
            }
            "POST" => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return status(409, "already exists");
                }
                self.uid += 1;
                object["metadata"]["uid"] = json!(format!("uid-{}", self.uid));
                object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
                self.objects.insert(path, object.clone());
                (201, object)
            }
            "DELETE" => match self.objects.remove(path) {
                Some(_) => (
                    200,
                    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }),
                ),
                None => status(404, "not found"),
            },
            other => panic!("unexpected {other} {path}"),
        }
    }
}

fn cluster(server: &Shared) -> Cluster {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let called = format!("{} {}", parts.method, parts.uri.path());
            let mut server = server.lock().unwrap();
            let (code, answer) = server.answer(&parts.method, parts.uri.path(), &body);
            if server.lose.as_ref() == Some(&called) {
                return Err(kube::Error::Service("the connection broke".into()));
            }
            let answer = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok(Response::builder()
                .status(StatusCode::from_u16(code).unwrap())
                .body(answer)
                .unwrap())
        }
    });
    let client = kube::Client::new(service, "default");
    let clients = Clients {
        reads: client.clone(),
        writes: client,
        namespace: "default".to_owned(),
        config: kube::Config::new("http://localhost".parse().unwrap()),
    };
    Cluster::new(clients, None)
}

fn submission() -> Submission {
    Submission {
        name: "a".into(),
        image: "i".into(),
        command: "true".into(),
        ..Submission::default()
    }
}

async fn submit(server: &Shared, submission: &Submission) -> Result<(), JobError> {
    cluster(server).submit(submission, 0, &|_| {}).await
}

fn writes(server: &Shared) -> Vec<String> {
    std::mem::take(&mut server.lock().unwrap().writes)
}

#[tokio::test]
async fn a_job_and_its_record_are_made_and_unmade() {
    let server = Shared::default();
    submit(&server, &submission()).await.unwrap();
    assert_eq!(writes(&server), [format!("POST {JOBS}"), format!("POST {MAPS}")]);
    {
        let server = server.lock().unwrap();
        let job = &server.objects[&format!("{JOBS}/a")];
        assert_eq!(job["metadata"]["annotations"]["arena.kubeflow.org/username"], "ann");
        let record = &server.objects[&format!("{MAPS}/a-mpijob")];
        assert_eq!(record["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
        assert_eq!(record["metadata"]["ownerReferences"][0]["controller"], true);
    }
    let again = submit(&server, &submission()).await.unwrap_err().to_string();
    assert!(again.starts_with("the job a is already exist, please delete it first."), "{again}");
    assert!(writes(&server).is_empty());
    let cluster = cluster(&server);
    assert_eq!(cluster.delete("a", &|_| {}).await.unwrap(), Deleted::Gone);
    assert_eq!(cluster.delete("a", &|_| {}).await.unwrap(), Deleted::NeverThere);
    assert!(server.lock().unwrap().objects.is_empty());
}

#[tokio::test]
async fn nothing_is_left_of_a_submission_that_fails() {
    for refused in [JOBS, MAPS, "/apis/apps/v1/namespaces/default/deployments"] {
        let server = Shared::default();
        server.lock().unwrap().refuse = Some((format!("POST {refused}"), 403));
        let whole = Submission {
            tensorboard: true,
            config_files: vec![jobs::ConfigFile {
                container: "/etc/x".into(),
                content: String::new(),
            }],
            ..submission()
        };
        let error = submit(&server, &whole).await.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot create ") && error.ends_with("it is forbidden"),
            "{error}"
        );
        assert!(server.lock().unwrap().objects.is_empty(), "{refused}");
    }
}

#[tokio::test]
async fn a_record_of_someone_else_is_left_alone() {
    let server = Shared::default();
    server
        .lock()
        .unwrap()
        .objects
        .insert(format!("{MAPS}/a-mpijob"), json!({ "metadata": { "name": "a-mpijob" } }));
    let error = submit(&server, &submission()).await.unwrap_err().to_string();
    assert_eq!(error, "the job configmap a-mpijob is already exist, please delete it first");
    assert!(writes(&server).is_empty());
}

#[tokio::test]
async fn a_lost_answer_is_no_second_job() {
    let server = Shared::default();
    server.lock().unwrap().lose = Some(format!("POST {JOBS}"));
    submit(&server, &submission()).await.unwrap();
    assert_eq!(server.lock().unwrap().objects.len(), 2);
}

#[tokio::test]
async fn a_namesake_that_goes_is_waited_for() {
    let server = Shared::default();
    {
        let mut server = server.lock().unwrap();
        server.going = 2;
        server.objects.insert(
            format!("{JOBS}/a"),
            json!({
                "metadata": { "name": "a", "uid": "old", "deletionTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "template": {} },
            }),
        );
        // The record of the old job: its owner is gone soon, and it with it.
        server.objects.insert(
            format!("{MAPS}/a-mpijob"),
            json!({ "metadata": {
                "name": "a-mpijob", "uid": "old-record", "labels": { "createdBy": "arena" },
                "ownerReferences": [{ "apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob", "name": "a", "uid": "old" }],
            } }),
        );
    }
    let told = Mutex::new(Vec::new());
    let progress = |message: &str| told.lock().unwrap().push(message.to_owned());
    cluster(&server).submit(&submission(), 0, &progress).await.unwrap();
    assert_eq!(told.lock().unwrap().first().unwrap(), "waiting until the old job a is gone");
    assert_eq!(server.lock().unwrap().objects[&format!("{JOBS}/a")]["metadata"]["uid"], "uid-1");
}

#[tokio::test]
async fn a_job_from_plain_yaml_and_what_arena_lists_are_deleted() {
    let server = Shared::default();
    {
        let mut server = server.lock().unwrap();
        let plain =
            json!({ "metadata": { "name": "plain", "uid": "p" }, "spec": { "template": {} } });
        server.objects.insert(format!("{JOBS}/plain"), plain);
        server.objects.insert(format!("{MAPS}/b-files"), json!({}));
        server.objects.insert(
            format!("{MAPS}/b-mpijob"),
            json!({
                "metadata": { "name": "b-mpijob", "labels": { "createdBy": "arena" } },
                "data": { "app": "configmap/b-files\nmpijob.kubeflow.org/b\n" },
            }),
        );
    }
    let cluster = cluster(&server);
    assert_eq!(cluster.delete("plain", &|_| {}).await.unwrap(), Deleted::Gone);
    assert_eq!(cluster.delete("b", &|_| {}).await.unwrap(), Deleted::Gone);
    assert!(server.lock().unwrap().objects.is_empty());
}

#[tokio::test]
async fn a_missing_priority_class_or_a_wrong_flag_creates_nothing() {
    let server = Shared::default();
    let urgent = Submission { priority: Some("urgent".into()), ..submission() };
    let error = submit(&server, &urgent).await.unwrap_err().to_string();
    assert!(error.starts_with("the priority urgent doesn't exist."), "{error}");
    let negative = Submission { gpus: -1, ..submission() };
    assert_eq!(submit(&server, &negative).await.unwrap_err().to_string(), "--gpus is invalid");
    assert!(writes(&server).is_empty());
}
