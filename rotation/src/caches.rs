//! Slim caches of what the API server holds, what is indexed in them, and which NodePools a change triggers (§8,
//! *Triggers*).
//!
//! An event only means "look": its content is never an input. A cached object is never replaced by an older one: what this
//! process has written, or read live, counts as seen (*Read your own writes*).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::governance::{Ungoverned, govern_or_explain};
use noderotation_shared::keys;
use noderotation_shared::objects::{Meta, Node, NodeClaim, NodePool, Placeholder, PolicyObject};
use noderotation_shared::policy::Policy;
use noderotation_shared::store::{Change, Store};

use crate::world::{GoverningPolicy, LiveKnowledge, Settings, World};

/// The names of the NodePools that have to be reconciled.
pub type Triggers = Vec<Box<str>>;

/// What a cache of one kind is told. Each call returns the NodePools that have to be reconciled.
pub trait CacheOf<K> {
    /// An object is new or has changed; it may be older than what is cached.
    fn apply(&mut self, object: K) -> Triggers;
    /// An object was deleted; this is its last state.
    fn delete(&mut self, object: &K) -> Triggers;
    /// The initial state is complete: cached objects whose UID is not among `uids` are gone.
    fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Triggers;
    /// The API server has answered that there is no object of this name.
    fn forget(&mut self, name: &str) -> Triggers;
}

/// Names of objects by a name that they bear.
type Index = HashMap<Box<str>, BTreeSet<Box<str>>>;

/// Everything that a leader keeps of the cluster.
#[derive(Default)]
pub struct Caches {
    pools: Store<NodePool>,
    claims: Store<NodeClaim>,
    nodes: Store<Node>,
    placeholders: Store<Placeholder>,
    policies: Store<PolicyObject>,
    claims_of: Index,
    nodes_of: Index,
    protected_for: Index,
    cadences: HashMap<Box<str>, CachedCadence>,
    missing_fields: Arc<[String]>,
}

/// A cadence, and the policy's UID and generation and the week that it is of.
struct CachedCadence {
    of: (Box<str>, Option<i64>, i64),
    cadence: Cadence,
}

impl Caches {
    /// Whether the initial state of every kind is complete.
    pub fn is_initialized(&self) -> bool {
        self.pools.is_initialized
            && self.claims.is_initialized
            && self.nodes.is_initialized
            && self.placeholders.is_initialized
            && self.policies.is_initialized
    }

    /// The names of all NodePools.
    pub fn pool_names(&self) -> Triggers {
        self.pools.objects.keys().cloned().collect()
    }

    /// The NodePool of this name; `None` where none is cached.
    pub fn pool(&self, name: &str) -> Option<Arc<NodePool>> {
        self.pools.objects.get(name).cloned()
    }

    /// Every NodePool, by name.
    pub fn pools(&self) -> Vec<Arc<NodePool>> {
        self.pools.objects.values().cloned().collect()
    }

    /// Every RotationPolicy, by name.
    pub fn policies(&self) -> Vec<Arc<PolicyObject>> {
        self.policies.objects.values().cloned().collect()
    }

    /// One claim, whatever its pool.
    pub fn claim(&self, name: &str) -> Option<Arc<NodeClaim>> {
        self.claims.objects.get(name).cloned()
    }

    /// Every NodeClaim, by name.
    pub fn claims(&self) -> Vec<Arc<NodeClaim>> {
        self.claims.objects.values().cloned().collect()
    }

    /// The claims of a pool, by name.
    pub fn claims_of(&self, pool: &str) -> Vec<Arc<NodeClaim>> {
        let names = self.claims_of.get(pool).into_iter().flatten();
        names.filter_map(|name| self.claims.objects.get(name).cloned()).collect()
    }

