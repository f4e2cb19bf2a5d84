//! `draining`: the claim is deleted and Karpenter drains its Node (§8, §9.5).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::feasibility::{STUCK_POD_BUFFER, TGP_STAND_IN};
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys::{ACTIVE_ROTATION_STATE, DRAINING_AT, STARTED_AT, STATE, SURGE_CLAIM, SURGE_FOR};
use noderotation_shared::objects::{Node, NodeClaim};
use noderotation_shared::selection::RotationState;

use super::CROSSING_HOLDS;
use super::empty::{self, Look};
use crate::announcement::{Announcement, ClaimId, NodeId};
use crate::context::Context;
use crate::patch::{act, claim_patch, pool_patch};
use crate::reason::Reason;
use crate::step::{LiveRead, Step, Write};
use crate::{cordon, surge};

/// The second look at a drain comes this long after the first, for which nothing may hold it yet.
const FIRST_LOOK: SignedDuration = SignedDuration::from_secs(15);

/// Restores what this phase needs: the pool's mirror of the state, no placeholder (when Karpenter simulates where the
/// drained Pods could go, one that still exists counts as full, and makes it launch one more Node), the deletion, the
/// host's freeze.
pub(crate) fn step(ctx: &mut Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let judged = mirror(ctx).or_else(|| go_back(ctx, claim));
    if judged.is_some() || empty::is_settling(ctx, claim) {
        return judged;
    }
    let step = ctx
        .withdraw_placeholder("drain-placeholder", &claim.meta.name)
        .or_else(|| delete_claim(ctx, claim))
        .or_else(|| keep_host_protected(ctx, claim));
    step.or_else(|| watch_drain(ctx, claim))
}

fn mirror(ctx: &Context<'_>) -> Option<Step> {
    let pool = &ctx.world.pool;
    if pool.is_draining() || pool.meta.deleted.is_some() {
        return None;
    }
    let mut set = vec![(ACTIVE_ROTATION_STATE, Some(RotationState::Draining.word().to_owned()))];
    if !pool.meta.annotations.has(DRAINING_AT) {
        set.push((DRAINING_AT, Some(instant::format(ctx.now))));
    }
    Some(act("mirror", pool_patch(ctx.world, set), Vec::new()))
}

/// Before the deletion: a crossing that the operator has called off, that is long past, or whose host is no longer ready or no
/// longer protected for this claim on a live read, is judged again; and so is one without a host once something has to move. A long outage must never end in a blind deletion, nor may
/// a rollback that a crash cut short: it takes the protection first.
fn go_back(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let world = ctx.world;
    if claim.meta.deleted.is_some() || world.pool.meta.deleted.is_some() {
        return None;
    }
    let again = || {
        let pending = RotationState::Pending.word().to_owned();
        let again = [(STATE, Some(pending)), (STARTED_AT, Some(instant::format(ctx.now)))];
        Some(act("back-to-pending", claim_patch(claim, again), Vec::new()))
    };
    if claim.is_called_off() {
        return again();
    }
    if world.pool.is_fallback() {
        return None;
    }
    let crossed = world.pool.meta.annotations.instant(DRAINING_AT, ctx.now);
    let is_recent = crossed.is_some_and(|at| ctx.now <= plus(at, CROSSING_HOLDS));
    if is_recent && world.pool.goes_empty() {
        match empty::look_behind_the_cordon(ctx, claim) {
            Look::Unknown(read) => return Some(Step::Read(read)),
            Look::Empty => return None,
            Look::InUse => {}
        }
    }
    let host = surge_host(ctx, claim).filter(|_| is_recent);
    if let Some(host) = host.filter(|host| !world.is_node_confirmed(host)) {
        return Some(Step::Read(LiveRead::Node(host.meta.name.to_string())));
    }
    let is_protected = |host: &Node| host.meta.annotations.get(SURGE_FOR) == Some(&claim.meta.name);
    if host.is_some_and(|host| is_protected(host) && surge::obstacle(world, claim, host).is_none()) {
        return None;
    }
    again()
}

