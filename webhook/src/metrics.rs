//! The metrics of the webhook (§11).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use noderotation_cluster::metrics::{ClientMetrics, Counters, LabelSet, WatchAges, page, register_build};
use noderotation_cluster::watch::Freshness;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::handlers::Endpoint;
use crate::response::VerdictLabel;
use crate::serve::TurnedAway;

/// All metrics, and the registry that renders them.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Metrics of our own requests to the API server.
    pub client_metrics: Arc<ClientMetrics>,
    requests: Counters<3>,
    duration: Histogram,
    turned_away: Counters<1>,
    /// When the serving certificate expires, in seconds since 1970; 0 while there is none.
    pub certificate_expiry: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Registers all metrics. `fresh` says when each watch last received anything.
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
        r.register(
            "admission_requests",
            "Reviews answered, by endpoint, operation and verdict",
            metrics.requests.clone(),
        );
        r.register(
            "admission_duration_seconds",
            "Time from the head of an HTTP request to its response",
            metrics.duration.clone(),
        );
        r.register(
            "admission_turned_away",
            "HTTP requests turned away before an endpoint judged them, by reason",
            metrics.turned_away.clone(),
        );
        r.register(
            "certificate_expiry_timestamp",
            "When the serving certificate expires; 0 while there is none",
            metrics.certificate_expiry.clone(),
        );
        metrics.client_metrics.register(r);
        r.register_collector(Box::new(WatchAges(fresh)));
        register_build(r, env!("CARGO_PKG_VERSION"));
        Self { registry: Mutex::new(registry), ..metrics }
    }

    /// The page of `/metrics`, in OpenMetrics text.
    pub fn render(&self) -> String {
        page(&self.registry.lock())
    }

    /// Counts a review that was answered, and the time that it took.
    pub fn answered(&self, endpoint: Endpoint, operation: &str, verdict: VerdictLabel, took: Duration) {
        // an operation that Kubernetes does not have must not add a time series
        let operation = ["CREATE", "UPDATE", "DELETE", "CONNECT"].into_iter().find(|known| *known == operation);
        let labels = LabelSet([
            ("webhook", endpoint.path().trim_start_matches('/').to_owned()),
            ("operation", operation.unwrap_or("other").to_owned()),
            ("verdict", <&str>::from(verdict).to_owned()),
        ]);
        self.requests.get_or_create(&labels).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts an HTTP request that was turned away before an endpoint judged it.
    pub fn turned_away(&self, reason: TurnedAway) {
        self.turned_away.get_or_create(&LabelSet([("reason", <&str>::from(reason).to_owned())])).inc();
    }
}