    /// Every Node, by name.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.objects.values().cloned().collect()
    }

    /// The Nodes of a pool, those frozen for `claim`, and these hosts; by name.
    pub fn nodes_for<'a>(
        &self,
        pool: &str,
        claim: Option<&str>,
        hosts: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<Box<str>, Arc<Node>> {
        let mut nodes = BTreeMap::new();
        let mut add = |name: &str| {
            if let Some((name, node)) = self.nodes.objects.get_key_value(name) {
                nodes.insert(name.clone(), node.clone());
            }
        };
        self.nodes_of.get(pool).into_iter().flatten().for_each(|name| add(name));
        claim.and_then(|claim| self.protected_for.get(claim)).into_iter().flatten().for_each(|name| add(name));
        hosts.into_iter().for_each(add);
        nodes
    }

    /// Every placeholder, by Pod name.
    pub fn placeholders(&self) -> Vec<Arc<Placeholder>> {
        self.placeholders.objects.values().cloned().collect()
    }

    /// A placeholder by its Pod name.
    pub fn placeholder(&self, name: &str) -> Option<Arc<Placeholder>> {
        self.placeholders.objects.get(name).cloned()
    }

    /// The placeholders of a pool, and that of the anchored claim, whatever its labels; by Pod name.
    pub fn placeholders_for(&self, pool: &str, anchored: Option<&str>) -> BTreeMap<Box<str>, Arc<Placeholder>> {
        // there is at most one for each rotation in flight
        let all = self.placeholders.objects.iter();
        all.filter(|(_, p)| &*p.pool == pool || anchored == Some(p.claim()))
            .map(|(name, p)| (name.clone(), p.clone()))
            .collect()
    }

    /// We have deleted a placeholder, which for a Pod without a grace period means that it is gone: what the watch still
    /// says about it is old.
    pub fn placeholder_deleted(&mut self, name: &str, uid: &str) {
        self.placeholders.deleted_by_us(name, uid);
    }

    /// The fields of policies that the cluster's CustomResourceDefinition does not store. Every pool is concerned; `None` where
    /// that is not new.
    pub fn set_missing_fields(&mut self, fields: Vec<String>) -> Option<Triggers> {
        if *self.missing_fields == *fields {
            return None;
        }
        self.missing_fields = fields.into();
        Some(self.pool_names())
    }

    /// The NodePool's world; `None` when there is no such NodePool. `stale` says whether some watch has been silent for too
    /// long.
    pub fn world(&mut self, settings: &Arc<Settings>, pool: &str, stale: bool, now: Timestamp) -> Option<World> {
        let pool = (*self.pool(pool)?).clone();
        let anchor = pool.anchor();
        let placeholders = self.placeholders_for(&pool.meta.name, anchor);
        let hosts = placeholders.values().map(|placeholder| &*placeholder.node);
        Some(World {
            claims: self.claims_of(&pool.meta.name),
            foreign: anchor.and_then(|name| self.claim(name)).filter(|claim| claim.pool != pool.meta.name),
            nodes: self.nodes_for(&pool.meta.name, anchor, hosts),
            governance: self.governing(&pool, now),
            stale,
            missing_fields: self.missing_fields.clone(),
            live: LiveKnowledge::default(),
            settings: settings.clone(),
            placeholders,
            pool,
        })
    }

    fn governing(&mut self, pool: &NodePool, now: Timestamp) -> Result<GoverningPolicy, Ungoverned> {
        let policies = self.policies.objects.values().filter(|p| p.meta.deleted.is_none()).map(|p| &*p.parsed);
        let (winner, policy) = govern_or_explain(&pool.labels, &pool.template_labels, policies)?;
        let object = self.policies.objects.get(&*winner.name).cloned().ok_or(Ungoverned::NoMatch)?;
        let (name, policy) = (winner.name.to_string(), policy.clone());
        let cadence = self.cadence(&object, &policy, now);
        Ok(GoverningPolicy { name, policy, cadence })
    }

    /// The policy's cadence in the week of `now`; computed once for each version of the policy and week.
    fn cadence(&mut self, object: &PolicyObject, policy: &Policy, now: Timestamp) -> Cadence {
        const EPOCH_SINCE_MONDAY: i64 = 3 * 86_400; // 1970-01-01 was a Thursday
        let week = (now.as_second() + EPOCH_SINCE_MONDAY).div_euclid(7 * 86_400);
        let of = (object.meta.uid.clone(), object.generation, week);
        if let Some(cached) = self.cadences.get(&object.meta.name).filter(|cached| cached.of == of) {
            return cached.cadence;
        }
        let cadence = Cadence::of(policy, now);
        self.cadences.insert(object.meta.name.clone(), CachedCadence { of, cadence });
        cadence
    }

    /// The pools that a Node concerns: its own, and that of the rotation it is frozen for.
    fn pools_of_node(&self, node: &Node) -> Triggers {
        let protected_for = node.meta.annotations.get(keys::SURGE_FOR).and_then(|claim| self.claim(claim));
        named([node.pool.clone(), protected_for.map(|claim| claim.pool.clone()).unwrap_or_default()])
    }

    /// By its label, since its claim may be gone; by its claim, since a long name leaves no label.
    fn pools_of_placeholder(&self, placeholder: &Placeholder) -> Triggers {
        let of_claim = self.claim(placeholder.claim()).map(|claim| claim.pool.clone()).unwrap_or_default();
        named([placeholder.pool.clone(), of_claim])
    }

    fn unindex_node(&mut self, node: &Node) {
        unindex(&mut self.nodes_of, &node.pool, &node.meta.name);
        if let Some(claim) = node.meta.annotations.get(keys::SURGE_FOR) {
            unindex(&mut self.protected_for, claim, &node.meta.name);
        }
    }

    fn index_node(&mut self, node: &Node) {
        if !node.pool.is_empty() {
            self.nodes_of.entry(node.pool.clone()).or_default().insert(node.meta.name.clone());
        }
        if let Some(claim) = node.meta.annotations.get(keys::SURGE_FOR) {
            self.protected_for.entry(claim.into()).or_default().insert(node.meta.name.clone());
        }
    }
}

