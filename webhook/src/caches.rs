//! The RotationPolicies and NodePools of the cluster: what two watches report, and what is read live before a verdict.
//!
//! Whatever is judged is stored, as far as this process knows. What was only admitted is remembered in [`Admitted`], and tells
//! what to read live.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_cluster::objects::{Cached, identity};
use noderotation_cluster::watch::{Change, EventHandler, Freshness, Store, wait_until};
use noderotation_shared::admission::{PolicyIndex, ProposedNodePool};
use noderotation_shared::governance::ParsedPolicy;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Meta, PolicyObject};
use noderotation_shared::policy::PoolSelector;
use noderotation_shared::store::Stored;
use noderotation_shared::watch_cursor::STALE_AFTER;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;

use crate::admitted::{Admitted, Concern, Version};

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

#[derive(Default)]
struct CacheState {
    policies: Store<PolicyObject>,
    pools: Store<PoolObject>,
    index: PolicyIndex,
    admitted: Admitted,
}

impl CacheState {
    /// Whether this, the API server's latest, is news.
    fn apply_policy(&mut self, mut policy: PolicyObject) -> bool {
        policy.status = Value::Null; // nothing is judged by it, so it need not be kept
        let name = policy.meta.name.clone();
        let change = self.policies.apply(policy);
        if let Change::Changed(_) = change {
            self.confirm_policy(&name);
        }
        !matches!(change, Change::Outdated)
    }

    /// Whether this, the API server's latest, is news.
    fn apply_pool(&mut self, pool: PoolObject) -> bool {
        let name = pool.meta.name.clone();
        let change = self.pools.apply(pool);
        if let Change::Changed(_) = change {
            self.confirm_pool(&name);
        }
        !matches!(change, Change::Outdated)
    }

    /// Judges by what is stored of the policy from now on.
    fn confirm_policy(&mut self, name: &str) {
        self.admitted.forget(Kind::RotationPolicy, name);
        match self.policies.objects.get(name) {
            Some(policy) => self.index.apply_policy(policy.parsed.clone()),
            None => self.index.delete_policy(name),
        }
    }

    /// Judges by what is stored of the NodePool from now on.
    fn confirm_pool(&mut self, name: &str) {
        self.admitted.forget(Kind::NodePool, name);
        match self.pools.objects.get(name) {
            Some(pool) => self.index.apply_pool(pool.proposed.clone()),
            None => self.index.delete_pool(name),
        }
    }

    fn uid(&self, kind: Kind, name: &str) -> Option<&str> {
        let meta = match kind {
            Kind::RotationPolicy => &self.policies.objects.get(name)?.meta,
            Kind::NodePool => &self.pools.objects.get(name)?.meta,
            _ => return None,
        };
        Some(&meta.uid)
    }

