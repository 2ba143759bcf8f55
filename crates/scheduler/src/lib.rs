//! The scheduler daemon: watches into scheduling, decisions into API writes.
//!
//! One task owns the state. Watches feed it; it plans, and hands plans to tasks that bind, whose outcomes come back to it.
//! What it tells people (events, conditions) follows behind the binds: a bind never waits for an event. Nothing it knows
//! is its own: after a restart the state is what the API server's objects say.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use client::Clients;
use scheduling::Settings;
use tokio_util::sync::CancellationToken;

mod bind;
mod daemon;
mod metrics;
mod serve;
mod tell;

/// How the scheduler runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is decided, and how.
    pub settings: Settings,
    /// Where `/healthz`, `/metrics` and `/debug` are served; nowhere without.
    pub listen: Option<SocketAddr>,
    /// Binds that are on the way at once.
    pub parallel_binds: usize,
}

impl Default for Options {
    /// Sixteen binds at once, served nowhere.
    fn default() -> Self {
        Self { settings: Settings::default(), listen: None, parallel_binds: 16 }
    }
}

/// Schedules until `shutdown`.
///
/// # Errors
/// The address to serve on is taken.
pub async fn run(
    clients: Clients,
    options: Options,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let metrics = Arc::new(metrics::Metrics::new());
    let (questions, asked) = tokio::sync::mpsc::channel(16);
    let server = match options.listen {
        Some(address) => {
            let listener = tokio::net::TcpListener::bind(address)
                .await
                .with_context(|| format!("the scheduler cannot listen on {address}"))?;
            tokio::spawn(serve::serve(listener, Arc::clone(&metrics), questions, shutdown.clone()))
        }
        None => tokio::spawn(async {}),
    };
    daemon::Daemon::new(clients, options, metrics).run(asked, shutdown).await;
    server.abort();
    Ok(())
}
