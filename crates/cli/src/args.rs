//! The command line, as data.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{exit, plan, topo};

/// GPU topology-aware gang scheduling for Kubernetes
#[derive(Debug, Parser)]
#[command(name = "ringmaster", version, about, after_help = exit::HELP, propagate_version = true)]
pub(crate) struct Cli {
    /// How much the log on stderr says
    #[arg(long, global = true, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Info)]
    pub(crate) loglevel: LogLevel,
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
pub(crate) struct Connection {
    /// The kubeconfig file; else $KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long, alias = "config", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}
