//! Marks whose value cannot be read, and what is done instead (§8, *Unreadable*): each is told once.

use noderotation_shared::duration;
use noderotation_shared::instant;
use noderotation_shared::keys::{
    DRAINING_AT, FAILED_AT, LAST_FAILURE_AT, LAST_ROTATION_AT, RETRY_COUNT, ROTATE, STARTED_AT, STATE, SURGE_WAIT,
    WINDOW_OPENED_AT,
};

use crate::decide::Pass;
use crate::note::Note;
use crate::world::Meta;

type Readable = fn(&str) -> bool;

fn is_instant(text: &str) -> bool {
    instant::parse(text).is_some()
}

/// Keys of a NodePool, how their values read, and what an unreadable one counts as.
const OF_POOL: [(&str, Readable, &str); 5] = [
    (WINDOW_OPENED_AT, is_instant, "written anew in the window, removed outside"),
    (LAST_ROTATION_AT, is_instant, "no pause runs from it"),
    (LAST_FAILURE_AT, is_instant, "no pause runs from it"),
    (DRAINING_AT, is_instant, "the drain's length is left out"),
    (SURGE_WAIT, |t| duration::parse(t).is_some(), "the surge's length is left out"),
];

/// The same of a NodeClaim.
const OF_CLAIM: [(&str, Readable, &str); 5] = [
    (
        STATE,
        |t| matches!(t, "pending" | "draining" | "failed" | "expired"),
        "counts as pending where anchored, else as none",
    ),
    (STARTED_AT, is_instant, "stamped anew"),
    (FAILED_AT, is_instant, "the claim counts as past its backoff"),
    (RETRY_COUNT, |t| t.parse::<i64>().is_ok_and(|n| n >= 1), "counts as 1"),
    (ROTATE, |t| matches!(t, "now" | "next-window"), "no request; write now or next-window"),
];

/// Notes every unreadable mark of the pool and its claims, and stamps that lie in the future.
pub(crate) fn note(pass: &mut Pass<'_>) {
    let pool = &pass.world.pool;
    let mut found = unreadable("NodePool", &pool.meta, &OF_POOL);
    for key in [LAST_ROTATION_AT, LAST_FAILURE_AT] {
        if pool.meta.marks.instant(key).is_some() && pool.last(key, pass.now).is_none() {
            found.push(one("NodePool", &pool.meta, key, "lies in the future: no pause runs from it"));
        }
    }
    for claim in &pass.world.claims {
        found.extend(unreadable("NodeClaim", &claim.meta, &OF_CLAIM));
    }
    pass.notes.extend(found);
}

fn unreadable(kind: &str, meta: &Meta, keys: &[(&'static str, Readable, &'static str)]) -> Vec<Note> {
    let is_bad = |key: &str, readable: Readable| meta.marks.get(key).is_some_and(|value| !readable(value));
    keys.iter()
        .filter(|(key, readable, _)| is_bad(key, *readable))
        .map(|(key, _, used)| one(kind, meta, key, used))
        .collect()
}

fn one(kind: &str, meta: &Meta, key: &'static str, used: &'static str) -> Note {
    let value = meta.marks.get(key).unwrap_or_default().to_owned();
    Note::Unreadable { object: format!("{kind} {}", meta.name), key, value, used }
}
