//! Governance lost mid-rotation (§8): placeholder, nodes, then the anchor, then the event, in that order.

use noderotation_shared::keys::{STARTED_AT, STATE, SURGE_CLAIM, WINDOW_OPENED_AT};
use noderotation_shared::selection::RotationState;

use crate::decide::{Pass, act, claim_patch, cleared_anchor, pool_patch};
use crate::reason::Reason;
use crate::step::{Announcement, Step, Write};
use noderotation_shared::governance::Ungoverned;

/// Rolls back what is anchored and removes the window's stamp.
pub(crate) fn step(pass: &mut Pass<'_>, ungoverned: &Ungoverned) -> Option<Step> {
    let why = ungoverned.to_string();
    pass.note(Reason::Ungoverned(ungoverned.clone()));
    match pass.world.pool.anchor() {
        Some(claim) => roll_back(pass, claim, why),
        None => {
            let pool = &pass.world.pool;
            let mut leftovers = cleared_anchor(pass.world);
            leftovers.extend(pool.meta.annotations.has(WINDOW_OPENED_AT).then_some((WINDOW_OPENED_AT, None)));
            (!leftovers.is_empty() && pool.meta.deleted.is_none())
                .then(|| act("forget-window", Write::Patch(pool_patch(pass.world, leftovers)), Vec::new()))
        }
    }
}

/// The order is binding: only the anchor leads a later pass back here, so it goes last; and the write that clears it
/// says who rolled back.
pub(crate) fn roll_back(pass: &mut Pass<'_>, claim: &str, why: String) -> Option<Step> {
    let world = pass.world;
    if let Some(confirm) = pass.confirm(claim) {
        return Some(confirm);
    }
    if let Some(step) = pass.drop_placeholder("lost-placeholder").or_else(|| pass.unfreeze_next(claim)) {
        return Some(step);
    }
    if let Some(anchored) = world.anchored.as_ref().filter(|c| c.pool == world.pool.meta.name)
        && anchored.state(true) == RotationState::Pending
    {
        // else it would stay in flight until a restart
        let patch = claim_patch(anchored, [(STATE, None), (STARTED_AT, None), (SURGE_CLAIM, None)]);
        return Some(act("lost-claim", Write::Patch(patch), Vec::new()));
    }
    if world.pool.meta.deleted.is_some() {
        return None;
    }
    let mut set = cleared_anchor(world);
    set.push((WINDOW_OPENED_AT, None));
    let told = Announcement::GovernanceLost { claim: claim.to_owned(), why };
    Some(act("lost-anchor", Write::Patch(pool_patch(world, set)), vec![told]))
}
