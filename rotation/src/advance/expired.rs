//! Karpenter was first: the claim is expiring under us, or is marked so already (§8, *Expired*).

use noderotation_shared::keys::{ROTATE, STARTED_AT, STATE, SURGE_CLAIM};

use crate::decide::{Pass, act, claim_patch, cleared_anchor, pool_patch};
use crate::step::{Announcement, Step, Write};
use noderotation_shared::objects::NodeClaim;

/// A `pending` or `failed` claim got a `deletionTimestamp` that is not ours. The placeholder goes before any other
/// write: while it stands, Karpenter launches a second node.
pub(crate) fn enter(pass: &Pass<'_>, claim: &NodeClaim, phase: &'static str) -> Option<Step> {
    if let Some(confirm) = pass.confirm(&claim.meta.name) {
        return Some(confirm);
    }
    if let Some(step) = pass.drop_placeholder("expired-placeholder") {
        return Some(step);
    }
    let patch =
        claim_patch(claim, [(STATE, Some("expired".into())), (STARTED_AT, None), (SURGE_CLAIM, None), (ROTATE, None)]);
    let told = Announcement::Expired { claim: claim.meta.name.to_string(), phase };
    Some(act("expired-claim", Write::Patch(patch), vec![told]))
}

/// Terminal: cleanup and the anchor, without telling anything again. Expired stamps neither pause.
pub(crate) fn step(pass: &Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    if let Some(confirm) = pass.confirm(&claim.meta.name) {
        return Some(confirm);
    }
    if let Some(step) = pass.drop_placeholder("expired-placeholder").or_else(|| pass.unfreeze_next(&claim.meta.name)) {
        return Some(step);
    }
    if pass.world.pool.meta.deleted.is_some() {
        return None;
    }
    let set = cleared_anchor(pass.world);
    Some(act("expired-anchor", Write::Patch(pool_patch(pass.world, set)), Vec::new()))
}
