//! Annotations of ours whose value cannot be used, and what is done instead (§8, *Unreadable*): each is told once.

use noderotation_shared::keys::{
    self, DRAINING_AT, FAILED_AT, LAST_FAILURE_AT, LAST_ROTATION_AT, RETRY_COUNT, ROTATE, STARTED_AT, STATE,
    SURGE_WAIT, WINDOW_OPENED_AT,
};
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::Meta;

use crate::context::Context;
use crate::reason::Reason;

/// Keys of a NodePool, and what is done where the value is malformed.
const OF_POOL: [(&str, &str); 5] = [
    (WINDOW_OPENED_AT, "it is written anew in the window, and removed outside"),
    (LAST_ROTATION_AT, "no pause runs from it"),
    (LAST_FAILURE_AT, "no pause runs from it"),
    (DRAINING_AT, "the drain's length is left out"),
    (SURGE_WAIT, "the surge's length is left out"),
];

/// The same of a NodeClaim.
const OF_CLAIM: [(&str, &str); 5] = [
    (STATE, "it counts as pending where the claim is anchored, else as absent"),
    (STARTED_AT, "it is stamped anew"),
    (FAILED_AT, "the claim counts as past its backoff"),
    (RETRY_COUNT, "it counts as 1"),
    (ROTATE, "it is ignored; write now or next-window"),
];

/// Reports every malformed annotation of the pool and its claims, and pauses that would begin in the future.
pub(crate) fn report(ctx: &mut Context<'_>) {
    let pool = &ctx.world.pool;
    let mut found = malformed(Kind::NodePool, &pool.meta, &OF_POOL);
    for key in [LAST_ROTATION_AT, LAST_FAILURE_AT] {
        if pool.meta.annotations.instant(key).is_some() && pool.last(key, ctx.now).is_none() {
            found.push(one(Kind::NodePool, &pool.meta, key, "it lies in the future: no pause runs from it"));
        }
    }
    for claim in &ctx.world.claims {
        found.extend(malformed(Kind::NodeClaim, &claim.meta, &OF_CLAIM));
    }
    ctx.reasons.extend(found);
}

fn malformed(kind: Kind, meta: &Meta, keys: &[(&'static str, &'static str)]) -> Vec<Reason> {
    let reads = |key: &str, value: &str| keys::find(key).is_some_and(|known| known.format.reads(value));
    let is_malformed = |key: &str| meta.annotations.get(key).is_some_and(|value| !reads(key, value));
    keys.iter().filter(|(key, _)| is_malformed(key)).map(|(key, instead)| one(kind, meta, key, instead)).collect()
}

fn one(kind: Kind, meta: &Meta, key: &'static str, instead: &'static str) -> Reason {
    let value = meta.annotations.get(key).unwrap_or_default().to_owned();
    Reason::MalformedAnnotation { object: format!("{kind} {}", meta.name), key, value, instead }
}
