//! The old NodeClaim is gone (§8, *Completed*): clean up, then release the anchor in one write that decides the outcome.

use jiff::SignedDuration;
use noderotation_shared::keys::{DRAINING_AT, LAST_ROTATION_AT, SURGE_WAIT};
use noderotation_shared::selection::RotationState;
use noderotation_shared::{duration, instant};

use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::patch::{act, cleared_anchor, pool_patch};
use crate::step::Step;

/// The API server has answered that there is no such claim.
pub(crate) fn step(ctx: &mut Context<'_>, name: &str) -> Option<Step> {
    if let Some(step) = ctx.delete_placeholder("done-placeholder", name).or_else(|| ctx.unprotect_next(name)) {
        return Some(step);
    }
    let world = ctx.world;
    if world.pool.meta.deleted.is_some() {
        return None; // nothing is written to a pool that is being deleted, and nothing was completed
    }
    let annotations = &world.pool.meta.annotations;
    let mut set = cleared_anchor(world);
    let announcement = if world.pool.is_expired() {
        None
    } else if world.pool.is_draining() {
        let now = instant::format(ctx.now);
        let began = annotations.instant(DRAINING_AT, ctx.now);
        let drain = began
            .zip(instant::parse(&now))
            .map(|(began, ended)| instant::between(began, ended).max(SignedDuration::ZERO));
        set.push((LAST_ROTATION_AT, Some(now)));
        Some(Announcement::Completed {
            claim: ClaimId::gone(name),
            mode: world.pool.mode(),
            surge_path: world.pool.surge_path(),
            surge_wait: annotations.get(SURGE_WAIT).and_then(duration::parse),
            drain,
        })
    } else {
        Some(Announcement::Expired { claim: ClaimId::gone(name), phase: RotationState::Pending.word() })
    };
    Some(act("release", pool_patch(world, set), announcement.into_iter().collect()))
}
