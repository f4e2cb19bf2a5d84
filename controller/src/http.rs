//! `/healthz`, `/readyz`, `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::metrics::Metrics;

/// What the endpoints say.
pub struct Health {
    /// Set once the preflight passed; cleared when the process stops.
    pub ready: AtomicBool,
    /// The page of /metrics.
    pub metrics: Arc<Metrics>,
}

/// Serves for ever.
pub async fn serve(listen: SocketAddr, health: Arc<Health>) -> Result<(), String> {
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(|e| {
        format!("--listen {listen} cannot be bound: {e}; name another address or end what listens there")
    })?;
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, routes).await.map_err(|e| e.to_string())
}

async fn ready(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    if health.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], health.metrics.render()).into_response()
}
