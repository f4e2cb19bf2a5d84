//! What no anchor references is cleaned up once, before a new leader's first pass (§8, *Start-up sweep*).
//!
//! A pool with an anchor is never stale: its pass takes it up. Each item is best effort, and its selection is repeated
//! on the object that its write is checked against.

use std::collections::BTreeSet;

use jiff::Timestamp;
use noderotation_rotation::nodes;
use noderotation_rotation::step::{Kind, Patch};
use noderotation_rotation::world::{Claim, Node, Placeholder, Pool};
use noderotation_shared::instant;
use noderotation_shared::keys::{FAILED_AT, STARTED_AT, STATE, SURGE_CLAIM, SURGE_FOR};
use noderotation_shared::selection::State;
use tracing::{info, warn};

use crate::api::{Api, Outcome, ReadError};
use crate::objects::Kept;
use crate::pass::Rotation;
use crate::watch::View;
use crate::watch::view::Sink;

/// Cleans up after whoever led before.
pub async fn sweep(rotation: &Rotation) {
    let view = &rotation.view;
    let anchors: BTreeSet<String> = view.pools().iter().filter_map(|p| p.anchor().map(str::to_owned)).collect();
    for placeholder in view.placeholders() {
        if !anchors.contains(placeholder.claim()) {
            drop_placeholder(&rotation.api, view, &rotation.settings.namespace, &placeholder).await;
        }
    }
    for node in view.nodes() {
        if is_orphaned(&node, &anchors) {
            clean_node(&rotation.api, view, &node, &anchors).await;
        }
    }
    for claim in view.claims() {
        if matches!(claim.state(false), State::Pending | State::Draining) && !anchors.contains(&*claim.meta.name) {
            fail_claim(rotation, &claim).await;
        }
    }
}

/// Bears a marker of ours that belongs to no anchored rotation.
fn is_orphaned(node: &Node, anchors: &BTreeSet<String>) -> bool {
    let belongs = node.meta.marks.get(SURGE_FOR).is_some_and(|claim| anchors.contains(claim));
    !belongs && nodes::unfreeze(node).is_some()
}

/// Whether the claim is anchored by now, read live: the sweep must not take what a rotation has begun to use.
async fn is_anchored(api: &Api, claim_pool: &str, claim: &str) -> Result<bool, ReadError> {
    match api.get(&format!("{}/{claim_pool}", Pool::COLLECTION)).await {
        Ok(text) => Ok(Pool::read(&text).map_err(ReadError::Other)?.anchor() == Some(claim)),
        Err(ReadError::NotFound) => Ok(false),
        Err(other) => Err(other),
    }
}

async fn drop_placeholder(api: &Api, view: &View, namespace: &str, placeholder: &Placeholder) {
    let pool = view.claim(placeholder.claim()).map(|c| c.pool.clone()).unwrap_or_default();
    match is_anchored(api, &pool, placeholder.claim()).await {
        Ok(false) => {}
        Ok(true) => return,
        Err(error) => return warn!(placeholder = &*placeholder.meta.name, %error, "sweep: pool cannot be read"),
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}", placeholder.meta.name);
    let outcome = api.delete(&path, &placeholder.meta.uid, None).await;
    if let Outcome::Claimed(_) = outcome {
        view.forget_placeholder(&placeholder.meta.name, &placeholder.meta.uid);
        info!(
            placeholder = &*placeholder.meta.name,
            nodeclaim = placeholder.claim(),
            "sweep: orphaned placeholder deleted"
        );
    }
}

async fn clean_node(api: &Api, view: &View, node: &Node, anchors: &BTreeSet<String>) {
    let Some(patch) = nodes::unfreeze(node).filter(|_| is_orphaned(node, anchors)) else { return };
    let outcome = api.patch(&format!("{}/{}", Node::COLLECTION, node.meta.name), &patch.body()).await;
    if let Outcome::Claimed(text) = outcome {
        if let Ok(written) = Node::read(&text) {
            view.put(written);
        }
        let what = if node.meta.marks.has(SURGE_FOR) { "unfroze" } else { "uncordoned" };
        info!(node = &*node.meta.name, "sweep: {what}");
    }
}

/// An unanchored `pending` or `draining` claim can come from no crash of ours; a draining one is left to its drain.
async fn fail_claim(rotation: &Rotation, claim: &Claim) {
    if claim.meta.deleted.is_some() {
        return;
    }
    match is_anchored(&rotation.api, &claim.pool, &claim.meta.name).await {
        Ok(false) => {}
        Ok(true) => return,
        Err(error) => return warn!(nodeclaim = &*claim.meta.name, %error, "sweep: pool cannot be read"),
    }
    let patch = Patch {
        kind: Kind::NodeClaim,
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
    let outcome = rotation.api.patch(&format!("{}/{}", Claim::COLLECTION, claim.meta.name), &patch.body()).await;
    if let Outcome::Claimed(text) = outcome {
        if let Ok(written) = Claim::read(&text) {
            rotation.view.put(written);
        }
        rotation.metrics.completed(&claim.pool, "failure");
        warn!(nodepool = &*claim.pool, nodeclaim = &*claim.meta.name, reason = "orphaned", "rotation attempt failed");
    }
}
