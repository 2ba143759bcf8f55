//! The MPIJob operator: reconcile as a pure state machine, and a thin driver.
//!
//! An MPIJob (`kubeflow.org/v1alpha1`) becomes worker pods that sleep, a hostfile in the order of the placement, and, once
//! all workers are ready, a Job whose mpirun starts its daemons in them through `ringmaster-rsh`.
//!
//! ```text
//!   watches ──▶ world ──▶ reconcile(observed, memory, now) ──▶ actions ──▶ API writes
//!                 ▲                    (pure)                                 │
//!                 └───────────────────────────────────────────────────────────┘
//! ```
//!
//! The objects in the API server are the only truth. Every name is a function of the job and every write may be repeated:
//! the operator can be killed after any of them, or an answer be lost, and what follows ends in the same state.

mod act;
mod crd;
mod driver;
mod launcher;
mod objects;
mod reconcile;
mod shape;
mod worker;
mod world;

use anyhow::Context;
use client::Clients;
use tokio_util::sync::CancellationToken;

pub use crd::crd;

/// How the operator runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Image that holds `ringmaster-rsh` and `cp`.
    pub agent_image: String,
    /// GPUs of a node, by which jobs that state a total of GPUs instead of workers are divided.
    pub gpus_per_node: i32,
    /// Whether to define the MPIJob resource first, where there is none.
    pub define: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            agent_image: format!("ringmaster:{}", env!("CARGO_PKG_VERSION")),
            // The default of the operator that Arena bundles.
            gpus_per_node: 8,
            define: false,
        }
    }
}

/// Defines the MPIJob resource where there is none. One that is there is never replaced: it may be Arena's, or a newer one
/// of ours.
///
/// # Errors
/// The API server does not take it.
pub async fn define(clients: &Clients) -> Result<(), kube::Error> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    match client::post(&clients.writes, path, &crd()).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        defined => defined.map(|_| ()),
    }
}

/// Runs MPIJobs until `shutdown`.
///
/// # Errors
/// The resource is to be defined and the API server does not take it. What fails later is tried again.
pub async fn run(
    clients: Clients,
    options: Options,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    if options.define {
        define(&clients).await.context("cannot define the MPIJob resource")?;
    }
    driver::Driver::new(clients, options).run(shutdown).await;
    Ok(())
}
