//! Step 1: the anchored rotation, one file for each state of its claim (§8).

mod completed;
mod draining;
mod expired;
mod failed;
mod pending;

use noderotation_shared::selection::RotationState;

use crate::decide::Pass;
use crate::governance_lost;
use crate::reason::Reason;
use crate::step::{LiveRead, Step};
use crate::world::GoverningPolicy;

/// Dispatches on the claim that the anchor names. A claim is gone only by the API server's own 404.
pub(crate) fn step(pass: &mut Pass<'_>, governing: &GoverningPolicy, name: &str) -> Option<Step> {
    let world = pass.world;
    let Some(claim) = &world.anchored else {
        return if world.evidence.claim_gone {
            completed::step(pass, name)
        } else {
            Some(Step::Read(LiveRead::NodeClaim(name.to_owned())))
        };
    };
    if claim.pool != world.pool.meta.name {
        // never touch another pool's claim; end as for governance lost
        let note = Reason::ForeignAnchor { claim: name.to_owned(), pool: claim.pool.to_string() };
        let why = note.to_string();
        pass.note(note);
        return governance_lost::roll_back(pass, name, why);
    }
    match claim.state(true) {
        RotationState::Empty | RotationState::Pending => pending::step(pass, governing, claim),
        RotationState::Draining => draining::step(pass, claim),
        RotationState::Failed => failed::step(pass, governing, claim),
        RotationState::Expired => expired::step(pass, claim),
    }
}
