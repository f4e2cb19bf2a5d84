//! `draining`: the claim is deleted, Karpenter drains (§8, §9.5).

use noderotation_shared::feasibility::{STUCK_POD_BUFFER, TGP_STAND_IN};
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys::{ACTIVE_ROTATION_STATE, DRAINING_AT, SURGE_CLAIM};

use crate::cordon;
use crate::decide::{Pass, act, pool_patch};
use crate::reason::Reason;
use crate::step::{Announcement, Step, Write};
use noderotation_shared::objects::NodeClaim;

/// Re-asserts what this phase needs: the mirror, no placeholder, the deletion, the host's freeze.
pub(crate) fn step(pass: &mut Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    assert_mirror(pass)
        .or_else(|| drop_placeholder(pass, claim))
        .or_else(|| delete(pass, claim))
        .or_else(|| keep_host_frozen(pass, claim))
        .or_else(|| {
            watch_drain(pass, claim);
            None
        })
}

fn assert_mirror(pass: &Pass<'_>) -> Option<Step> {
    let pool = &pass.world.pool;
    if pool.is_draining() || pool.meta.deleted.is_some() {
        return None;
    }
    let mut set = vec![(ACTIVE_ROTATION_STATE, Some("draining".to_owned()))];
    if !pool.meta.annotations.has(DRAINING_AT) {
        set.push((DRAINING_AT, Some(instant::format(pass.now))));
    }
    Some(act("mirror", Write::Patch(pool_patch(pass.world, set)), Vec::new()))
}

/// A placeholder that is still there counts as full when Karpenter simulates, and makes it launch one more node.
fn drop_placeholder(pass: &Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    let step = pass.drop_placeholder("drain-placeholder")?;
    Some(pass.confirm(&claim.meta.name).unwrap_or(step))
}

/// The first delete, or the one that a crash left out. Its version makes it land, and be told, once.
fn delete(pass: &Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    if claim.meta.deleted.is_some() {
        return None;
    }
    if let Some(confirm) = pass.confirm(&claim.meta.name) {
        return Some(confirm);
    }
    let request = Write::DeleteClaim {
        name: claim.meta.name.to_string(),
        uid: claim.meta.uid.to_string(),
        version: Some(claim.meta.version.to_string()),
    };
    let told = Announcement::DrainStarted {
        claim: claim.meta.name.to_string(),
        node: claim.node.to_string(),
        bound: claim.termination_grace_period,
    };
    Some(act("delete-claim", request, vec![told]))
}

fn keep_host_frozen(pass: &Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    let world = pass.world;
    let surge = claim.meta.annotations.get(SURGE_CLAIM)?;
    let host = world.claims.iter().find(|c| &*c.meta.name == surge && c.meta.deleted.is_none())?;
    let node = world.node_of(host).filter(|n| n.meta.deleted.is_none())?;
    let patch = cordon::freeze(node, &claim.meta.name, false)?;
    Some(act("freeze-host", Write::Patch(patch), Vec::new()))
}

/// A stuck drain is told and keeps the gate: what is deleted cannot be rolled back.
fn watch_drain(pass: &mut Pass<'_>, claim: &NodeClaim) {
    let Some(since) = claim.meta.deleted else { return };
    let name = claim.meta.name.to_string();
    let bound = claim.termination_grace_period.unwrap_or(TGP_STAND_IN).saturating_add(STUCK_POD_BUFFER);
    // the deletionTimestamp of a NodeClaim is the moment of its deletion: claims have no grace period
    let stuck_at = plus(since, bound);
    if pass.now > stuck_at {
        pass.note(Reason::DrainStuck { claim: name, since });
    } else {
        pass.wake(plus(stuck_at, jiff::SignedDuration::from_millis(1)));
        pass.note(Reason::Draining { claim: name, since });
    }
}
