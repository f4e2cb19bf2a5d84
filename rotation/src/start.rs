//! Steps 2 to 6: may a rotation start, of which claim, would its drain end, and is there room (§8, §9.4, §9.6, §9.7)?

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::feasibility::rotation_bound;
use noderotation_shared::instant::{self, minus, plus};
use noderotation_shared::keys::{ACTIVE_ROTATION, ACTIVE_ROTATION_STATE, DRAINING_AT, ROTATION_MODE};
use noderotation_shared::objects::{NodeClaim, RotationMode};
use noderotation_shared::selection::{self, Eligibility, RotationState};

use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::drainable::Obstacle;
use crate::gates::{self, Closed};
use crate::headroom::{self, Headroom};
use crate::patch::{act, cleared_anchor, pool_patch};
use crate::reason::Reason;
use crate::step::{LiveRead, Step};
use crate::world::GoverningPolicy;
use crate::{placeholder, size};

/// The gates, then the pick, then the room, then the anchor.
pub(crate) fn step(ctx: &mut Context<'_>, governing: &GoverningPolicy, eligibilities: &[Eligibility]) -> Option<Step> {
    let closed = gates::closed(ctx.world, governing, ctx.now);
    ctx.explain(&closed);
    report_unmet_requests(ctx, &closed);
    let candidates = candidates(ctx, governing, eligibilities, &closed);
    if candidates.is_empty() && closed.is_empty() {
        ctx.because(Reason::NoCandidate);
    }
    for (claim, eligibility) in candidates {
        match room_for(ctx, governing, claim) {
            Room::Unknown(read) => return Some(Step::Read(read)),
            Room::None => return None,
            Room::NotForThis => {}
            Room::Enough { fallback } => return Some(anchor(ctx, governing, claim, eligibility, fallback)),
        }
    }
    None
}

impl Context<'_> {
    /// Records the closed gates; each that opens by itself wakes the pass then.
    pub(crate) fn explain(&mut self, closed: &[Closed]) {
        for gate in closed {
            self.because(gate.reason.clone());
            gate.opens.into_iter().for_each(|at| self.wake(at));
        }
    }
}

/// The eligible claims in their order (§7); while gates are closed only those whose request passes them.
fn candidates<'a>(
    ctx: &Context<'a>,
    governing: &GoverningPolicy,
    eligibilities: &[Eligibility],
    closed: &[Closed],
) -> Vec<(&'a NodeClaim, Eligibility)> {
    let world = ctx.world;
    let mut eligible: Vec<_> = world
        .claims
        .iter()
        .zip(eligibilities)
        .map(|(claim, eligibility)| {
            (&**claim, claim.candidate(world.node_of(claim).map(|n| &**n), ctx.now), *eligibility)
        })
        .filter(|(_, candidate, eligibility)| selection::ineligible(candidate, eligibility).is_empty())
        .filter(|(_, candidate, _)| gates::let_through(closed, candidate.request))
        .collect();
    eligible.sort_by(|a, b| selection::order(&governing.policy, (&a.1, &a.2), (&b.1, &b.2)));
    eligible.into_iter().map(|(claim, _, eligibility)| (claim, eligibility)).collect()
}

/// A request that a gate holds back, and will not let through by itself, is answered at once.
fn report_unmet_requests(ctx: &mut Context<'_>, closed: &[Closed]) {
    let Some(gate) = closed.iter().find(|gate| !gate.is_skipped_by_now) else { return };
    for claim in ctx.world.claims.iter().filter(|claim| claim.request().is_some()) {
        ctx.because(Reason::RequestNotMet { claim: ClaimId::of(claim), why: gate.reason.to_string() });
    }
}

/// Whether there is room for a claim's replacement.
pub(crate) enum Room {
    /// That must be read first.
    Unknown(LiveRead),
    /// The NodePool's limits leave none: nothing starts.
    None,
    /// This claim cannot go, for a reason of its own: another claim may.
    NotForThis,
    /// There is room, or the fallback needs none.
    Enough {
        /// The deadline leaves no time for a surge (§9.6).
        fallback: bool,
    },
}

