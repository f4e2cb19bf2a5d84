//! The RotationPolicies and NodePools of the cluster: what two watches report, and for a moment what was just admitted.
//!
//! Two policies of one `kubectl apply` arrive a few milliseconds apart, before the watch reports the first. So an admitted
//! object counts as stored until the watch reports it, or for three seconds if it never does (§10).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use noderotation_cluster::objects::{Cached, identity};
use noderotation_cluster::watch::{Change, EventHandler, Freshness, Store, wait_until};
use noderotation_shared::admission::{PolicyIndex, ProposedNodePool};
use noderotation_shared::governance::ParsedPolicy;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Meta, PolicyObject};
use noderotation_shared::store::Stored;
use noderotation_shared::watch_cursor::STALE_AFTER;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long an admitted object counts as stored, unless the watch reports it sooner.
const PROVISIONAL: Duration = Duration::from_secs(3);

/// The most admitted objects that are remembered at a time; beyond, the oldest is forgotten.
const MOST_PROVISIONAL: usize = 256;

/// A NodePool, reduced to what admission judges.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolObject {
    meta: Meta,
    proposed: Arc<ProposedNodePool>,
}

impl Cached for PoolObject {
    const KIND: Kind = Kind::NodePool;

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        // without managedFields, which are the larger half of an object
        #[derive(Deserialize, Serialize)]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Value,
            #[serde(default)]
            status: Value,
        }
        #[derive(Deserialize, Serialize)]
        struct RawMeta {
            name: String,
            #[serde(default)]
            labels: Value,
            #[serde(default)]
            annotations: Value,
        }
        let raw: Raw = serde_json::from_str(json)?;
        let value = serde_json::to_value(raw)?;
        Ok(Self { meta: identity(json)?, proposed: Arc::new(ProposedNodePool::read(&value, Timestamp::UNIX_EPOCH)) })
    }
}

impl Stored for PoolObject {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CachedKind {
    Policy,
    NodePool,
}

#[derive(Default)]
struct CacheState {
    policies: Store<PolicyObject>,
    pools: Store<PoolObject>,
    index: PolicyIndex,
    /// Objects that were admitted and that no watch has reported yet, and until when they count as stored.
    provisional: BTreeMap<(CachedKind, String), Instant>,
}

impl CacheState {
    fn confirm_policy(&mut self, name: &str) {
        self.provisional.remove(&(CachedKind::Policy, name.to_owned()));
        match self.policies.objects.get(name) {
            Some(policy) => self.index.apply_policy(policy.parsed.clone()),
            None => self.index.delete_policy(name),
        }
    }

    fn confirm_pool(&mut self, name: &str) {
        self.provisional.remove(&(CachedKind::NodePool, name.to_owned()));
        match self.pools.objects.get(name) {
            Some(pool) => self.index.apply_pool(pool.proposed.clone()),
            None => self.index.delete_pool(name),
        }
    }

    fn confirm(&mut self, (kind, name): &(CachedKind, String)) {
        match kind {
            CachedKind::Policy => self.confirm_policy(name),
            CachedKind::NodePool => self.confirm_pool(name),
        }
    }

    /// Forgets admitted objects that no watch has reported in time.
    fn expire(&mut self) {
        let now = Instant::now();
        let expired: Vec<_> =
            self.provisional.iter().filter(|(_, until)| **until <= now).map(|(k, _)| k.clone()).collect();
        for key in expired {
            self.confirm(&key);
        }
    }

    fn remember(&mut self, kind: CachedKind, name: &str) {
        if self.provisional.len() >= MOST_PROVISIONAL
            && let Some(oldest) = self.provisional.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone())
        {
            self.confirm(&oldest);
        }
        self.provisional.insert((kind, name.to_owned()), Instant::now() + PROVISIONAL);
    }
}

/// Everything that verdicts depend on beside the request itself. Fed by two watches, as their [`EventHandler`].
#[derive(Default)]
pub struct Caches {
    state: Mutex<CacheState>,
    synced: Notify,
    /// When each watch last received anything.
    pub fresh: Arc<Freshness>,
}

