//! One NodePool's world: everything that a decision may look at, as plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::blocked::Blocked;
use noderotation_shared::feasibility::{self, Cadence, Derived, PoolFacts};
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::policy::Policy;

use crate::drainable::Remaining;
use crate::placeholder;
use crate::size::NodeLoad;

/// A governing policy.
#[derive(Clone, Debug)]
pub struct GoverningPolicy {
    /// `metadata.name`.
    pub name: String,
    /// The policy, parsed.
    pub policy: Arc<Policy>,
    /// Its cadence in the week of the pass.
    pub cadence: Cadence,
}

/// What the controller's flags say about placeholders.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The namespace in which placeholders live.
    pub namespace: String,
    /// Their PriorityClass.
    pub priority_class: String,
    /// Their image.
    pub image: String,
    /// The Secrets with which the kubelet pulls it.
    pub pull_secrets: Vec<String>,
    /// Labels beside their own.
    pub labels: BTreeMap<String, String>,
    /// Annotations beside their own.
    pub annotations: BTreeMap<String, String>,
}

/// One NodePool's world, from the caches and from what this pass has read or written itself.
#[derive(Clone, Debug)]
pub struct World {
    /// The pool.
    pub pool: NodePool,
    /// The policy that governs it, or why there is none (§4).
    pub governance: Result<GoverningPolicy, Ungoverned>,
    /// The pool's claims.
    pub claims: Vec<Arc<NodeClaim>>,
    /// The claim that the anchor names, where it belongs to another pool.
    pub foreign: Option<Arc<NodeClaim>>,
    /// The Nodes of the pool's claims, every Node with a `surge-for` marker for the anchored claim, and the
    /// placeholder's host.
    pub nodes: BTreeMap<Box<str>, Arc<Node>>,
    /// The placeholders of the pool's claims, by Pod name.
    pub placeholders: BTreeMap<Box<str>, Arc<Placeholder>>,
    /// Whether the caches are too old to start anything on.
    pub stale: bool,
    /// The fields of policies that the cluster's CustomResourceDefinition does not store.
    pub missing_fields: Arc<[String]>,
    /// What this pass knows beyond the caches.
    pub live: LiveKnowledge,
    /// For building placeholders.
    pub settings: Arc<Settings>,
}

/// What this pass has learnt from the API server itself, by live reads and by the answers to its own writes.
///
/// Each fact bears the name and, where the object exists, the UID of the object that it is about, so that a fact about
/// one claim is never taken for one about another. Nothing outlives its pass.
#[derive(Clone, Debug, Default)]
pub struct LiveKnowledge {
    /// Claims, by name and UID, that were read live or written conditionally: the world holds what the server holds.
    confirmed: BTreeSet<(Box<str>, Box<str>)>,
    /// Names for which the API server has answered that there is no such NodeClaim.
    absent: BTreeSet<Box<str>>,
    /// Nodes, by name and UID, that were read live or written conditionally.
    nodes: BTreeSet<(Box<str>, Box<str>)>,
    /// The placeholder and the Node, by UID, that were read live together.
    surge: Option<(Box<str>, Box<str>)>,
    /// What runs on a candidate's Node, by the candidate's name and UID.
    loads: BTreeMap<(Box<str>, Box<str>), LoadRead>,
    /// What a drain under way still has to evict, by the name and UID of the claim.
    drains: BTreeMap<(Box<str>, Box<str>), Remaining>,
    /// The NodeClaim that Karpenter has nominated for a placeholder, by the placeholder's Pod name.
    nominated: BTreeMap<Box<str>, Option<String>>,
    /// What a surge claim's live read showed, by its name.
    reapable: BTreeMap<Box<str>, Reapable>,
}

/// What a live read of a candidate's Node showed.
#[derive(Clone, Debug)]
struct LoadRead {
    load: NodeLoad,
    /// The Node's UID, where the API server itself had shown it cordoned before: what has come to it since came past the cordon.
    fenced: Option<Box<str>>,
}

/// What a live read of a surge claim showed: may it be taken back?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reapable {
    /// It is gone, or is being deleted already.
    Gone,
    /// It exists.
    Exists {
        /// Its UID, for the deletion's precondition.
        uid: String,
        /// Its NodePool.
        pool: String,
        /// Its `creationTimestamp`.
        created: Timestamp,
        /// Pods on its Node other than placeholders, static ones and those of DaemonSets, by name.
        strangers: Vec<String>,
    },
}