fn unindex(index: &mut Index, key: &str, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

/// Those that are no empty names, each once.
fn named(pools: impl IntoIterator<Item = Box<str>>) -> Triggers {
    let distinct: BTreeSet<Box<str>> = pools.into_iter().filter(|pool| !pool.is_empty()).collect();
    distinct.into_iter().collect()
}

impl CacheOf<NodePool> for Caches {
    fn apply(&mut self, pool: NodePool) -> Triggers {
        let name = pool.meta.name.clone();
        match self.pools.apply(pool) {
            Change::Changed(_) => vec![name],
            Change::Outdated | Change::OnlyVersion => Vec::new(),
        }
    }

    fn delete(&mut self, pool: &NodePool) -> Triggers {
        let deleted = self.pools.delete(pool);
        deleted.map(|pool| pool.meta.name.clone()).into_iter().collect()
    }

    fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Triggers {
        self.pools.init_done(uids).iter().map(|pool| pool.meta.name.clone()).collect()
    }

    fn forget(&mut self, name: &str) -> Triggers {
        self.pools.forget(name).map(|pool| pool.meta.name.clone()).into_iter().collect()
    }
}

impl CacheOf<NodeClaim> for Caches {
    fn apply(&mut self, claim: NodeClaim) -> Triggers {
        let (name, pool) = (claim.meta.name.clone(), claim.pool.clone());
        let Change::Changed(old) = self.claims.apply(claim) else { return Vec::new() };
        if let Some(old) = old.as_ref().filter(|old| old.pool != pool) {
            unindex(&mut self.claims_of, &old.pool, &name);
        }
        if !pool.is_empty() {
            self.claims_of.entry(pool.clone()).or_default().insert(name);
        }
        named([pool, old.map(|old| old.pool.clone()).unwrap_or_default()])
    }

    fn delete(&mut self, claim: &NodeClaim) -> Triggers {
        if self.claims.delete(claim).is_some() {
            unindex(&mut self.claims_of, &claim.pool, &claim.meta.name);
        }
        // also where it was removed already: the release of the anchor may wait for it
        named([claim.pool.clone()])
    }

    fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Triggers {
        let vanished = self.claims.init_done(uids);
        for claim in &vanished {
            unindex(&mut self.claims_of, &claim.pool, &claim.meta.name);
        }
        named(vanished.iter().map(|claim| claim.pool.clone()))
    }

    fn forget(&mut self, name: &str) -> Triggers {
        if let Some(claim) = self.claims.forget(name) {
            unindex(&mut self.claims_of, &claim.pool, name);
        }
        Vec::new()
    }
}

impl CacheOf<Node> for Caches {
    fn apply(&mut self, node: Node) -> Triggers {
        let copy = node.clone();
        let Change::Changed(old) = self.nodes.apply(node) else { return Vec::new() };
        if let Some(old) = &old {
            self.unindex_node(old);
        }
        self.index_node(&copy);
        let of_old = old.map(|old| self.pools_of_node(&old)).unwrap_or_default();
        named(self.pools_of_node(&copy).into_iter().chain(of_old))
    }

    fn delete(&mut self, node: &Node) -> Triggers {
        if let Some(removed) = self.nodes.delete(node) {
            self.unindex_node(&removed);
        }
        self.pools_of_node(node)
    }

    fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Triggers {
        let vanished = self.nodes.init_done(uids);
        for node in &vanished {
            self.unindex_node(node);
        }
        named(vanished.iter().flat_map(|node| self.pools_of_node(node)))
    }

    fn forget(&mut self, name: &str) -> Triggers {
        if let Some(node) = self.nodes.forget(name) {
            self.unindex_node(&node);
        }
        Vec::new()
    }
}

impl CacheOf<Placeholder> for Caches {
    fn apply(&mut self, placeholder: Placeholder) -> Triggers {
        let pools = self.pools_of_placeholder(&placeholder);
        match self.placeholders.apply(placeholder) {
            Change::Changed(_) => pools,
            Change::Outdated | Change::OnlyVersion => Vec::new(),
        }
    }

    fn delete(&mut self, placeholder: &Placeholder) -> Triggers {
        self.placeholders.delete(placeholder);
        self.pools_of_placeholder(placeholder)
    }

    fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Triggers {
        let vanished = self.placeholders.init_done(uids);
        named(vanished.iter().flat_map(|placeholder| self.pools_of_placeholder(placeholder)))
    }

    fn forget(&mut self, name: &str) -> Triggers {
        self.placeholders.forget(name);
        Vec::new()
    }
}

/// Any change of a policy can alter which policy wins any pool; but its status is what we have written ourselves.
impl CacheOf<PolicyObject> for Caches {
    fn apply(&mut self, policy: PolicyObject) -> Triggers {
        let (meta, generation) = (policy.meta.clone(), policy.generation);
        let is_status_alone = |old: &PolicyObject| {
            old.generation == generation && old.meta == Meta { version: old.meta.version.clone(), ..meta.clone() }
        };
        match self.policies.apply(policy) {
            Change::Changed(Some(old)) if is_status_alone(&old) => Vec::new(),
            Change::Changed(_) => self.pool_names(),
            Change::Outdated | Change::OnlyVersion => Vec::new(),
        }
    }

    fn delete(&mut self, policy: &PolicyObject) -> Triggers {
        let deleted = self.policies.delete(policy);
        self.cadences.remove(&policy.meta.name);
        deleted.map(|_| self.pool_names()).unwrap_or_default()
    }

    fn init_done(&mut self, uids: &HashSet<Box<str>>) -> Triggers {
        let vanished = self.policies.init_done(uids);
        for policy in &vanished {
            self.cadences.remove(&policy.meta.name);
        }
        if vanished.is_empty() { Vec::new() } else { self.pool_names() }
    }

    fn forget(&mut self, name: &str) -> Triggers {
        let forgotten = self.policies.forget(name);
        self.cadences.remove(name);
        forgotten.map(|_| self.pool_names()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, uid: &str, version: &str, ready: bool) -> Node {
        let meta = Meta { name: name.into(), uid: uid.into(), version: version.into(), ..Meta::default() };
        Node { meta, pool: "api".into(), ready, ..Node::default() }
    }

    #[test]
    fn an_older_object_never_replaces_a_newer_one() {
        let mut caches = Caches::default();
        assert_eq!(caches.apply(node("n", "u", "10", true)), ["api".into()]);
        assert!(caches.apply(node("n", "u", "9", false)).is_empty());
        assert!(caches.nodes()[0].ready);
        caches.apply(node("n", "u2", "11", false)); // the name again, another object
        assert!(!caches.nodes()[0].ready);
        CacheOf::<Node>::delete(&mut caches, &node("n", "u", "12", true)); // the old one's deletion comes late
        assert_eq!(caches.nodes().len(), 1);
    }

    #[test]
    fn what_we_deleted_stays_deleted() {
        let mut caches = Caches::default();
        let meta = Meta { name: "surge-x".into(), uid: "u".into(), version: "5".into(), ..Meta::default() };
        let pod = Placeholder { meta, ..Placeholder::default() };
        caches.apply(pod.clone());
        caches.placeholder_deleted("surge-x", "u");
        let mut late = pod.clone();
        late.meta.version = "6".into();
        caches.apply(late);
        assert!(caches.placeholder("surge-x").is_none());
        let mut recreated = pod;
        recreated.meta.uid = "u2".into();
        caches.apply(recreated);
        assert!(caches.placeholder("surge-x").is_some());
    }

    #[test]
    fn a_new_list_tells_what_vanished_and_leaks_nothing() {
        let mut caches = Caches::default();
        caches.apply(node("a", "1", "1", true));
        caches.apply(node("b", "2", "2", true));
        assert_eq!(CacheOf::<Node>::init_done(&mut caches, &HashSet::from(["2".into()])), ["api".into()]);
        assert_eq!(caches.nodes_for("api", None, []).len(), 1);
        CacheOf::<Node>::forget(&mut caches, "b");
        assert!(caches.nodes_of.is_empty() && caches.protected_for.is_empty() && caches.nodes().is_empty());
    }

    #[test]
    fn a_heartbeat_triggers_nothing() {
        let mut caches = Caches::default();
        caches.apply(node("a", "1", "1", true));
        assert!(caches.apply(node("a", "1", "2", true)).is_empty());
        assert_eq!(&*caches.nodes()[0].meta.version, "2");
    }
}
