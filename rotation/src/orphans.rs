//! What no anchor references and therefore belongs to no rotation (§8, *Start-up sweep*): selected here, written by
//! whoever performs steps.
//!
//! A pool with an anchor is never touched: its own pass takes it up.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::instant;
use noderotation_shared::keys::{FAILED_AT, STARTED_AT, STATE, SURGE_CLAIM, SURGE_FOR};
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Node, NodeClaim, Placeholder};
use noderotation_shared::selection::RotationState;

use crate::announcement::{Announcement, ClaimId};
use crate::caches::Caches;
use crate::cordon;
use crate::patch::Patch;
use crate::step::{Act, Write};

/// The objects among which orphans are looked for.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// Names of the claims that anchors name.
    pub anchored: BTreeSet<String>,
    /// The placeholders to check.
    pub placeholders: Vec<Arc<Placeholder>>,
    /// The Nodes to check.
    pub nodes: Vec<Arc<Node>>,
    /// The NodeClaims to check.
    pub claims: Vec<Arc<NodeClaim>>,
}

impl Inventory {
    /// Every object, whatever its pool.
    pub fn of_all(caches: &Caches) -> Self {
        Self {
            anchored: caches.pools().iter().filter_map(|pool| pool.anchor().map(str::to_owned)).collect(),
            placeholders: caches.placeholders(),
            nodes: caches.nodes(),
            claims: caches.claims(),
        }
    }

    /// The objects of one pool, whose anchor names `anchor`; none if the pool is gone.
    pub fn of_pool(caches: &Caches, pool: &str, anchor: Option<String>) -> Self {
        Self {
            anchored: anchor.into_iter().collect(),
            placeholders: caches.placeholders_for(pool, None).into_values().collect(),
            nodes: caches.nodes_for(pool, None, []).into_values().collect(),
            claims: caches.claims_of(pool),
        }
    }
}

/// One thing to clean up.
#[derive(Clone, Debug, PartialEq)]
pub struct Orphan {
    /// The NodePool that must be read live first: if its anchor names `claim` by now, the orphan is none.
    pub pool: String,
    /// The claim whose rotation the object would belong to; may be empty.
    pub claim: String,
    /// The write that cleans it up.
    pub act: Act,
}

/// Every orphan: placeholders first, since Karpenter launches Nodes for them.
pub fn orphans(inventory: &Inventory, now: Timestamp) -> Vec<Orphan> {
    let is_anchored = |claim: &str| inventory.anchored.contains(claim);
    let pool_of = |claim: &str| inventory.claims.iter().find(|c| &*c.meta.name == claim).map(|c| c.pool.to_string());
    let mut found = Vec::new();
    for placeholder in inventory.placeholders.iter().filter(|p| p.meta.deleted.is_none() && !is_anchored(p.claim())) {
        let pool = pool_of(placeholder.claim()).unwrap_or_else(|| placeholder.pool.to_string());
        found.push(orphaned_placeholder(placeholder, pool));
    }
    for node in &inventory.nodes {
        let claim = node.meta.annotations.get(SURGE_FOR).unwrap_or_default();
        if !is_anchored(claim) {
            found.extend(orphaned_markers(node, claim));
        }
    }
    for claim in &inventory.claims {
        let is_in_flight = matches!(claim.state(false), RotationState::Pending | RotationState::Draining);
        // one that is being deleted is left to its drain
        if is_in_flight && claim.meta.deleted.is_none() && !is_anchored(&claim.meta.name) {
            found.push(orphaned_claim(claim, now));
        }
    }
    found
}

fn orphaned_placeholder(placeholder: &Placeholder, pool: String) -> Orphan {
    let (name, uid) = (placeholder.meta.name.to_string(), placeholder.meta.uid.to_string());
    let announce =
        Announcement::OrphanedPlaceholderDeleted { claim: placeholder.claim().to_owned(), placeholder: name.clone() };
    let write = Write::DeletePlaceholder { name, uid };
    let act = Act { name: "sweep-placeholder", write, announce: vec![announce] };
    Orphan { pool, claim: placeholder.claim().to_owned(), act }
}

fn orphaned_markers(node: &Node, claim: &str) -> Option<Orphan> {
    let patch = cordon::unprotect(node)?;
    let name = node.meta.name.to_string();
    let announce = if node.meta.annotations.has(SURGE_FOR) {
        Announcement::Unprotected { node: name }
    } else {
        Announcement::Uncordoned { node: name }
    };
    let act = Act { name: "sweep-node", write: Write::Patch(patch), announce: vec![announce] };
    Some(Orphan { pool: node.pool.to_string(), claim: claim.to_owned(), act })
}

/// A crash of ours leaves no claim in flight without an anchor; whatever did, the claim must not stay `InFlight`.
fn orphaned_claim(claim: &NodeClaim, now: Timestamp) -> Orphan {
    let failed = [
        (STATE, Some(RotationState::Failed.word().to_owned())),
        (FAILED_AT, Some(instant::format(now))),
        (STARTED_AT, None),
        (SURGE_CLAIM, None),
    ];
    let announce = Announcement::AttemptFailed {
        claim: ClaimId::of(claim),
        reason: "orphaned: no anchor names it".into(),
        retry_count: claim.retry_count(),
        next_attempt_at: None,
    };
    let write = Write::Patch(Patch::new(Kind::NodeClaim, &claim.meta, failed));
    let act = Act { name: "sweep-claim", write, announce: vec![announce] };
    Orphan { pool: claim.pool.to_string(), claim: claim.meta.name.to_string(), act }
}
