//! The HTTP endpoints of a process: `/healthz` (alive), `/readyz` (able to do its work), `/metrics` (OpenMetrics text).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

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

/// Listens on an address; `flag` is the command-line flag that names it, for the message of [`Error::Bind`]. On `[::]` the
/// kernel accepts IPv4 and IPv6; a node without IPv6 gets `0.0.0.0`.
pub async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, Error> {
    bind_any(address, TcpListener::bind).await.map_err(|source| Error::Bind { flag, address, source })
}

async fn bind_any<T>(address: SocketAddr, bind: impl AsyncFn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into()).await
        }
        bound => bound,
    }
}

/// Not what would fail with IPv4 alike.
fn is_without_ipv6(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

/// Serves the endpoints on an address until the process ends. `flag` is the command-line flag that names the address, for the
/// message of [`Error::Bind`].
pub async fn serve(flag: &'static str, address: SocketAddr, health: Arc<Health>) -> Result<(), Error> {
    let listener = listen(flag, address).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a node whose kernel has no IPv6, or whose other program has the port.
    #[tokio::test]
    async fn only_where_there_is_no_ipv6_is_ipv4_alone_served() {
        let bound = async |address: &str, error: io::ErrorKind| {
            let bind = async |to: SocketAddr| if to.is_ipv6() { Err(error.into()) } else { Ok(to.to_string()) };
            bind_any(address.parse().unwrap(), bind).await.map_err(|error| error.kind())
        };
        for missing in [io::ErrorKind::AddrNotAvailable, io::ErrorKind::Unsupported, io::ErrorKind::Other] {
            assert_eq!(bound("[::]:8080", missing).await.as_deref(), Ok("0.0.0.0:8080"));
            assert_eq!(bound("[::1]:8080", missing).await, Err(missing), "asked for by its address");
        }
        for taken in [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied] {
            assert_eq!(bound("[::]:8080", taken).await, Err(taken));
        }
        assert_eq!(bound("127.0.0.1:8080", io::ErrorKind::Other).await.as_deref(), Ok("127.0.0.1:8080"));
    }

    #[tokio::test]
    async fn both_families_are_served_and_an_address_in_use_is_told() {
        let listener = listen("--listen", "[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        if listener.local_addr().unwrap().is_ipv6() {
            tokio::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
        }
        let error = listen("--listen", SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("--listen [::]:{port} cannot be bound")), "{error}");
    }
}
