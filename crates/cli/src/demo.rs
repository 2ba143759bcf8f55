//! `demo`: the product pages' walk-through.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::{
    args::Connection,
    exit::{ERROR, Exit},
    output::Output,
    parts::{Machines, shutdown},
    progress::Progress,
    sandbox::start,
};

/// Flags of `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Draw the speeds as bars, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Real seconds of a modelled one: eight trainings of half a minute each are to be over soon.
const TIME_SCALE: f64 = 0.02;

impl Demo {
    /// Walks through the pages in a sandbox of its own, or on the cluster of `--kubeconfig`.
    pub(crate) async fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let stop = shutdown()?;
        let progress = Progress::new();
        let mut machines = Machines::of_the_pages();
        machines.time_scale = TIME_SCALE;
        let links = topology::LinkTable::default();
        let (sandbox, clients) = match &connection.kubeconfig {
            Some(_) => (None, connection.clients().await?),
            None => {
                let mut sandbox = start(&machines, ([127, 0, 0, 1], 0).into(), Vec::new()).await?;
                sandbox.ready(|seen| progress.tell(seen)).await?;
                let clients = sandbox.clients().clone();
                (Some(sandbox), clients)
            }
        };
        let tell = |step: &str| progress.tell(step);
        let report = tokio::select! {
            report = demo::run(&clients, links, &tell) => report?,
            () = stop.cancelled() => anyhow::bail!("stopped before the end"),
        };
        drop(progress);
        if let Some(sandbox) = sandbox {
            sandbox.stop().await;
        }
        if let Some(file) = &self.svg {
            std::fs::write(file, report.svg())
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        self.output.emit(&report.json(), |_| report.text())?;
        Ok(if report.holds() { Exit::DONE } else { Exit(ERROR) })
    }
}
