//! Annotations whose value cannot be read, and what is done instead (§8, *Unreadable*): each is told once.

use noderotation_shared::keys::{
    self, DRAINING_AT, FAILED_AT, LAST_FAILURE_AT, LAST_ROTATION_AT, RETRY_COUNT, ROTATE, STARTED_AT, STATE,
    SURGE_WAIT, WINDOW_OPENED_AT,
};

use crate::decide::Pass;
use crate::reason::Reason;
use noderotation_shared::objects::Meta;

/// Keys of a NodePool, and what an unreadable value counts as.
const OF_POOL: [(&str, &str); 5] = [
    (WINDOW_OPENED_AT, "written anew in the window, removed outside"),
    (LAST_ROTATION_AT, "no pause runs from it"),
    (LAST_FAILURE_AT, "no pause runs from it"),
    (DRAINING_AT, "the drain's length is left out"),
    (SURGE_WAIT, "the surge's length is left out"),
];

/// The same of a NodeClaim.
const OF_CLAIM: [(&str, &str); 5] = [
    (STATE, "counts as pending where anchored, else as none"),
    (STARTED_AT, "stamped anew"),
    (FAILED_AT, "the claim counts as past its backoff"),
    (RETRY_COUNT, "counts as 1"),
    (ROTATE, "no request; write now or next-window"),
];

/// Notes every unreadable mark of the pool and its claims, and stamps that lie in the future.
pub(crate) fn note(pass: &mut Pass<'_>) {
    let pool = &pass.world.pool;
    let mut found = unreadable("NodePool", &pool.meta, &OF_POOL);
    for key in [LAST_ROTATION_AT, LAST_FAILURE_AT] {
        if pool.meta.annotations.instant(key).is_some() && pool.last(key, pass.now).is_none() {
            found.push(one("NodePool", &pool.meta, key, "lies in the future: no pause runs from it"));
        }
    }
    for claim in &pass.world.claims {
        found.extend(unreadable("NodeClaim", &claim.meta, &OF_CLAIM));
    }
    pass.notes.extend(found);
}

fn unreadable(kind: &str, meta: &Meta, of: &[(&'static str, &'static str)]) -> Vec<Reason> {
    let reads = |key: &str, value: &str| keys::find(key).is_some_and(|known| known.format.reads(value));
    let is_bad = |key: &str| meta.annotations.get(key).is_some_and(|value| !reads(key, value));
    of.iter().filter(|(key, _)| is_bad(key)).map(|(key, used)| one(kind, meta, key, used)).collect()
}

fn one(kind: &str, meta: &Meta, key: &'static str, used: &'static str) -> Reason {
    let value = meta.annotations.get(key).unwrap_or_default().to_owned();
    Reason::Unreadable { object: format!("{kind} {}", meta.name), key, value, used }
}
