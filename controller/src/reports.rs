//! What the last pass over each NodePool found out: the metrics show it, and the policies' status is made from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_rotation::report::PoolReport;
use parking_lot::Mutex;

/// The last report of each NodePool, by name, and what the policies' status adds to it.
#[derive(Clone, Debug, Default)]
pub struct PoolReports(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    reports: BTreeMap<String, Arc<PoolReport>>,
    blocked_since: BTreeMap<String, Timestamp>,
}

impl PoolReports {
    /// Replaces a NodePool's report.
    pub fn insert(&self, report: PoolReport) {
        self.0.lock().reports.insert(report.pool.clone(), Arc::new(report));
    }

    /// Forgets a NodePool that is gone.
    pub fn remove(&self, pool: &str) {
        let mut state = self.0.lock();
        state.reports.remove(pool);
        state.blocked_since.remove(pool);
    }

    /// Every report, by NodePool.
    pub fn all(&self) -> BTreeMap<String, Arc<PoolReport>> {
        self.0.lock().reports.clone()
    }

    /// Since when each blocked NodePool has been blocked: known from the policies' status, which outlives a process.
    pub fn set_blocked_since(&self, since: BTreeMap<String, Timestamp>) {
        self.0.lock().blocked_since = since;
    }

    /// Since when a NodePool has been blocked; `None` where it is not, or no status says so yet.
    pub fn blocked_since(&self, pool: &str) -> Option<Timestamp> {
        self.0.lock().blocked_since.get(pool).copied()
    }
}
