//! What ends a rotation from outside: an expiry, a deleted NodePool, a foreign anchor, governance lost.

use noderotation_rotation::announcement::Announcement;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;

use crate::cluster::*;

#[test]
fn a_foreign_deletion_while_pending_drops_the_placeholder_first() {
    let mut c = Cluster::pending(&spec());
    c.claims.get_mut("old").unwrap().meta.deleted = Some(c.now);
    let before = c.done.len();
    c.after(5).run();
    assert_eq!(
        c.done[before..],
        ["expired-placeholder", "expired-pool", "expired-claim", "unprotect", "expired-anchor"]
    );
    c.assert_clean();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("expired"));
    assert!(matches!(
        c.told.iter().rfind(|a| !matches!(a, Announcement::Unprotected { .. })),
        Some(Announcement::Expired { phase: "pending", .. })
    ));
    assert!(
        !c.pool.meta.annotations.has(keys::LAST_ROTATION_AT) && !c.pool.meta.annotations.has(keys::LAST_FAILURE_AT)
    );
}

#[test]
fn a_pool_that_is_being_deleted_is_not_written() {
    let mut c = Cluster::pending(&spec());
    c.pool.meta.deleted = Some(c.now);
    c.claims.get_mut("old").unwrap().meta.deleted = Some(c.now);
    let pool = c.pool.clone();
    c.after(5).run();
    assert_eq!(c.pool, pool);
    assert!(c.placeholder.is_none());
    c.drained("old");
    c.run();
    assert_eq!(c.pool, pool);
    assert!(!c.told.iter().any(|a| matches!(a, Announcement::Completed { .. })));
}

#[test]
fn an_anchor_to_a_foreign_claim_never_touches_it() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().pool = "other".into();
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    let before = c.claims["old"].clone();
    c.run();
    assert_eq!(c.claims["old"], before);
    assert_eq!(c.pool.anchor(), None);
}

#[test]
fn governance_lost_rolls_back_and_tells_once() {
    for loss in
        [Ungoverned::NoMatch, Ungoverned::Conflict(vec!["a".into(), "b".into()]), Ungoverned::InvalidPolicy("a".into())]
    {
        let mut c = Cluster::pending(&spec());
        let before = c.done.len();
        c.lost = Some(loss);
        c.after(5).run();
        assert_eq!(c.done[before..], ["lost-placeholder", "unprotect", "lost-claim", "lost-anchor"]);
        c.assert_clean();
        assert_eq!(c.mark("old", keys::STATE), None);
        assert!(!c.pool.meta.annotations.has(keys::WINDOW_OPENED_AT));
        assert!(matches!(c.told.last(), Some(Announcement::GovernanceLost { .. })));
        let before = c.done.len();
        c.run();
        assert_eq!(c.done.len(), before);
    }
}

/// The same behind the crossing, as long as nothing is deleted.
#[test]
fn governance_lost_before_the_deletion_rolls_back_too() {
    let mut c = Cluster::new(&spec());
    c.pass(10);
    assert!(c.pool.is_draining() && c.claims["old"].meta.deleted.is_none(), "{:?}", c.done);
    let before = c.done.len();
    c.lost = Some(Ungoverned::NoMatch);
    c.after(5).run();
    assert_eq!(c.done[before..], ["unprotect", "unprotect", "lost-claim", "lost-anchor"]);
    c.assert_clean();
    assert!(c.claims["old"].meta.deleted.is_none());
    assert_eq!(c.mark("old", keys::STATE), None);
    assert!(matches!(c.told.last(), Some(Announcement::GovernanceLost { .. })));
}

/// What is deleted cannot be rolled back: it drains to its end.
#[test]
fn governance_lost_after_the_deletion_leaves_the_drain_alone() {
    let mut c = Cluster::new(&spec());
    c.run();
    assert!(c.claims["old"].meta.deleted.is_some());
    let before = c.done.len();
    c.lost = Some(Ungoverned::NoMatch);
    c.after(5).run();
    assert_eq!(c.done[before..], ["unprotect", "unprotect", "lost-anchor"]);
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"));
}

/// Between two rotations nothing is in flight, but the pool bears the window's stamp, and perhaps what a crash has left.
#[test]
fn governance_lost_between_two_rotations_removes_what_is_left() {
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.set_pool(keys::SURGE_PATH, "absorbed");
    c.set_pool(keys::LAST_ROTATION_AT, "2026-12-03T17:00:00Z");
    c.lost = Some(Ungoverned::NoMatch);
    c.run();
    assert_eq!(c.done, ["forget-window"]);
    c.assert_clean();
    assert!(!c.pool.meta.annotations.has(keys::WINDOW_OPENED_AT));
    assert!(c.pool.meta.annotations.has(keys::LAST_ROTATION_AT), "what has happened stays known");
    c.run();
    assert_eq!(c.done.len(), 1, "an unchanged world is not written");
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.pool.meta.deleted = Some(c.now);
    c.lost = Some(Ungoverned::NoMatch);
    c.run();
    assert_eq!(c.done, [""; 0], "the pool is being deleted");
}

/// The claim of the anchor is gone when governance is lost: the event still says which one it was.
#[test]
fn governance_lost_names_a_claim_that_is_gone() {
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::ACTIVE_ROTATION, "absent");
    c.lost = Some(Ungoverned::NoMatch);
    c.run();
    assert_eq!(c.done, ["lost-anchor"]);
    let [Announcement::GovernanceLost { claim, .. }] = c.told.as_slice() else { panic!("{:?}", c.told) };
    assert_eq!((claim.name.as_str(), claim.uid.as_str()), ("absent", ""));
}
