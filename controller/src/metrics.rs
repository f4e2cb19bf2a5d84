//! What /metrics shows (§11).
//!
//! Counters and histograms follow announcements and requests. The gauges by NodePool are not kept at all: they are
//! written at each scrape from the report of the pool's last pass, so that they disappear with the pool.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use jiff::Timestamp;
use noderotation_cluster::metrics::{ClientMetrics, Counters, LabelSet, WatchAges, page, register_build};
use noderotation_cluster::watch::Freshness;
use noderotation_rotation::report::PoolReport;
use noderotation_shared::blocked::BlockedReason;
use noderotation_shared::governance::Ungoverned;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::queue::Queue;
use crate::reports::PoolReports;

/// How a rotation can end, as `completed_total` counts it.
const OUTCOMES: [&str; 3] = ["success", "failure", "expired"];

/// The phases of a rotation that `duration_seconds` measures.
const PHASES: [&str; 2] = ["surge_wait", "drain"];

/// Everything that the controller counts and measures.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// What the last pass over each NodePool found out.
    pub reports: PoolReports,
    completed: Counters<2>,
    fallback: Counters<1>,
    missed: Counters<1>,
    duration: Family<LabelSet<2>, Histogram, fn() -> Histogram>,
    reconciles: Counters<1>,
    reconcile_seconds: Histogram,
    /// Counts the requests to the API server, and the lists of the reflectors.
    pub client_metrics: Arc<ClientMetrics>,
    queue_wait: Family<LabelSet<1>, Histogram, fn() -> Histogram>,
    retries: Counters<1>,
    writes: Counters<2>,
    lateness: Histogram,
    leader: Gauge<i64, AtomicI64>,
}

fn phase_buckets() -> Histogram {
    Histogram::new([15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 2_400.0, 3_600.0, 7_200.0, 14_400.0, 86_400.0])
}

