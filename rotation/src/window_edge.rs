//! Step 0, the window's edge: what became of an occurrence (§8).

use noderotation_shared::instant;
use noderotation_shared::keys::{LAST_ROTATION_AT, WINDOW_OPENED_AT};

use crate::decide::{Pass, act, pool_patch};
use crate::step::{Announcement, Step, Write};
use crate::world::GoverningPolicy;

/// Stamps the first in-window pass; judges and clears on the first out-of-window pass.
pub(crate) fn step(pass: &mut Pass<'_>, governing: &GoverningPolicy) -> Option<Step> {
    let pool = &pass.world.pool;
    // a pool that is being deleted is not written, and an old view says nothing about what was left undone
    if pool.meta.deleted.is_some() || pass.world.stale {
        return None;
    }
    let stamp = pool.meta.annotations.instant(WINDOW_OPENED_AT);
    let is_open = governing.policy.schedule.open_at(pass.now).is_some();
    match (is_open, stamp) {
        (true, Some(_)) => None,
        (true, None) => {
            let now = Some(instant::format(pass.now));
            Some(act("stamp-window", Write::Patch(pool_patch(pass.world, [(WINDOW_OPENED_AT, now)])), Vec::new()))
        }
        (false, None) if pool.meta.annotations.has(WINDOW_OPENED_AT) => Some(clear(pass, Vec::new())), // unreadable
        (false, None) => None,
        (false, Some(_)) if pool.anchor().is_some() => None, // defer: the rotation may still succeed
        (false, Some(opened_at)) => {
            let outstanding = pass.counts.eligible + pass.counts.in_backoff;
            let succeeded = pool.last(LAST_ROTATION_AT, pass.now).is_some_and(|at| at >= opened_at);
            let missed = outstanding > 0 && !succeeded && pass.hold(&governing.policy).is_none();
            let told = missed.then_some(Announcement::WindowMissed {
                opened_at,
                eligible: pass.counts.eligible,
                in_backoff: pass.counts.in_backoff,
            });
            Some(clear(pass, told.into_iter().collect()))
        }
    }
}

fn clear(pass: &Pass<'_>, announce: Vec<Announcement>) -> Step {
    act("close-window", Write::Patch(pool_patch(pass.world, [(WINDOW_OPENED_AT, None)])), announce)
}
