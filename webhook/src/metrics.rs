//! What /metrics shows (§11).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use noderotation_cluster::metrics::{ClientMetrics, Counters, LabelSet, WatchAges, page, register_build};
use noderotation_cluster::watch::Freshness;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::handlers::Endpoint;

/// All of it.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Requests to the API server and lists.
    pub client_metrics: Arc<ClientMetrics>,
    requests: Counters<3>,
    duration: Histogram,
    turned_away: Counters<1>,
    /// When the certificate that is served ends, in seconds since 1970.
    pub certificate_expiry: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// An empty registry with everything registered.
    pub fn new(fresh: Arc<Freshness>) -> Self {
        let mut registry = Registry::with_prefix("noderotation");
        let metrics = Self {
            registry: Mutex::default(),
            client_metrics: Arc::default(),
            requests: Counters::default(),
            duration: Histogram::new([0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0]),
            turned_away: Counters::default(),
            certificate_expiry: Gauge::default(),
        };
        let r = &mut registry;
        r.register("admission_requests", "Reviews, by endpoint, operation and verdict", metrics.requests.clone());
        r.register("admission_duration_seconds", "From the head of a review to its answer", metrics.duration.clone());
        r.register("admission_turned_away", "Requests that no endpoint saw, by reason", metrics.turned_away.clone());
        r.register(
            "certificate_expiry_timestamp",
            "When the certificate that is served ends; 0: none yet",
            metrics.certificate_expiry.clone(),
        );
        metrics.client_metrics.register(r);
        r.register_collector(Box::new(WatchAges(fresh)));
        register_build(r, env!("CARGO_PKG_VERSION"));
        Self { registry: Mutex::new(registry), ..metrics }
    }

    /// The page.
    pub fn render(&self) -> String {
        page(&self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A review was answered.
    pub fn answered(&self, endpoint: Endpoint, operation: &str, verdict: &'static str, took: Duration) {
        // whatever a request says, the number of series stays bounded
        let operation = ["CREATE", "UPDATE", "DELETE", "CONNECT"].into_iter().find(|known| *known == operation);
        let labels = LabelSet([
            ("webhook", endpoint.path().trim_start_matches('/').to_owned()),
            ("operation", operation.unwrap_or("other").to_owned()),
            ("verdict", verdict.to_owned()),
        ]);
        self.requests.get_or_create(&labels).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// A request was turned away before any endpoint saw it.
    pub fn turned_away(&self, reason: &'static str) {
        self.turned_away.get_or_create(&LabelSet([("reason", reason.to_owned())])).inc();
    }
}
