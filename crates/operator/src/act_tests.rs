//! Actions against a scripted API server.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;

use super::*;
use crate::reconcile::tests::job;

/// Requests that were made, as `METHOD path`.
type Made = Arc<Mutex<Vec<String>>>;

/// Clients of a server that answers the requests of a method with a code and a body.
fn server(answers: &'static [(&'static str, u16, &'static str)]) -> (Clients, Made) {
    let made = Made::default();
    let log = Arc::clone(&made);
    let service = tower::service_fn(move |request: Request<Body>| {
        let method = request.method().as_str().to_owned();
        log.lock().unwrap().push(format!("{method} {}", request.uri().path()));
        let (_, code, body) = answers.iter().find(|(of, ..)| *of == method).unwrap();
        let body = match code {
            200 | 201 => (*body).to_owned(),
            code => format!(
                r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"reason":"R","message":"{body}"}}"#
            ),
        };
        let response = Response::builder().status(*code).body(Body::from(body.into_bytes()));
        std::future::ready(response.map_err(std::io::Error::other))
    });
    let client = kube::Client::new(service, "default");
    let config = kube::Config::new("http://127.0.0.1".parse().unwrap());
    let clients =
        Clients { reads: client.clone(), writes: client, namespace: "default".into(), config };
    (clients, made)
}

fn create_config() -> Action {
    Action::Create {
        path: "/api/v1/namespaces/default/configmaps".into(),
        object: json!({"kind": "ConfigMap", "metadata": {"name": "vgg-config"}}),
    }
}

const OURS: &str = r#"{"metadata":{"ownerReferences":[{"apiVersion":"v","kind":"MPIJob","name":"vgg","uid":"u1"}]}}"#;
const PAST: &str = r#"{"metadata":{"ownerReferences":[{"apiVersion":"v","kind":"MPIJob","name":"vgg","uid":"u0"}]}}"#;
const GOING: &str = r#"{"metadata":{"deletionTimestamp":"2026-12-01T00:00:00Z"}}"#;
const OTHER: &str = r#"{"metadata":{}}"#;

#[tokio::test]
async fn a_name_that_is_taken() {
    const TAKEN: (&str, u16, &str) = ("POST", 409, "exists");
    type Answers = &'static [(&'static str, u16, &'static str)];
    let cases: [(Answers, Option<&str>); 7] = [
        (&[("POST", 201, "{}")], None),
        (&[TAKEN, ("GET", 200, OURS)], None),
        (&[TAKEN, ("GET", 200, PAST)], Some("vgg-config of an earlier job is not gone yet")),
        (&[TAKEN, ("GET", 200, GOING)], Some("vgg-config of an earlier job is not gone yet")),
        (&[TAKEN, ("GET", 404, "gone")], Some("vgg-config of an earlier job is not gone yet")),
        (&[TAKEN, ("GET", 200, OTHER)], Some("vgg-config belongs to somebody else")),
        (&[("POST", 422, "too long")], Some("create ConfigMap vgg-config was refused: too long")),
    ];
    for (answers, error) in cases {
        let (clients, _) = server(answers);
        let result = act(&clients, &job(), &create_config()).await;
        assert_eq!(result.err().map(|e| e.to_string()).as_deref(), error, "{answers:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_told_from_a_refusal() {
    let (clients, made) = server(&[("POST", 504, "timeout")]);
    let error = act(&clients, &job(), &create_config()).await.unwrap_err();
    assert!(matches!(error, ActError::Unanswered { .. }), "{error}");
    assert_eq!(made.lock().unwrap().len(), 1, "nothing is written twice without a look");
}

#[tokio::test]
async fn what_is_gone_or_another_by_now() {
    let delete = Action::DeleteWorker { name: "vgg-worker-0".into(), uid: "p".into() };
    let status = Action::Status(api::MpiJobStatus::default());
    let hold = Action::Suspend { uid: "l".into(), suspend: true, restarts: 1 };
    // Deleting and telling are done with then; a launcher must be as it was seen.
    for (action, code, fine) in [
        (&delete, 404, true),
        (&delete, 409, true),
        (&delete, 500, false),
        (&status, 404, true),
        (&status, 409, true),
        (&status, 500, false),
        (&hold, 404, false),
        (&hold, 409, false),
    ] {
        let answers: &'static [(&str, u16, &str)] = match code {
            404 => &[("DELETE", 404, "x"), ("PATCH", 404, "x")],
            409 => &[("DELETE", 409, "x"), ("PATCH", 409, "x")],
            _ => &[("DELETE", 500, "x"), ("PATCH", 500, "x")],
        };
        let (clients, made) = server(answers);
        let result = act(&clients, &job(), action).await;
        assert_eq!(result.is_ok(), fine, "{action:?} {code}: {:?}", made.lock().unwrap());
    }
}

#[tokio::test]
async fn the_status_goes_to_its_own_subresource() {
    let (clients, made) = server(&[("PATCH", 200, r#"{"metadata":{"name":"vgg"}}"#)]);
    act(&clients, &job(), &Action::Status(api::MpiJobStatus::default())).await.unwrap();
    let path = "/apis/kubeflow.org/v1alpha1/namespaces/default/mpijobs/vgg/status";
    assert_eq!(*made.lock().unwrap(), [format!("PATCH {path}")]);
}