/// Whether the drain would end, the forceful-fallback test, then headroom.
pub(crate) fn room_for(ctx: &mut Context<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> Room {
    let late = too_late_for_surge_after(governing, claim);
    let is_late = late.is_some_and(|at| at < ctx.now);
    // with a terminationGracePeriod every drain ends, and the fallback needs no replacement: there is nothing to read
    if is_late && claim.termination_grace_period.is_some() {
        return Room::Enough { fallback: true };
    }
    let Some(load) = ctx.world.load_of(claim) else { return Room::Unknown(LiveRead::load_of(claim)) };
    if let Some(obstacle) = &load.obstacle {
        cannot_go(ctx, claim, undrainable(claim, obstacle));
        return Room::NotForThis;
    }
    if is_late {
        return Room::Enough { fallback: true };
    }
    if load.is_empty() {
        return Room::Enough { fallback: false }; // nothing is launched for it
    }
    if let Err(conflict) = placeholder::zones(&governing.policy.surge, load, &ctx.world.pool) {
        cannot_go(ctx, claim, Reason::SurgeZoneConflict { claim: ClaimId::of(claim), message: conflict.0 });
        return Room::NotForThis;
    }
    let sized = size::size(load, governing.policy.surge.whole_node_reservation);
    match headroom::check(ctx.world, claim, &sized.requests) {
        Headroom::Short(why) => {
            cannot_go(ctx, claim, why);
            // with the fallback it goes without a replacement once there is no time left for one
            if let Some(at) = late {
                ctx.wake(plus(at, SignedDuration::from_nanos(1)));
            }
            Room::None
        }
        Headroom::Tight(why) => {
            ctx.because(why);
            Room::Enough { fallback: false }
        }
        Headroom::Enough => Room::Enough { fallback: false },
    }
}

/// Says why a claim cannot go, also to whoever has requested its rotation.
fn cannot_go(ctx: &mut Context<'_>, claim: &NodeClaim, reason: Reason) {
    if claim.request().is_some() {
        ctx.because(Reason::RequestNotMet { claim: ClaimId::of(claim), why: reason.to_string() });
    }
    ctx.because(reason);
}

/// §9.7: its drain is not known to end.
fn undrainable(claim: &NodeClaim, obstacle: &Obstacle) -> Reason {
    let claim = ClaimId::of(claim);
    match obstacle.clone() {
        Obstacle::Pod { pod, why, remedy } => Reason::Undrainable { claim, pod, why, remedy },
        Obstacle::BudgetsUnreadable(why) => Reason::BudgetsUnreadable { claim, why },
    }
}

/// §9.6: after this instant the deadline leaves no time for a surge. `None` where the policy does not want the fallback, or
/// the claim never expires.
fn too_late_for_surge_after(governing: &GoverningPolicy, claim: &NodeClaim) -> Option<Timestamp> {
    let bound = rotation_bound(&governing.policy, claim.termination_grace_period);
    claim.deadline().filter(|_| governing.policy.surge.forceful_fallback).map(|deadline| minus(deadline, bound))
}

/// Step 6: the anchor, before any other side effect. Leftovers of an earlier set are removed in the same patch.
fn anchor(
    ctx: &Context<'_>,
    governing: &GoverningPolicy,
    claim: &NodeClaim,
    eligibility: Eligibility,
    fallback: bool,
) -> Step {
    let mut set = cleared_anchor(ctx.world);
    set.push((ACTIVE_ROTATION, Some(claim.meta.name.to_string())));
    let mut announce = vec![Announcement::CandidateSelected {
        claim: ClaimId::of(claim),
        node: claim.node.to_string(),
        deadline: eligibility.deadline,
        age: instant::between(claim.meta.created, ctx.now).max(SignedDuration::ZERO),
        policy: governing.name.clone(),
    }];
    if fallback {
        set.push((ROTATION_MODE, Some(RotationMode::ForcefulFallback.word().into())));
        set.push((ACTIVE_ROTATION_STATE, Some(RotationState::Draining.word().into())));
        set.push((DRAINING_AT, Some(instant::format(ctx.now))));
        let claim = ClaimId::of(claim);
        announce.extend(eligibility.deadline.map(|deadline| Announcement::ForcefulFallback { claim, deadline }));
    }
    act("anchor", pool_patch(ctx.world, set), announce)
}
