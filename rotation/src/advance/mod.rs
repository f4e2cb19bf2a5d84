//! Step 1: the anchored rotation, one file for each state of its claim (§8).

mod draining;
mod expired;
mod failed;
mod pending;
mod vanished;

use noderotation_shared::selection::State;

use crate::decide::Pass;
use crate::lost;
use crate::note::Note;
use crate::step::{Look, Step};
use crate::world::Rule;

/// Dispatches on the claim that the anchor names. A claim is gone only by the API server's own 404.
pub(crate) fn step(pass: &mut Pass<'_>, rule: &Rule, name: &str) -> Option<Step> {
    let world = pass.world;
    let Some(claim) = &world.anchored else {
        return if world.evidence.claim_gone {
            vanished::step(pass, name)
        } else {
            Some(Step::Look(Look::Claim(name.to_owned())))
        };
    };
    if claim.pool != world.pool.meta.name {
        // never touch another pool's claim; end as for governance lost
        let note = Note::ForeignAnchor { claim: name.to_owned(), pool: claim.pool.to_string() };
        let why = note.to_string();
        pass.note(note);
        return lost::roll_back(pass, name, why);
    }
    match claim.state(true) {
        State::Empty | State::Pending => pending::step(pass, rule, claim),
        State::Draining => draining::step(pass, claim),
        State::Failed => failed::step(pass, rule, claim),
        State::Expired => expired::step(pass, claim),
    }
}
