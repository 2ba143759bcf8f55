//! The ringmaster binary: flags and output formats.

mod args;
mod audit;
mod demo;
mod exit;
mod job;
mod output;
mod parts;
mod plan;
mod progress;
mod sandbox;
mod submit;
mod top;
mod topo;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};

use crate::{
    args::{Cli, Command, Connection},
    exit::Exit,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_tracing(&cli);
    exit::code(run(cli.command, &cli.connection))
}

/// Log lines go to stderr; `RINGMASTER_LOG` sets them module by module.
fn start_tracing(cli: &Cli) {
    let filter = match std::env::var("RINGMASTER_LOG") {
        Ok(directives) => tracing_subscriber::EnvFilter::new(directives),
        Err(_) => tracing_subscriber::EnvFilter::new(cli.loglevel.directive()),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// What runs the commands that talk to a cluster.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    // Another part of the process may have chosen the same provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn run(command: Command, connection: &Connection) -> anyhow::Result<Exit> {
    match command {
        Command::Topo(command) => topo::run(command, connection),
        Command::Plan(plan) => plan.run(),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ringmaster", &mut script);
            output::say(&String::from_utf8_lossy(&script))?;
            Ok(Exit::DONE)
        }
        online => runtime()?.block_on(talk(online, connection)),
    }
}

/// The commands that talk to a cluster.
async fn talk(command: Command, connection: &Connection) -> anyhow::Result<Exit> {
    match command {
        Command::Submit(command) => submit::run(command, connection).await,
        Command::Get(get) => get.run(connection).await,
        Command::Explain(explain) => explain.run(connection).await,
        Command::Audit(audit) => audit.run(connection).await,
        Command::Scheduler(scheduler) => scheduler.run(connection).await,
        Command::Operator(operator) => operator.run(connection).await,
        Command::Nodes(nodes) => nodes.run(connection).await,
        Command::Demo(demo) => demo.run(connection).await,
        Command::Sandbox(sandbox) => sandbox.run(connection).await,
        Command::List(list) => list.run(connection).await,
        Command::Logs(logs) => logs.run(connection).await,
        Command::Delete(delete) => delete.run(connection).await,
        Command::Top(command) => top::run(command, connection).await,
        Command::Topo(_) | Command::Plan(_) | Command::Completion { .. } => {
            unreachable!("answered without a cluster")
        }
    }
}
