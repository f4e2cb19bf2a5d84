//! Step 0, the window's edge: what became of an occurrence (§8).

use noderotation_shared::instant;
use noderotation_shared::keys::{LAST_ROTATION_AT, WINDOW_OPENED_AT};

use crate::announcement::Announcement;
use crate::context::Context;
use crate::gates;
use crate::patch::{act, pool_patch};
use crate::step::Step;
use crate::world::GoverningPolicy;

/// Stamps the first in-window pass; judges and clears the stamp on the first out-of-window pass.
pub(crate) fn step(ctx: &mut Context<'_>, governing: &GoverningPolicy) -> Option<Step> {
    let pool = &ctx.world.pool;
    // a pool that is being deleted is not written, and stale caches do not show what was left undone
    if pool.meta.deleted.is_some() || ctx.world.stale {
        return None;
    }
    let stamp = pool.meta.annotations.instant(WINDOW_OPENED_AT, ctx.now);
    let is_open = governing.policy.schedule.open_at(ctx.now).is_some();
    match (is_open, stamp) {
        (true, Some(_)) => None,
        (true, None) => {
            let opened = [(WINDOW_OPENED_AT, Some(instant::format(ctx.now)))];
            Some(act("stamp-window", pool_patch(ctx.world, opened), Vec::new()))
        }
        // unreadable: cleared silently
        (false, None) => pool.meta.annotations.has(WINDOW_OPENED_AT).then(|| clear(ctx, Vec::new())),
        // defer: the rotation in flight may still succeed
        (false, Some(_)) if pool.anchor().is_some() => None,
        (false, Some(opened_at)) => {
            let outstanding = ctx.counts.eligible + ctx.counts.in_backoff;
            let succeeded = pool.meta.annotations.instant(LAST_ROTATION_AT, ctx.now).is_some_and(|at| at >= opened_at);
            let is_settled = outstanding == 0 || succeeded || gates::settle_window(ctx.world, governing, ctx.now);
            let missed = (!is_settled).then_some(Announcement::WindowMissed {
                opened_at,
                eligible: ctx.counts.eligible,
                in_backoff: ctx.counts.in_backoff,
            });
            Some(clear(ctx, missed.into_iter().collect()))
        }
    }
}

fn clear(ctx: &Context<'_>, announce: Vec<Announcement>) -> Step {
    act("close-window", pool_patch(ctx.world, [(WINDOW_OPENED_AT, None)]), announce)
}
