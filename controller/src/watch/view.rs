//! The slim caches, what is indexed in them, and which pools a change concerns (§8, *Triggers*).
//!
//! An event only says "look". A cached object is never replaced by an older one: what this process has written or read
//! live counts as seen (*Read your own writes*).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use noderotation_rotation::world::{Claim, Node, Placeholder, Pool};
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::keys;
use noderotation_shared::policy::Policy;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::objects::{Kept, PolicyObject};
use crate::queue::Queue;

/// A view in which a watch said nothing for this long is stale: nothing is started on it.
pub const STALE_AFTER: Duration = Duration::from_secs(300);

/// Where a watch puts what it hears.
pub trait Sink<K: Kept>: Send + Sync {
    /// A new or changed object.
    fn put(&self, object: K);
    /// A deleted object.
    fn remove(&self, object: &K);
    /// The initial state is complete; what it did not hold has vanished.
    fn settle(&self, uids: &HashSet<Box<str>>);
}

/// One kind's objects by name.
struct Store<K> {
    objects: BTreeMap<Box<str>, Arc<K>>,
    /// Deleted by us; older news of them is ignored until the watch confirms.
    gone: HashSet<Box<str>>,
    settled: bool,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), gone: HashSet::new(), settled: false }
    }
}

/// What a change was.
enum Change<K> {
    /// Older than what is known.
    None,
    /// Only its version differs.
    Same,
    /// New, or different from this.
    Changed(Option<Arc<K>>),
}

impl<K: Kept> Store<K> {
    fn put(&mut self, object: K) -> Change<K> {
        if self.gone.contains(&object.meta().uid) {
            return Change::None;
        }
        let name = object.meta().name.clone();
        if let Some(known) = self.objects.get(&name) {
            let same_object = known.meta().uid == object.meta().uid;
            if same_object && !is_newer(&object.meta().version, &known.meta().version) {
                return Change::None;
            }
            if known.is_same(&object) {
                self.objects.insert(name, Arc::new(object));
                return Change::Same;
            }
        }
        Change::Changed(self.objects.insert(name, Arc::new(object)))
    }

    fn remove(&mut self, name: &str, uid: &str) -> Option<Arc<K>> {
        self.gone.remove(uid);
        if self.objects.get(name).is_some_and(|known| &*known.meta().uid == uid) {
            self.objects.remove(name)
        } else {
            None
        }
    }

    fn settle(&mut self, uids: &HashSet<Box<str>>) -> Vec<Arc<K>> {
        self.settled = true;
        self.gone.clear();
        let vanished: Vec<_> = self.objects.values().filter(|o| !uids.contains(&o.meta().uid)).cloned().collect();
        for object in &vanished {
            self.objects.remove(&object.meta().name);
        }
        vanished
    }
}

/// resourceVersions of one kind are ordered whole numbers.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

#[derive(Default)]
struct Caches {
    pools: Store<Pool>,
    claims: Store<Claim>,
    nodes: Store<Node>,
    placeholders: Store<Placeholder>,
    policies: Store<PolicyObject>,
    claims_of: HashMap<Box<str>, BTreeSet<Box<str>>>,
    nodes_of: HashMap<Box<str>, BTreeSet<Box<str>>>,
    frozen_for: HashMap<Box<str>, BTreeSet<Box<str>>>,
    cadences: HashMap<Box<str>, CachedCadence>,
}

/// A cadence, and the policy's UID and generation and the week that it is of.
struct CachedCadence {
    of: (Box<str>, Option<i64>, i64),
    cadence: Cadence,
}

/// Everything that is known of the cluster.
pub struct View {
    caches: Mutex<Caches>,
    queue: Arc<Queue>,
    /// Rung when a policy, pool or claim changed: the status loop looks.
    pub changed: Notify,
    synced: Notify,
    /// When each watch last said something.
    pub fresh: Arc<Freshness>,
}

impl View {
    /// An empty view that triggers passes in `queue`.
    pub fn new(queue: Arc<Queue>, fresh: Arc<Freshness>) -> Self {
        Self { caches: Mutex::default(), queue, changed: Notify::new(), synced: Notify::new(), fresh }
    }

    fn lock(&self) -> MutexGuard<'_, Caches> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trigger<'a>(&self, pools: impl IntoIterator<Item = &'a str>) {
        for pool in pools.into_iter().filter(|pool| !pool.is_empty()) {
            self.queue.trigger(pool);
        }
    }

