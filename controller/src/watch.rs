//! The caches as the controller's tasks share them: behind a lock, feeding the queue, waking who waits.
//!
//! What a change means is `noderotation_rotation::caches`' business.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::{EventHandler, Freshness, wait_until};
use noderotation_rotation::caches::{CacheOf, Caches as State, Triggers};
use noderotation_rotation::world::{Settings, World};
use noderotation_shared::kind::Kind;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::queue::Queue;

/// The caches of a leader.
pub struct Caches {
    state: Mutex<State>,
    queue: Arc<Queue>,
    /// Notified when a policy, a pool or a claim has changed: the policies' status may have to.
    pub changed: Notify,
    initialized: Notify,
    /// When each watch last delivered something.
    pub fresh: Arc<Freshness>,
}

impl Caches {
    /// Empty caches that trigger passes in `queue`.
    pub fn new(queue: Arc<Queue>, fresh: Arc<Freshness>) -> Self {
        Self { state: Mutex::default(), queue, changed: Notify::new(), initialized: Notify::new(), fresh }
    }

    /// The caches themselves. Never to be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until the initial state of every kind is complete.
    pub async fn wait_initialized(&self) {
        wait_until(&self.initialized, || self.lock().is_initialized()).await;
    }

    /// The NodePool's world; `None` when there is no such NodePool.
    pub fn world(&self, settings: &Arc<Settings>, pool: &str, now: Timestamp) -> Option<World> {
        let stale = self.fresh.is_stale();
        self.lock().world(settings, pool, stale, now)
    }

    /// Takes over which fields of policies the cluster does not store; returns whether that is new.
    pub fn set_missing_fields(&self, fields: Vec<String>) -> bool {
        let triggers = self.lock().set_missing_fields(fields);
        self.trigger(triggers.as_deref().unwrap_or_default());
        triggers.is_some()
    }

    /// Reconciles every NodePool whenever stale caches are fresh again: starts had been held back, and no event of a
    /// NodePool tells that they no longer are. Never returns.
    pub async fn trigger_on_recovery(self: Arc<Self>) {
        loop {
            self.fresh.recovered().await;
            let names = self.lock().pool_names();
            self.trigger(&names);
        }
    }

    /// The API server has answered that there is no object of this kind and name.
    pub fn forget<K>(&self, name: &str)
    where
        State: CacheOf<K>,
    {
        let triggers = CacheOf::<K>::forget(&mut *self.lock(), name);
        self.trigger(&triggers);
    }

    fn trigger(&self, pools: &[Box<str>]) {
        for pool in pools {
            self.queue.trigger(pool);
        }
    }

    fn changed<K: Cached>(&self, triggers: &Triggers) {
        self.trigger(triggers);
        if !triggers.is_empty() && matches!(K::KIND, Kind::NodePool | Kind::NodeClaim | Kind::RotationPolicy) {
            self.changed.notify_one();
        }
    }
}

impl<K: Cached> EventHandler<K> for Caches
where
    State: CacheOf<K>,
{
    fn apply(&self, object: K) {
        let triggers = self.lock().apply(object);
        self.changed::<K>(&triggers);
    }

    fn delete(&self, object: &K) {
        let triggers = self.lock().delete(object);
        self.changed::<K>(&triggers);
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let triggers = CacheOf::<K>::init_done(&mut *self.lock(), uids);
        self.changed::<K>(&triggers);
        self.initialized.notify_waiters();
    }
}
