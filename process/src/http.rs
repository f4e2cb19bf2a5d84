//! `/healthz`, `/readyz`, `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// What the endpoints say.
pub struct Health {
    /// Set once the program can do its work; cleared when the process stops.
    ready: AtomicBool,
    /// Writes the page of /metrics.
    metrics: Box<dyn Fn() -> String + Send + Sync>,
}

impl Health {
    /// Not ready yet.
    pub fn new(metrics: impl Fn() -> String + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { ready: false.into(), metrics: Box::new(metrics) })
    }

    /// Ready from now on, or no longer.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }
}

/// Serves for ever; `flag` is the one that names the address.
pub async fn serve(flag: &'static str, listen: SocketAddr, health: Arc<Health>) -> Result<(), String> {
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .map_err(|e| format!("{flag} {listen} cannot be bound: {e}; name another address or end what listens there"))?;
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
    ([(header::CONTENT_TYPE, kind)], (health.metrics)()).into_response()
}