    fn trigger_all(&self) {
        let names: Vec<_> = self.lock().pools.objects.keys().cloned().collect();
        self.trigger(names.iter().map(|name| &**name));
        self.changed.notify_one();
    }

    /// Waits until every first list is complete.
    pub async fn wait_synced(&self) {
        loop {
            let synced = self.synced.notified();
            if self.is_synced() {
                return;
            }
            synced.await;
        }
    }

    /// Whether every first list is complete.
    pub fn is_synced(&self) -> bool {
        let c = self.lock();
        c.pools.settled && c.claims.settled && c.nodes.settled && c.placeholders.settled && c.policies.settled
    }

    /// Names of all pools.
    pub fn pool_names(&self) -> Vec<Box<str>> {
        self.lock().pools.objects.keys().cloned().collect()
    }

    /// One pool.
    pub fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        self.lock().pools.objects.get(name).cloned()
    }

    /// Every pool.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.lock().pools.objects.values().cloned().collect()
    }

    /// Every policy, by name.
    pub fn policies(&self) -> Vec<Arc<PolicyObject>> {
        self.lock().policies.objects.values().cloned().collect()
    }

    /// One claim, whatever its pool.
    pub fn claim(&self, name: &str) -> Option<Arc<Claim>> {
        self.lock().claims.objects.get(name).cloned()
    }

    /// The claims of a pool, by name.
    pub fn claims_of(&self, pool: &str) -> Vec<Arc<Claim>> {
        let c = self.lock();
        c.claims_of.get(pool).into_iter().flatten().filter_map(|name| c.claims.objects.get(name).cloned()).collect()
    }

    /// The nodes of a pool, those frozen for `claim`, and `host`.
    pub fn nodes_for(&self, pool: &str, claim: Option<&str>, host: Option<&str>) -> BTreeMap<Box<str>, Arc<Node>> {
        let c = self.lock();
        let of_pool = c.nodes_of.get(pool).into_iter().flatten().map(|name| &**name);
        let frozen = claim.and_then(|claim| c.frozen_for.get(claim)).into_iter().flatten().map(|name| &**name);
        of_pool
            .chain(frozen)
            .chain(host)
            .filter_map(|name| c.nodes.objects.get_key_value(name).map(|(name, node)| (name.clone(), node.clone())))
            .collect()
    }

    /// Every node.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.lock().nodes.objects.values().cloned().collect()
    }

    /// Every claim.
    pub fn claims(&self) -> Vec<Arc<Claim>> {
        self.lock().claims.objects.values().cloned().collect()
    }

    /// Every placeholder.
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
        c.placeholders.gone.insert(uid.into());
    }

    /// The API server says that this claim is not there.
    pub fn forget_claim(&self, name: &str) {
        let mut c = self.lock();
        if let Some(claim) = c.claims.objects.remove(name) {
            unindex(&mut c.claims_of, &claim.pool, name);
        }
    }

    /// The API server says that this node is not there.
    pub fn forget_node(&self, name: &str) {
        let mut c = self.lock();
        if let Some(node) = c.nodes.objects.remove(name) {
            unindex_node(&mut c, &node);
        }
    }
}

