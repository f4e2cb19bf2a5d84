//! Annotations of ours whose value cannot be used, and what is done instead (§8, *Unreadable*): each is told once.

use jiff::Timestamp;
use noderotation_shared::keys::{
    self, ACTIVE_ROTATION, DRAINING_AT, FAILED_AT, Format, LAST_FAILURE_AT, LAST_ROTATION_AT, RETRY_COUNT, ROTATE,
    STARTED_AT, STATE, SURGE_CLAIM, SURGE_PATH, SURGE_WAIT, WINDOW_OPENED_AT,
};
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::Meta;

use crate::context::Context;
use crate::patch::{act, cleared_anchor, pool_patch};
use crate::reason::Reason;
use crate::step::Step;

/// Keys of a NodePool, and what is done where the value is malformed.
const OF_POOL: [(&str, &str); 7] = [
    (ACTIVE_ROTATION, "it is removed: no NodeClaim can have this name"),
    (WINDOW_OPENED_AT, "it is written anew in the window, and removed outside"),
    (LAST_ROTATION_AT, "no pause runs from it"),
    (LAST_FAILURE_AT, "no pause runs from it"),
    (DRAINING_AT, "the drain's length is left out"),
    (SURGE_WAIT, "the surge's length is left out"),
    (SURGE_PATH, "the surge's path is left out"),
];

/// The same of a NodeClaim.
const OF_CLAIM: [(&str, &str); 6] = [
    (STATE, "it counts as pending where the claim is anchored, else as absent"),
    (STARTED_AT, "it is stamped anew"),
    (FAILED_AT, "the claim counts as past its backoff"),
    (RETRY_COUNT, "it counts as 1"),
    (SURGE_CLAIM, "nothing is taken back by it: no NodeClaim can have this name"),
    (ROTATE, "it is ignored; write now, next-window or cancel"),
];

/// Reports every malformed annotation of the pool and its claims. An instant that lies ahead is one, too.
pub(crate) fn report(ctx: &mut Context<'_>) {
    let mut found = malformed(Kind::NodePool, &ctx.world.pool.meta, &OF_POOL, ctx.now);
    for claim in &ctx.world.claims {
        found.extend(malformed(Kind::NodeClaim, &claim.meta, &OF_CLAIM, ctx.now));
    }
    ctx.reasons.extend(found);
}

/// Removes an anchor that names nothing.
pub(crate) fn clear_anchor(ctx: &Context<'_>) -> Option<Step> {
    let pool = &ctx.world.pool;
    let is_malformed = pool.meta.annotations.has(ACTIVE_ROTATION) && pool.anchor().is_none();
    (is_malformed && pool.meta.deleted.is_none())
        .then(|| act("clear-anchor", pool_patch(ctx.world, cleared_anchor(ctx.world)), Vec::new()))
}

fn malformed(kind: Kind, meta: &Meta, keys: &[(&'static str, &'static str)], now: Timestamp) -> Vec<Reason> {
    let found = keys.iter().filter_map(|(key, instead)| {
        let (value, format) = (meta.annotations.get(key)?, keys::find(key)?.format);
        let why = if !format.reads(value) {
            "cannot be read"
        } else if format == Format::Instant && meta.annotations.instant(key, now).is_none() {
            "lies in the future"
        } else {
            return None;
        };
        let object = format!("{kind} {}", meta.name);
        Some(Reason::MalformedAnnotation { object, key, value: value.to_owned(), why, instead })
    });
    found.collect()
}