fn short_buckets() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0])
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// An empty registry with everything registered.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("noderotation");
        let reports = PoolReports::default();
        let metrics = Self {
            reports: reports.clone(),
            completed: Family::default(),
            fallback: Family::default(),
            missed: Family::default(),
            duration: Family::new_with_constructor(phase_buckets),
            reconciles: Family::default(),
            reconcile_seconds: short_buckets(),
            client_metrics: Arc::default(),
            queue_wait: Family::new_with_constructor(short_buckets),
            retries: Family::default(),
            writes: Family::default(),
            lateness: short_buckets(),
            leader: Gauge::default(),
            registry: Mutex::new(Registry::default()),
        };
        let r = &mut registry;
        r.register("completed", "Rotations that ended, by outcome", metrics.completed.clone());
        r.register("forceful_fallback", "Rotations started without a surge", metrics.fallback.clone());
        r.register("window_missed", "Windows that closed with due nodes and no success", metrics.missed.clone());
        r.register_with_unit(
            "duration",
            "Length of a successful rotation's phases",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        r.register("reconcile", "Passes over a NodePool, by result", metrics.reconciles.clone());
        r.register_with_unit(
            "reconcile_duration",
            "Length of a pass",
            Unit::Seconds,
            metrics.reconcile_seconds.clone(),
        );
        metrics.client_metrics.register(r);
        r.register_with_unit("queue_wait", "From due to begun", Unit::Seconds, metrics.queue_wait.clone());
        r.register("retries", "Passes put back after a failure", metrics.retries.clone());
        r.register("write_outcomes", "Conditional writes, by step and outcome", metrics.writes.clone());
        r.register_with_unit(
            "wakeup_lateness",
            "How late exact wake-ups were",
            Unit::Seconds,
            metrics.lateness.clone(),
        );
        r.register("leader", "1 where this process is the leader", metrics.leader.clone());
        register_build(r, env!("CARGO_PKG_VERSION"));
        r.register_collector(Box::new(PoolGauges(reports)));
        Self { registry: Mutex::new(registry), ..metrics }
    }

    /// Adds a gauge for each node: when it comes due.
    pub fn observe_nodes(&self) {
        self.registry.lock().register_collector(Box::new(NodeGauges(self.reports.clone())));
    }

    /// Adds what queue and watches know of themselves.
    pub fn observe_loops(&self, queue: Arc<Queue>, fresh: Arc<Freshness>) {
        let mut registry = self.registry.lock();
        registry.register_collector(Box::new(Loops { queue }));
        registry.register_collector(Box::new(WatchAges(fresh)));
    }

    /// The text of `/metrics`, in OpenMetrics format.
    pub fn render(&self) -> String {
        page(&self.registry.lock())
    }

    /// Counts a rotation that ended as `success`, `failure` or `expired`.
    pub fn completed(&self, pool: &str, outcome: &'static str) {
        let labels = LabelSet([("nodepool", pool.to_owned()), ("outcome", outcome.to_owned())]);
        self.completed.get_or_create(&labels).inc();
    }

    /// Measures a phase, `surge_wait` or `drain`, of a successful rotation.
    pub fn phase(&self, pool: &str, phase: &'static str, seconds: f64) {
        let labels = LabelSet([("nodepool", pool.to_owned()), ("phase", phase.to_owned())]);
        self.duration.get_or_create(&labels).observe(seconds);
    }

    /// Counts a rotation that was started without a surge.
    pub fn fallback(&self, pool: &str) {
        self.fallback.get_or_create(&LabelSet([("nodepool", pool.to_owned())])).inc();
    }

    /// Counts a window that closed with work undone.
    pub fn missed(&self, pool: &str) {
        self.missed.get_or_create(&LabelSet([("nodepool", pool.to_owned())])).inc();
    }

    /// Counts a pass by its result, and measures it.
    pub fn reconciled(&self, result: &'static str, length: Duration) {
        self.reconciles.get_or_create(&LabelSet([("result", result.to_owned())])).inc();
        self.reconcile_seconds.observe(length.as_secs_f64());
    }

    /// Measures how long after it was due a pass began.
    pub fn waited(&self, queue: &'static str, wait: Duration) {
        self.queue_wait.get_or_create(&LabelSet([("loop", queue.to_owned())])).observe(wait.as_secs_f64());
    }

    /// Measures how late an exact wake-up came.
    pub fn woke_late(&self, by: Duration) {
        self.lateness.observe(by.as_secs_f64());
    }

    /// Counts a pass that failed and is tried again.
    pub fn retried(&self, queue: &'static str) {
        self.retries.get_or_create(&LabelSet([("loop", queue.to_owned())])).inc();
    }

    /// Counts the answer to a conditional write, by step and outcome.
    pub fn wrote(&self, step: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&LabelSet([("step", step.to_owned()), ("outcome", outcome.to_owned())])).inc();
    }

    /// Sets whether this process is the leader.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Takes in the report of a pass. All series of a governed NodePool exist from its first report on, at 0, so that
    /// `increase(…)` sees the first event.
    pub fn reported(&self, report: PoolReport) {
        if report.governance.is_ok() {
            let pool = || ("nodepool", report.pool.clone());
            for outcome in OUTCOMES {
                drop(self.completed.get_or_create(&LabelSet([pool(), ("outcome", outcome.to_owned())])));
            }
            for phase in PHASES {
                drop(self.duration.get_or_create(&LabelSet([pool(), ("phase", phase.to_owned())])));
            }
            drop(self.fallback.get_or_create(&LabelSet([pool()])));
            drop(self.missed.get_or_create(&LabelSet([pool()])));
        }
        self.reports.insert(report);
    }

    /// Removes everything that is labelled with a NodePool that is gone.
    pub fn forget_pool(&self, pool: &str) {
        self.reports.remove(pool);
        for outcome in OUTCOMES {
            self.completed.remove(&LabelSet([("nodepool", pool.to_owned()), ("outcome", outcome.to_owned())]));
        }
        for phase in PHASES {
            self.duration.remove(&LabelSet([("nodepool", pool.to_owned()), ("phase", phase.to_owned())]));
        }
        self.fallback.remove(&LabelSet([("nodepool", pool.to_owned())]));
        self.missed.remove(&LabelSet([("nodepool", pool.to_owned())]));
    }
}

#[derive(Debug)]
struct PoolGauges(PoolReports);

