//! The policies and NodePools there are: what two slim watches say, and for a moment what was just admitted.
//!
//! Two policies in one `kubectl apply` come a few milliseconds apart, faster than a watch may tell of the first. So what
//! was admitted counts until the watch confirms it, or for three seconds if it never does.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use noderotation_cluster::objects::{Cached, PolicyObject, identity};
use noderotation_cluster::watch::fresh::STALE_AFTER;
use noderotation_cluster::watch::{Change, EventHandler, Freshness, Store, wait_until};
use noderotation_shared::admission::{PolicyIndex, ProposedNodePool};
use noderotation_shared::governance::StoredPolicy;
use noderotation_shared::objects::{Meta, NodePool};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What was admitted counts for this long, unless the watch confirms it sooner.
const PROVISIONAL: Duration = Duration::from_secs(3);

/// So many admitted objects are remembered at most.
const MOST_PROVISIONAL: usize = 256;

/// A NodePool as admission sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolObject {
    meta: Meta,
    proposed: Arc<ProposedNodePool>,
}

impl Cached for PoolObject {
    const COLLECTION: &'static str = NodePool::COLLECTION;
    const RESOURCE: &'static str = NodePool::RESOURCE;

    fn read(json: &str) -> Result<Self, String> {
        // managed fields, the larger half of an object, are never taken apart
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
        let raw: Raw = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let value = serde_json::to_value(raw).map_err(|e| e.to_string())?;
        Ok(Self { meta: identity(json)?, proposed: Arc::new(ProposedNodePool::read(&value, Timestamp::UNIX_EPOCH)) })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }
}

/// A RotationPolicy as admission sees it: what was read of its spec, and nothing else of it.
#[derive(Clone, Debug)]
pub struct PolicyEntry {
    meta: Meta,
    stored: Arc<StoredPolicy>,
}

impl PartialEq for PolicyEntry {
    /// The generation changes with the spec, and with nothing else.
    fn eq(&self, other: &Self) -> bool {
        self.meta == other.meta && self.stored.generation == other.stored.generation
    }
}

impl Cached for PolicyEntry {
    const COLLECTION: &'static str = PolicyObject::COLLECTION;
    const RESOURCE: &'static str = PolicyObject::RESOURCE;

    fn read(json: &str) -> Result<Self, String> {
        PolicyObject::read(json).map(|policy| Self { meta: policy.meta, stored: policy.stored })
    }

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
    policies: Store<PolicyEntry>,
    pools: Store<PoolObject>,
    index: PolicyIndex,
    /// What was admitted and not yet confirmed, and until when it counts.
    provisional: BTreeMap<(CachedKind, String), Instant>,
}

