//! The command line, as data.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use client::Clients;
use jobs::Cluster;

use crate::{audit, demo, exit, job, parts, plan, sandbox, submit, top, topo};

/// GPU topology-aware gang scheduling for Kubernetes
#[derive(Debug, Parser)]
#[command(name = "ringmaster", version, after_help = exit::HELP, propagate_version = true)]
pub(crate) struct Cli {
    /// How much the log on stderr says: debug, info, warn or error
    #[arg(long, global = true, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Info, hide_possible_values = true, help_heading = "Everywhere")]
    pub(crate) loglevel: LogLevel,
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How much the log says.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogLevel {
    /// Everything.
    Debug,
    /// What happens.
    Info,
    /// What is odd.
    Warn,
    /// What failed.
    Error,
}

impl LogLevel {
    /// The filter of log lines; libraries speak up from a warning on.
    pub(crate) fn directive(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info,kube=warn,hyper=warn,tower=warn",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Walk through the product pages: eight trainings, their placements and speeds
    Demo(demo::Demo),
    /// Submit a training job
    #[command(subcommand)]
    Submit(submit::Command),
    /// Show a training job
    Get(job::Get),
    /// Say why a training job stands where it stands
    Explain(job::Explain),
    /// List training jobs
    #[command(visible_alias = "ls")]
    List(job::List),
    /// Print the log of a training job
    #[command(visible_alias = "log")]
    Logs(job::Logs),
    /// Delete training jobs with all that belongs to them
    #[command(visible_alias = "del")]
    Delete(job::Delete),
    /// Show what is in use
    #[command(subcommand)]
    Top(top::Command),
    /// Check a cluster: no GPU given twice, no gang partly started, no node overbooked
    Audit(audit::Audit),
    /// Run a cluster on this machine: API server, simulated nodes, scheduler and operator
    Sandbox(sandbox::Sandbox),
    /// Run the scheduler against a cluster
    Scheduler(Box<parts::Scheduler>),
    /// Run the MPIJob operator against a cluster
    Operator(parts::Operator),
    /// Run simulated nodes against a cluster
    Nodes(parts::Nodes),
    /// Show the GPUs and links of a machine, a file or a node
    #[command(subcommand)]
    Topo(topo::Command),
    /// Say where a gang would go, offline
    Plan(Box<plan::Plan>),
    /// Print the completion script of a shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Which cluster a command talks to.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Connection {
    /// The cluster's kubeconfig; else $KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long, global = true, alias = "config", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace; else the kubeconfig's
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Accepted for scripts written for Arena; without effect
    #[arg(long, global = true, hide = true)]
    arena_namespace: Option<String>,
}

impl Connection {
    /// Clients of the cluster.
    pub(crate) async fn clients(&self) -> anyhow::Result<Clients> {
        Ok(Clients::from_kubeconfig(self.kubeconfig.as_deref()).await?)
    }

    /// The cluster and its jobs.
    pub(crate) async fn cluster(&self) -> anyhow::Result<Cluster> {
        let namespace = self.namespace.clone().filter(|namespace| !namespace.is_empty());
        Ok(Cluster::new(self.clients().await?, namespace))
    }
}
