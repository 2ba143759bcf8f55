//! A cluster on a laptop: API server, Job controller, simulated nodes, scheduler and operator in one process. Every part
//! but the server is an ordinary API client, and runs as well by itself against another cluster.

mod jobs;

use std::{net::SocketAddr, path::Path, time::Duration};

use api::Node;
use apiserver::{Server, ServerError};
use client::{Clients, TimedOut, wait_until};
use kube::{
    Api,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A part that can be left out, to run it elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The scheduler.
    Scheduler,
    /// The MPIJob operator.
    Operator,
    /// The nodes and their kubelets.
    Nodes,
}

/// What a sandbox is made of.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the API server listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The machines, and how they are simulated.
    pub nodes: nodes::Options,
    /// How jobs are scheduled.
    pub scheduler: scheduler::Options,
    /// Parts that are left out.
    pub without: Vec<Part>,
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The API server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// No client of it can be made.
    #[error("no client of the sandbox's API server: {0}")]
    Client(String),
    /// The MPIJob resource.
    #[error("the MPIJob resource cannot be defined: {0}")]
    Definition(#[source] kube::Error),
    /// Nodes that do not become ready.
    #[error(transparent)]
    Nodes(#[from] TimedOut),
    /// A part ended.
    #[error("{0}")]
    Ended(String),
}

/// How long nodes get to become ready.
const READY: Duration = Duration::from_secs(60);

/// A running sandbox.
pub struct Sandbox {
    server: Server,
    clients: Clients,
    parts: JoinSet<Result<(), String>>,
    stop: CancellationToken,
    expected: Vec<String>,
}

impl Sandbox {
    /// Starts the server and every part.
    ///
    /// # Errors
    /// The address is taken; the MPIJob resource is refused.
    pub async fn start(options: Options) -> Result<Self, SandboxError> {
        let server =
            Server::start(apiserver::Options { listen: options.listen, ..Default::default() })
                .await?;
        let clients = clients_of(&server).await.map_err(SandboxError::Client)?;
        operator::define(&clients).await.map_err(SandboxError::Definition)?;
        let stop = CancellationToken::new();
        let mut parts = JoinSet::new();
        let has = |part: Part| !options.without.contains(&part);
        let words = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let (ours, token) = (clients.clone(), stop.clone());
        parts.spawn(async move {
            jobs::run(ours, token).await;
            Ok(())
        });
        if has(Part::Scheduler) {
            let (ours, token) = (clients.clone(), stop.clone());
            parts.spawn(async move {
                let ran = scheduler::run(ours, options.scheduler, token).await;
                ran.map_err(|error| words("scheduler", &error))
            });
        }
        if has(Part::Operator) {
            let (ours, token) = (clients.clone(), stop.clone());
            parts.spawn(async move {
                let ran = operator::run(ours, operator::Options::default(), token).await;
                ran.map_err(|error| words("operator", &error))
            });
        }
        let mut expected = Vec::new();
        if has(Part::Nodes) {
            expected.extend(options.nodes.nodes.iter().map(|node| node.name.clone()));
            let (ours, token) = (clients.clone(), stop.clone());
            parts.spawn(async move {
                let ran = nodes::run(ours, options.nodes, token).await;
                ran.map_err(|error| words("nodes", &error))
            });
        }
        Ok(Self { server, clients, parts, stop, expected })
    }

    /// Clients of it.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The API server's address, `https://…`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Writes the kubeconfig to a file that only its owner can read.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, file: &Path) -> Result<(), SandboxError> {
        Ok(self.server.write_kubeconfig(file)?)
    }

    /// Waits until every node is ready; `progress` hears what is missing.
    ///
    /// # Errors
    /// They are not within a minute, or a part ended.
    pub async fn ready(&mut self, progress: impl FnMut(&str)) -> Result<(), SandboxError> {
        let nodes: Api<Node> = Api::all(self.clients.reads.clone());
        let expected = &self.expected;
        let waited = wait_until("the nodes to be ready", READY, progress, || async {
            let seen = nodes.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
            let ready =
                |name: &&String| seen.iter().any(|n| n.name() == name.as_str() && n.is_ready());
            let count = expected.iter().filter(ready).count();
            if count == expected.len() {
                Ok(())
            } else {
                Err(format!("{count} of {} nodes ready", expected.len()))
            }
        });
        tokio::select! {
            waited = waited => Ok(waited?),
            ended = ended(&mut self.parts) => Err(ended),
        }
    }

    /// Runs until a part ends, which none should.
    pub async fn ended(&mut self) -> SandboxError {
        ended(&mut self.parts).await
    }

    /// Ends every part, then the server.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.parts.join_next().await.is_some() {}
        self.server.stop().await;
    }
}

async fn ended(parts: &mut JoinSet<Result<(), String>>) -> SandboxError {
    match parts.join_next().await {
        Some(Ok(Err(problem))) => SandboxError::Ended(problem),
        Some(Err(panic)) => SandboxError::Ended(format!("a part of the sandbox failed: {panic}")),
        Some(Ok(Ok(()))) | None => {
            SandboxError::Ended("a part of the sandbox has ended".to_owned())
        }
    }
}

async fn clients_of(server: &Server) -> Result<Clients, String> {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).map_err(|e| e.to_string())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| e.to_string())?;
    Clients::from_config(config)
}
