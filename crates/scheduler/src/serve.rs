//! Health, metrics, and what the scheduler thinks.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// A question to the task that owns the state.
#[derive(Debug)]
pub(crate) enum Question {
    /// How a gang or pod stands: namespace and name.
    Explain(String, String, oneshot::Sender<Option<serde_json::Value>>),
    /// What is wrong.
    Audit(oneshot::Sender<serde_json::Value>),
}

#[derive(Clone)]
struct Served {
    metrics: Arc<Metrics>,
    questions: mpsc::Sender<Question>,
}

pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    metrics: Arc<Metrics>,
    questions: mpsc::Sender<Question>,
    shutdown: CancellationToken,
) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/metrics", get(|State(served): State<Served>| async move { served.metrics.text() }))
        .route("/debug/explain/{namespace}/{name}", get(explain))
        .route("/debug/audit", get(audit))
        .with_state(Served { metrics, questions });
    let served =
        axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::warn!(%error, "health and metrics are served no more");
    }
}

async fn explain(
    State(served): State<Served>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let (sender, answer) = oneshot::channel();
    let missing = format!("nothing is known of {namespace}/{name}\n");
    if served.questions.send(Question::Explain(namespace, name, sender)).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    match answer.await {
        Ok(Some(explanation)) => axum::Json(explanation).into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, missing).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn audit(State(served): State<Served>) -> Response {
    let (sender, answer) = oneshot::channel();
    if served.questions.send(Question::Audit(sender)).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    match answer.await {
        Ok(findings) => axum::Json(findings).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