impl Caches {
    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock()
    }

    /// Reads the index of all policies and NodePools, under a lock: keep `read` short.
    pub fn with_index<T>(&self, read: impl FnOnce(&PolicyIndex) -> T) -> T {
        let mut state = self.lock();
        state.expire();
        read(&state.index)
    }

    /// The NodePool of this name; `None` where there is none.
    pub fn pool(&self, name: &str) -> Option<Arc<ProposedNodePool>> {
        self.with_index(|index| index.pool(name).map(|entry| entry.proposed.clone()))
    }

    /// Remembers a policy that was just admitted and will most likely be stored.
    pub fn admit_policy(&self, policy: Arc<ParsedPolicy>) {
        let mut state = self.lock();
        state.remember(CachedKind::Policy, &policy.name);
        state.index.apply_policy(policy);
    }

    /// Remembers a NodePool that was just admitted and will most likely be stored.
    pub fn admit_pool(&self, pool: Arc<ProposedNodePool>) {
        let mut state = self.lock();
        state.remember(CachedKind::NodePool, &pool.name);
        state.index.apply_pool(pool);
    }

    /// Waits until the initial lists of policies and NodePools are complete.
    pub async fn wait_synced(&self) {
        wait_until(&self.synced, || self.is_synced()).await;
    }

    fn is_synced(&self) -> bool {
        let state = self.lock();
        state.policies.is_initialized && state.pools.is_initialized
    }

    /// A warning where a watch has received nothing for longer than `STALE_AFTER` (§10: 300 s).
    pub fn staleness(&self) -> Option<String> {
        let (kind, age) = self.fresh.ages().into_iter().max_by_key(|(_, age)| *age)?;
        (age > STALE_AFTER).then(|| {
            format!(
                "the noderotation webhook has received no event of {} for {} minutes, so this verdict may be out of date; the controller decides by the actual state",
                kind.plural(),
                age.as_secs() / 60
            )
        })
    }
}

impl EventHandler<PolicyObject> for Caches {
    fn apply(&self, mut policy: PolicyObject) {
        policy.status = Value::Null; // nothing is judged by it, so it need not be kept
        let mut state = self.lock();
        let name = policy.meta.name.clone();
        if let Change::Changed(_) = state.policies.apply(policy) {
            state.confirm_policy(&name);
        }
    }

    fn delete(&self, policy: &PolicyObject) {
        let mut state = self.lock();
        if state.policies.delete(policy).is_some() {
            state.confirm_policy(&policy.meta.name);
        }
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut state = self.lock();
        for policy in state.policies.init_done(uids) {
            state.confirm_policy(&policy.meta.name);
        }
        self.synced.notify_waiters();
    }
}

impl EventHandler<PoolObject> for Caches {
    fn apply(&self, pool: PoolObject) {
        let mut state = self.lock();
        let name = pool.meta.name.clone();
        if let Change::Changed(_) = state.pools.apply(pool) {
            state.confirm_pool(&name);
        }
    }

    fn delete(&self, pool: &PoolObject) {
        let mut state = self.lock();
        if state.pools.delete(pool).is_some() {
            state.confirm_pool(&pool.meta.name);
        }
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut state = self.lock();
        for pool in state.pools.init_done(uids) {
            state.confirm_pool(&pool.meta.name);
        }
        self.synced.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, version: u32, w: &str) -> PolicyObject {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"nodePoolSelector":{{"matchLabels":{{"w":"{w}"}}}}}}}}"#
        );
        PolicyObject::read(&text).unwrap()
    }

    fn names(caches: &Caches) -> Vec<String> {
        caches.with_index(|l| l.policies().map(|p| p.name.to_string()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_admitted_counts_until_it_is_confirmed_or_never_is() {
        let caches = Caches::default();
        caches.apply(policy("a", 1, "x"));
        caches.admit_policy(policy("b", 0, "x").parsed);
        assert_eq!(names(&caches), ["a", "b"]);
        caches.apply(policy("b", 2, "x"));
        tokio::time::advance(PROVISIONAL * 2).await;
        assert_eq!(names(&caches), ["a", "b"], "it is confirmed");
        caches.admit_policy(policy("c", 0, "x").parsed);
        tokio::time::advance(PROVISIONAL * 2).await;
        assert_eq!(names(&caches), ["a", "b"], "it never was stored");
        assert!(caches.lock().provisional.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_admissions_are_not_kept() {
        let caches = Caches::default();
        for i in 0..2_000 {
            caches.admit_policy(policy(&format!("p{i}"), 0, "x").parsed);
        }
        assert_eq!(names(&caches).len(), MOST_PROVISIONAL);
        tokio::time::advance(PROVISIONAL * 2).await;
        assert_eq!(names(&caches), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_told() {
        let caches = Caches::default();
        caches.fresh.touch(Kind::NodePool);
        assert_eq!(caches.staleness(), None);
        tokio::time::advance(STALE_AFTER + Duration::from_secs(120)).await;
        assert!(caches.staleness().unwrap().contains("no event of nodepools for 7 minutes"));
    }
}
