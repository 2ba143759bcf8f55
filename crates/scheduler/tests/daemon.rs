//! The daemon against an API server: gangs are bound whole or not at all, with their GPUs in the same write.
#![allow(clippy::unwrap_used, reason = "a test ends where an assumption does not hold")]

use std::{collections::BTreeMap, time::Duration};

use api::{Node, Pod, contract};
use apiserver::Server;
use client::{Clients, wait_until};
use jiff::Timestamp;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
    core::Request,
};
use scheduler::Options;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use topology::{LinkTable, NodeReport, catalogue};

const DEADLINE: Duration = Duration::from_secs(60);

struct Rig {
    server: Server,
    clients: Clients,
    stop: CancellationToken,
    scheduler: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Rig {
    /// Two nodes of eight V100 in topology mode, and the scheduler.
    async fn start() -> Self {
        let server = Server::start(apiserver::Options::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        server.write_kubeconfig(&file).unwrap();
        let clients = Clients::from_kubeconfig(Some(&file)).await.unwrap();
        let stop = CancellationToken::new();
        let scheduler =
            tokio::spawn(scheduler::run(clients.clone(), Options::default(), stop.clone()));
        let rig = Self { server, clients, stop, scheduler };
        for name in ["n1", "n2"] {
            rig.create("/api/v1/nodes", &node(name)).await;
            rig.create("/api/v1/namespaces/kube-system/configmaps", &report(name)).await;
        }
        rig
    }

    async fn create(&self, path: &str, object: &Value) {
        let body = serde_json::to_vec(object).unwrap();
        let request = Request::new(path).create(&PostParams::default(), body).unwrap();
        self.clients.writes.request::<Value>(request).await.unwrap();
    }

    async fn submit(&self, job: &str, workers: usize) {
        for index in 0..workers {
            self.create("/api/v1/namespaces/default/pods", &worker(job, index, workers)).await;
        }
    }

    async fn pods(&self) -> Vec<Pod> {
        Api::<Pod>::all(self.clients.reads.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    async fn bound(&self, job: &str) -> usize {
        let of_job = |pod: &&Pod| pod.name().starts_with(job) && pod.spec.node_name.is_some();
        self.pods().await.iter().filter(of_job).count()
    }

    async fn wait_bound(&self, job: &str, count: usize) {
        let look = || async {
            match self.bound(job).await {
                bound if bound == count => Ok(()),
                bound => Err(format!("{bound} bound")),
            }
        };
        wait_until(&format!("{count} pods of {job}"), DEADLINE, |_| {}, look).await.unwrap();
    }

    async fn audit(&self) -> Vec<audit::Finding> {
        let nodes = Api::<Node>::all(self.clients.reads.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        let reports: BTreeMap<String, BTreeMap<String, String>> =
            ["n1", "n2"].map(|name| (name.to_owned(), report_of(name).to_data())).into();
        let snapshot = audit::Snapshot { nodes, pods: self.pods().await, reports };
        audit::audit(&snapshot, Timestamp::now(), Duration::from_secs(60))
    }

    async fn end(self) {
        self.stop.cancel();
        self.scheduler.await.unwrap().unwrap();
        self.server.stop().await;
    }
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {contract::MODE_LABEL: contract::MODE_TOPOLOGY}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", contract::ALIYUN_GPU: "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn report_of(name: &str) -> NodeReport {
    let topology = catalogue::machine("gn6v").unwrap().topology();
    let uuids = (0..topology.len()).map(|gpu| format!("GPU-{name}-{gpu}")).collect();
    NodeReport::new(name, topology, uuids, &LinkTable::default())
}

fn report(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": report_of(name).to_data(),
        "metadata": {"name": contract::report_name(name), "labels": {
            contract::MODE_LABEL: contract::MODE_TOPOLOGY, contract::REPORT_NODE_LABEL: name}},
    })
}

fn worker(job: &str, index: usize, workers: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{job}-worker-{index}"), "labels": {
            contract::TOPOLOGY_GROUP: job, contract::TOPOLOGY_REPLICA: workers.to_string(),
            contract::MPI_ROLE: contract::WORKER}},
        "spec": {"hostNetwork": true, "containers": [
            {"name": "mpi", "image": "image", "resources": {"limits": {contract::ALIYUN_GPU: "1"}}}]},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_of_four_is_bound_to_a_ring_with_its_gpus() {
    let rig = Rig::start().await;
    rig.submit("ring", 4).await;
    rig.wait_bound("ring", 4).await;
    let pods = rig.pods().await;
    let gpus: Vec<String> =
        pods.iter().map(|pod| pod.gpu_group().unwrap().unwrap().to_string()).collect();
    assert_eq!(gpus, ["0", "1", "2", "3"]);
    assert!(pods.iter().all(|pod| pod.spec.node_name == pods[0].spec.node_name));
    assert_eq!(pods[3].annotations()[contract::GPU_VISIBLE], "0,1,2,3");
    assert_eq!(pods[0].annotations()[contract::BUS_BANDWIDTH], "89.84");
    assert!(pods[2].annotations()[contract::GPU_UUIDS].ends_with("-2"));
    assert_eq!(rig.audit().await, []);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_then_eight_and_the_second_starts_when_the_first_is_gone() {
    let rig = Rig::start().await;
    rig.submit("first", 12).await;
    rig.wait_bound("first", 12).await;
    rig.submit("second", 8).await;
    // A job that fits comes after it and is bound: by then the second was tried, and has no pod bound.
    rig.submit("third", 4).await;
    rig.wait_bound("third", 4).await;
    assert_eq!(rig.bound("second").await, 0);
    let pods: Api<Pod> = Api::namespaced(rig.clients.writes.clone(), "default");
    for index in 0..12 {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&format!("first-worker-{index}"), &now).await.unwrap();
    }
    rig.wait_bound("second", 8).await;
    assert_eq!(rig.audit().await, []);
    rig.end().await;
}
