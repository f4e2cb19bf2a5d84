//! Karpenter, or somebody, was first: the claim is being deleted, or is marked `expired` already (§8, *Expired*).

use noderotation_shared::keys::{ACTIVE_ROTATION_STATE, ROTATE, STARTED_AT, STATE, SURGE_CLAIM};
use noderotation_shared::objects::NodeClaim;
use noderotation_shared::selection::RotationState;

use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::patch::{act, claim_patch, cleared_anchor, pool_patch};
use crate::step::Step;

/// A `pending` or `failed` claim has a `deletionTimestamp` that is not ours. The placeholder goes before any other
/// write: while it exists, Karpenter launches a second Node.
pub(crate) fn enter(ctx: &Context<'_>, claim: &NodeClaim, phase: &'static str) -> Option<Step> {
    let name = &claim.meta.name;
    if let Some(step) = ctx.confirm(name).or_else(|| ctx.delete_placeholder("expired-placeholder", name)) {
        return Some(step);
    }
    let pool = &ctx.world.pool;
    let announcement = Announcement::Expired { claim: ClaimId::of(claim), phase };
    if !pool.is_expired() && pool.meta.deleted.is_none() {
        // told with the write that outlives the claim: whoever takes over once it is gone must not tell it again
        let state = [(ACTIVE_ROTATION_STATE, Some(RotationState::Expired.word().into()))];
        return Some(act("expired-pool", pool_patch(ctx.world, state), vec![announcement]));
    }
    let expired =
        [(STATE, Some(RotationState::Expired.word().into())), (STARTED_AT, None), (SURGE_CLAIM, None), (ROTATE, None)];
    let announce = if pool.is_expired() { Vec::new() } else { vec![announcement] };
    Some(act("expired-claim", claim_patch(claim, expired), announce))
}

/// Terminal: cleanup, then the anchor; nothing is announced again. An expiry stamps neither pause.
pub(crate) fn step(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let name = &claim.meta.name;
    let cleanup = ctx
        .confirm(name)
        .or_else(|| ctx.delete_placeholder("expired-placeholder", name))
        .or_else(|| ctx.unprotect_next(name));
    if cleanup.is_some() || ctx.world.pool.meta.deleted.is_some() {
        return cleanup;
    }
    let cleared = cleared_anchor(ctx.world);
    Some(act("expired-anchor", pool_patch(ctx.world, cleared), Vec::new()))
}