/// The Node of the recorded surge claim.
fn surge_host<'a>(ctx: &Context<'a>, claim: &NodeClaim) -> Option<&'a Arc<Node>> {
    let surge = claim.meta.annotations.name(SURGE_CLAIM)?;
    ctx.world.node_of(ctx.world.claims.iter().find(|c| &*c.meta.name == surge)?)
}

/// The first deletion, or the one that a crash left out. Its version makes it land, and be announced, once.
fn delete_claim(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    if claim.meta.deleted.is_some() {
        return None;
    }
    if let Some(confirm) = ctx.confirm(&claim.meta.name) {
        return Some(confirm);
    }
    let delete = Write::DeleteClaim {
        name: claim.meta.name.to_string(),
        uid: claim.meta.uid.to_string(),
        version: Some(claim.meta.version.to_string()),
    };
    let started = Announcement::DrainStarted {
        claim: ClaimId::of(claim),
        node: claim.node.to_string(),
        bound: claim.termination_grace_period,
    };
    Some(act("delete-claim", delete, vec![started]))
}

fn keep_host_protected(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let world = ctx.world;
    let node = surge_host(ctx, claim).filter(|n| n.meta.deleted.is_none())?;
    world.claim_on(&node.meta.name).filter(|host| host.meta.deleted.is_none())?;
    let patch = cordon::protect(node, &claim.meta.name, false)?;
    Some(act("protect-host", Write::Patch(patch), Vec::new()))
}

/// What holds the drain is told. A stuck one keeps the gate closed: what is deleted cannot be rolled back.
fn watch_drain(ctx: &mut Context<'_>, claim: &NodeClaim) -> Option<Step> {
    // NodeClaims have no grace period: the deletionTimestamp is the moment of the deletion
    let since = claim.meta.deleted?;
    let bound = claim.termination_grace_period.unwrap_or(TGP_STAND_IN).saturating_add(STUCK_POD_BUFFER);
    let stuck_at = plus(since, bound);
    if claim.is_called_off() {
        let why = "its Node drains already".into();
        ctx.because(Reason::NotCalledOff { claim: ClaimId::of(claim), why });
    }
    if ctx.now > stuck_at {
        ctx.because(Reason::DrainStuck { claim: claim.meta.name.to_string(), since, bound });
    } else {
        ctx.wake(plus(stuck_at, SignedDuration::from_millis(1)));
        ctx.because(Reason::Draining { claim: claim.meta.name.to_string(), since });
    }
    tell_what_holds(ctx, claim, since)
}

/// Which Pod holds the drain, from a live read in each pass: nothing else tells, for no Pod is watched. The next look comes
/// after as long as the drain has taken so far.
fn tell_what_holds(ctx: &mut Context<'_>, claim: &NodeClaim, since: Timestamp) -> Option<Step> {
    let node = ctx.world.node_of(claim)?;
    let Some(remaining) = ctx.world.drain_of(claim) else {
        let (claim, uid) = (claim.meta.name.to_string(), claim.meta.uid.to_string());
        return Some(Step::Read(LiveRead::Drain { claim, uid, node: node.meta.name.to_string() }));
    };
    let (held, look_again) = remaining.held_at(ctx.now);
    if let Some(at) = look_again {
        ctx.wake(at);
    }
    if !remaining.pods.is_empty() {
        ctx.wake(plus(ctx.now, instant::between(since, ctx.now).max(FIRST_LOOK)));
    }
    let ((pod, hold), others) = held.split_first()?;
    ctx.because(Reason::DrainBlocked {
        claim: ClaimId::of(claim),
        node: NodeId::of(node),
        pod: pod.to_string(),
        code: hold.code,
        why: hold.why.clone(),
        remedy: hold.remedy,
        others: others.len(),
        forced_at: claim.termination_grace_period.map(|bound| {
            let ahead = bound.saturating_sub(pod.grace()).max(SignedDuration::ZERO);
            plus(since, ahead)
        }),
    });
    None
}
