//! `failed` with an anchor: a retry, or the release of a rollback that a crash cut short (§8, *Retry*).

use noderotation_shared::instant;
use noderotation_shared::keys::{FAILED_AT, LAST_FAILURE_AT, STARTED_AT, STATE};
use noderotation_shared::selection::{self, Ineligible};

use super::expired;
use crate::decide::{Pass, act, claim_patch, cleared_anchor, pool_patch};
use crate::start::{Room, room_for};
use crate::step::{Step, Write};
use crate::world::GoverningPolicy;
use noderotation_shared::objects::NodeClaim;

/// A retry is a new attempt: it passes every gate again. Otherwise the anchor goes, with the pause that it owes.
pub(crate) fn step(pass: &mut Pass<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> Option<Step> {
    if claim.meta.deleted.is_some() {
        return expired::enter(pass, claim, "failed");
    }
    if may_retry(pass, governing, claim) {
        match room_for(pass, governing, claim) {
            Room::Read(read) => return Some(Step::Read(read)),
            Room::Enough { .. } => {
                let now = instant::format(pass.now);
                let patch = claim_patch(claim, [(STATE, Some("pending".into())), (STARTED_AT, Some(now))]);
                return Some(act("retry", Write::Patch(patch), Vec::new()));
            }
            Room::None | Room::NotThis => {}
        }
    }
    release(pass, claim)
}

fn may_retry(pass: &mut Pass<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> bool {
    let world = pass.world;
    if world.stale || world.pool.is_static || world.pool.meta.deleted.is_some() {
        return false;
    }
    let candidate = claim.candidate(world.node_of(claim).map(|n| &**n));
    let eligibility = selection::assess(&governing.policy, &governing.cadence, &candidate, pass.now);
    let reasons: Vec<Ineligible> = selection::ineligible(&candidate, &eligibility);
    pass.fatal(governing).is_empty()
        && pass.hold(&governing.policy).is_none()
        && reasons.is_empty()
        && pass.start_gates(&governing.policy)
}

/// One pool write: the pause runs from the failure, and never backwards; the anchor set goes.
fn release(pass: &Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    let world = pass.world;
    if world.pool.meta.deleted.is_some() {
        return None;
    }
    let stored = world.pool.last(LAST_FAILURE_AT, pass.now);
    let failed = claim.meta.annotations.instant(FAILED_AT);
    let at = stored.max(failed).unwrap_or(pass.now);
    let mut set = cleared_anchor(world);
    set.push((LAST_FAILURE_AT, Some(instant::format(at))));
    Some(act("release-failed", Write::Patch(pool_patch(world, set)), Vec::new()))
}
