//! Steps 2 to 6: may a rotation start, of which claim, and is there room (§8, §9.4, §9.6).

use jiff::SignedDuration;
use noderotation_shared::feasibility::rotation_bound;
use noderotation_shared::instant::{self, minus};
use noderotation_shared::keys::{ACTIVE_ROTATION, ACTIVE_ROTATION_STATE, DRAINING_AT, ROTATION_MODE};
use noderotation_shared::selection::{self, Eligibility, RotationState};

use crate::decide::{Pass, act, cleared_anchor, pool_patch};
use crate::reason::Reason;
use crate::step::{Announcement, LiveRead, Step, Write};
use crate::world::GoverningPolicy;
use crate::{headroom, placeholder, size};
use noderotation_shared::objects::NodeClaim;

/// The gates in their order, then the pick, then the anchor.
pub(crate) fn step(pass: &mut Pass<'_>, governing: &GoverningPolicy, eligibilities: &[Eligibility]) -> Option<Step> {
    if let Some(shut) = barrier(pass, governing) {
        pass.note(shut);
        return None;
    }
    let open = pass.start_gates(&governing.policy);
    for (claim, eligibility) in candidates(pass, governing, eligibilities, open) {
        match room_for(pass, governing, claim) {
            Room::Read(read) => return Some(Step::Read(read)),
            Room::None => return None,
            Room::NotThis => {}
            Room::Enough { fallback } => return Some(anchor(pass, governing, claim, eligibility, fallback)),
        }
    }
    if open {
        pass.note(Reason::NoCandidate);
    }
    None
}

/// What stops every start, a request for `now` included.
fn barrier(pass: &Pass<'_>, governing: &GoverningPolicy) -> Option<Reason> {
    let world = pass.world;
    if world.pool.meta.deleted.is_some() {
        return Some(Reason::PoolDeleting);
    }
    if world.stale {
        return Some(Reason::StaleView);
    }
    if let Some(claim) = world.claims.iter().find(|c| c.state(false) == RotationState::Draining) {
        return Some(Reason::DrainUnanchored(claim.meta.name.to_string()));
    }
    if world.pool.is_static {
        return Some(Reason::StaticNodePool);
    }
    let fatal = pass.fatal(governing);
    if !fatal.is_empty() {
        return Some(Reason::Fatal(fatal));
    }
    pass.hold(&governing.policy)
}

/// The eligible claims in their order; with the gates shut only those that an operator wants now.
fn candidates<'a>(
    pass: &Pass<'a>,
    governing: &GoverningPolicy,
    eligibilities: &[Eligibility],
    open: bool,
) -> Vec<(&'a NodeClaim, Eligibility)> {
    let world = pass.world;
    let mut eligible: Vec<_> = world
        .claims
        .iter()
        .zip(eligibilities)
        .map(|(claim, eligibility)| (&**claim, claim.candidate(world.node_of(claim).map(|n| &**n)), *eligibility))
        .filter(|(_, candidate, eligibility)| selection::ineligible(candidate, eligibility).is_empty())
        .filter(|(_, candidate, _)| open || candidate.request == Some(selection::RotateRequest::Now))
        .collect();
    eligible.sort_by(|a, b| selection::order(&governing.policy, (&a.1, &a.2), (&b.1, &b.2)));
    eligible.into_iter().map(|(claim, _, eligibility)| (claim, eligibility)).collect()
}

pub(crate) enum Room {
    Read(LiveRead),
    /// The limits leave none: no start.
    None,
    /// This claim's volumes contradict each other; another may go.
    NotThis,
    Enough {
        fallback: bool,
    },
}

/// The forceful-fallback test, then headroom.
pub(crate) fn room_for(pass: &mut Pass<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> Room {
    if is_too_late_for_surge(pass, governing, claim) {
        return Room::Enough { fallback: true };
    }
    let Some(load) = pass.world.evidence.loads.get(&*claim.meta.name) else {
        return Room::Read(LiveRead::NodeLoad { claim: claim.meta.name.to_string(), node: claim.node.to_string() });
    };
    if let Err(conflict) = placeholder::zones(&governing.policy.surge, load, &pass.world.pool) {
        pass.note(Reason::SurgeZoneConflict { claim: claim.meta.name.to_string(), message: conflict.0 });
        return Room::NotThis;
    }
    let sized = size::size(load, governing.policy.surge.whole_node_reservation);
    match headroom::check(pass.world, claim, &sized.requests) {
        Err(short) => {
            pass.note(short);
            Room::None
        }
        Ok(tight) => {
            if let Some(tight) = tight {
                pass.note(tight);
            }
            Room::Enough { fallback: false }
        }
    }
}

/// §9.6: the deadline leaves no time for a surge. A claim that never expires never qualifies.
fn is_too_late_for_surge(pass: &Pass<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> bool {
    let bound = rotation_bound(&governing.policy, claim.termination_grace_period);
    governing.policy.surge.forceful_fallback
        && claim.deadline().is_some_and(|deadline| minus(deadline, bound) < pass.now)
}

/// Step 6: the anchor, before any other side effect. Leftovers of an earlier set go in the same patch.
fn anchor(
    pass: &Pass<'_>,
    governing: &GoverningPolicy,
    claim: &NodeClaim,
    eligibility: Eligibility,
    fallback: bool,
) -> Step {
    let name = claim.meta.name.to_string();
    let mut set = cleared_anchor(pass.world);
    set.push((ACTIVE_ROTATION, Some(name.clone())));
    let mut told = vec![Announcement::CandidateSelected {
        claim: name.clone(),
        node: claim.node.to_string(),
        deadline: eligibility.deadline,
        age: instant::between(claim.meta.created, pass.now).max(SignedDuration::ZERO),
        policy: governing.name.clone(),
    }];
    if fallback {
        set.push((ROTATION_MODE, Some("forceful-fallback".into())));
        set.push((ACTIVE_ROTATION_STATE, Some("draining".into())));
        set.push((DRAINING_AT, Some(instant::format(pass.now))));
        told.extend(eligibility.deadline.map(|deadline| Announcement::ForcefulFallback { claim: name, deadline }));
    }
    act("anchor", Write::Patch(pool_patch(pass.world, set)), told)
}