/// One gauge: its name, its help, and its value where it has one.
type PoolGauge = (&'static str, &'static str, fn(&PoolReport) -> Option<f64>);

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
const POOL_GAUGES: &[PoolGauge] = &[
    ("candidates", "NodeClaims that meet every condition", |r| governed(r, r.counts.eligible as f64)),
    ("in_backoff", "NodeClaims that are due and held back only by their backoff", |r| {
        governed(r, r.counts.in_backoff as f64)
    }),
    ("in_progress", "1 while a rotation is in flight", |r| governed(r, flag(r.in_progress))),
    ("window_active", "1 while the maintenance window is open", |r| governed(r, flag(r.window_active))),
    ("policy_conflict", "1 while policies tie or the winner is invalid", |r| match &r.governance {
        Ok(_) => Some(0.0),
        Err(Ungoverned::Conflict(_) | Ungoverned::InvalidPolicy(_)) => Some(1.0),
        Err(Ungoverned::NoMatch | Ungoverned::OnlyTemplate(_)) => None,
    }),
    ("freeze_until_timestamp", "Until when the pool is frozen; 0: not", |r| governed(r, seconds(r.frozen_until))),
    ("age_threshold_seconds", "A: the age at which a node is due", |r| {
        r.derived.as_ref().map(|d| d.age_threshold.map_or(0.0, |a| a.as_secs_f64()))
    }),
    ("rotation_chances", "G: chances really guaranteed", |r| r.derived.as_ref().map(|d| d.guaranteed_chances as f64)),
    ("throughput_capacity", "C: starts per occurrence", |r| r.derived.as_ref().map(|d| d.starts_per_window as f64)),
    ("t_rot_estimate_seconds", "Expected length of one rotation", |r| {
        r.derived.as_ref().map(|d| d.rotation_estimate.as_secs_f64())
    }),
    ("t_rot_bound_seconds", "Upper bound of one rotation", |r| {
        r.derived.as_ref().map(|d| d.rotation_bound.as_secs_f64())
    }),
    (
        "lead_time_seconds",
        "How long before its deadline a node becomes a candidate; a day where no policy governs",
        |r| {
            let ungoverned = (!r.blocked.is_empty()).then_some(86_400.0);
            r.derived.as_ref().map(|d| d.lead_time.as_secs_f64()).or(ungoverned)
        },
    ),
    ("window_period_seconds", "P: the largest distance between two openings", |r| {
        r.derived.as_ref().map(|d| d.window_period.as_secs_f64())
    }),
    ("next_window_open_timestamp", "When the window opens next; 0: never", |r| governed(r, seconds(r.next_open))),
    ("short_lead_nodes", "NodeClaims born with less than their lead time", |r| {
        governed(r, r.counts.short_lead.len() as f64)
    }),
    ("drain_stuck", "1 while a drain exceeds its bound", |r| governed(r, flag(r.drain_stuck))),
    ("retry_count", "Failed attempts of the claim in rotation", |r| governed(r, r.retry_count as f64)),
];