    /// What is stored of an object, as far as is known.
    fn stored(&self, kind: Kind, name: &str) -> Option<Version<'_>> {
        match kind {
            Kind::RotationPolicy => self.policies.objects.get(name).map(|policy| Version::of_policy(&policy.parsed)),
            Kind::NodePool => self.pools.objects.get(name).map(|pool| Version::of_pool(&pool.proposed)),
            _ => None,
        }
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
        read(&self.lock().index)
    }

    /// The NodePool of this name; `None` where there is none.
    pub fn pool(&self, name: &str) -> Option<Arc<ProposedNodePool>> {
        self.with_index(|index| index.pool(name).map(|entry| entry.proposed.clone()))
    }

    /// Remembers that a policy was just admitted and will most likely be stored; unless it selects what the stored one does, since
    /// nothing else of it matters to the verdict on another.
    pub fn remember_policy(&self, policy: &ParsedPolicy) {
        let (mut state, version) = (self.lock(), Version::of_policy(policy));
        if state.stored(Kind::RotationPolicy, &policy.name) != Some(version) {
            state.admitted.remember(Kind::RotationPolicy, &policy.name, version);
        }
    }

    /// Remembers that a NodePool was just admitted and will most likely be stored.
    pub fn remember_pool(&self, pool: &ProposedNodePool) {
        self.lock().admitted.remember(Kind::NodePool, &pool.name, Version::of_pool(pool));
    }

    /// Whether nothing was admitted of late, so that the caches know everything that matters to any verdict.
    pub fn is_settled(&self) -> bool {
        let mut state = self.lock();
        state.admitted.expire();
        state.admitted.is_empty()
    }

    /// The objects that were admitted of late and matter to a verdict, so that it has to be known what is stored of them.
    pub fn unsettled(&self, concern: &Concern) -> Vec<(Kind, String)> {
        let mut state = self.lock();
        state.admitted.expire();
        let selects_own = |selector: &PoolSelector| {
            let labels = state.index.selected_by(selector).map(|pool| &pool.proposed.labels);
            labels.into_iter().any(|labels| concern.selectors.iter().any(|own| own.matches(labels)))
        };
        state.admitted.that_matter(concern, |kind, name| state.stored(kind, name), selects_own)
    }

    /// The UID of the object of this kind and name, as far as is known.
    pub fn uid(&self, kind: Kind, name: &str) -> Option<Box<str>> {
        let state = self.lock();
        state.uid(kind, name).map(Box::from)
    }

    /// Takes note of what the API server has answered to a read of this object; `None` where it has none. `before` is its
    /// [`Caches::uid`] when the read was sent: an object that has come since is not gone.
    pub fn observe(
        &self,
        kind: Kind,
        name: &str,
        before: Option<&str>,
        found: Option<&str>,
    ) -> Result<(), serde_json::Error> {
        let mut state = self.lock();
        let is_as_before = state.uid(kind, name) == before;
        let is_news = match (kind, found) {
            (Kind::RotationPolicy, Some(json)) => state.apply_policy(PolicyObject::read(json)?),
            (Kind::NodePool, Some(json)) => state.apply_pool(PoolObject::read(json)?),
            (_, None) if !is_as_before => false,
            (Kind::RotationPolicy, None) => {
                let was_there = state.policies.forget(name).is_some();
                state.index.delete_policy(name);
                was_there
            }
            (Kind::NodePool, None) => {
                let was_there = state.pools.forget(name).is_some();
                state.index.delete_pool(name);
                was_there
            }
            _ => return Ok(()), // no other kind is judged by
        };
        if is_news {
            state.admitted.forget(kind, name);
        } else {
            state.admitted.give_up(kind, name);
        }
        Ok(())
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
    fn apply(&self, policy: PolicyObject) {
        self.lock().apply_policy(policy);
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
        self.lock().apply_pool(pool);
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
    use std::time::Duration;

    use super::*;
    use crate::admitted;

    fn policy(name: &str, version: u32, w: &str) -> PolicyObject {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"nodePoolSelector":{{"matchLabels":{{"w":"{w}"}}}}}}}}"#
        );
        PolicyObject::read(&text).unwrap()
    }

    fn names(caches: &Caches) -> Vec<String> {
        caches.with_index(|l| l.policies().map(|p| p.name.to_string()).collect())
    }

    fn concern(w: &str) -> Concern {
        let parsed = policy("under-review", 0, w).parsed;
        Concern {
            policy: Some("under-review".into()),
            selectors: parsed.selector.iter().cloned().collect(),
            ..Concern::default()
        }
    }

    fn unsettled(caches: &Caches, w: &str) -> Vec<String> {
        caches.unsettled(&concern(w)).into_iter().map(|(_, name)| name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_admitted_is_read_and_never_judged_by() {
        let caches = Caches::default();
        caches.apply(policy("a", 1, "x"));
        caches.remember_policy(&policy("b", 0, "x").parsed);
        assert_eq!(names(&caches), ["a"], "nobody has stored it yet");
        assert_eq!(unsettled(&caches, "x"), ["b"]);
        assert_eq!(unsettled(&caches, "y"), [""; 0], "it cannot select the same NodePools");
        caches.apply(policy("b", 2, "x"));
        assert_eq!(names(&caches), ["a", "b"]);
        assert!(caches.is_settled(), "the watch has told of it");
        caches.remember_policy(&policy("b", 0, "x").parsed);
        assert!(caches.is_settled(), "an update of something else than its selector matters to no other policy");

        caches.remember_policy(&policy("c", 0, "x").parsed);
        tokio::time::advance(admitted::REMEMBERED).await;
        assert!(caches.is_settled(), "it never was stored");
        assert_eq!(names(&caches), ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_live_read_shows_is_judged_by() {
        let caches = Caches::default();
        let json = |w: &str, version: u32| {
            format!(
                r#"{{"metadata":{{"name":"b","uid":"b","resourceVersion":"{version}"}},"spec":{{"nodePoolSelector":{{"matchLabels":{{"w":"{w}"}}}}}}}}"#
            )
        };
        caches.remember_policy(&policy("b", 0, "x").parsed);
        caches.observe(Kind::RotationPolicy, "b", None, None).unwrap();
        assert_eq!(unsettled(&caches, "x"), ["b"], "it may be on the way");
        caches.observe(Kind::RotationPolicy, "b", None, Some(&json("x", 2))).unwrap();
        assert!(caches.is_settled());
        assert_eq!(names(&caches), ["b"]);

        // an update that moves it elsewhere: what is stored still matters to x, until it is known
        caches.remember_policy(&policy("b", 0, "y").parsed);
        assert_eq!((unsettled(&caches, "x"), unsettled(&caches, "y")), (vec!["b".to_owned()], vec!["b".to_owned()]));
        caches.observe(Kind::RotationPolicy, "b", None, Some(&json("x", 2))).unwrap();
        assert_eq!(unsettled(&caches, "x"), ["b"], "this is what was known before");
        tokio::time::advance(admitted::STORED_WITHIN).await;
        caches.observe(Kind::RotationPolicy, "b", None, Some(&json("x", 2))).unwrap();
        assert!(caches.is_settled(), "nobody stored the update");
        // a deletion that the watch has not told of
        caches.remember_policy(&policy("b", 0, "x").parsed);
        caches.observe(Kind::RotationPolicy, "b", Some("b"), None).unwrap();
        assert!(caches.is_settled() && names(&caches).is_empty());
    }

    /// The API server answers that there is no such policy; before the answer is here, the watch tells that it was created.
    #[tokio::test(start_paused = true)]
    async fn what_has_come_since_the_read_was_sent_stays() {
        let caches = Caches::default();
        caches.remember_policy(&policy("b", 0, "x").parsed);
        let before = caches.uid(Kind::RotationPolicy, "b");
        caches.apply(policy("b", 2, "x"));
        caches.observe(Kind::RotationPolicy, "b", before.as_deref(), None).unwrap();
        assert_eq!(names(&caches), ["b"]);
    }

    /// Names of forged reviews never become part of a URL.
    #[tokio::test(start_paused = true)]
    async fn what_can_be_no_name_is_not_remembered() {
        let caches = Caches::default();
        for name in ["", "../secrets", "a/b", "a?b", "A", "without a name", "prefix-…"] {
            caches.remember_policy(&ParsedPolicy {
                name: name.into(),
                ..ParsedPolicy::clone(&policy("a", 0, "x").parsed)
            });
            assert!(caches.is_settled(), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_admissions_are_not_kept() {
        let caches = Caches::default();
        for i in 0..2_000 {
            caches.remember_policy(&policy(&format!("p{i}"), 0, "x").parsed);
            caches.remember_policy(&policy("same", 0, &format!("w{i}")).parsed);
        }
        assert_eq!(
            unsettled(&caches, "x").len(),
            admitted::MOST,
            "of the one with many versions, everything is possible"
        );
        tokio::time::advance(admitted::REMEMBERED).await;
        assert!(caches.is_settled());
    }

    fn pool_json(name: &str, version: u32, w: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"uid-{name}","resourceVersion":"{version}","labels":{{"w":"{w}"}}}},"spec":{{}}}}"#
        )
    }

    fn pool(name: &str, version: u32, w: &str) -> PoolObject {
        PoolObject::read(&pool_json(name, version, w)).unwrap()
    }

    /// As policies are.
    #[tokio::test(start_paused = true)]
    async fn a_pool_that_was_admitted_is_read_until_it_is_known() {
        let caches = Caches::default();
        assert_eq!(caches.uid(Kind::NodePool, "b"), None);
        caches.remember_pool(&pool("b", 0, "x").proposed);
        assert!(caches.pool("b").is_none() && !caches.is_settled());
        assert_eq!((unsettled(&caches, "x"), unsettled(&caches, "y")), (vec!["b".to_owned()], Vec::new()));
        caches.observe(Kind::NodePool, "b", None, Some(&pool_json("b", 2, "x"))).unwrap();
        assert!(caches.is_settled(), "it is news");
        assert_eq!(caches.pool("b").unwrap().labels["w"], "x");
        assert_eq!(caches.uid(Kind::NodePool, "b").as_deref(), Some("uid-b"));
        assert_eq!(caches.uid(Kind::RotationPolicy, "b"), None);

        // its labels change: what is stored still matters to x
        caches.remember_pool(&pool("b", 0, "y").proposed);
        assert_eq!((unsettled(&caches, "x"), unsettled(&caches, "y")), (vec!["b".to_owned()], vec!["b".to_owned()]));
        caches.observe(Kind::NodePool, "b", Some("uid-b"), Some(&pool_json("b", 2, "x"))).unwrap();
        assert!(!caches.is_settled(), "this is what was known before: the change may be on the way");
        caches.observe(Kind::NodePool, "b", Some("uid-b"), None).unwrap();
        assert!(caches.is_settled() && caches.pool("b").is_none(), "it is gone");

        // nothing else is judged by
        caches.remember_pool(&pool("b", 0, "x").proposed);
        caches.observe(Kind::Node, "b", None, None).unwrap();
        assert!(!caches.is_settled());
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_watches_no_longer_show_is_gone() {
        let caches = Caches::default();
        let names_of_pools = |caches: &Caches| ["a", "b"].map(|name| caches.pool(name).is_some());
        let fill = |caches: &Caches| {
            caches.apply(policy("a", 1, "x"));
            caches.apply(policy("b", 1, "y"));
            caches.apply(pool("a", 1, "x"));
            caches.apply(pool("b", 1, "y"));
        };
        fill(&caches);
        caches.delete(&policy("a", 2, "x"));
        assert_eq!((names(&caches), names_of_pools(&caches)), (vec!["b".to_owned()], [true, true]));
        caches.delete(&pool("a", 2, "x"));
        assert_eq!(names_of_pools(&caches), [false, true]);

        let caches = Caches::default();
        let is_synced = async || tokio::time::timeout(Duration::from_secs(1), caches.wait_synced()).await.is_ok();
        fill(&caches);
        assert!(!is_synced().await);
        EventHandler::<PolicyObject>::init_done(&caches, &HashSet::from(["a".into()]));
        assert_eq!(names(&caches), ["a"], "the list has no other");
        assert!(!is_synced().await, "NodePools are missing");
        EventHandler::<PoolObject>::init_done(&caches, &HashSet::from(["uid-b".into()]));
        assert_eq!(names_of_pools(&caches), [false, true]);
        assert!(is_synced().await);
        let other_way_round = Caches::default();
        EventHandler::<PoolObject>::init_done(&other_way_round, &HashSet::new());
        let waiting = tokio::time::timeout(Duration::from_secs(1), other_way_round.wait_synced());
        assert!(waiting.await.is_err(), "policies are missing");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_told() {
        let caches = Caches::default();
        caches.fresh.touch(Kind::NodePool);
        assert_eq!(caches.staleness(), None);
        tokio::time::advance(STALE_AFTER).await;
        assert_eq!(caches.staleness(), None);
        tokio::time::advance(Duration::from_secs(120)).await;
        assert!(caches.staleness().unwrap().contains("no event of nodepools for 7 minutes"));
    }
}
