//! The parts of a cluster, each as a process of its own.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;
use topology::{ClusterFile, NodeSpec};

use crate::{args::Connection, exit::Exit, topo::Links};

/// A token that Ctrl-C and SIGTERM cancel. A second Ctrl-C ends the process at once.
pub(crate) fn shutdown() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let token = CancellationToken::new();
    let ours = token.clone();
    tokio::spawn(async move {
        let mut heard = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        heard().await;
        tracing::info!("stopping");
        ours.cancel();
        heard().await;
        // As a shell reports a process that SIGINT ended.
        std::process::exit(130);
    });
    Ok(token)
}

/// A duration that is not negative, as `90s` or `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text.parse().map_err(|e: jiff::Error| e.to_string())?;
    Duration::try_from(signed).map_err(|_| "it must not be negative".to_owned())
}

/// Flags of `scheduler`.
#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    /// Where /healthz, /metrics and /debug are served
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Scheduler name to answer to; may be repeated. Beside a kube-scheduler: --answer-to ringmaster
    #[arg(long = "answer-to", value_name = "NAME", default_values = ["default-scheduler", "ringmaster"])]
    names: Vec<String>,
    /// Binds that are on the way at once
    #[arg(long, value_name = "N", default_value = "16", value_parser = crate::plan::positive)]
    parallel_binds: usize,
    /// How long a gang may stay partly bound
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    grace: Duration,
    /// A gang that has waited longer is not overtaken by smaller later ones
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration)]
    max_wait: Duration,
    /// How long a gang that once ran may stay below its minimum
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    stale_after: Duration,
    #[command(flatten)]
    links: Links,
}

impl Scheduler {
    /// Schedules until it is told to stop.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let options = scheduler::Options {
            settings: scheduling::Settings {
                names: self.names,
                links: self.links.table()?,
                max_wait: self.max_wait,
                grace: self.grace,
                stale_after: self.stale_after,
                ..scheduling::Settings::default()
            },
            listen: self.listen,
            parallel_binds: self.parallel_binds,
        };
        scheduler::run(connection.clients().await?, options, shutdown()?).await?;
        Ok(Exit::DONE)
    }
}

/// Flags of `operator`.
#[derive(Debug, Args)]
pub(crate) struct Operator {
    /// Image that holds ringmaster-rsh, the remote shell of mpirun; else this version's
    #[arg(long, value_name = "IMAGE")]
    agent_image: Option<String>,
    /// Define the MPIJob resource first, if the cluster has none
    #[arg(long)]
    define: bool,
}

impl Operator {
    /// Runs MPIJobs until it is told to stop.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let mut options = operator::Options { define: self.define, ..Default::default() };
        if let Some(image) = self.agent_image {
            options.agent_image = image;
        }
        operator::run(connection.clients().await?, options, shutdown()?).await?;
        Ok(Exit::DONE)
    }
}

/// Flags of simulated machines.
#[derive(Debug, Args)]
pub(crate) struct Machines {
    /// Machines of the catalogue and how many of each, as gn6v=2,dgx-1v=1 (`ringmaster topo list` names them)
    #[arg(long, value_name = "MACHINE=COUNT", default_value = "gn6v=2")]
    machine: String,
    /// A YAML list of {name, topology} instead, as `plan --cluster` takes it
    #[arg(long, value_name = "FILE", conflicts_with = "machine")]
    nodes: Option<PathBuf>,
    /// Real seconds of a modelled one: 0.1 makes trainings ten times as short; what they print stays the same
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    pub(crate) time_scale: f64,
    /// Of the jitter in what benchmarks print
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    #[command(flatten)]
    links: Links,
}

/// A factor that is not negative.
fn factor(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if number.is_finite() && number >= 0.0 {
        Ok(number)
    } else {
        Err("it must be 0 or more".to_owned())
    }
}

impl Machines {
    /// The product pages' two nodes, at their own pace.
    pub(crate) fn of_the_pages() -> Self {
        Self {
            machine: "gn6v=2".to_owned(),
            nodes: None,
            time_scale: 1.0,
            seed: 0,
            links: Links { link_table: None },
        }
    }

    /// What is simulated, with kubelets at `address`.
    pub(crate) fn options(&self, address: IpAddr) -> anyhow::Result<nodes::Options> {
        let nodes: Vec<NodeSpec> = match &self.nodes {
            Some(file) => ClusterFile::read(file)?.nodes,
            None => ClusterFile::from_machines(&self.machine)?.nodes,
        };
        Ok(nodes::Options {
            nodes,
            address,
            links: self.links.table()?,
            time_scale: self.time_scale,
            seed: self.seed,
        })
    }
}

/// Flags of `nodes`.
#[derive(Debug, Args)]
pub(crate) struct Nodes {
    #[command(flatten)]
    machines: Machines,
    /// Where the kubelets listen, and the address that the API server reaches them at; a real one refuses the loopback
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
}

impl Nodes {
    /// Simulates nodes until it is told to stop.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let options = self.machines.options(self.address)?;
        nodes::run(connection.clients().await?, options, shutdown()?).await?;
        Ok(Exit::DONE)
    }
}
