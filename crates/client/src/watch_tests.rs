//! A watch against a scripted server.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use api::Pod;
use http::{Request, Response};
use kube::client::Body;

use super::*;

/// A server whose first answer is an error, whose lists have a pod that cannot be read, and whose watches end.
fn server() -> kube::Client {
    let asked = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let turn = asked.fetch_add(1, Ordering::Relaxed);
        let watching = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let pod = |name: &str, spec: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"7","managedFields":[]}},"spec":{spec}}}"#
            )
        };
        let (code, body) = if turn == 0 {
            (500, "{}".to_owned())
        } else if watching {
            let bad = pod("c", r#"{"containers":[{"ports":[{"containerPort":"eighty"}]}]}"#);
            let good = pod("a", r#"{"nodeName":"n1"}"#);
            (
                200,
                format!(
                    "{{\"type\":\"ADDED\",\"object\":{bad}}}\n{{\"type\":\"MODIFIED\",\"object\":{good}}}\n"
                ),
            )
        } else {
            let items = [pod("a", "{}"), pod("b", r#"{"hostNetwork":"perhaps"}"#)].join(",");
            (200, format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#))
        };
        let response = Response::builder()
            .status(code)
            .body(Body::from(body.into_bytes()))
            .map_err(std::io::Error::other);
        std::future::ready(response)
    });
    kube::Client::new(service, "ns")
}

#[tokio::test]
async fn losses_are_recovered_from_and_an_unreadable_object_hides_no_other() {
    let pods: Api<Pod> = Api::namespaced(server(), "ns");
    let changes: Vec<Change<Pod>> = watch(pods, watcher::Config::default()).take(2).collect().await;
    let [Change::Restarted(all), Change::Applied(changed)] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(all.iter().map(Pod::name).collect::<Vec<_>>(), ["a"]);
    assert_eq!((changed.name(), changed.spec.node_name.as_deref()), ("a", Some("n1")));
    assert!(all.iter().all(|pod| pod.metadata.managed_fields.is_none()));
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_until_all_was_well_for_a_while() {
    let mut backoff = Backoff::default();
    let mut next = || {
        kube::runtime::utils::Backoff::reset(&mut backoff);
        backoff.next().unwrap().as_millis()
    };
    assert_eq!((next(), next(), next()), (50, 100, 200));
    tokio::time::advance(WELL * 2).await;
    assert_eq!(next(), 50);
}
