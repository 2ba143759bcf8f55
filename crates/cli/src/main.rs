//! The ringmaster binary: flags and output formats.

mod args;
mod exit;
mod output;
mod plan;
mod topo;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::{
    args::{Cli, Command},
    exit::Exit,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_tracing(&cli);
    exit::code(run(cli.command))
}

/// Log lines go to stderr; `RINGMASTER_LOG` sets them module by module.
fn start_tracing(cli: &Cli) {
    let filter =
        tracing_subscriber::EnvFilter::builder().with_env_var("RINGMASTER_LOG").from_env_lossy();
    let filter = match std::env::var_os("RINGMASTER_LOG") {
        Some(_) => filter,
        None => tracing_subscriber::EnvFilter::new(cli.loglevel.directive()),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Topo(command) => topo::run(command),
        Command::Plan(plan) => plan.run(),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ringmaster", &mut script);
            output::say(&String::from_utf8_lossy(&script))?;
            Ok(Exit::DONE)
        }
    }
}
