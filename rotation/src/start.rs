//! Steps 2 to 6: may a rotation start, of which claim, and is there room (§8, §9.4, §9.6).

use jiff::SignedDuration;
use noderotation_shared::feasibility::rotation_bound;
use noderotation_shared::instant::{self, minus};
use noderotation_shared::keys::{ACTIVE_ROTATION, ACTIVE_ROTATION_STATE, DRAINING_AT, ROTATION_MODE};
use noderotation_shared::selection::{self, Judgement, State};

use crate::decide::{Pass, act, cleared_anchor, pool_patch};
use crate::note::Note;
use crate::step::{Announcement, Look, Request, Step};
use crate::world::{Claim, Rule};
use crate::{headroom, placeholder, size};

/// The gates in their order, then the pick, then the anchor.
pub(crate) fn step(pass: &mut Pass<'_>, rule: &Rule, judged: &[Judgement]) -> Option<Step> {
    if let Some(shut) = barrier(pass, rule) {
        pass.note(shut);
        return None;
    }
    let open = pass.start_gates(&rule.policy);
    for (claim, judgement) in candidates(pass, rule, judged, open) {
        match room_for(pass, rule, claim) {
            Room::Look(look) => return Some(Step::Look(look)),
            Room::None => return None,
            Room::NotThis => {}
            Room::Enough { fallback } => return Some(anchor(pass, rule, claim, judgement, fallback)),
        }
    }
    if open {
        pass.note(Note::NoCandidate);
    }
    None
}

/// What stops every start, a request for `now` included.
fn barrier(pass: &Pass<'_>, rule: &Rule) -> Option<Note> {
    let world = pass.world;
    if world.pool.meta.deleted.is_some() {
        return Some(Note::PoolDeleting);
    }
    if world.stale {
        return Some(Note::StaleView);
    }
    if let Some(claim) = world.claims.iter().find(|c| c.state(false) == State::Draining) {
        return Some(Note::DrainUnanchored(claim.meta.name.to_string()));
    }
    if world.pool.is_static {
        return Some(Note::StaticNodePool);
    }
    let fatal = pass.fatal(rule);
    if !fatal.is_empty() {
        return Some(Note::Fatal(fatal));
    }
    pass.hold(&rule.policy)
}

/// The eligible claims in their order; with the gates shut only those that an operator wants now.
fn candidates<'a>(pass: &Pass<'a>, rule: &Rule, judged: &[Judgement], open: bool) -> Vec<(&'a Claim, Judgement)> {
    let world = pass.world;
    let mut eligible: Vec<_> = world
        .claims
        .iter()
        .zip(judged)
        .map(|(claim, judgement)| (&**claim, claim.subject(world.node_of(claim).map(|n| &**n)), *judgement))
        .filter(|(_, subject, judgement)| selection::reasons(subject, judgement).is_empty())
        .filter(|(_, subject, _)| open || subject.request == Some(selection::Request::Now))
        .collect();
    eligible.sort_by(|a, b| selection::order(&rule.policy, (&a.1, &a.2), (&b.1, &b.2)));
    eligible.into_iter().map(|(claim, _, judgement)| (claim, judgement)).collect()
}

pub(crate) enum Room {
    Look(Look),
    /// The limits leave none: no start.
    None,
    /// This claim's volumes contradict each other; another may go.
    NotThis,
    Enough {
        fallback: bool,
    },
}

/// The forceful-fallback test, then headroom.
pub(crate) fn room_for(pass: &mut Pass<'_>, rule: &Rule, claim: &Claim) -> Room {
    if is_too_late_for_surge(pass, rule, claim) {
        return Room::Enough { fallback: true };
    }
    let Some(load) = pass.world.evidence.loads.get(&*claim.meta.name) else {
        return Room::Look(Look::Load { claim: claim.meta.name.to_string(), node: claim.node.to_string() });
    };
    if let Err(conflict) = placeholder::zones(&rule.policy.surge, load, &pass.world.pool) {
        pass.note(Note::SurgeZoneConflict { claim: claim.meta.name.to_string(), message: conflict.0 });
        return Room::NotThis;
    }
    let sized = size::size(load, rule.policy.surge.whole_node_reservation);
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
fn is_too_late_for_surge(pass: &Pass<'_>, rule: &Rule, claim: &Claim) -> bool {
    let bound = rotation_bound(&rule.policy, claim.termination_grace_period);
    rule.policy.surge.forceful_fallback && claim.deadline().is_some_and(|deadline| minus(deadline, bound) < pass.now)
}

/// Step 6: the anchor, before any other side effect. Leftovers of an earlier set go in the same patch.
fn anchor(pass: &Pass<'_>, rule: &Rule, claim: &Claim, judgement: Judgement, fallback: bool) -> Step {
    let name = claim.meta.name.to_string();
    let mut set = cleared_anchor(pass.world);
    set.push((ACTIVE_ROTATION, Some(name.clone())));
    let mut told = vec![Announcement::CandidateSelected {
        claim: name.clone(),
        node: claim.node.to_string(),
        deadline: judgement.deadline,
        age: instant::between(claim.meta.created, pass.now).max(SignedDuration::ZERO),
        policy: rule.name.clone(),
    }];
    if fallback {
        set.push((ROTATION_MODE, Some("forceful-fallback".into())));
        set.push((ACTIVE_ROTATION_STATE, Some("draining".into())));
        set.push((DRAINING_AT, Some(instant::format(pass.now))));
        told.extend(judgement.deadline.map(|deadline| Announcement::ForcefulFallback { claim: name, deadline }));
    }
    act("anchor", Request::Patch(pool_patch(pass.world, set)), told)
}
