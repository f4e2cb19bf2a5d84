//! `draining`: the claim is deleted and Karpenter drains its Node (§8, §9.5).

use std::sync::Arc;

use jiff::SignedDuration;
use noderotation_shared::feasibility::{STUCK_POD_BUFFER, TGP_STAND_IN};
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys::{ACTIVE_ROTATION_STATE, DRAINING_AT, STARTED_AT, STATE, SURGE_CLAIM, SURGE_FOR};
use noderotation_shared::objects::{Node, NodeClaim};
use noderotation_shared::selection::RotationState;

use super::CROSSING_HOLDS;
use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::patch::{act, claim_patch, pool_patch};
use crate::reason::Reason;
use crate::step::{LiveRead, Step, Write};
use crate::{cordon, surge};

/// Restores what this phase needs: the pool's mirror of the state, no placeholder (when Karpenter simulates where the
/// drained Pods could go, one that still exists counts as full, and makes it launch one more Node), the deletion, the
/// host's freeze.
pub(crate) fn step(ctx: &mut Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let step = mirror(ctx)
        .or_else(|| go_back(ctx, claim))
        .or_else(|| ctx.withdraw_placeholder("drain-placeholder", &claim.meta.name))
        .or_else(|| delete_claim(ctx, claim))
        .or_else(|| keep_host_protected(ctx, claim));
    if step.is_none() {
        watch_drain(ctx, claim);
    }
    step
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

/// Before the deletion: a crossing that is long past, or whose host is no longer ready or no longer protected for this claim
/// on a live read, is judged again. A long outage must never end in a blind deletion, nor may a rollback that a crash cut
/// short: it takes the protection first.
fn go_back(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let world = ctx.world;
    if claim.meta.deleted.is_some() || world.pool.is_fallback() || world.pool.meta.deleted.is_some() {
        return None;
    }
    let crossed = world.pool.meta.annotations.instant(DRAINING_AT, ctx.now);
    let is_recent = crossed.is_some_and(|at| ctx.now <= plus(at, CROSSING_HOLDS));
    let host = surge_host(ctx, claim).filter(|_| is_recent);
    if let Some(host) = host.filter(|host| !world.is_node_confirmed(host)) {
        return Some(Step::Read(LiveRead::Node(host.meta.name.to_string())));
    }
    let is_protected = |host: &Node| host.meta.annotations.get(SURGE_FOR) == Some(&claim.meta.name);
    if host.is_some_and(|host| is_protected(host) && surge::obstacle(world, claim, host).is_none()) {
        return None;
    }
    let again = [(STATE, Some(RotationState::Pending.word().to_owned())), (STARTED_AT, Some(instant::format(ctx.now)))];
    Some(act("back-to-pending", claim_patch(claim, again), Vec::new()))
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

/// A stuck drain is told and keeps the gate closed: what is deleted cannot be rolled back.
fn watch_drain(ctx: &mut Context<'_>, claim: &NodeClaim) {
    // NodeClaims have no grace period: the deletionTimestamp is the moment of the deletion
    let Some(since) = claim.meta.deleted else { return };
    let bound = claim.termination_grace_period.unwrap_or(TGP_STAND_IN).saturating_add(STUCK_POD_BUFFER);
    let stuck_at = plus(since, bound);
    if ctx.now > stuck_at {
        ctx.because(Reason::DrainStuck { claim: claim.meta.name.to_string(), since, bound });
    } else {
        ctx.wake(plus(stuck_at, SignedDuration::from_millis(1)));
        ctx.because(Reason::Draining { claim: claim.meta.name.to_string(), since });
    }
}
