//! The old NodeClaim is gone (§8, *Completed*): clean up, then release the anchor in one write that decides the outcome.

use noderotation_shared::keys::{DRAINING_AT, LAST_ROTATION_AT, SURGE_PATH, SURGE_WAIT};
use noderotation_shared::{duration, instant};

use crate::decide::{Pass, act, cleared_anchor, pool_patch};
use crate::step::{Announcement, Step, Write};

/// The API server has said that the claim is not there.
pub(crate) fn step(pass: &mut Pass<'_>, name: &str) -> Option<Step> {
    if let Some(step) = pass.drop_placeholder("done-placeholder").or_else(|| pass.unfreeze_next(name)) {
        return Some(step);
    }
    let world = pass.world;
    if world.pool.meta.deleted.is_some() {
        return None; // nothing is written to a pool that is being deleted, and nothing was completed
    }
    let annotations = &world.pool.meta.annotations;
    let mut set = cleared_anchor(world);
    let told = if world.pool.is_draining() {
        let now = instant::format(pass.now);
        let drain = annotations
            .instant(DRAINING_AT)
            .zip(instant::parse(&now))
            .map(|(began, ended)| instant::between(began, ended));
        set.push((LAST_ROTATION_AT, Some(now)));
        Announcement::Completed {
            claim: name.to_owned(),
            mode: if world.pool.is_fallback() { "forceful-fallback" } else { "surge" },
            surge_path: annotations.get(SURGE_PATH).map(str::to_owned),
            surge_wait: annotations.get(SURGE_WAIT).and_then(duration::parse),
            drain,
        }
    } else {
        Announcement::Expired { claim: name.to_owned(), phase: "pending" }
    };
    Some(act("release", Write::Patch(pool_patch(world, set)), vec![told]))
}
