//! The MPIJob operator: reconcile as a pure state machine, and a thin driver.
//!
//! An MPIJob (`kubeflow.org/v1alpha1`) becomes worker pods that sleep, a hostfile in the order of the placement, and, once
//! all workers are ready, a Job whose mpirun starts its daemons in them through `ringmaster-rsh`.

mod driver;
mod objects;
mod reconcile;

use client::Clients;
use tokio_util::sync::CancellationToken;

/// How the operator runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Image that holds `ringmaster-rsh`.
    pub agent_image: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { agent_image: format!("ringmaster:{}", env!("CARGO_PKG_VERSION")) }
    }
}

/// Runs MPIJobs until `shutdown`.
///
/// # Errors
/// None so far: what fails is tried again.
pub async fn run(
    clients: Clients,
    options: Options,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    driver::Driver::new(clients, options).run(shutdown).await;
    Ok(())
}
