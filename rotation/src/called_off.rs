//! `noderotation.io/rotate: cancel` on a claim whose rotation is not under way: an act, not a state, so that it goes (§7).
//! Where it is under way, the state of the claim decides: `advance`.

use noderotation_shared::keys::ROTATE;

use crate::announcement::{Announcement, ClaimId};
use crate::context::Context;
use crate::patch::{act, claim_patch};
use crate::step::Step;

/// Removes it from the next such claim. It must not wait there for a later rotation.
pub(crate) fn step(ctx: &Context<'_>) -> Option<Step> {
    let pool = &ctx.world.pool;
    if pool.meta.deleted.is_some() {
        return None;
    }
    let is_idle = |name: &str| pool.anchor() != Some(name);
    let claim = ctx
        .world
        .claims
        .iter()
        .find(|claim| claim.is_called_off() && claim.meta.deleted.is_none() && is_idle(&claim.meta.name))?;
    let nothing = Announcement::NothingToCallOff { claim: ClaimId::of(claim) };
    Some(act("nothing-to-call-off", claim_patch(claim, [(ROTATE, None)]), vec![nothing]))
}
