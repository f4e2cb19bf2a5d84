//! Governance lost in mid-rotation (§8): placeholder, Nodes, then the anchor, then the event, in that order.

use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys::{ROTATE, STARTED_AT, STATE, SURGE_CLAIM, WINDOW_OPENED_AT};
use noderotation_shared::objects::NodeClaim;
use noderotation_shared::selection::RotationState;

use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::patch::{act, claim_patch, cleared_anchor, pool_patch};
use crate::reason::Reason;
use crate::step::Step;

/// Rolls back what is anchored and removes the window's stamp.
pub(crate) fn step(ctx: &mut Context<'_>, ungoverned: &Ungoverned) -> Option<Step> {
    ctx.because(Reason::Ungoverned(ungoverned.clone()));
    match ctx.world.pool.anchor() {
        Some(claim) => roll_back(ctx, claim, ungoverned.to_string()),
        None => remove_leftovers(ctx),
    }
}

fn remove_leftovers(ctx: &Context<'_>) -> Option<Step> {
    let pool = &ctx.world.pool;
    let mut leftovers = cleared_anchor(ctx.world);
    leftovers.extend(pool.meta.annotations.has(WINDOW_OPENED_AT).then_some((WINDOW_OPENED_AT, None)));
    (!leftovers.is_empty() && pool.meta.deleted.is_none())
        .then(|| act("forget-window", pool_patch(ctx.world, leftovers), Vec::new()))
}

/// The order is binding. Only the anchor leads a later pass back here, so it goes last; and whose write clears it, tells.
pub(crate) fn roll_back(ctx: &Context<'_>, claim: &str, why: String) -> Option<Step> {
    let world = ctx.world;
    let cleanup = ctx
        .confirm(claim)
        .or_else(|| ctx.delete_placeholder("lost-placeholder", claim))
        .or_else(|| ctx.unprotect_next(claim));
    if cleanup.is_some() {
        return cleanup;
    }
    let own = world.anchored().filter(|c| c.pool == world.pool.meta.name);
    let can_be_undone = |claim: &NodeClaim| match claim.state(true) {
        RotationState::Pending => true,
        RotationState::Draining => claim.meta.deleted.is_none(),
        _ => false,
    };
    if let Some(claim) = own.filter(|claim| can_be_undone(claim)) {
        // else it would be in flight without an anchor, and be told as a failure
        let cleared = [(STATE, None), (STARTED_AT, None), (SURGE_CLAIM, None), (ROTATE, None)];
        return Some(act("lost-claim", claim_patch(claim, cleared), Vec::new()));
    }
    let claim = own.map_or_else(|| ClaimId::gone(claim), |own| ClaimId::of(own));
    release(ctx, claim, why)
}

/// An anchor that names another pool's claim. Neither the claim nor anything of the rotation that its own pool may have in
/// flight is touched.
pub(crate) fn release_foreign(ctx: &Context<'_>, claim: &str, why: String) -> Option<Step> {
    release(ctx, ClaimId::gone(claim), why)
}

fn release(ctx: &Context<'_>, claim: ClaimId, why: String) -> Option<Step> {
    if ctx.world.pool.meta.deleted.is_some() {
        return None;
    }
    let mut cleared = cleared_anchor(ctx.world);
    cleared.push((WINDOW_OPENED_AT, None));
    Some(act("lost-anchor", pool_patch(ctx.world, cleared), vec![Announcement::GovernanceLost { claim, why }]))
}
