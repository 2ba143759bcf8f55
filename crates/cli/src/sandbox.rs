//! `sandbox`: a cluster on this machine, until Ctrl-C.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use sandbox::{Part, SandboxError};

use crate::{
    args::Connection,
    exit::Exit,
    output::say,
    parts::{Machines, shutdown},
    progress::Progress,
};

/// Flags of `sandbox`.
#[derive(Debug, Args)]
pub(crate) struct Sandbox {
    #[command(flatten)]
    machines: Machines,
    /// Where the API server listens; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))]
    listen: SocketAddr,
    /// Parts to leave out, to run them by themselves
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',')]
    without: Vec<Left>,
}

/// A part that can be left out.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Left {
    /// The scheduler.
    Scheduler,
    /// The operator.
    Operator,
    /// The nodes.
    Nodes,
}

impl From<Left> for Part {
    fn from(left: Left) -> Self {
        match left {
            Left::Scheduler => Self::Scheduler,
            Left::Operator => Self::Operator,
            Left::Nodes => Self::Nodes,
        }
    }
}

impl Sandbox {
    /// Runs a cluster until it is told to stop. `--kubeconfig` says where its kubeconfig goes.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let stop = shutdown()?;
        let without = self.without.into_iter().map(Part::from).collect();
        let mut sandbox = start(&self.machines, self.listen, without).await?;
        let file = connection.kubeconfig.clone().unwrap_or_else(default_file);
        sandbox.write_kubeconfig(&file)?;
        let progress = Progress::new();
        sandbox.ready(|seen| progress.tell(seen)).await?;
        drop(progress);
        say(&format!(
            "Every node is ready: export KUBECONFIG={}  (simulated; Ctrl-C ends it)\n",
            file.display()
        ))?;
        let ended: Option<SandboxError> = tokio::select! {
            () = stop.cancelled() => None,
            ended = sandbox.ended() => Some(ended),
        };
        sandbox.stop().await;
        match ended {
            Some(problem) => Err(problem.into()),
            None => Ok(Exit::DONE),
        }
    }
}

/// Starts a sandbox of these machines.
pub(crate) async fn start(
    machines: &Machines,
    listen: SocketAddr,
    without: Vec<Part>,
) -> anyhow::Result<sandbox::Sandbox> {
    let nodes = machines.options(listen.ip())?;
    let settings = scheduling::Settings { links: nodes.links.clone(), ..Default::default() };
    let scheduler = scheduler::Options { settings, ..Default::default() };
    Ok(sandbox::Sandbox::start(sandbox::Options { listen, nodes, scheduler, without }).await?)
}

/// A file of this process's own.
fn default_file() -> PathBuf {
    std::env::temp_dir().join(format!("ringmaster-sandbox-{}.kubeconfig", std::process::id()))
}
