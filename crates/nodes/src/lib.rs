//! Simulated nodes and kubelets, for a laptop or for tests: plain API clients that run against any API server.
//!
//! ```text
//!   watches ──▶ fleet ──▶ kubelet (admits, offers, tells) ──▶ life of a pod ──▶ program (shell, mpirun, benchmark)
//!                                     server: logs and exec ──────────────────────┘
//! ```
//!
//! Nodes start without a mode, switch it with their label, publish the node report, and give containers exactly the GPUs
//! of their plan. What a pod runs is interpreted, and the speed of a training follows from where its workers stand.

mod containers;
mod devices;
mod events;
mod fleet;
mod images;
mod kubelet;
mod life;
mod log;
mod machine;
mod program;
mod server;
mod status;
mod world;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use client::Clients;
use tokio_util::sync::CancellationToken;
use topology::{LinkTable, NodeSpec};

/// How nodes are simulated.
#[derive(Debug, Clone)]
pub struct Options {
    /// The machines.
    pub nodes: Vec<NodeSpec>,
    /// Where their kubelets listen and what they state as their address: where the API server reaches them. A real one
    /// refuses to talk to kubelets on the loopback.
    pub address: IpAddr,
    /// What links carry.
    pub links: LinkTable,
    /// Real seconds of a modelled one. Time that a program asks for itself (`sleep 5`) is not scaled.
    pub time_scale: f64,
    /// Of the jitter in what benchmarks print.
    pub seed: u64,
}

impl Options {
    /// Nodes at their own pace, on the loopback.
    pub fn new(nodes: Vec<NodeSpec>) -> Self {
        Self {
            nodes,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            links: LinkTable::default(),
            time_scale: 1.0,
            seed: 0,
        }
    }
}

/// Why nodes are not simulated.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    /// The kubelets cannot listen.
    #[error("kubelets cannot listen on {address}: {problem}")]
    Listen {
        /// Where.
        address: IpAddr,
        /// Why.
        problem: String,
    },
    /// A node cannot be registered.
    #[error("node {node}: {source}")]
    Register {
        /// The node.
        node: String,
        /// What the API server says.
        source: kube::Error,
    },
}

/// Registers the nodes and simulates them until `shutdown`.
///
/// # Errors
/// The kubelets cannot listen, or the API server does not take a node. What fails later is tried again.
pub async fn run(
    clients: Clients,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), NodesError> {
    let Options { nodes, address, links, time_scale, seed } = options;
    let broken = |problem: String| NodesError::Listen { address, problem };
    let (listener, port) = server::listen(address).await.map_err(|e| broken(e.to_string()))?;
    let certificate = server::certificate(vec![address.to_string()]).map_err(broken)?;
    let endpoint = machine::Endpoint { address: address.to_string(), port };
    let world = Arc::new(world::World::new(&nodes, links.clone()));
    let kubelets: BTreeMap<String, kubelet::Kubelet> = nodes
        .into_iter()
        .enumerate()
        .map(|(number, spec)| {
            (spec.name.clone(), kubelet::Kubelet::new(spec, number, endpoint.clone()))
        })
        .collect();
    let containers = Arc::new(containers::Containers::default());
    let pace = program::Pace { scale: time_scale, seed };
    let fleet =
        fleet::Fleet { clients, kubelets, world, containers: Arc::clone(&containers), links, pace };
    fleet.register().await.map_err(|(node, source)| NodesError::Register { node, source })?;
    let serving = server::serve(listener, certificate, containers, shutdown.clone());
    tokio::join!(serving, fleet.run(shutdown));
    Ok(())
}
