//! Development commands: real Kubernetes programs, and the suites that run on them.

mod certificates;
mod control_plane;
mod e2e;
mod namespaces;
mod process;
mod programs;

use clap::{Parser, Subcommand};

use programs::Kubernetes;

/// Development commands
#[derive(Debug, Parser)]
#[command(name = "xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the real programs that the suites need, from their modules
    Programs {
        /// Version of Kubernetes
        #[arg(long, value_enum, default_value_t)]
        kubernetes: Kubernetes,
    },
    /// Run suites against real Kubernetes programs
    #[command(subcommand)]
    E2e(E2e),
}

#[derive(Debug, Subcommand)]
enum E2e {
    /// etcd, kube-apiserver and kube-controller-manager, with our scheduler, operator and simulated nodes
    ControlPlane(e2e::ControlPlane),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Programs { kubernetes } => {
            let programs = programs::ensure(kubernetes)?;
            process::say(&format!("programs are in {}", programs.folder().display()));
            Ok(())
        }
        Command::E2e(E2e::ControlPlane(suite)) => suite.run(),
    }
}
