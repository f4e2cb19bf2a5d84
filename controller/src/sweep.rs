//! What no anchor references is cleaned up: once before a new leader's first pass, and afterwards with each pass that
//! found nothing else to do (§8, *Start-up sweep*).
//!
//! A pool with an anchor is never stale: its pass takes it up. Each item is best effort, and its selection is repeated
//! on the object that its write is checked against.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_rotation::cordon;
use noderotation_rotation::step::{ObjectKind, Patch};
use noderotation_shared::instant;
use noderotation_shared::keys::{FAILED_AT, STARTED_AT, STATE, SURGE_CLAIM, SURGE_FOR};
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::selection::RotationState;
use tracing::{info, warn};

use crate::reconcile::Reconciler;
use noderotation_cluster::api::{Api, Outcome, ReadError};
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;

/// Cleans up after whoever led before: all placeholders, nodes and claims, whatever their pool.
pub async fn sweep(reconciler: &Reconciler) {
    let caches = &reconciler.caches;
    let anchors: BTreeSet<String> = caches.pools().iter().filter_map(|p| p.anchor().map(str::to_owned)).collect();
    clean(reconciler, &anchors, &caches.placeholders(), &caches.nodes(), &caches.claims()).await;
}

/// The same for one NodePool whose pass found nothing to do, or that is gone: a deposed leader's create may land late.
pub async fn leftovers(reconciler: &Reconciler, pool: &str, anchor: Option<&str>) {
    let caches = &reconciler.caches;
    let mut placeholders = caches.placeholders();
    placeholders.retain(|p| &*p.pool == pool);
    let nodes: Vec<_> = caches.nodes_for(pool, None, None).into_values().collect();
    clean(reconciler, &anchor.map(str::to_owned).into_iter().collect(), &placeholders, &nodes, &caches.claims_of(pool))
        .await;
}

async fn clean(
    reconciler: &Reconciler,
    anchors: &BTreeSet<String>,
    placeholders: &[Arc<Placeholder>],
    nodes: &[Arc<Node>],
    claims: &[Arc<NodeClaim>],
) {
    for placeholder in placeholders.iter().filter(|p| p.meta.deleted.is_none() && !anchors.contains(p.claim())) {
        drop_placeholder(reconciler, placeholder).await;
    }
    for node in nodes.iter().filter(|node| is_orphaned(node, anchors)) {
        clean_node(reconciler, node).await;
    }
    for claim in claims {
        if matches!(claim.state(false), RotationState::Pending | RotationState::Draining)
            && !anchors.contains(&*claim.meta.name)
        {
            fail_claim(reconciler, claim).await;
        }
    }
}

/// Bears a marker of ours that belongs to no anchored rotation.
fn is_orphaned(node: &Node, anchors: &BTreeSet<String>) -> bool {
    let belongs = node.meta.annotations.get(SURGE_FOR).is_some_and(|claim| anchors.contains(claim));
    !belongs && cordon::unfreeze(node).is_some()
}

/// Whether the claim is anchored by now, read live: the sweep must not take what a rotation has begun to use.
async fn is_anchored(api: &Api, claim_pool: &str, claim: &str) -> Result<bool, ReadError> {
    match api.get(&format!("{}/{claim_pool}", NodePool::COLLECTION)).await {
        Ok(text) => Ok(NodePool::read(&text).map_err(ReadError::Other)?.anchor() == Some(claim)),
        Err(ReadError::NotFound) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Whether it may be taken: nobody has anchored it meanwhile, and we still lead.
async fn may_take(reconciler: &Reconciler, what: &str, pool: &str, claim: &str) -> bool {
    match is_anchored(&reconciler.api, pool, claim).await {
        Ok(anchored) => !anchored && reconciler.term.check().is_ok(),
        Err(error) => {
            warn!(what, %error, "sweep: its NodePool cannot be read");
            false
        }
    }
}

async fn drop_placeholder(reconciler: &Reconciler, placeholder: &Placeholder) {
    let (name, claim) = (&*placeholder.meta.name, placeholder.claim());
    let of_claim = reconciler.caches.claim(claim).map(|c| c.pool.clone());
    let pool = of_claim.unwrap_or_else(|| placeholder.pool.clone());
    if !may_take(reconciler, name, &pool, claim).await {
        return;
    }
    let path = format!("/api/v1/namespaces/{}/pods/{name}", reconciler.settings.namespace);
    if let Outcome::Applied(_) = reconciler.api.delete(&path, &placeholder.meta.uid, None).await {
        reconciler.caches.forget_placeholder(name, &placeholder.meta.uid);
        info!(placeholder = name, nodeclaim = claim, "sweep: orphaned placeholder deleted");
    }
}

async fn clean_node(reconciler: &Reconciler, node: &Node) {
    let Some(patch) = cordon::unfreeze(node) else { return };
    let claim = node.meta.annotations.get(SURGE_FOR).unwrap_or_default();
    if !may_take(reconciler, &node.meta.name, &node.pool, claim).await {
        return;
    }
    let outcome = reconciler.api.patch(&format!("{}/{}", Node::COLLECTION, node.meta.name), &patch.body()).await;
    if let Outcome::Applied(text) = outcome {
        if let Ok(written) = Node::read(&text) {
            reconciler.caches.apply(written);
        }
        let what = if node.meta.annotations.has(SURGE_FOR) { "unfroze" } else { "uncordoned" };
        info!(node = &*node.meta.name, "sweep: {what}");
    }
}

/// An unanchored `pending` or `draining` claim can come from no crash of ours; a draining one is left to its drain.
async fn fail_claim(reconciler: &Reconciler, claim: &NodeClaim) {
    if claim.meta.deleted.is_some() {
        return;
    }
    if !may_take(reconciler, &claim.meta.name, &claim.pool, &claim.meta.name).await {
        return;
    }
    let patch = Patch {
        kind: ObjectKind::NodeClaim,
        name: claim.meta.name.to_string(),
        version: claim.meta.version.to_string(),
        annotations: [
            (STATE, Some("failed".to_owned())),
            (FAILED_AT, Some(instant::format(Timestamp::now()))),
            (STARTED_AT, None),
            (SURGE_CLAIM, None),
        ]
        .into(),
        unschedulable: None,
    };
    let outcome = reconciler.api.patch(&format!("{}/{}", NodeClaim::COLLECTION, claim.meta.name), &patch.body()).await;
    if let Outcome::Applied(text) = outcome {
        if let Ok(written) = NodeClaim::read(&text) {
            reconciler.caches.apply(written);
        }
        reconciler.metrics.completed(&claim.pool, "failure");
        warn!(nodepool = &*claim.pool, nodeclaim = &*claim.meta.name, reason = "orphaned", "rotation attempt failed");
    }
}
