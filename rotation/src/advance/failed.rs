//! `failed` with an anchor: a retry, or the release of a rollback that a crash cut short (§8, *Retry*).

use noderotation_shared::instant;
use noderotation_shared::keys::{FAILED_AT, LAST_FAILURE_AT, STARTED_AT, STATE};
use noderotation_shared::selection::{self, Reason};

use super::expired;
use crate::decide::{Pass, act, claim_patch, cleared_anchor, pool_patch};
use crate::start::{Room, room_for};
use crate::step::{Request, Step};
use crate::world::{Claim, Rule};

/// A retry is a new attempt: it passes every gate again. Otherwise the anchor goes, with the pause that it owes.
pub(crate) fn step(pass: &mut Pass<'_>, rule: &Rule, claim: &Claim) -> Option<Step> {
    if claim.meta.deleted.is_some() {
        return expired::enter(pass, claim, "failed");
    }
    if may_retry(pass, rule, claim) {
        match room_for(pass, rule, claim) {
            Room::Look(look) => return Some(Step::Look(look)),
            Room::Enough { .. } => {
                let now = instant::format(pass.now);
                let patch = claim_patch(claim, [(STATE, Some("pending".into())), (STARTED_AT, Some(now))]);
                return Some(act("retry", Request::Patch(patch), Vec::new()));
            }
            Room::None | Room::NotThis => {}
        }
    }
    release(pass, claim)
}

fn may_retry(pass: &mut Pass<'_>, rule: &Rule, claim: &Claim) -> bool {
    let world = pass.world;
    if world.stale || world.pool.is_static || world.pool.meta.deleted.is_some() {
        return false;
    }
    let subject = claim.subject(world.node_of(claim).map(|n| &**n));
    let judgement = selection::judge(&rule.policy, &rule.cadence, &subject, pass.now);
    let reasons: Vec<Reason> = selection::reasons(&subject, &judgement);
    pass.fatal(rule).is_empty()
        && pass.hold(&rule.policy).is_none()
        && reasons.is_empty()
        && pass.start_gates(&rule.policy)
}

/// One pool write: the pause runs from the failure, and never backwards; the anchor set goes.
fn release(pass: &Pass<'_>, claim: &Claim) -> Option<Step> {
    let world = pass.world;
    if world.pool.meta.deleted.is_some() {
        return None;
    }
    let stored = world.pool.last(LAST_FAILURE_AT, pass.now);
    let failed = claim.meta.marks.instant(FAILED_AT);
    let at = stored.max(failed).unwrap_or(pass.now);
    let mut set = cleared_anchor(world);
    set.push((LAST_FAILURE_AT, Some(instant::format(at))));
    Some(act("release-failed", Request::Patch(pool_patch(world, set)), Vec::new()))
}
