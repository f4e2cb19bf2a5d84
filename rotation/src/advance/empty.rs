//! A Node on which nothing has to move goes without a replacement (§9.8).

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::instant::plus;
use noderotation_shared::keys::DRAINING_AT;
use noderotation_shared::objects::NodeClaim;

use crate::context::Context;
use crate::reason::Reason;
use crate::step::LiveRead;

/// The scheduler may still bind what it had placed before it saw the cordon: an empty Node is looked at once more after this
/// time.
const SCHEDULER_SETTLES: SignedDuration = SignedDuration::from_secs(10);

/// What a look at the candidate's Node shows.
pub(super) enum Look {
    /// That must be read first.
    Unknown(LiveRead),
    /// Something has to move, or nobody knows: it needs a replacement.
    InUse,
    /// Nothing has to move, and the Node is cordoned.
    Empty,
}

/// A look at a candidate for which nothing is reserved yet.
pub(super) fn look(ctx: &Context<'_>, claim: &NodeClaim) -> Look {
    match ctx.world.load_of(claim) {
        None => Look::Unknown(LiveRead::load_of(claim)),
        Some(load) if load.is_empty() => look_behind_the_cordon(ctx, claim),
        Some(_) => Look::InUse,
    }
}

/// The same, judged by live reads alone: the Node is cordoned, and what runs there was read after that was known.
pub(super) fn look_behind_the_cordon(ctx: &Context<'_>, claim: &NodeClaim) -> Look {
    let world = ctx.world;
    let node = world.node_of(claim).filter(|node| node.unschedulable && node.meta.deleted.is_none());
    let Some(node) = node else { return Look::InUse };
    if !world.is_node_confirmed(node) {
        return Look::Unknown(LiveRead::Node(node.meta.name.to_string()));
    }
    match world.fenced_load_of(claim) {
        None => Look::Unknown(LiveRead::load_of(claim)),
        Some(load) if load.is_empty() => Look::Empty,
        Some(_) => Look::InUse,
    }
}

/// Whether it is too early to delete the claim of an empty Node. The crossing was written behind the cordon, so that the
/// cordon is at least as old.
pub(super) fn is_settling(ctx: &mut Context<'_>, claim: &NodeClaim) -> bool {
    let settled = settled(ctx).filter(|settled| claim.meta.deleted.is_none() && ctx.now < *settled);
    if let Some(until) = settled {
        ctx.wake(until);
        ctx.because(Reason::NothingToMove { claim: claim.meta.name.to_string(), until });
    }
    settled.is_some()
}

/// When the scheduler has settled after the crossing of an empty Node; `None` for every other rotation.
fn settled(ctx: &Context<'_>) -> Option<Timestamp> {
    let pool = &ctx.world.pool;
    let crossed = pool.meta.annotations.instant(DRAINING_AT, ctx.now);
    crossed.filter(|_| pool.goes_empty()).map(|at| plus(at, SCHEDULER_SETTLES))
}
