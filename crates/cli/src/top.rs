//! `top node`.

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::{Timestamp, tz::TimeZone};
use jobs::{NodeClass, node_details, node_summary, nodes_json};

use crate::{
    args::Connection,
    exit::{Exit, Usage},
    output::{self, Output},
};

/// What can be shown.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show nodes, their GPUs and who holds them
    #[command(visible_alias = "nodes")]
    Node(Node),
}

/// Flags of `top node`.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// The nodes; else all
    #[arg(value_name = "NODE")]
    names: Vec<String>,
    /// Show each node's links, GPUs and pods
    #[arg(short, long)]
    details: bool,
    /// Show it again every two seconds
    #[arg(short, long)]
    refresh: bool,
    /// Only nodes of a mode: none (n), exclusive (e) or topology (t)
    #[arg(short = 'm', long, value_parser = NodeClass::parse, value_name = "MODE")]
    gpu_mode: Option<NodeClass>,
    #[command(flatten)]
    output: Output,
}

/// How often `-r` looks.
const PERIOD: Duration = Duration::from_secs(2);

/// Shows nodes.
pub(crate) async fn run(command: Command, connection: &Connection) -> anyhow::Result<Exit> {
    let Command::Node(top) = command;
    if top.refresh && !top.details {
        return Err(Usage("-r needs -d".to_owned()).into());
    }
    if top.refresh && top.names.len() != 1 {
        return Err(Usage("must specify only one node name when '-r' is enabled".to_owned()).into());
    }
    let cluster = connection.cluster().await?;
    loop {
        let nodes = cluster.node_views(&top.names, top.gpu_mode).await?;
        top.output.emit(&nodes_json(&nodes), |_| match top.details {
            true => node_details(&nodes),
            false => node_summary(&nodes, !top.names.is_empty()),
        })?;
        if !top.refresh {
            return Ok(Exit::DONE);
        }
        let now = Timestamp::now().to_zoned(TimeZone::system());
        output::say(&format!("{} {}\n", "-".repeat(40), now.strftime("%Y-%m-%d %H:%M:%S")))?;
        tokio::time::sleep(PERIOD).await;
    }
}
