//! `audit`: what is wrong in a live cluster.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use kube::{Api, api::ListParams};

use crate::{
    args::Connection,
    exit::{ERROR, Exit},
    output::Output,
};

/// Flags of `audit`.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// How long a gang may stay partly started
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = crate::parts::duration)]
    grace: Duration,
    #[command(flatten)]
    output: Output,
}

/// A finding with its words.
#[derive(serde::Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    finding: &'a audit::Finding,
    message: String,
}

impl Audit {
    /// Checks the cluster.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let cluster = connection.cluster().await?;
        let reports = cluster.reports().await?;
        let reports = reports.into_iter().filter_map(|report| {
            let node = report.metadata.labels?.remove(api::contract::REPORT_NODE_LABEL)?;
            Some((node, report.data?))
        });
        let pods: Api<api::Pod> = Api::all(connection.clients().await?.reads);
        let pods = pods.list(&ListParams::default()).await.context("cannot list pods")?;
        let snapshot = audit::Snapshot {
            nodes: cluster.nodes().await?,
            pods: pods.items,
            reports: reports.collect(),
        };
        let findings = audit::audit(&snapshot, Timestamp::now(), self.grace);
        let told: Vec<Told<'_>> =
            findings.iter().map(|finding| Told { finding, message: finding.to_string() }).collect();
        let (nodes, pods) = (snapshot.nodes.len(), snapshot.pods.len());
        self.output.emit(&told, |told| match told.as_slice() {
            [] => format!("Nothing is wrong: {nodes} nodes, {pods} pods.\n"),
            told => told.iter().map(|told| format!("{}\n", told.message)).collect(),
        })?;
        Ok(if findings.is_empty() { Exit::DONE } else { Exit(ERROR) })
    }
}
