//! `pending`: freeze and cordon the old node, reserve capacity, wait for it, then cross into the drain (§8, §9).

use std::collections::BTreeMap;

use jiff::Timestamp;
use noderotation_shared::feasibility::rotation_bound;
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys::{
    ACTIVE_ROTATION_STATE, DRAINING_AT, FAILED_AT, RETRY_COUNT, ROTATE, STARTED_AT, STATE, SURGE_CLAIM, SURGE_PATH,
    SURGE_WAIT,
};
use noderotation_shared::{duration, selection};

use super::expired;
use crate::decide::{Pass, act, claim_patch, pool_patch};
use crate::reason::Reason;
use crate::step::{Announcement, LiveRead, Step, Write};
use crate::world::{GoverningPolicy, Reapable};
use crate::{cordon, placeholder, size, surge};
use noderotation_shared::objects::NodeClaim;

/// The phase, top to bottom; each line is one step or passes on to the next.
pub(crate) fn step(pass: &mut Pass<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> Option<Step> {
    if claim.meta.deleted.is_some() {
        return expired::enter(pass, claim, "pending");
    }
    if pass.world.pool.is_fallback() {
        return Some(to_draining(claim));
    }
    let Some(started_at) = claim.started_at().filter(|_| is_asserted(claim)) else {
        return Some(assert_pending(pass, claim));
    };
    let timeout = plus(started_at, governing.policy.surge.ready_timeout);
    if pass.now > timeout {
        return roll_back(pass, governing, claim, started_at);
    }
    // one nanosecond later it is over
    pass.wake(plus(timeout, jiff::SignedDuration::from_nanos(1)));
    freeze_old(pass, claim)
        .or_else(|| record_surge_claim(pass, claim))
        .or_else(|| reserve(pass, governing, claim))
        .or_else(|| cross(pass, governing, claim, started_at, timeout))
}

fn is_asserted(claim: &NodeClaim) -> bool {
    claim.meta.annotations.get(STATE) == Some("pending")
}

/// From none or `pending` only; `started-at` once per attempt.
fn assert_pending(pass: &Pass<'_>, claim: &NodeClaim) -> Step {
    let mut set = vec![(STATE, Some("pending".to_owned()))];
    if claim.started_at().is_none() {
        set.push((STARTED_AT, Some(instant::format(pass.now))));
    }
    act("pending", Write::Patch(claim_patch(claim, set)), Vec::new())
}

fn freeze_old(pass: &Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    let node = pass.world.node_of(claim).filter(|n| n.meta.deleted.is_none())?;
    let patch = cordon::freeze(node, &claim.meta.name, true)?;
    Some(act("freeze", Write::Patch(patch), Vec::new()))
}

/// The induced claim, for the reap.
fn record_surge_claim(pass: &Pass<'_>, claim: &NodeClaim) -> Option<Step> {
    let host = pass.world.placeholder.as_ref().map(|p| &*p.node)?;
    let induced = pass.world.claim_on(host).filter(|c| c.meta.name != claim.meta.name)?;
    if claim.meta.annotations.get(SURGE_CLAIM) == Some(&induced.meta.name) {
        return None;
    }
    let patch = claim_patch(claim, [(SURGE_CLAIM, Some(induced.meta.name.to_string()))]);
    Some(act("surge-claim", Write::Patch(patch), Vec::new()))
}

/// Sees to it that a placeholder stands, unless the pool is held: then nothing is created and `draining` not entered.
fn reserve(pass: &mut Pass<'_>, governing: &GoverningPolicy, claim: &NodeClaim) -> Option<Step> {
    let world = pass.world;
    let useless = world
        .placeholder
        .as_ref()
        .filter(|p| p.meta.deleted.is_none())
        .is_some_and(|p| matches!(&*p.phase, "Failed" | "Succeeded") || surge::host_is_leaving(world));
    if useless {
        return pass.confirm(&claim.meta.name).or_else(|| pass.drop_placeholder("useless-placeholder"));
    }
    if world.placeholder.is_some() || world.stale || pass.hold(&governing.policy).is_some() {
        return None;
    }
    let Some(load) = world.evidence.loads.get(&*claim.meta.name) else {
        return Some(Step::Read(LiveRead::NodeLoad {
            claim: claim.meta.name.to_string(),
            node: claim.node.to_string(),
        }));
    };
    let sized = size::size(load, governing.policy.surge.whole_node_reservation);
    let plan = placeholder::Plan {
        claim: &claim.meta.name,
        pool: &world.pool,
        surge: &governing.policy.surge,
        load,
        requests: &sized.requests,
        avoid: &hosts_to_avoid(pass, governing, claim),
        bound: rotation_bound(&governing.policy, claim.termination_grace_period),
        settings: &world.settings,
    };
    let pod = match placeholder::pod(&plan) {
        Ok(pod) => pod,
        Err(conflict) => {
            pass.note(Reason::SurgeZoneConflict { claim: claim.meta.name.to_string(), message: conflict.0 });
            return None;
        }
    };
    let mut told = vec![Announcement::PlaceholderCreated {
        claim: claim.meta.name.to_string(),
        placeholder: placeholder::name(&claim.meta.name),
        size: sized.requests.0.iter().map(|(n, q)| format!("{n}={q}")).collect::<Vec<_>>().join(","),
    }];
    told.extend(sized.clamps.into_iter().map(|(reason, message)| Announcement::Clamped {
        claim: claim.meta.name.to_string(),
        reason,
        message,
    }));
    Some(act("placeholder", Write::Create(Box::new(pod)), told))
}

/// Hostname labels of the candidate's node and of the nodes that are due themselves: a soft exclusion.
fn hosts_to_avoid(pass: &Pass<'_>, governing: &GoverningPolicy, candidate: &NodeClaim) -> Vec<String> {
    let mut hosts = Vec::new();
    for claim in &pass.world.claims {
        let Some(node) = pass.world.node_of(claim).filter(|n| !n.hostname.is_empty()) else { continue };
        let is_due =
            || selection::assess(&governing.policy, &governing.cadence, &claim.candidate(Some(node)), pass.now).due;
        if claim.meta.name == candidate.meta.name {
            hosts.insert(0, node.hostname.to_string());
        } else if is_due() {
            hosts.push(node.hostname.to_string());
        }
    }
    hosts
}

/// The point of no return (§9.5): eligibilities on live reads, then host, pool, claim; `draining` does the rest.
fn cross(
    pass: &mut Pass<'_>,
    governing: &GoverningPolicy,
    claim: &NodeClaim,
    started_at: Timestamp,
    timeout: Timestamp,
) -> Option<Step> {
    let world = pass.world;
    let ready = match surge::ready(world, claim, started_at) {
        Ok(ready) => ready,
        Err(why) => {
            note_unschedulable(pass, governing, claim, started_at);
            pass.note(Reason::AwaitingSurge { claim: claim.meta.name.to_string(), why, until: timeout });
            return None;
        }
    };
    if let Some(held) = pass.hold(&governing.policy).or(world.stale.then_some(Reason::StaleView)) {
        pass.note(held);
        return None;
    }
    let host = ready.host.clone();
    if !world.evidence.surge_confirmed {
        let placeholder = world.placeholder.as_ref().map(|p| p.meta.name.to_string()).unwrap_or_default();
        return Some(Step::Read(LiveRead::Surge { placeholder, node: host.meta.name.to_string() }));
    }
    if let Some(patch) = cordon::freeze(&host, &claim.meta.name, false) {
        return Some(act("freeze-host", Write::Patch(patch), Vec::new()));
    }
    if let Some(step) = mirror(pass, claim, &host.meta.name, started_at, ready.path) {
        return Some(step);
    }
    Some(to_draining(claim))
}

/// A young placeholder is always unschedulable, since that is how Karpenter is asked; one that still is when its node
/// should be there is worth a word.
fn note_unschedulable(pass: &mut Pass<'_>, governing: &GoverningPolicy, claim: &NodeClaim, started_at: Timestamp) {
    let world = pass.world;
    let pending = world.placeholder.as_ref().filter(|p| p.node.is_empty());
    let Some(message) = pending.and_then(|p| p.unschedulable.clone()) else { return };
    let expected = world.derived(governing).provisioning_estimate.min(governing.policy.surge.ready_timeout / 2);
    let late = plus(started_at, expected);
    if pass.now < late {
        return pass.wake(late);
    }
    pass.note(Reason::SurgeUnschedulable { claim: claim.meta.name.to_string(), message: message.to_string() });
}

/// The pool's side of the crossing. What is stored already stays: each of these is written once.
fn mirror(
    pass: &Pass<'_>,
    claim: &NodeClaim,
    host: &str,
    started_at: Timestamp,
    path: Option<&'static str>,
) -> Option<Step> {
    let annotations = &pass.world.pool.meta.annotations;
    let now = instant::whole_seconds(pass.now);
    let surge_wait = instant::between(started_at, now);
    let wanted = [
        (ACTIVE_ROTATION_STATE, Some("draining".to_owned())),
        (DRAINING_AT, Some(instant::format(now))),
        (SURGE_WAIT, Some(duration::format(surge_wait))),
        (SURGE_PATH, path.map(str::to_owned)),
    ];
    let set: BTreeMap<_, _> =
        wanted.into_iter().filter(|(key, value)| value.is_some() && !annotations.has(key)).collect();
    if set.is_empty() {
        return None;
    }
    let told = Announcement::SurgeReady { claim: claim.meta.name.to_string(), host: host.to_owned(), path, surge_wait };
    Some(act("mirror", Write::Patch(pool_patch(pass.world, set)), vec![told]))
}

fn to_draining(claim: &NodeClaim) -> Step {
    act("draining", Write::Patch(claim_patch(claim, [(STATE, Some("draining".into()))])), Vec::new())
}

/// `readyTimeout` is over: placeholder, reap, unfreeze, the claim's write; `failed` then releases the anchor.
fn roll_back(
    pass: &mut Pass<'_>,
    governing: &GoverningPolicy,
    claim: &NodeClaim,
    started_at: Timestamp,
) -> Option<Step> {
    let name = &claim.meta.name;
    if let Some(confirm) = pass.confirm(name) {
        return Some(confirm);
    }
    if let Some(step) = pass.drop_placeholder("rollback-placeholder") {
        return Some(step);
    }
    if let Some(step) = reap(pass, claim, started_at).or_else(|| pass.unfreeze_next(name)) {
        return Some(step);
    }
    let failed_at = instant::whole_seconds(pass.now);
    let retry_count = claim.retry_count().saturating_add(1);
    let patch = claim_patch(
        claim,
        [
            (STATE, Some("failed".into())),
            (FAILED_AT, Some(instant::format(failed_at))),
            (RETRY_COUNT, Some(retry_count.to_string())),
            (STARTED_AT, None),
            (SURGE_CLAIM, None),
            (ROTATE, None),
        ],
    );
    let told = Announcement::AttemptFailed {
        claim: name.to_string(),
        reason: format!(
            "no replacement was Ready within readyTimeout {}",
            duration::format(governing.policy.surge.ready_timeout)
        ),
        retry_count,
        next_attempt_at: selection::next_attempt_at(&governing.policy, failed_at, retry_count),
    };
    Some(act("failed", Write::Patch(patch), vec![told]))
}

/// Takes back the node that was launched for us: only one created after the attempt began, with nothing on it.
fn reap(pass: &mut Pass<'_>, claim: &NodeClaim, started_at: Timestamp) -> Option<Step> {
    let evidence = &pass.world.evidence;
    let surge = match (claim.meta.annotations.get(SURGE_CLAIM), &evidence.nominated) {
        (Some(surge), _) => surge.to_owned(),
        (None, Some(Some(surge))) => surge.clone(),
        (None, Some(None)) => return None,
        // a node that never registered gave the placeholder no node name, but Karpenter told what it launched
        (None, None) => {
            return Some(Step::Read(LiveRead::Nomination { placeholder: placeholder::name(&claim.meta.name) }));
        }
    };
    match &evidence.surge_claim {
        None => Some(Step::Read(LiveRead::SurgeClaim(surge))),
        Some(Reapable::Gone) => None,
        Some(Reapable::Exists { created, .. }) if *created <= instant::whole_seconds(started_at) => {
            pass.note(Reason::NotReaped { claim: surge, why: "it was there before the attempt".into() });
            None
        }
        Some(Reapable::Exists { strangers, .. }) if !strangers.is_empty() => {
            pass.note(Reason::NotReaped { claim: surge, why: format!("Pod {} runs there", strangers.join(", ")) });
            None
        }
        Some(Reapable::Exists { uid, .. }) => {
            Some(act("reap", Write::DeleteClaim { name: surge, uid: uid.clone(), version: None }, Vec::new()))
        }
    }
}
