//! Step 1: the anchored rotation, one file for each state of its claim (§8).

mod completed;
mod draining;
mod empty;
mod expired;
mod failed;
mod pending;
mod rollback;

use jiff::SignedDuration;
use noderotation_shared::selection::RotationState;

use crate::context::Context;
use crate::governance_lost;
use crate::reason::Reason;
use crate::step::{LiveRead, Step};
use crate::world::GoverningPolicy;

/// A crossing that did not lead to the deletion within this time is judged again.
const CROSSING_HOLDS: SignedDuration = SignedDuration::from_mins(5);

/// Advances the rotation of the claim that the anchor names. A claim is gone only by the API server's own 404.
pub(crate) fn step(ctx: &mut Context<'_>, governing: &GoverningPolicy, name: &str) -> Option<Step> {
    let world = ctx.world;
    let Some(claim) = world.anchored() else {
        return if world.is_absent(name) {
            completed::step(ctx, name)
        } else {
            Some(Step::Read(LiveRead::NodeClaim(name.to_owned())))
        };
    };
    if claim.pool != world.pool.meta.name {
        let foreign = Reason::ForeignAnchor { claim: name.to_owned(), pool: claim.pool.to_string() };
        let why = foreign.to_string();
        ctx.because(foreign);
        return governance_lost::release_foreign(ctx, name, why);
    }
    match claim.state(true) {
        RotationState::Empty | RotationState::Pending => pending::step(ctx, governing, claim),
        RotationState::Draining => draining::step(ctx, claim),
        RotationState::Failed => failed::step(ctx, governing, claim),
        RotationState::Expired => expired::step(ctx, claim),
    }
}