impl CacheState {
    fn confirm_policy(&mut self, name: &str) {
        self.provisional.remove(&(CachedKind::Policy, name.to_owned()));
        match self.policies.objects.get(name) {
            Some(policy) => self.index.apply_policy(policy.stored.clone()),
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

    /// What was never confirmed is forgotten.
    fn expire(&mut self) {
        let now = Instant::now();
        let over: Vec<_> =
            self.provisional.iter().filter(|(_, until)| **until <= now).map(|(k, _)| k.clone()).collect();
        for key in over {
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

/// Everything that admission knows of the cluster.
#[derive(Default)]
pub struct Caches {
    known: Mutex<CacheState>,
    synced: Notify,
    /// When each watch last said something.
    pub fresh: Arc<Freshness>,
}

impl Caches {
    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at all policies and pools.
    pub fn with_index<T>(&self, look: impl FnOnce(&PolicyIndex) -> T) -> T {
        let mut known = self.lock();
        known.expire();
        look(&known.index)
    }

    /// One pool.
    pub fn pool(&self, name: &str) -> Option<Arc<ProposedNodePool>> {
        self.with_index(|index| index.pool(name).map(|entry| entry.proposed.clone()))
    }

    /// A policy was admitted and will likely be stored.
    pub fn admit_policy(&self, policy: Arc<StoredPolicy>) {
        let mut known = self.lock();
        known.remember(CachedKind::Policy, &policy.name);
        known.index.apply_policy(policy);
    }

    /// A NodePool was admitted and will likely be stored.
    pub fn admit_pool(&self, pool: Arc<ProposedNodePool>) {
        let mut known = self.lock();
        known.remember(CachedKind::NodePool, &pool.name);
        known.index.apply_pool(pool);
    }

    /// Waits until both first lists are complete.
    pub async fn wait_synced(&self) {
        wait_until(&self.synced, || self.is_synced()).await;
    }

    fn is_synced(&self) -> bool {
        let known = self.lock();
        known.policies.is_initialized && known.pools.is_initialized
    }

    /// A warning where a watch has been silent for too long.
    pub fn staleness(&self) -> Option<String> {
        let (resource, age) = self.fresh.ages().into_iter().max_by_key(|(_, age)| *age)?;
        (age > STALE_AFTER).then(|| {
            format!(
                "the noderotation webhook has heard nothing of {resource} for {} minutes, so this verdict may be out of date; the controller decides on the real state",
                age.as_secs() / 60
            )
        })
    }
}

impl EventHandler<PolicyEntry> for Caches {
    fn apply(&self, policy: PolicyEntry) {
        let mut known = self.lock();
        let name = policy.meta.name.clone();
        if let Change::Changed(_) = known.policies.apply(policy) {
            known.confirm_policy(&name);
        }
    }

    fn delete(&self, policy: &PolicyEntry) {
        let mut known = self.lock();
        if known.policies.delete(&policy.meta.name, &policy.meta.uid).is_some() {
            known.confirm_policy(&policy.meta.name);
        }
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut known = self.lock();
        for policy in known.policies.init_done(uids) {
            known.confirm_policy(&policy.meta.name);
        }
        self.synced.notify_waiters();
    }
}

impl EventHandler<PoolObject> for Caches {
    fn apply(&self, pool: PoolObject) {
        let mut known = self.lock();
        let name = pool.meta.name.clone();
        if let Change::Changed(_) = known.pools.apply(pool) {
            known.confirm_pool(&name);
        }
    }

    fn delete(&self, pool: &PoolObject) {
        let mut known = self.lock();
        if known.pools.delete(&pool.meta.name, &pool.meta.uid).is_some() {
            known.confirm_pool(&pool.meta.name);
        }
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut known = self.lock();
        for pool in known.pools.init_done(uids) {
            known.confirm_pool(&pool.meta.name);
        }
        self.synced.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, version: u32, w: &str) -> PolicyEntry {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"nodePoolSelector":{{"matchLabels":{{"w":"{w}"}}}}}}}}"#
        );
        PolicyEntry::read(&text).unwrap()
    }

    fn known(caches: &Caches) -> Vec<String> {
        caches.with_index(|l| l.policies().map(|p| p.name.clone()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_admitted_counts_until_it_is_confirmed_or_never_is() {
        let caches = Caches::default();
        caches.apply(policy("a", 1, "x"));
        caches.admit_policy(policy("b", 0, "x").stored);
        assert_eq!(known(&caches), ["a", "b"]);
        caches.apply(policy("b", 2, "x"));
        tokio::time::advance(PROVISIONAL * 2).await;
        assert_eq!(known(&caches), ["a", "b"], "it is confirmed");
        caches.admit_policy(policy("c", 0, "x").stored);
        tokio::time::advance(PROVISIONAL * 2).await;
        assert_eq!(known(&caches), ["a", "b"], "it never was stored");
        assert!(caches.lock().provisional.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_admissions_are_not_kept() {
        let caches = Caches::default();
        for i in 0..2_000 {
            caches.admit_policy(policy(&format!("p{i}"), 0, "x").stored);
        }
        assert_eq!(known(&caches).len(), MOST_PROVISIONAL);
        tokio::time::advance(PROVISIONAL * 2).await;
        assert_eq!(known(&caches), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_told() {
        let caches = Caches::default();
        caches.fresh.touch("nodepools");
        assert_eq!(caches.staleness(), None);
        tokio::time::advance(STALE_AFTER + Duration::from_secs(120)).await;
        assert!(caches.staleness().unwrap().contains("nothing of nodepools for 7 minutes"));
    }
}
