//! A scripted API server, and a client of it.
#![allow(dead_code, reason = "each test file uses only some of these")]

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use noderotation_cluster::api::Api;
use noderotation_cluster::metrics::ClientMetrics;
use serde_json::{Value, json};

/// Serves `routes` on a free port. Returns a client of it that retries nothing by itself and has requests enough.
pub async fn serve(routes: Router, metrics: Arc<ClientMetrics>) -> Api {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    Api::new(kube::Client::try_from(config).unwrap(), 1000, 1000, metrics)
}

/// The body of a request; null where it has none.
pub async fn body_of(request: Request) -> Value {
    let bytes = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

/// A response of the API server.
pub fn response(code: u16, body: String) -> Response {
    (StatusCode::from_u16(code).unwrap(), [("content-type", "application/json")], body).into_response()
}

/// The `Status` of a request that failed with this code.
pub fn status(code: u16, reason: &str) -> Value {
    let message = format!("scripted {code} {reason}");
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
}
