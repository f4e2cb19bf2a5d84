//! The end of an attempt whose replacement did not come (§9.5, *Timeout*), or that the operator has called off (§7):
//! placeholder, reap, unprotect, the claim's write.
//! The state `failed` then releases the anchor.

use jiff::Timestamp;
use noderotation_shared::instant;
use noderotation_shared::keys::{FAILED_AT, RETRY_COUNT, ROTATE, STARTED_AT, STATE, SURGE_CLAIM};
use noderotation_shared::objects::NodeClaim;
use noderotation_shared::selection::{CANCEL, RotationState};
use noderotation_shared::{duration, selection};

use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::patch::{act, claim_patch};
use crate::placeholder;
use crate::reason::Reason;
use crate::step::{LiveRead, Step, Write};
use crate::world::{GoverningPolicy, Reapable};

/// Why an attempt ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// `readyTimeout` has passed.
    TimedOut,
    /// The operator has called it off.
    CalledOff,
}

/// Rolls the attempt back, one request after another; `failed` comes last, so that a crash in between is made good.
pub(crate) fn step(
    ctx: &mut Context<'_>,
    governing: &GoverningPolicy,
    claim: &NodeClaim,
    started_at: Timestamp,
    why: Ended,
) -> Option<Step> {
    let name = &claim.meta.name;
    ctx.confirm(name)
        .or_else(|| ctx.delete_placeholder("rollback-placeholder", name))
        .or_else(|| reap(ctx, claim, started_at))
        .or_else(|| ctx.unprotect_next(name))
        .or_else(|| Some(mark_failed(ctx, governing, claim, why)))
}

fn mark_failed(ctx: &Context<'_>, governing: &GoverningPolicy, claim: &NodeClaim, why: Ended) -> Step {
    let failed_at = instant::whole_seconds(ctx.now);
    let retry_count = claim.retry_count().saturating_add(1);
    let failed = [
        (STATE, Some(RotationState::Failed.word().into())),
        (FAILED_AT, Some(instant::format(failed_at))),
        (RETRY_COUNT, Some(retry_count.to_string())),
        (STARTED_AT, None),
        (SURGE_CLAIM, None),
        (ROTATE, None),
    ];
    let reason = match why {
        Ended::TimedOut => {
            let ready_timeout = duration::format(governing.policy.surge.ready_timeout);
            format!("no replacement was Ready within readyTimeout {ready_timeout}")
        }
        Ended::CalledOff => format!("called off by {ROTATE}: {CANCEL}"),
    };
    let announcement = Announcement::AttemptFailed {
        claim: ClaimId::of(claim),
        reason,
        retry_count,
        next_attempt_at: selection::next_attempt_at(&governing.policy, failed_at, retry_count),
    };
    act("failed", claim_patch(claim, failed), vec![announcement])
}

/// Takes back the claim that was launched for us: only one of this pool, created after the attempt began, with nothing of
/// others on its Node. What names it may be an Event, which kubelets and others can write as well.
fn reap(ctx: &mut Context<'_>, claim: &NodeClaim, started_at: Timestamp) -> Option<Step> {
    let name = &claim.meta.name;
    let surge = match (claim.meta.annotations.name(SURGE_CLAIM), ctx.world.nominated_for(name)) {
        (Some(recorded), _) => recorded,
        (None, Some(nominated)) => nominated?,
        // a Node that never registered gave the placeholder no node name, but Karpenter told what it launched
        (None, None) => return Some(Step::Read(LiveRead::Nomination { placeholder: placeholder::name(name) })),
    };
    let (uid, pool, created, strangers) = match ctx.world.reapable(surge) {
        None => return Some(Step::Read(LiveRead::SurgeClaim(surge.to_owned()))),
        Some(Reapable::Gone) => return None,
        Some(Reapable::Exists { uid, pool, created, strangers }) => (uid, pool, *created, strangers),
    };
    let why_not = if **pool != *ctx.world.pool.meta.name {
        Some(format!("it belongs to NodePool {pool}"))
    } else if created <= instant::whole_seconds(started_at) {
        Some("it existed before the attempt".to_owned())
    } else if strangers.is_empty() {
        None
    } else {
        Some(format!("Pods of others run on its Node: {}", strangers.join(", ")))
    };
    if let Some(why) = why_not {
        ctx.because(Reason::NotReaped { claim: surge.to_owned(), why });
        return None;
    }
    let delete = Write::DeleteClaim { name: surge.to_owned(), uid: uid.clone(), version: None };
    Some(act("reap", delete, Vec::new()))
}
