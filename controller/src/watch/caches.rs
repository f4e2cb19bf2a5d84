//! The slim caches, what is indexed in them, and which pools a change concerns (§8, *Triggers*).
//!
//! An event only says "look". A cached object is never replaced by an older one: what this process has written or read
//! live counts as seen (*Read your own writes*).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::policy::Policy;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::event_handlers::{unindex, unindex_node};
use crate::queue::Queue;
use noderotation_cluster::objects::PolicyObject;
use noderotation_cluster::watch::{Freshness, Store, wait_until};

#[derive(Default)]
pub(super) struct CacheState {
    pub pools: Store<NodePool>,
    pub claims: Store<NodeClaim>,
    pub nodes: Store<Node>,
    pub placeholders: Store<Placeholder>,
    pub policies: Store<PolicyObject>,
    pub claims_of: HashMap<Box<str>, BTreeSet<Box<str>>>,
    pub nodes_of: HashMap<Box<str>, BTreeSet<Box<str>>>,
    pub frozen_for: HashMap<Box<str>, BTreeSet<Box<str>>>,
    pub cadences: HashMap<Box<str>, CachedCadence>,
}

/// A cadence, and the policy's UID and generation and the week that it is of.
pub(super) struct CachedCadence {
    of: (Box<str>, Option<i64>, i64),
    cadence: Cadence,
}

/// Everything that is known of the cluster.
pub struct Caches {
    state: Mutex<CacheState>,
    queue: Arc<Queue>,
    /// Notified when a policy, pool or claim changed: the status loop looks.
    pub changed: Notify,
    pub(super) synced: Notify,
    /// When each watch last said something.
    pub fresh: Arc<Freshness>,
}

impl Caches {
    /// Empty caches that trigger passes in `queue`.
    pub fn new(queue: Arc<Queue>, fresh: Arc<Freshness>) -> Self {
        Self { state: Mutex::default(), queue, changed: Notify::new(), synced: Notify::new(), fresh }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock()
    }

