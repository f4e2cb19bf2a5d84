//! The HTTP endpoints of a process: `/healthz` (alive), `/readyz` (able to do its work), `/metrics` (OpenMetrics text).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::Error;

/// What `/readyz` and `/metrics` answer. `/healthz` needs nothing: a process that answers is alive.
pub struct Health {
    ready: AtomicBool,
    metrics: Box<dyn Fn() -> String + Send + Sync>,
}

impl Health {
    /// Not ready until [`Health::set_ready`] says so. `metrics` renders the page of `/metrics`, at each request anew.
    pub fn new(metrics: impl Fn() -> String + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { ready: false.into(), metrics: Box::new(metrics) })
    }

    /// Sets what `/readyz` answers: 200 where `ready`, 503 otherwise. A process that shuts down is no longer ready.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }
}

/// Serves the endpoints on `listen` until the process ends. `flag` is the command-line flag that names the address, for the
/// message of [`Error::Bind`].
pub async fn serve(flag: &'static str, listen: SocketAddr, health: Arc<Health>) -> Result<(), Error> {
    let listener =
        tokio::net::TcpListener::bind(listen).await.map_err(|source| Error::Bind { flag, address: listen, source })?;
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, routes).await.map_err(Error::Serve)
}

async fn ready(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    if health.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], (health.metrics)()).into_response()
}
