//! When the cleanup of an uninstallation refuses to begin (§9.5).
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::sync::Arc;

use axum::Router;
use noderotation_cluster::metrics::ClientMetrics;
use noderotation_controller::cleanup::refuse_while_deployed;
use serde_json::json;

use support::{response, serve, status};

/// Rendered output that somebody applies runs the Job beside a release that works; only a Deployment that is gone, or going,
/// shows an uninstallation. A server that does not say so shows nothing.
#[tokio::test]
async fn only_a_deployment_that_is_gone_lets_the_cleanup_begin() {
    let deployed = json!({"metadata": {"name": "c", "namespace": "ns"}});
    let going = json!({"metadata": {"name": "c", "namespace": "ns", "deletionTimestamp": "2026-11-30T00:00:00Z"}});
    for (code, body, refusal) in [
        (404, status(404, "NotFound"), None),
        (200, going, None),
        (200, deployed, Some("Deployment ns/c exists, so its release is not uninstalled; nothing was removed")),
        (403, status(403, "Forbidden"), Some("whether Deployment ns/c exists cannot be told")),
        (500, status(500, "InternalError"), Some("whether Deployment ns/c exists cannot be told")),
        (200, json!("no object"), Some("whether Deployment ns/c exists cannot be told")),
    ] {
        let text = body.to_string();
        let routes = Router::new().fallback(move || async move { response(code, text) });
        let api = serve(routes, Arc::new(ClientMetrics::default())).await;
        let refused = refuse_while_deployed(&api, "ns", "c").await.err().map(|error| error.to_string());
        match refusal {
            None => assert_eq!(refused, None, "{body}"),
            Some(part) => assert!(refused.as_deref().is_some_and(|text| text.contains(part)), "{body}: {refused:?}"),
        }
    }
}
