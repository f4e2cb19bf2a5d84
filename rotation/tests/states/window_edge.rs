//! What became of a window.

use std::sync::Arc;

use jiff::SignedDuration;
use noderotation_rotation::announcement::Announcement;
use noderotation_shared::keys;

use crate::cluster::*;

#[test]
fn a_window_that_closes_with_work_undone_is_told_once() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().ready = false;
    c.run();
    assert_eq!(c.done, ["stamp-window"]);
    c.claims.get_mut("old").unwrap().ready = true;
    c.now = at("2026-12-04T21:00:00Z");
    c.run();
    assert!(
        matches!(c.told.as_slice(), [Announcement::WindowMissed { eligible: 1, in_backoff: 0, .. }]),
        "{:?}",
        c.told
    );
    c.run();
    assert_eq!(c.done, ["stamp-window", "close-window"]);
}

/// A window that is seen closed after this change of the pool: whether it is told as missed.
fn is_missed(change: &dyn Fn(&mut Cluster)) -> bool {
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    change(&mut c);
    c.now = at("2026-12-04T21:00:00Z");
    c.run();
    assert_eq!(c.done, ["close-window"]);
    matches!(c.told.as_slice(), [Announcement::WindowMissed { .. }])
}

/// §8, step 0: a success, nothing outstanding, or a pool that is frozen, suspended, under an older definition, static or under a fatal
/// finding.
#[test]
fn a_window_is_settled_where_nothing_should_have_started() {
    assert!(is_missed(&|_| ()));
    for (what, change) in [
        ("success", &|c: &mut Cluster| c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T18:30:00Z") as ()),
        ("nothing outstanding", &|c| c.claims.get_mut("old").unwrap().ready = false),
        ("frozen", &|c| c.set_pool(keys::FREEZE, "2026-12-05T00:00:00Z")),
        ("freeze unreadable", &|c| c.set_pool(keys::FREEZE, "72h")),
        ("suspended", &|c| Arc::make_mut(&mut c.policy).suspend = true),
        ("an older definition", &|c| c.missing_fields = ["spec.suspend".to_owned()].into()),
        ("static", &|c| c.pool.is_static = true),
        ("fatal finding", &|c| c.pool.expire_after = Some(SignedDuration::from_hours(24))),
    ] as [(&str, &dyn Fn(&mut Cluster)); 8]
    {
        assert!(!is_missed(change), "{what}");
    }
    for (what, change) in [
        ("a pause", &|c: &mut Cluster| c.set_pool(keys::LAST_FAILURE_AT, "2026-12-04T20:55:00Z") as ()),
        ("a claim that drains without an anchor", &|c| c.set_claim("young", keys::STATE, "draining")),
    ] as [(&str, &dyn Fn(&mut Cluster)); 2]
    {
        assert!(is_missed(change), "{what} excuses nothing");
    }
}

/// An attempt that fails behind the window's end waits for its next one when the stamp is judged: work undone as well.
#[test]
fn a_claim_in_its_backoff_is_missed_too() {
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.set_claim("old", keys::STATE, "failed");
    c.set_claim("old", keys::FAILED_AT, "2026-12-04T21:01:00Z");
    c.set_claim("old", keys::RETRY_COUNT, "1");
    c.now = at("2026-12-04T21:05:00Z");
    c.run();
    assert!(
        matches!(c.told.as_slice(), [Announcement::WindowMissed { eligible: 0, in_backoff: 1, .. }]),
        "{:?}",
        c.told
    );
}
