//! One NodePool's world as plain values: what a decision may look at.
//!
//! The objects keep only what a rotation reads, so that thousands of them cost little.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::policy::Policy;

use crate::size::NodeLoad;

/// A governing policy.
#[derive(Clone, Debug)]
pub struct GoverningPolicy {
    /// Its name.
    pub name: String,
    /// Itself.
    pub policy: Arc<Policy>,
    /// Its cadence this week.
    pub cadence: Cadence,
}

/// What a pass has read live or learnt from its own writes, on top of the caches.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The anchored claim was read live, or a conditional write to it landed, in this pass.
    pub claim_confirmed: bool,
    /// The API server answered 404 for the anchored claim in this pass.
    pub claim_gone: bool,
    /// Placeholder and host were read live in this pass.
    pub surge_confirmed: bool,
    /// NodeLoad of candidates' nodes, by claim name.
    pub loads: BTreeMap<String, NodeLoad>,
    /// Whether Karpenter's event was looked for, and the claim it named.
    pub nominated: Option<Option<String>>,
    /// The surge claim, looked at for the reap.
    pub surge_claim: Option<Reapable>,
}

/// Whether a surge claim may be reaped.
#[derive(Clone, Debug)]
pub enum Reapable {
    /// It is gone or deleting already.
    Gone,
    /// It exists; `strangers` are Pods on its node besides placeholder and DaemonSets.
    Exists {
        /// Its UID, for the precondition.
        uid: String,
        /// Its `creationTimestamp`.
        created: Timestamp,
        /// Names of Pods that are neither placeholder nor DaemonSet's.
        strangers: Vec<String>,
    },
}

/// What the controller's settings say about placeholders.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace they live in.
    pub namespace: String,
    /// Their PriorityClass.
    pub priority_class: String,
    /// Their image.
    pub image: String,
}

/// One NodePool's world.
#[derive(Clone, Debug)]
pub struct World {
    /// The pool.
    pub pool: NodePool,
    /// The policy that governs it, or why there is none (§4).
    pub governance: Result<GoverningPolicy, Ungoverned>,
    /// The pool's claims.
    pub claims: Vec<Arc<NodeClaim>>,
    /// The claim that the anchor names, whatever its pool; `None` when the cache has none.
    pub anchored: Option<Arc<NodeClaim>>,
    /// The nodes of the pool's claims, and every node marked `surge-for` the anchored claim.
    pub nodes: BTreeMap<Box<str>, Arc<Node>>,
    /// The placeholder of the anchored claim.
    pub placeholder: Option<Arc<Placeholder>>,
    /// The view is too old to start anything on.
    pub stale: bool,
    /// What this pass knows beyond the caches.
    pub evidence: Evidence,
    /// For building placeholders.
    pub settings: Arc<Settings>,
}

impl World {
    /// The Node of a claim.
    pub fn node_of(&self, claim: &NodeClaim) -> Option<&Arc<Node>> {
        if claim.node.is_empty() { None } else { self.nodes.get(&claim.node) }
    }

    /// The claim of a Node of this pool.
    pub fn claim_on(&self, node: &str) -> Option<&Arc<NodeClaim>> {
        self.claims.iter().find(|claim| !node.is_empty() && &*claim.node == node)
    }

    /// The nodes marked `surge-for` this claim.
    pub fn frozen_for<'a>(&'a self, claim: &'a str) -> impl Iterator<Item = &'a Arc<Node>> {
        self.nodes.values().filter(move |node| node.meta.annotations.get(keys::SURGE_FOR) == Some(claim))
    }

    /// Puts a newer copy of a claim into place.
    pub fn set_claim(&mut self, claim: NodeClaim) {
        let claim = Arc::new(claim);
        if self.anchored.as_ref().is_some_and(|a| a.meta.name == claim.meta.name)
            || self.pool.anchor() == Some(&claim.meta.name)
        {
            self.anchored = Some(claim.clone());
        }
        if claim.pool != self.pool.meta.name {
            return;
        }
        match self.claims.iter_mut().find(|c| c.meta.name == claim.meta.name) {
            Some(slot) => *slot = claim,
            None => self.claims.push(claim),
        }
    }

    /// Takes a claim away.
    pub fn remove_claim(&mut self, name: &str) {
        self.claims.retain(|c| &*c.meta.name != name);
        if self.anchored.as_ref().is_some_and(|a| &*a.meta.name == name) {
            self.anchored = None;
        }
    }
}