    pub(super) fn trigger<'a>(&self, pools: impl IntoIterator<Item = &'a str>) {
        for pool in pools.into_iter().filter(|pool| !pool.is_empty()) {
            self.queue.trigger(pool);
        }
    }

    /// Reconciles every NodePool whenever stale caches are fresh again: starts had been held back, and no event of a
    /// NodePool tells that they no longer are. Never returns.
    pub async fn trigger_on_recovery(self: Arc<Self>) {
        loop {
            self.fresh.recovered().await;
            self.trigger_all();
        }
    }

    pub(super) fn trigger_all(&self) {
        let names: Vec<_> = self.lock().pools.objects.keys().cloned().collect();
        self.trigger(names.iter().map(|name| &**name));
        self.changed.notify_one();
    }

    /// Waits until every first list is complete.
    pub async fn wait_synced(&self) {
        wait_until(&self.synced, || self.is_synced()).await;
    }

    /// Whether every first list is complete.
    pub fn is_synced(&self) -> bool {
        let c = self.lock();
        c.pools.is_initialized
            && c.claims.is_initialized
            && c.nodes.is_initialized
            && c.placeholders.is_initialized
            && c.policies.is_initialized
    }

    /// The names of all NodePools.
    pub fn pool_names(&self) -> Vec<Box<str>> {
        self.lock().pools.objects.keys().cloned().collect()
    }

    /// The NodePool of this name; `None` where none is cached.
    pub fn pool(&self, name: &str) -> Option<Arc<NodePool>> {
        self.lock().pools.objects.get(name).cloned()
    }

    /// Every NodePool, by name.
    pub fn pools(&self) -> Vec<Arc<NodePool>> {
        self.lock().pools.objects.values().cloned().collect()
    }

    /// Every RotationPolicy, by name.
    pub fn policies(&self) -> Vec<Arc<PolicyObject>> {
        self.lock().policies.objects.values().cloned().collect()
    }

    /// One claim, whatever its pool.
    pub fn claim(&self, name: &str) -> Option<Arc<NodeClaim>> {
        self.lock().claims.objects.get(name).cloned()
    }

    /// The claims of a pool, by name.
    pub fn claims_of(&self, pool: &str) -> Vec<Arc<NodeClaim>> {
        let c = self.lock();
        c.claims_of.get(pool).into_iter().flatten().filter_map(|name| c.claims.objects.get(name).cloned()).collect()
    }

    /// The Nodes of a pool, those frozen for `claim`, and these hosts; by name.
    pub fn nodes_for<'a>(
        &self,
        pool: &str,
        claim: Option<&str>,
        hosts: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<Box<str>, Arc<Node>> {
        let c = self.lock();
        let mut nodes = BTreeMap::new();
        let mut add = |name: &str| {
            if let Some((name, node)) = c.nodes.objects.get_key_value(name) {
                nodes.insert(name.clone(), node.clone());
            }
        };
        c.nodes_of.get(pool).into_iter().flatten().for_each(|name| add(name));
        claim.and_then(|claim| c.frozen_for.get(claim)).into_iter().flatten().for_each(|name| add(name));
        hosts.into_iter().for_each(add);
        nodes
    }

    /// The placeholders of a pool, and that of the anchored claim, whatever its labels; by Pod name.
    pub fn placeholders_for(&self, pool: &str, anchored: Option<&str>) -> BTreeMap<Box<str>, Arc<Placeholder>> {
        let c = self.lock();
        // there is at most one for each rotation in flight
        let all = c.placeholders.objects.iter();
        all.filter(|(_, p)| &*p.pool == pool || anchored == Some(p.claim()))
            .map(|(name, p)| (name.clone(), p.clone()))
            .collect()
    }

    /// Every Node, by name.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.lock().nodes.objects.values().cloned().collect()
    }

    /// Every NodeClaim, by name.
    pub fn claims(&self) -> Vec<Arc<NodeClaim>> {
        self.lock().claims.objects.values().cloned().collect()
    }

    /// Every placeholder, by Pod name.
    pub fn placeholders(&self) -> Vec<Arc<Placeholder>> {
        self.lock().placeholders.objects.values().cloned().collect()
    }

    /// A placeholder by its Pod name.
    pub fn placeholder(&self, name: &str) -> Option<Arc<Placeholder>> {
        self.lock().placeholders.objects.get(name).cloned()
    }

    /// The policy's cadence in the week of `now`; computed once for each version of the policy and week.
    pub fn cadence(&self, policy: &PolicyObject, read: &Policy, now: Timestamp) -> Cadence {
        const EPOCH_SINCE_MONDAY: i64 = 3 * 86_400; // 1970-01-01 was a Thursday
        let week = (now.as_second() + EPOCH_SINCE_MONDAY).div_euclid(7 * 86_400);
        let of = (policy.meta.uid.clone(), policy.stored.generation, week);
        if let Some(cached) = self.lock().cadences.get(&policy.meta.name).filter(|cached| cached.of == of) {
            return cached.cadence;
        }
        let cadence = Cadence::of(read, now);
        self.lock().cadences.insert(policy.meta.name.clone(), CachedCadence { of, cadence });
        cadence
    }

    /// Remembers that we deleted an object: older news of it is ignored.
    pub fn forget_placeholder(&self, name: &str, uid: &str) {
        let mut c = self.lock();
        c.placeholders.objects.remove(name);
        c.placeholders.deleted.insert(uid.into());
    }
}

/// Takes the API server's own word that an object does not exist.
pub trait Forget<K> {
    /// There is no object of this name.
    fn forget(&self, name: &str);
}

impl Forget<NodePool> for Caches {
    fn forget(&self, name: &str) {
        if self.lock().pools.objects.remove(name).is_some() {
            self.trigger([name]);
        }
    }
}

