//! What the last pass over each NodePool found out: the metrics show it, and the policies' status is made from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use noderotation_rotation::report::PoolReport;
use parking_lot::Mutex;

/// The last report of each NodePool, by name.
#[derive(Clone, Debug, Default)]
pub struct PoolReports(Arc<Mutex<BTreeMap<String, Arc<PoolReport>>>>);

impl PoolReports {
    /// Replaces a NodePool's report.
    pub fn insert(&self, report: PoolReport) {
        self.0.lock().insert(report.pool.clone(), Arc::new(report));
    }

    /// Forgets a NodePool that is gone.
    pub fn remove(&self, pool: &str) {
        self.0.lock().remove(pool);
    }

    /// Every report, by NodePool.
    pub fn all(&self) -> BTreeMap<String, Arc<PoolReport>> {
        self.0.lock().clone()
    }
}