fn governed(report: &PoolReport, value: f64) -> Option<f64> {
    report.governance.is_ok().then_some(value)
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

#[allow(clippy::cast_precision_loss, reason = "seconds since 1970")]
fn seconds(at: Option<Timestamp>) -> f64 {
    at.map_or(0.0, |at| at.as_second() as f64)
}

impl Collector for PoolGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let reports = self.0.all();
        for (name, help, value) in POOL_GAUGES {
            let sample = ConstGauge::new(0.0f64);
            let mut family = encoder.encode_descriptor(name, help, None, sample.metric_type())?;
            for report in reports.values() {
                if let Some(value) = value(report) {
                    let labels = LabelSet([("nodepool", report.pool.clone())]);
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let (name, help) =
            ("pool_blocked_since_timestamp", "Since when something has kept the pool from being rotated");
        let mut family = encoder.encode_descriptor(name, help, None, ConstGauge::new(0.0f64).metric_type())?;
        for report in reports.values().filter(|report| !report.blocked.is_empty()) {
            if let Some(since) = self.0.blocked_since(&report.pool) {
                let labels = LabelSet([("nodepool", report.pool.clone())]);
                ConstGauge::new(seconds(Some(since))).encode(family.encode_family(&labels)?)?;
            }
        }
        let (name, help) = ("pool_blocked", "1 while this keeps the pool from being rotated");
        let mut family = encoder.encode_descriptor(name, help, None, ConstGauge::new(0.0f64).metric_type())?;
        for report in reports.values().filter(|report| report.governance.is_ok() || !report.blocked.is_empty()) {
            for reason in BlockedReason::all() {
                let is_blocked = report.blocked.iter().any(|blocked| blocked.reason() == *reason);
                let labels = LabelSet([("nodepool", report.pool.clone()), ("reason", reason.word().to_owned())]);
                ConstGauge::new(flag(is_blocked)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct NodeGauges(PoolReports);

impl Collector for NodeGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (name, help) = ("node_due_timestamp_seconds", "When a node comes due, or came");
        let mut family = encoder.encode_descriptor(name, help, None, ConstGauge::new(0.0f64).metric_type())?;
        for report in self.0.all().values() {
            for claim in report.outlook.iter().filter(|claim| claim.due_at.is_some()) {
                let (node, nodeclaim) = (("node", claim.node.to_string()), ("nodeclaim", claim.claim.to_string()));
                let labels = LabelSet([("nodepool", report.pool.clone()), nodeclaim, node]);
                ConstGauge::new(seconds(claim.due_at)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

struct Loops {
    queue: Arc<Queue>,
}

impl std::fmt::Debug for Loops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loops")
    }
}

impl Collector for Loops {
    #[allow(clippy::cast_possible_wrap, reason = "a count of NodePools")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let depth = ConstGauge::new(self.queue.depth() as i64);
        let mut family = encoder.encode_descriptor("queue_depth", "Names that are due", None, depth.metric_type())?;
        depth.encode(family.encode_family(&LabelSet([("loop", "rotation".to_owned())]))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noderotation_rotation::reason::EligibilityCounts;
    use noderotation_rotation::report::Outlook;
    use noderotation_shared::blocked::Blocked;

    fn report(pool: &str, policy: Option<&str>) -> PoolReport {
        PoolReport {
            pool: pool.into(),
            governance: policy.map(Into::into).ok_or(Ungoverned::NoMatch),
            reasons: Vec::new(),
            findings: Vec::new(),
            blocked: vec![Blocked::NeverDue],
            counts: EligibilityCounts { eligible: 3, ..EligibilityCounts::default() },
            in_progress: true,
            window_active: true,
            next_open: None,
            frozen_until: None,
            drain_stuck: false,
            outlook: Vec::new(),
            paused_until: None,
            retry_count: 2,
            derived: None,
        }
    }

    #[test]
    fn gauges_and_counters_go_with_the_pool() {
        let metrics = Metrics::new();
        metrics.reported(report("api", Some("p")));
        for line in [
            "noderotation_completed_total{nodepool=\"api\",outcome=\"expired\"} 0",
            "noderotation_window_missed_total{nodepool=\"api\"} 0",
            "noderotation_forceful_fallback_total{nodepool=\"api\"} 0",
            "noderotation_duration_seconds_count{nodepool=\"api\",phase=\"surge_wait\"} 0",
        ] {
            assert!(metrics.render().contains(line), "{line}: increase() would not see the first one");
        }
        metrics.completed("api", "success");
        metrics.phase("api", "drain", 12.0);
        let page = metrics.render();
        for line in [
            "noderotation_candidates{nodepool=\"api\"} 3.0",
            "noderotation_retry_count{nodepool=\"api\"} 2.0",
            "noderotation_pool_blocked{nodepool=\"api\",reason=\"NeverDue\"} 1.0",
            "noderotation_pool_blocked{nodepool=\"api\",reason=\"Suspended\"} 0.0",
            "noderotation_completed_total{nodepool=\"api\",outcome=\"success\"} 1",
            "noderotation_duration_seconds_count{nodepool=\"api\",phase=\"drain\"} 1",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        metrics.reported(PoolReport { blocked: vec![Blocked::Unselected("p".into())], ..report("api", None) });
        assert!(metrics.render().contains("noderotation_pool_blocked{nodepool=\"api\",reason=\"Unselected\"} 1.0"));
        metrics.reported(PoolReport { blocked: Vec::new(), ..report("api", None) });
        assert!(!metrics.render().contains("noderotation_pool_blocked{"), "no policy means it");
        assert!(!metrics.render().contains("noderotation_candidates{nodepool=\"api\"}"), "gauges go with governance");
        assert!(metrics.render().contains("noderotation_completed_total{nodepool=\"api\""), "counters stay");
        metrics.forget_pool("api");
        assert!(!metrics.render().contains("api"), "{}", metrics.render());
    }

    #[test]
    fn since_when_a_pool_is_blocked_and_its_lead_time_make_the_alert() {
        let metrics = Metrics::new();
        metrics.reported(report("api", Some("p")));
        let since =
            |page: &str| page.contains("noderotation_pool_blocked_since_timestamp{nodepool=\"api\"} 1764547200.0");
        assert!(!since(&metrics.render()), "no status says since when yet");
        metrics.reports.set_blocked_since([("api".to_owned(), "2025-12-01T00:00:00Z".parse().unwrap())].into());
        assert!(since(&metrics.render()), "{}", metrics.render());
        assert!(
            metrics.render().contains("noderotation_lead_time_seconds{nodepool=\"api\"} 86400.0"),
            "a day for want of a policy"
        );
        metrics.reported(PoolReport { blocked: Vec::new(), ..report("api", Some("p")) });
        assert!(!metrics.render().contains("noderotation_pool_blocked_since_timestamp{"), "it goes on");
        assert!(!metrics.render().contains("noderotation_lead_time_seconds{"));
    }

    /// What each loop and each pass counts and measures.
    #[test]
    fn loops_and_passes_are_measured() {
        let metrics = Metrics::new();
        let queue = Arc::new(Queue::default());
        metrics.observe_loops(queue.clone(), Arc::default());
        metrics.fallback("api");
        metrics.missed("api");
        metrics.reconciled("success", Duration::from_millis(10));
        metrics.waited("rotation", Duration::from_millis(20));
        metrics.woke_late(Duration::from_millis(30));
        metrics.retried("rotation");
        metrics.wrote("anchor", "applied");
        metrics.set_leader(true);
        queue.trigger("api");
        let page = metrics.render();
        for line in [
            "noderotation_forceful_fallback_total{nodepool=\"api\"} 1",
            "noderotation_window_missed_total{nodepool=\"api\"} 1",
            "noderotation_reconcile_total{result=\"success\"} 1",
            "noderotation_reconcile_duration_seconds_sum 0.01",
            "noderotation_queue_wait_seconds_sum{loop=\"rotation\"} 0.02",
            "noderotation_wakeup_lateness_seconds_sum 0.03",
            "noderotation_retries_total{loop=\"rotation\"} 1",
            "noderotation_write_outcomes_total{step=\"anchor\",outcome=\"applied\"} 1",
            "noderotation_leader 1",
            "noderotation_queue_depth{loop=\"rotation\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        metrics.set_leader(false);
        assert!(metrics.render().contains("noderotation_leader 0\n"));
    }

    /// One series for each node that comes due at all, behind a flag.
    #[test]
    fn when_each_node_comes_due_is_shown_on_request() {
        let claim = |name: &str, due_at: Option<&str>| Outlook {
            claim: name.into(),
            node: format!("n-{name}").into(),
            due_at: due_at.map(|at| at.parse().unwrap()),
            deadline: None,
        };
        let outlook = vec![claim("a", Some("2025-12-01T00:00:00Z")), claim("never", None)];
        let metrics = Metrics::new();
        metrics.reported(PoolReport { outlook, ..report("api", Some("p")) });
        assert!(!metrics.render().contains("node_due_timestamp_seconds"));
        metrics.observe_nodes();
        let page = metrics.render();
        let line =
            "noderotation_node_due_timestamp_seconds{nodepool=\"api\",nodeclaim=\"a\",node=\"n-a\"} 1764547200.0";
        assert!(page.contains(line), "{page}");
        assert_eq!(page.matches("node_due_timestamp_seconds{").count(), 1, "{page}");
    }
}
