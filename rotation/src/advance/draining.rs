//! `draining`: the claim is deleted and Karpenter drains its Node (§8, §9.5).

use jiff::SignedDuration;
use noderotation_shared::feasibility::{STUCK_POD_BUFFER, TGP_STAND_IN};
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys::{ACTIVE_ROTATION_STATE, DRAINING_AT, SURGE_CLAIM};
use noderotation_shared::objects::NodeClaim;

use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::cordon;
use crate::patch::{act, pool_patch};
use crate::reason::Reason;
use crate::step::{Step, Write};

/// Restores what this phase needs: the pool's mirror of the state, no placeholder, the deletion, the host's freeze.
pub(crate) fn step(ctx: &mut Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let step = mirror(ctx)
        .or_else(|| delete_placeholder(ctx, claim))
        .or_else(|| delete_claim(ctx, claim))
        .or_else(|| keep_host_frozen(ctx, claim));
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
    let mut set = vec![(ACTIVE_ROTATION_STATE, Some("draining".to_owned()))];
    if !pool.meta.annotations.has(DRAINING_AT) {
        set.push((DRAINING_AT, Some(instant::format(ctx.now))));
    }
    Some(act("mirror", pool_patch(ctx.world, set), Vec::new()))
}

/// When Karpenter simulates where the drained Pods could go, a placeholder that still exists counts as full, and makes
/// it launch one more Node.
fn delete_placeholder(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let step = ctx.delete_placeholder("drain-placeholder", &claim.meta.name)?;
    Some(ctx.confirm(&claim.meta.name).unwrap_or(step))
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

fn keep_host_frozen(ctx: &Context<'_>, claim: &NodeClaim) -> Option<Step> {
    let world = ctx.world;
    let surge = claim.meta.annotations.get(SURGE_CLAIM)?;
    let host = world.claims.iter().find(|c| &*c.meta.name == surge && c.meta.deleted.is_none())?;
    let node = world.node_of(host).filter(|n| n.meta.deleted.is_none())?;
    let patch = cordon::freeze(node, &claim.meta.name, false)?;
    Some(act("freeze-host", Write::Patch(patch), Vec::new()))
}

/// A stuck drain is told and keeps the gate closed: what is deleted cannot be rolled back.
fn watch_drain(ctx: &mut Context<'_>, claim: &NodeClaim) {
    // NodeClaims have no grace period: the deletionTimestamp is the moment of the deletion
    let Some(since) = claim.meta.deleted else { return };
    let bound = claim.termination_grace_period.unwrap_or(TGP_STAND_IN).saturating_add(STUCK_POD_BUFFER);
    let stuck_at = plus(since, bound);
    if ctx.now > stuck_at {
        ctx.because(Reason::DrainStuck { claim: claim.meta.name.to_string(), since });
    } else {
        ctx.wake(plus(stuck_at, SignedDuration::from_millis(1)));
        ctx.because(Reason::Draining { claim: claim.meta.name.to_string(), since });
    }
}