impl Forget<NodeClaim> for Caches {
    fn forget(&self, name: &str) {
        let mut c = self.lock();
        if let Some(claim) = c.claims.objects.remove(name) {
            unindex(&mut c.claims_of, &claim.pool, name);
        }
    }
}

impl Forget<Node> for Caches {
    fn forget(&self, name: &str) {
        let mut c = self.lock();
        if let Some(node) = c.nodes.objects.remove(name) {
            unindex_node(&mut c, &node);
        }
    }
}

impl Forget<Placeholder> for Caches {
    fn forget(&self, name: &str) {
        let mut c = self.lock();
        if let Some(placeholder) = c.placeholders.objects.remove(name) {
            c.placeholders.deleted.insert(placeholder.meta.uid.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use std::collections::HashSet;

    use super::*;
    use noderotation_cluster::watch::EventHandler;
    use noderotation_shared::objects::Meta;

    fn node(name: &str, uid: &str, version: &str, ready: bool) -> Node {
        let meta = Meta { name: name.into(), uid: uid.into(), version: version.into(), ..Meta::default() };
        Node { meta, pool: "api".into(), ready, ..Node::default() }
    }

    fn caches() -> (Caches, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        (Caches::new(queue.clone(), Arc::default()), queue)
    }

    #[tokio::test]
    async fn an_older_object_never_replaces_a_newer_one() {
        let (caches, queue) = caches();
        caches.apply(node("n", "u", "10", true));
        caches.apply(node("n", "u", "9", false));
        assert!(caches.nodes()[0].ready);
        assert_eq!(queue.depth(), 1);
        caches.apply(node("n", "u2", "11", false)); // the name again, another object
        assert!(!caches.nodes()[0].ready);
        EventHandler::<Node>::delete(&caches, &node("n", "u", "12", true)); // the old one's deletion comes late
        assert_eq!(caches.nodes().len(), 1);
    }

    #[tokio::test]
    async fn what_we_deleted_stays_deleted() {
        let (caches, _) = caches();
        let meta = Meta { name: "surge-x".into(), uid: "u".into(), version: "5".into(), ..Meta::default() };
        let pod = Placeholder { meta, ..Placeholder::default() };
        caches.apply(pod.clone());
        caches.forget_placeholder("surge-x", "u");
        let mut late = pod.clone();
        late.meta.version = "6".into();
        caches.apply(late);
        assert!(caches.placeholder("surge-x").is_none());
        let mut recreated = pod;
        recreated.meta.uid = "u2".into();
        caches.apply(recreated);
        assert!(caches.placeholder("surge-x").is_some());
    }

    #[tokio::test]
    async fn a_new_list_tells_what_vanished_and_leaks_nothing() {
        let (caches, queue) = caches();
        caches.apply(node("a", "1", "1", true));
        caches.apply(node("b", "2", "2", true));
        let work = queue.next().await;
        queue.done(&work.key, crate::queue::End::Success(Instant::now() + Duration::from_secs(60)));
        EventHandler::<Node>::init_done(&caches, &HashSet::from(["2".into()]));
        assert_eq!(queue.depth(), 1);
        assert_eq!(caches.nodes_for("api", None, []).len(), 1);
        Forget::<Node>::forget(&caches, "b");
        let c = caches.lock();
        assert!(c.nodes_of.is_empty() && c.frozen_for.is_empty() && c.nodes.objects.is_empty());
    }

    #[tokio::test]
    async fn a_heartbeat_triggers_nothing() {
        let (caches, queue) = caches();
        caches.apply(node("a", "1", "1", true));
        let work = queue.next().await;
        queue.done(&work.key, crate::queue::End::Success(Instant::now() + Duration::from_secs(60)));
        caches.apply(node("a", "1", "2", true));
        assert_eq!(queue.depth(), 0);
        assert_eq!(&*caches.nodes()[0].meta.version, "2");
    }
}