impl World {
    /// The claim that the anchor names, whatever its pool; `None` where there is no anchor or no such claim is known.
    pub fn anchored(&self) -> Option<&Arc<NodeClaim>> {
        let name = self.pool.anchor()?;
        self.claims.iter().chain(&self.foreign).find(|claim| &*claim.meta.name == name)
    }

    /// The placeholder of a claim.
    pub fn placeholder_of(&self, claim: &str) -> Option<&Arc<Placeholder>> {
        self.placeholders.get(&*placeholder::name(claim))
    }

    /// The Node of a claim.
    pub fn node_of(&self, claim: &NodeClaim) -> Option<&Arc<Node>> {
        if claim.node.is_empty() { None } else { self.nodes.get(&claim.node) }
    }

    /// The pool's claim whose Node this is, by the Node's name.
    pub fn claim_on(&self, node: &str) -> Option<&Arc<NodeClaim>> {
        self.claims.iter().find(|claim| !node.is_empty() && &*claim.node == node)
    }

    /// The Nodes with a `surge-for` marker for this claim.
    pub fn protected_for<'a>(&'a self, claim: &'a str) -> impl Iterator<Item = &'a Arc<Node>> {
        self.nodes.values().filter(move |node| node.meta.annotations.get(keys::SURGE_FOR) == Some(claim))
    }

    /// What the findings need to know of the pool.
    pub fn facts(&self) -> PoolFacts {
        PoolFacts {
            expire_after: self.pool.expire_after,
            termination_grace_period: self.pool.termination_grace_period,
            claims: i64::try_from(self.claims.len()).unwrap_or(i64::MAX),
            is_auto_mode: self.pool.is_auto_mode,
        }
    }

    /// What policies say is not known in whole.
    pub fn old_schema(&self) -> Option<Blocked> {
        (!self.missing_fields.is_empty()).then(|| Blocked::OldSchema(self.missing_fields.to_vec()))
    }

    /// The values of §2 for this pool under its governing policy.
    pub fn derived(&self, governing: &GoverningPolicy) -> Derived {
        feasibility::derive(&governing.policy, &governing.cadence, &self.facts())
    }
}

/// Live knowledge, asked.
impl World {
    /// Whether this pass knows a claim's state from the API server itself: as it is here, or that it is gone.
    pub fn is_confirmed(&self, claim: &str) -> bool {
        self.is_absent(claim)
            || self
                .claims
                .iter()
                .chain(&self.foreign)
                .any(|c| &*c.meta.name == claim && self.live.confirmed.contains(&identity(c)))
    }

    /// Whether the API server has answered 404 for a claim of this name, in this pass.
    pub fn is_absent(&self, claim: &str) -> bool {
        self.live.absent.contains(claim)
    }

    /// Whether this Node was read live in this pass.
    pub fn is_node_confirmed(&self, node: &Node) -> bool {
        self.live.nodes.contains(&(node.meta.name.clone(), node.meta.uid.clone()))
    }

    /// Whether this placeholder and this Node were read live together, in this pass.
    pub fn is_surge_confirmed(&self, placeholder: &Placeholder, host: &Node) -> bool {
        let uids = self.live.surge.as_ref();
        uids.is_some_and(|(pod, node)| *pod == placeholder.meta.uid && *node == host.meta.uid)
    }

    /// What runs on the Node of a candidate, once it was read.
    pub fn load_of(&self, candidate: &NodeClaim) -> Option<&NodeLoad> {
        self.live.loads.get(&identity(candidate)).map(|read| &read.load)
    }

    /// The same, where it was read behind the Node's cordon, which still stands as far as this pass knows.
    pub fn fenced_load_of(&self, candidate: &NodeClaim) -> Option<&NodeLoad> {
        let node = self.node_of(candidate).filter(|node| node.unschedulable && node.meta.deleted.is_none())?;
        let read = self.live.loads.get(&identity(candidate))?;
        (read.fenced.as_ref() == Some(&node.meta.uid)).then_some(&read.load)
    }

    /// What the drain of a claim's Node still has to evict, once it was read.
    pub fn drain_of(&self, claim: &NodeClaim) -> Option<&Remaining> {
        self.live.drains.get(&identity(claim))
    }

    /// The NodeClaim that Karpenter has nominated for a claim's placeholder: `None` before that was looked for,
    /// `Some(None)` where there is none.
    pub fn nominated_for(&self, claim: &str) -> Option<Option<&str>> {
        self.live.nominated.get(&*placeholder::name(claim)).map(Option::as_deref)
    }

