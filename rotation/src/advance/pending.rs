//! `pending`: protect and cordon the old Node, reserve capacity, wait for it, then cross into the drain (§8, §9).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::feasibility::rotation_bound;
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys::{
    ACTIVE_ROTATION_STATE, CORDONED, DRAINING_AT, STARTED_AT, STATE, SURGE_CLAIM, SURGE_PATH, SURGE_WAIT,
};
use noderotation_shared::objects::{Node, NodeClaim, Placeholder, SurgePath};
use noderotation_shared::selection::RotationState;
use noderotation_shared::{duration, selection};

use super::empty::Look;
use super::rollback::Ended;
use super::{CROSSING_HOLDS, empty, expired, rollback};
use crate::announcement::{Announcement, ClaimId, NodeId};
use crate::context::Context;
use crate::gates;
use crate::patch::{act, claim_patch, pool_patch};
use crate::reason::Reason;
use crate::step::{LiveRead, Step, Write};
use crate::world::GoverningPolicy;
use crate::{cordon, placeholder, size, surge};

/// The phase, top to bottom: each line takes a step or hands over to the next.
pub(crate) fn step(ctx: &mut Context<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> Option<Step> {
    if claim.meta.deleted.is_some() {
        return expired::enter(ctx, claim, RotationState::Pending.word());
    }
    if ctx.world.pool.meta.deleted.is_some() {
        // its claims go with it: only the placeholder must not outlive them
        return ctx.withdraw_placeholder("useless-placeholder", &claim.meta.name);
    }
    if claim.is_called_off() {
        let started_at = claim.started_at(ctx.now).unwrap_or(ctx.now);
        return rollback::step(ctx, governing, claim, started_at, Ended::CalledOff);
    }
    let is_held = report_hold(ctx, governing);
    if ctx.world.pool.is_fallback() {
        return (!is_held).then(|| to_draining(claim));
    }
    let Some(started_at) = claim.started_at(ctx.now).filter(|_| is_marked_pending(claim)) else {
        return Some(mark_pending(ctx, claim));
    };
    let timeout = plus(started_at, governing.policy.surge.ready_timeout);
    if ctx.now > timeout {
        return rollback::step(ctx, governing, claim, started_at, Ended::TimedOut);
    }
    // the attempt is over once the timeout has passed, which is one nanosecond later
    ctx.wake(plus(timeout, SignedDuration::from_nanos(1)));
    forget_earlier_crossing(ctx, started_at)
        .or_else(|| protect_old_node(ctx, governing, claim, timeout))
        .or_else(|| record_surge_claim(ctx, claim))
        .or_else(|| cross_empty(ctx, claim, is_held))
        .or_else(|| reserve(ctx, governing, claim, is_held))
        .or_else(|| cross(ctx, governing, claim, started_at, timeout, is_held))
}

/// Where nothing has to move and nothing is reserved yet: over into the drain, without a replacement.
fn cross_empty(ctx: &Context<'_>, claim: &NodeClaim, is_held: bool) -> Option<Step> {
    if ctx.world.placeholder_of(&claim.meta.name).is_some() || is_held {
        return None;
    }
    match empty::look(ctx, claim) {
        Look::Unknown(read) => Some(Step::Read(read)),
        Look::Empty => Some(mirror_empty(ctx, claim).unwrap_or_else(|| to_draining(claim))),
        Look::InUse => forget_empty_crossing(ctx),
    }
}

/// Whether nothing may be reserved and `draining` not be entered; why, is recorded.
fn report_hold(ctx: &mut Context<'_>, governing: &GoverningPolicy) -> bool {
    let held = gates::hold_pending(ctx.world, governing, ctx.now);
    let is_held = !held.is_empty();
    for reason in held {
        ctx.because(reason);
    }
    is_held
}

/// The pool's mirror of a crossing that came to nothing: the attempt began anew after it (`draining` went back), or it is
/// long past.
fn forget_earlier_crossing(ctx: &Context<'_>, started_at: Timestamp) -> Option<Step> {
    let pool = &ctx.world.pool;
    let annotations = &pool.meta.annotations;
    let now = instant::whole_seconds(ctx.now);
    let is_earlier = annotations
        .instant(DRAINING_AT, ctx.now)
        .is_none_or(|at| at < started_at.min(now) || now > plus(at, CROSSING_HOLDS));
    (pool.is_draining() && is_earlier).then(|| forget_crossing(ctx))
}

/// The mirror of an empty Node's crossing to which something came before its claim was marked `draining`: what follows has a
/// replacement, and a path of its own.
fn forget_empty_crossing(ctx: &Context<'_>) -> Option<Step> {
    let pool = &ctx.world.pool;
    (pool.is_draining() && pool.goes_empty()).then(|| forget_crossing(ctx))
}

fn forget_crossing(ctx: &Context<'_>) -> Step {
    let annotations = &ctx.world.pool.meta.annotations;
    let mirror = [ACTIVE_ROTATION_STATE, DRAINING_AT, SURGE_WAIT, SURGE_PATH];
    let stored = mirror.into_iter().filter(|key| annotations.has(key)).map(|key| (key, None));
    act("forget-crossing", pool_patch(ctx.world, stored), Vec::new())
}

fn is_marked_pending(claim: &NodeClaim) -> bool {
    claim.meta.annotations.get(STATE) == Some(RotationState::Pending.word())
}

/// From no state, or from `pending`; `started-at` is stamped once per attempt.
fn mark_pending(ctx: &Context<'_>, claim: &NodeClaim) -> Step {
    let mut set = vec![(STATE, Some(RotationState::Pending.word().to_owned()))];
    if claim.started_at(ctx.now).is_none() {
        set.push((STARTED_AT, Some(instant::format(ctx.now))));
    }
    act("pending", claim_patch(claim, set), Vec::new())
}

/// Whoever looks at the Node learns who has cordoned it, also if somebody takes the cordon away.
fn protect_old_node(
    ctx: &Context<'_>,
    governing: &GoverningPolicy,
    claim: &NodeClaim,
    timeout: Timestamp,
) -> Option<Step> {
    let node = ctx.world.node_of(claim).filter(|n| n.meta.deleted.is_none())?;
    let patch = cordon::protect(node, &claim.meta.name, true)?;
    let cordoned = patch.unschedulable.map(|_| Announcement::Cordoned {
        node: NodeId::of(node),
        claim: ClaimId::of(claim),
        policy: governing.name.clone(),
        until: timeout,
        is_again: node.meta.annotations.get(CORDONED) == Some("true"),
    });
    Some(act("protect", Write::Patch(patch), cordoned.into_iter().collect()))
}

/// The claim of the placeholder's host, so that a rollback can take it back.
fn record_surge_claim(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let host = &ctx.world.placeholder_of(&claim.meta.name)?.node;
    let induced = ctx.world.claim_on(host).filter(|c| c.meta.name != claim.meta.name)?;
    if claim.meta.annotations.get(SURGE_CLAIM) == Some(&induced.meta.name) {
        return None;
    }
    let recorded = [(SURGE_CLAIM, Some(induced.meta.name.to_string()))];
    Some(act("surge-claim", claim_patch(claim, recorded), Vec::new()))
}

/// Sees to it that a placeholder exists. While the pool is held none is created.
fn reserve(ctx: &mut Context<'_>, governing: &GoverningPolicy, claim: &NodeClaim, is_held: bool) -> Option<Step> {
    let world = ctx.world;
    let existing = world.placeholder_of(&claim.meta.name);
    if existing.is_some_and(|p| p.meta.deleted.is_none() && is_useless(ctx, p)) {
        return ctx.withdraw_placeholder("useless-placeholder", &claim.meta.name);
    }
    if existing.is_some() || is_held {
        return None;
    }
    let Some(load) = world.load_of(claim) else { return Some(Step::Read(LiveRead::load_of(claim))) };
    let sized = size::size(load, governing.policy.surge.whole_node_reservation);
    let plan = placeholder::Plan {
        claim: &claim.meta.name,
        pool: &world.pool,
        surge: &governing.policy.surge,
        load,
        requests: &sized.requests,
        avoid: &hosts_to_avoid(ctx, governing, claim),
        bound: rotation_bound(&governing.policy, claim.termination_grace_period),
        settings: &world.settings,
    };
    let pod = match placeholder::pod(&plan) {
        Ok(pod) => pod,
        Err(conflict) => {
            ctx.because(Reason::SurgeZoneConflict { claim: ClaimId::of(claim), message: conflict.0 });
            return None;
        }
    };
    let mut announce = vec![Announcement::PlaceholderCreated {
        claim: ClaimId::of(claim),
        placeholder: placeholder::name(&claim.meta.name),
        size: sized.requests.0.iter().map(|(n, q)| format!("{n}={q}")).collect::<Vec<_>>().join(","),
    }];
    let clamped = |(reason, message)| Announcement::Clamped { claim: ClaimId::of(claim), reason, message };
    announce.extend(sized.clamps.into_iter().map(clamped));
    Some(act("placeholder", Write::CreatePlaceholder(Box::new(pod)), announce))
}

/// A placeholder that has ended reserves nothing; one on a host that is going away would stall the host's drain.
fn is_useless(ctx: &Context<'_>, placeholder: &Placeholder) -> bool {
    matches!(&*placeholder.phase, "Failed" | "Succeeded") || surge::host_is_leaving(ctx.world, placeholder)
}

/// Hostname labels of the candidate's Node, first, and of the Nodes that are due themselves: a soft exclusion.
fn hosts_to_avoid(ctx: &Context<'_>, governing: &GoverningPolicy, candidate: &NodeClaim) -> Vec<String> {
    let mut hosts = Vec::new();
    for claim in &ctx.world.claims {
        let Some(node) = ctx.world.node_of(claim).filter(|n| !n.hostname.is_empty()) else { continue };
        let is_due = || {
            selection::assess(&governing.policy, &governing.cadence, &claim.candidate(Some(node), ctx.now), ctx.now).due
        };
        if claim.meta.name == candidate.meta.name {
            hosts.insert(0, node.hostname.to_string());
        } else if is_due() {
            hosts.push(node.hostname.to_string());
        }
    }
    hosts
}

/// The point of no return (§9.5): judged on live reads, then host, pool and claim are written; `draining` does the rest.
fn cross(
    ctx: &mut Context<'_>,
    governing: &GoverningPolicy,
    claim: &NodeClaim,
    started_at: Timestamp,
    timeout: Timestamp,
    is_held: bool,
) -> Option<Step> {
    let world = ctx.world;
    let ready = match surge::ready(world, claim, started_at) {
        Ok(ready) => ready,
        Err(why) => {
            report_unschedulable(ctx, governing, claim, started_at);
            ctx.because(Reason::AwaitingSurge { claim: claim.meta.name.to_string(), why, until: timeout });
            return None;
        }
    };
    if is_held {
        return None;
    }
    if !world.is_surge_confirmed(ready.placeholder, ready.host) {
        let placeholder = ready.placeholder.meta.name.to_string();
        return Some(Step::Read(LiveRead::Surge { placeholder, node: ready.host.meta.name.to_string() }));
    }
    if let Some(patch) = cordon::protect(ready.host, &claim.meta.name, false) {
        return Some(act("protect-host", Write::Patch(patch), Vec::new()));
    }
    Some(mirror(ctx, claim, ready.host, started_at, ready.path).unwrap_or_else(|| to_draining(claim)))
}

/// A young placeholder is always unschedulable: that is how Karpenter is asked for a Node. One that still is when the
/// Node should have come is worth telling.
fn report_unschedulable(ctx: &mut Context<'_>, governing: &GoverningPolicy, claim: &NodeClaim, started_at: Timestamp) {
    let world = ctx.world;
    let unbound = world.placeholder_of(&claim.meta.name).filter(|p| p.node.is_empty());
    let Some(message) = unbound.and_then(|p| p.unschedulable.clone()) else { return };
    let expected = world.derived(governing).provisioning_estimate.min(governing.policy.surge.ready_timeout / 2);
    let late = plus(started_at, expected);
    if ctx.now < late {
        return ctx.wake(late);
    }
    ctx.because(Reason::SurgeUnschedulable { claim: ClaimId::of(claim), message: message.to_string() });
}

/// The pool's side of the crossing, written and announced once: what is stored already stays.
fn mirror(
    ctx: &Context<'_>,
    claim: &NodeClaim,
    host: &Node,
    started_at: Timestamp,
    path: Option<SurgePath>,
) -> Option<Step> {
    let surge_wait = instant::between(started_at, instant::whole_seconds(ctx.now));
    let ready =
        Announcement::SurgeReady { claim: ClaimId::of(claim), host: host.meta.name.to_string(), path, surge_wait };
    crossed(ctx, path, Some(surge_wait), ready)
}

/// The same where nothing has to move: there is no surge to wait for.
fn mirror_empty(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let nothing = Announcement::NothingToMove { claim: ClaimId::of(claim), node: claim.node.to_string() };
    crossed(ctx, Some(SurgePath::Empty), None, nothing)
}

fn crossed(
    ctx: &Context<'_>,
    path: Option<SurgePath>,
    surge_wait: Option<SignedDuration>,
    announcement: Announcement,
) -> Option<Step> {
    if ctx.world.pool.is_draining() {
        return None;
    }
    let wanted = [
        (ACTIVE_ROTATION_STATE, Some(RotationState::Draining.word().to_owned())),
        (DRAINING_AT, Some(instant::format(instant::whole_seconds(ctx.now)))),
        (SURGE_WAIT, surge_wait.map(duration::format)),
        (SURGE_PATH, path.map(|path| path.word().to_owned())),
    ];
    let known: BTreeMap<_, _> = wanted.into_iter().filter(|(_, value)| value.is_some()).collect();
    Some(act("mirror", pool_patch(ctx.world, known), vec![announcement]))
}

fn to_draining(claim: &NodeClaim) -> Step {
    act("draining", claim_patch(claim, [(STATE, Some(RotationState::Draining.word().into()))]), Vec::new())
}