fn unindex(index: &mut HashMap<Box<str>, BTreeSet<Box<str>>>, key: &str, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

fn unindex_node(c: &mut Caches, node: &Node) {
    unindex(&mut c.nodes_of, &node.pool, &node.meta.name);
    if let Some(claim) = node.meta.marks.get(keys::SURGE_FOR) {
        unindex(&mut c.frozen_for, claim, &node.meta.name);
    }
}

fn index_node(c: &mut Caches, node: &Node) {
    if !node.pool.is_empty() {
        c.nodes_of.entry(node.pool.clone()).or_default().insert(node.meta.name.clone());
    }
    if let Some(claim) = node.meta.marks.get(keys::SURGE_FOR) {
        c.frozen_for.entry(claim.into()).or_default().insert(node.meta.name.clone());
    }
}

impl Sink<Pool> for View {
    fn put(&self, pool: Pool) {
        let name = pool.meta.name.clone();
        let change = self.lock().pools.put(pool);
        if let Change::Changed(_) = change {
            self.trigger([&*name]);
            self.changed.notify_one();
        }
    }

    fn remove(&self, pool: &Pool) {
        if self.lock().pools.remove(&pool.meta.name, &pool.meta.uid).is_some() {
            self.trigger([&*pool.meta.name]);
            self.changed.notify_one();
        }
    }

    fn settle(&self, uids: &HashSet<Box<str>>) {
        let vanished = self.lock().pools.settle(uids);
        self.trigger(vanished.iter().map(|pool| &*pool.meta.name));
        self.changed.notify_one();
        self.synced.notify_waiters();
    }
}

impl Sink<Claim> for View {
    fn put(&self, claim: Claim) {
        let (name, pool) = (claim.meta.name.clone(), claim.pool.clone());
        let mut c = self.lock();
        let Change::Changed(old) = c.claims.put(claim) else { return };
        if let Some(old) = old.as_ref().filter(|old| old.pool != pool) {
            unindex(&mut c.claims_of, &old.pool, &name);
        }
        if !pool.is_empty() {
            c.claims_of.entry(pool.clone()).or_default().insert(name);
        }
        drop(c);
        self.trigger([&*pool, old.as_ref().map_or("", |old| &*old.pool)]);
        self.changed.notify_one();
    }

    fn remove(&self, claim: &Claim) {
        let mut c = self.lock();
        let removed = c.claims.remove(&claim.meta.name, &claim.meta.uid);
        if removed.is_some() {
            unindex(&mut c.claims_of, &claim.pool, &claim.meta.name);
        }
        drop(c);
        // also when we knew it gone already: the anchor's release may wait for it
        self.trigger([&*claim.pool]);
        self.changed.notify_one();
    }

    fn settle(&self, uids: &HashSet<Box<str>>) {
        let mut c = self.lock();
        let vanished = c.claims.settle(uids);
        for claim in &vanished {
            unindex(&mut c.claims_of, &claim.pool, &claim.meta.name);
        }
        drop(c);
        self.trigger(vanished.iter().map(|claim| &*claim.pool));
        self.changed.notify_one();
        self.synced.notify_waiters();
    }
}

impl View {
    /// The pools that a node concerns: its own, and that of the rotation it is frozen for.
    fn pools_of_node(&self, node: &Node) -> [Box<str>; 2] {
        let frozen_for = node.meta.marks.get(keys::SURGE_FOR).and_then(|claim| self.claim(claim));
        [node.pool.clone(), frozen_for.map(|claim| claim.pool.clone()).unwrap_or_default()]
    }

    fn trigger_node(&self, node: &Node) {
        let pools = self.pools_of_node(node);
        self.trigger(pools.iter().map(|pool| &**pool));
    }
}

impl Sink<Node> for View {
    fn put(&self, node: Node) {
        let mut c = self.lock();
        let copy = node.clone();
        let Change::Changed(old) = c.nodes.put(node) else { return };
        if let Some(old) = &old {
            unindex_node(&mut c, old);
        }
        index_node(&mut c, &copy);
        drop(c);
        self.trigger_node(&copy);
        if let Some(old) = old {
            self.trigger_node(&old);
        }
    }

    fn remove(&self, node: &Node) {
        let mut c = self.lock();
        let removed = c.nodes.remove(&node.meta.name, &node.meta.uid);
        if let Some(removed) = &removed {
            unindex_node(&mut c, removed);
        }
        drop(c);
        self.trigger_node(node);
    }

    fn settle(&self, uids: &HashSet<Box<str>>) {
        let mut c = self.lock();
        let vanished = c.nodes.settle(uids);
        for node in &vanished {
            unindex_node(&mut c, node);
        }
        drop(c);
        for node in &vanished {
            self.trigger_node(node);
        }
        self.synced.notify_waiters();
    }
}

impl View {
    fn trigger_placeholder(&self, placeholder: &Placeholder) {
        if let Some(claim) = self.claim(placeholder.claim()) {
            self.trigger([&*claim.pool]);
        }
    }
}

impl Sink<Placeholder> for View {
    fn put(&self, placeholder: Placeholder) {
        let copy = placeholder.clone();
        let change = self.lock().placeholders.put(placeholder);
        if let Change::Changed(_) = change {
            self.trigger_placeholder(&copy);
        }
    }

    fn remove(&self, placeholder: &Placeholder) {
        self.lock().placeholders.remove(&placeholder.meta.name, &placeholder.meta.uid);
        self.trigger_placeholder(placeholder);
    }

    fn settle(&self, uids: &HashSet<Box<str>>) {
        let vanished = self.lock().placeholders.settle(uids);
        for placeholder in &vanished {
            self.trigger_placeholder(placeholder);
        }
        self.synced.notify_waiters();
    }
}

impl Sink<PolicyObject> for View {
    fn put(&self, policy: PolicyObject) {
        let change = self.lock().policies.put(policy);
        if let Change::Changed(_) = change {
            self.trigger_all(); // any change can alter which policy wins any pool
        }
    }

    fn remove(&self, policy: &PolicyObject) {
        let mut c = self.lock();
        let removed = c.policies.remove(&policy.meta.name, &policy.meta.uid).is_some();
        c.cadences.remove(&policy.meta.name);
        drop(c);
        if removed {
            self.trigger_all();
        }
    }

    fn settle(&self, uids: &HashSet<Box<str>>) {
        let vanished = self.lock().policies.settle(uids);
        if !vanished.is_empty() {
            self.trigger_all();
        }
        self.synced.notify_waiters();
    }
}

/// When each watch last said something.
#[derive(Default)]
pub struct Freshness {
    last: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Freshness {
    /// This watch has said something.
    pub fn touch(&self, resource: &'static str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(resource, Instant::now());
    }

    /// How long each watch has been silent.
    pub fn ages(&self) -> Vec<(&'static str, Duration)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().map(|(resource, at)| (*resource, at.elapsed())).collect()
    }

    /// Whether any watch has been silent for too long.
    pub fn is_stale(&self) -> bool {
        self.ages().iter().any(|(_, age)| *age > STALE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noderotation_rotation::world::Meta;

    fn node(name: &str, uid: &str, version: &str, ready: bool) -> Node {
        let meta = Meta { name: name.into(), uid: uid.into(), version: version.into(), ..Meta::default() };
        Node { meta, pool: "api".into(), ready, ..Node::default() }
    }

    fn view() -> (View, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        (View::new(queue.clone(), Arc::default()), queue)
    }

    #[tokio::test]
    async fn an_older_object_never_replaces_a_newer_one() {
        let (view, queue) = view();
        view.put(node("n", "u", "10", true));
        view.put(node("n", "u", "9", false));
        assert!(view.nodes()[0].ready);
        assert_eq!(queue.depth(), 1);
        view.put(node("n", "u2", "11", false)); // the name again, another object
        assert!(!view.nodes()[0].ready);
        Sink::<Node>::remove(&view, &node("n", "u", "12", true)); // the old one's deletion comes late
        assert_eq!(view.nodes().len(), 1);
    }

    #[tokio::test]
    async fn what_we_deleted_stays_deleted() {
        let (view, _) = view();
        let meta = Meta { name: "surge-x".into(), uid: "u".into(), version: "5".into(), ..Meta::default() };
        let pod = Placeholder { meta, ..Placeholder::default() };
        view.put(pod.clone());
        view.forget_placeholder("surge-x", "u");
        let mut late = pod.clone();
        late.meta.version = "6".into();
        view.put(late);
        assert!(view.placeholder("surge-x").is_none());
        let mut recreated = pod;
        recreated.meta.uid = "u2".into();
        view.put(recreated);
        assert!(view.placeholder("surge-x").is_some());
    }

    #[tokio::test]
    async fn a_new_list_tells_what_vanished_and_leaks_nothing() {
        let (view, queue) = view();
        view.put(node("a", "1", "1", true));
        view.put(node("b", "2", "2", true));
        let work = queue.next().await;
        queue.done(&work.key, crate::queue::End::Clean(Instant::now() + Duration::from_secs(60)));
        Sink::<Node>::settle(&view, &HashSet::from(["2".into()]));
        assert_eq!(queue.depth(), 1);
        assert_eq!(view.nodes_for("api", None, None).len(), 1);
        view.forget_node("b");
        let c = view.lock();
        assert!(c.nodes_of.is_empty() && c.frozen_for.is_empty() && c.nodes.objects.is_empty());
    }

    #[tokio::test]
    async fn a_heartbeat_triggers_nothing() {
        let (view, queue) = view();
        view.put(node("a", "1", "1", true));
        let work = queue.next().await;
        queue.done(&work.key, crate::queue::End::Clean(Instant::now() + Duration::from_secs(60)));
        view.put(node("a", "1", "2", true));
        assert_eq!(queue.depth(), 0);
        assert_eq!(&*view.nodes()[0].meta.version, "2");
    }
}