    /// What a live read of this surge claim showed; `None` before it was read.
    pub fn reapable(&self, surge_claim: &str) -> Option<&Reapable> {
        self.live.reapable.get(surge_claim)
    }
}

/// Live knowledge, gained: each takes the answer of a request into the world.
impl World {
    /// The pool as the API server holds it.
    pub fn learn_pool(&mut self, pool: NodePool) {
        self.pool = pool;
    }

    /// A claim as the API server holds it.
    pub fn learn_claim(&mut self, claim: NodeClaim) {
        self.live.absent.remove(&claim.meta.name);
        self.live.confirmed.insert(identity(&claim));
        self.put_claim(Arc::new(claim));
    }

    /// The API server's word that there is no claim of this name.
    pub fn learn_absent_claim(&mut self, name: &str) {
        self.claims.retain(|claim| &*claim.meta.name != name);
        self.foreign.take_if(|claim| &*claim.meta.name == name);
        self.live.absent.insert(name.into());
        self.live.reapable.insert(name.into(), Reapable::Gone);
    }

    /// The deletion of a claim was accepted; `None` where the answer did not hold the claim.
    pub fn learn_deleted_claim(&mut self, name: &str, claim: Option<NodeClaim>) {
        self.live.reapable.insert(name.into(), Reapable::Gone);
        match claim.filter(|claim| &*claim.meta.name == name) {
            Some(claim) => self.put_claim(Arc::new(claim)),
            // a mere status: only a live read tells whether it is gone
            None => self.live.confirmed.retain(|(confirmed, _)| &**confirmed != name),
        }
    }

    /// A Node as the API server holds it.
    pub fn learn_node(&mut self, node: Node) {
        self.live.nodes.insert((node.meta.name.clone(), node.meta.uid.clone()));
        self.nodes.insert(node.meta.name.clone(), Arc::new(node));
    }

    /// The API server's word that there is no Node of this name.
    pub fn learn_absent_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// A placeholder as the API server holds it.
    pub fn learn_placeholder(&mut self, placeholder: Placeholder) {
        self.placeholders.insert(placeholder.meta.name.clone(), Arc::new(placeholder));
    }

    /// The API server's word that there is no placeholder of this Pod name; or that its deletion was accepted, which
    /// for a Pod without a grace period is the same.
    pub fn learn_absent_placeholder(&mut self, name: &str) {
        self.placeholders.remove(name);
    }

    /// The placeholder and its host were read live together; they are in the world already.
    pub fn learn_surge(&mut self, placeholder: &str, node: &str) {
        let uids = self.placeholders.get(placeholder).zip(self.nodes.get(node));
        self.live.surge = uids.map(|(pod, node)| (pod.meta.uid.clone(), node.meta.uid.clone()));
    }

    /// What runs on a candidate's Node.
    pub fn learn_load(&mut self, claim: &str, uid: &str, load: NodeLoad) {
        let candidate: (Box<str>, Box<str>) = (claim.into(), uid.into());
        let known = self.claims.iter().find(|claim| identity(claim) == candidate);
        let node = known.and_then(|claim| self.node_of(claim));
        let fenced = node.filter(|node| node.unschedulable && self.is_node_confirmed(node));
        let fenced = fenced.map(|node| node.meta.uid.clone());
        self.live.loads.insert(candidate, LoadRead { load, fenced });
    }

    /// What the drain of a claim's Node still has to evict.
    pub fn learn_drain(&mut self, claim: &str, uid: &str, remaining: Remaining) {
        self.live.drains.insert((claim.into(), uid.into()), remaining);
    }

    /// What Karpenter's event says about a placeholder.
    pub fn learn_nomination(&mut self, placeholder: &str, nominated: Option<String>) {
        self.live.nominated.insert(placeholder.into(), nominated);
    }

    /// What a live read of a surge claim showed.
    pub fn learn_reapable(&mut self, surge_claim: &str, reapable: Reapable) {
        self.live.reapable.insert(surge_claim.into(), reapable);
    }

    fn put_claim(&mut self, claim: Arc<NodeClaim>) {
        if claim.pool != self.pool.meta.name {
            self.claims.retain(|known| known.meta.name != claim.meta.name);
            self.foreign = Some(claim);
            return;
        }
        match self.claims.iter_mut().find(|known| known.meta.name == claim.meta.name) {
            Some(known) => *known = claim,
            None => self.claims.push(claim),
        }
    }
}

fn identity(claim: &NodeClaim) -> (Box<str>, Box<str>) {
    (claim.meta.name.clone(), claim.meta.uid.clone())
}
