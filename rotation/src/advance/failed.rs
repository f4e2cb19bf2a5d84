//! `failed` with an anchor: a retry, or the release of a rollback that a crash cut short (§8, *Retry*).

use noderotation_shared::instant;
use noderotation_shared::keys::{FAILED_AT, LAST_FAILURE_AT, STARTED_AT, STATE};
use noderotation_shared::objects::NodeClaim;
use noderotation_shared::selection::{self, RotationState};

use super::expired;
use crate::context::Context;
use crate::gates;
use crate::patch::{act, claim_patch, cleared_anchor, pool_patch};
use crate::start::{Room, room_for};
use crate::step::Step;
use crate::world::GoverningPolicy;

/// A retry is a new attempt: it passes every gate again. Otherwise the anchor goes, and the pause that it owes begins.
pub(crate) fn step(ctx: &mut Context<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> Option<Step> {
    if claim.meta.deleted.is_some() {
        return expired::enter(ctx, claim, RotationState::Failed.word());
    }
    if may_retry(ctx, governing, claim) {
        match room_for(ctx, governing, claim) {
            Room::Unknown(read) => return Some(Step::Read(read)),
            Room::Enough { fallback } if fallback == ctx.world.pool.is_fallback() => {
                let retried =
                    [(STATE, Some(RotationState::Pending.word().into())), (STARTED_AT, Some(instant::format(ctx.now)))];
                return Some(act("retry", claim_patch(claim, retried), Vec::new()));
            }
            // meanwhile it has become too late for a surge: a fallback is a start of its own
            Room::Enough { .. } | Room::None | Room::NotForThis => {}
        }
    }
    release(ctx, claim)
}

fn may_retry(ctx: &mut Context<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> bool {
    let candidate = claim.candidate(ctx.world.node_of(claim).map(|n| &**n), ctx.now);
    let eligibility = selection::assess(&governing.policy, &governing.cadence, &candidate, ctx.now);
    let closed = gates::closed(ctx.world, governing, ctx.now);
    ctx.explain(&closed);
    let may_go = !claim.is_called_off() && selection::ineligible(&candidate, &eligibility).is_empty();
    may_go && gates::let_through(&closed, candidate.request)
}

/// One pool write: the pause runs from the failure, and never backwards; the anchor set goes.
fn release(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let world = ctx.world;
    if world.pool.meta.deleted.is_some() {
        return None;
    }
    let stored = world.pool.meta.annotations.instant(LAST_FAILURE_AT, ctx.now);
    let failed = claim.meta.annotations.instant(FAILED_AT, ctx.now);
    let at = stored.max(failed).unwrap_or(ctx.now);
    let mut set = cleared_anchor(world);
    set.push((LAST_FAILURE_AT, Some(instant::format(at))));
    Some(act("release-failed", pool_patch(world, set), Vec::new()))
}
