//! The walk-through on the sandbox, and what becomes of its speeds when the placement is another.
#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

use std::{collections::BTreeSet, time::Duration};

use api::{Pod, contract};
use client::{Clients, wait_until};
use demo::{Mode, PAGES, Row, Run};
use jobs::{Cluster, LogOptions};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use placement::{DEFAULT_BATCH, Rates, Workload};
use sandbox::{Options, Part, Sandbox};
use serde_json::json;
use topology::{ClusterFile, LinkTable};

const DEADLINE: Duration = Duration::from_secs(60);

async fn start(without: Vec<Part>) -> Sandbox {
    let machines = ClusterFile::from_machines("gn6v=2").unwrap().nodes;
    let nodes = nodes::Options { time_scale: 0.01, ..nodes::Options::new(machines) };
    let options = Options {
        listen: ([127, 0, 0, 1], 0).into(),
        nodes,
        scheduler: scheduler::Options::default(),
        without,
    };
    let mut sandbox = Sandbox::start(options).await.unwrap();
    sandbox.ready(|_| {}).await.unwrap();
    sandbox
}

fn nodes_of(row: &Row) -> Vec<&str> {
    row.workers.iter().map(|worker| worker.node.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_eight_runs_land_and_train_as_on_the_pages() {
    let sandbox = start(Vec::new()).await;
    let report = demo::run(sandbox.clients(), LinkTable::default(), &|_| {}).await.unwrap();
    sandbox.stop().await;
    assert_eq!(report.rows.len(), PAGES.len());
    for row in &report.rows {
        let job = row.run.job();
        assert!(row.error().abs() <= 0.05, "{job}: {}", row.error());
        let nodes = nodes_of(row);
        let distinct: BTreeSet<(&str, usize)> = row
            .workers
            .iter()
            .flat_map(|worker| worker.gpus.iter().map(|gpu| (worker.node.as_str(), *gpu)))
            .collect();
        assert_eq!(distinct.len(), 4, "{job}: {:?}", row.workers);
        match (row.run.mode, job.starts_with("tensorflow")) {
            (Mode::Default, true) => {
                assert!(nodes.windows(2).all(|pair| pair[0] != pair[1]), "{job}: {nodes:?}");
            }
            _ => assert!(nodes.iter().all(|node| node == &nodes[0]), "{job}: {nodes:?}"),
        }
    }
    assert!(report.holds() && report.svg().contains("</svg>"));
    for (ratio, published) in report.text().lines().rev().take(4).map(|line| {
        let numbers: Vec<f64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (numbers[0], numbers[1])
    }) {
        assert!((ratio / published - 1.0).abs() < 0.05, "{ratio} {published}");
    }
}

/// Where a job's workers are put by hand, in rank order.
type Places = [(&'static str, usize); 4];

/// Submits a page's run, binds its workers as told (in default mode only the nodes are heeded), and returns the images per
/// second that it prints.
async fn forced(clients: &Clients, run: Run, places: Places) -> f64 {
    let cluster = Cluster::new(clients.clone(), None);
    cluster.submit(&run.submission(), 0, &|_| {}).await.unwrap();
    let job = run.job();
    let pods: Api<Pod> = Api::default_namespaced(clients.writes.clone());
    let bind = async |name: String, node: &str, annotations: serde_json::Value| {
        let what = format!("pod {name}");
        let pod = wait_until(
            &what,
            DEADLINE,
            |_| {},
            || async {
                let found =
                    pods.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
                let found = found.into_iter().find(|pod| pod.name().starts_with(&name));
                found.ok_or_else(|| "it is not there".to_owned())
            },
        );
        let pod = pod.await.unwrap();
        let body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.name(), "uid": pod.uid(), "annotations": annotations},
            "target": {"kind": "Node", "name": node},
        });
        let path = format!("/api/v1/namespaces/default/pods/{}/binding", pod.name());
        client::post(&clients.writes, &path, &body).await.unwrap();
    };
    for (rank, (node, gpu)) in places.iter().enumerate() {
        let visible: Vec<String> = places
            .iter()
            .filter(|(other, _)| other == node)
            .map(|(_, gpu)| gpu.to_string())
            .collect();
        let annotations = match run.mode {
            Mode::Topology => json!({
                contract::GPU_GROUP: gpu.to_string(), contract::GPU_VISIBLE: visible.join(","),
                contract::RANK: rank.to_string(),
            }),
            Mode::Default => json!({}),
        };
        bind(contract::worker_name(&job, rank), node, annotations).await;
    }
    bind(contract::launcher_name(&job), "gn6v-1", json!({})).await;
    let mut log = Vec::new();
    let options = LogOptions { follow: true, ..LogOptions::default() };
    tokio::time::timeout(DEADLINE, cluster.logs(&job, &options, &mut log, &|_| {}))
        .await
        .unwrap()
        .unwrap();
    cluster.delete(&job, &|_| {}).await.unwrap();
    wait_until(
        "its pods to be gone",
        DEADLINE,
        |_| {},
        || async {
            let left = pods.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
            if left.is_empty() { Ok(()) } else { Err(format!("{} are there", left.len())) }
        },
    )
    .await
    .unwrap();
    let log = String::from_utf8(log).unwrap();
    let total = log.lines().find_map(|line| {
        line.strip_prefix("total images/sec: ")
            .or_else(|| line.strip_prefix("Total img/sec on 4 GPU(s): "))
    });
    total.unwrap_or_else(|| panic!("{log}")).split_whitespace().next().unwrap().parse().unwrap()
}

async fn patch_nodes(clients: &Clients, patch: serde_json::Value) {
    let nodes: Api<api::Node> = Api::all(clients.writes.clone());
    for node in ["gn6v-1", "gn6v-2"] {
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
}

/// Switches both nodes, and waits until they offer all their GPUs under the mode's name.
async fn switch(clients: &Clients, mode: &str, resource: &str) {
    patch_nodes(clients, json!({"metadata": {"labels": {contract::MODE_LABEL: mode}}})).await;
    let nodes: Api<api::Node> = Api::all(clients.reads.clone());
    wait_until(
        resource,
        DEADLINE,
        |_| {},
        || async {
            let seen = nodes.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
            let offers = |node: &api::Node| {
                node.status.allocatable.get(resource).map(|count| count.value()) == Some(8)
            };
            if seen.iter().all(offers) { Ok(()) } else { Err("not yet".to_owned()) }
        },
    )
    .await
    .unwrap();
}

/// Images per second of the model at a bandwidth.
fn model(run: Run, bus: f64) -> f64 {
    let framework = if run.job().starts_with("tensorflow") { "tf" } else { "pytorch" };
    let workload = Workload::known(framework, run.model, DEFAULT_BATCH, Rates::Calibrated).unwrap();
    workload.images_per_second(4, bus)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_speed_follows_the_placement() {
    let sandbox = start(vec![Part::Scheduler]).await;
    let clients = sandbox.clients();
    let (topology, default): (Vec<Run>, Vec<Run>) =
        PAGES.into_iter().partition(|run| run.mode == Mode::Topology);
    let (a, b) = ("gn6v-1", "gn6v-2");
    // One network card of 1.49 GB/s, over which the ring of ranks passes once or twice.
    let (once, twice) = (1.49, 0.745);
    let machine = topology::catalogue::machine("gn6v").unwrap().topology();
    let class = placement::Class::new(machine, &LinkTable::default());
    let split_pair = class.bandwidth([0, 1, 2, 7].into_iter().collect()).bus;
    // Without the topology flags ranks go by the workers' indices, whatever their nodes.
    switch(clients, contract::MODE_DEFAULT, contract::NVIDIA_GPU).await;
    for run in default {
        let places = [(a, 0), (b, 0), (a, 1), (b, 1)];
        let (speed, expected) = (forced(clients, run, places).await, model(run, twice));
        assert!((speed / expected - 1.0).abs() < 0.02, "{} {speed} for {expected}", run.job());
    }
    switch(clients, contract::MODE_TOPOLOGY, contract::ALIYUN_GPU).await;
    for run in &topology {
        for (places, bus) in [
            ([(a, 0), (a, 1), (a, 2), (a, 7)], split_pair),
            ([(a, 0), (a, 1), (b, 0), (b, 1)], once),
        ] {
            let (speed, expected) = (forced(clients, *run, places).await, model(*run, bus));
            assert!(
                (speed / expected - 1.0).abs() < 0.02,
                "{} {places:?} {speed} for {expected}",
                run.job()
            );
        }
    }
    // The figures that are written down for TensorFlow.
    let (vgg16, resnet50) = (PAGES[0], PAGES[2]);
    for (run, bus, expected) in [
        (vgg16, once, 341.0),
        (resnet50, once, 1100.0),
        (vgg16, twice, 196.0),
        (resnet50, twice, 763.0),
    ] {
        assert!((model(run, bus) / expected - 1.0).abs() < 0.02, "{} {bus}", run.job());
    }
    let ring = [(a, 0), (a, 1), (a, 2), (a, 3)];
    let whole = forced(clients, vgg16, ring).await;
    patch_nodes(
        clients,
        json!({"metadata": {"annotations": {contract::DOWN_LINKS: "0-1,0-2,0-3"}}}),
    )
    .await;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(clients.reads.clone(), contract::REPORT_NAMESPACE);
    wait_until(
        "the links to be down",
        DEADLINE,
        |_| {},
        || async {
            let report = maps.get(&contract::report_name(a)).await.map_err(|e| e.to_string())?;
            let report = topology::NodeReport::from_data(a, &report.data.unwrap())
                .map_err(|e| e.to_string())?;
            if report.topology.link(0, 3) == 0 { Ok(()) } else { Err("they are up".to_owned()) }
        },
    )
    .await
    .unwrap();
    let broken = forced(clients, vgg16, ring).await;
    sandbox.stop().await;
    assert!(broken < 0.95 * whole, "{broken} after {whole}");
}
