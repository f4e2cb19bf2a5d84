//! From the anchor to the release, and a crash behind any request.

use jiff::SignedDuration;
use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::reason::Reason;
use noderotation_shared::keys;
use noderotation_shared::objects::{RotationMode, SurgePath};

use crate::cluster::*;

const WHOLE_PATH: [&str; 12] = [
    "stamp-window",
    "anchor",
    "pending",
    "protect",
    "placeholder",
    "surge-claim",
    "protect-host",
    "mirror",
    "draining",
    "drain-placeholder",
    "delete-claim",
    "release",
];

#[test]
fn the_path_of_one_rotation() {
    let mut c = Cluster::new(&spec());
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"));
    assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some("provisioned"));
    assert_eq!(c.nodes["node-new"].meta.annotations.get(keys::SURGE_FOR), Some("old"));
    c.after(600).drained("old");
    c.run();
    let mut names = c.done.clone();
    names.retain(|n| *n != "unprotect");
    assert_eq!(names, WHOLE_PATH);
    assert_eq!(c.done.len(), 13, "writes of one rotation: {:?}", c.done);
    c.assert_clean();
    assert_eq!(c.pool.meta.annotations.get(keys::LAST_ROTATION_AT), Some("2026-12-04T18:10:00Z"));
    let Some(Announcement::Completed { mode, surge_path, surge_wait, drain, .. }) = c.told.last() else {
        panic!("{:?}", c.told)
    };
    assert_eq!((*mode, *surge_path), (RotationMode::Surge, Some(SurgePath::Provisioned)));
    assert_eq!((*surge_wait, *drain), (Some(SignedDuration::ZERO), Some(SignedDuration::from_mins(10))));
    // an unchanged world: nothing more to write, and the next look is when time changes something
    let before = c.done.len();
    let decision = c.run();
    assert_eq!(c.done.len(), before);
    assert!(decision.wake_at.is_some_and(|at| at > c.now));
}

/// After a crash behind any request, the next pass goes on; one claim is deleted, everything is told at most once.
#[test]
fn a_crash_after_any_request_loses_nothing() {
    for crash in 0..14 {
        let mut c = Cluster::new(&spec());
        c.pass(crash);
        let told_before = c.told.len();
        c.run();
        if c.claims.get("old").is_some_and(|o| o.meta.deleted.is_some()) {
            c.after(60).drained("old");
        }
        c.pass(crash.max(c.done.len() + 1));
        c.run();
        c.assert_clean();
        assert!(!c.claims.contains_key("old") && c.claims.contains_key("new"), "crash after {crash}");
        let count = |wanted: fn(&Announcement) -> bool| c.told.iter().filter(|a| wanted(a)).count();
        assert_eq!(count(|a| matches!(a, Announcement::Completed { .. })), 1, "crash after {crash}");
        assert_eq!(count(|a| matches!(a, Announcement::DrainStarted { .. })), 1, "crash after {crash}");
        assert_eq!(
            count(|a| matches!(a, Announcement::CandidateSelected { .. })),
            1,
            "crash after {crash} ({told_before} told)"
        );
    }
}

/// A drain may last for the claim's own `terminationGracePeriod` and two minutes, from its deletion, whatever the pool's
/// template says by now and however often somebody looks.
#[test]
fn a_drain_is_stuck_after_the_claims_own_bound() {
    let mut c = Cluster::new(&spec());
    c.run();
    c.pool.termination_grace_period = Some(SignedDuration::from_hours(3));
    let stuck_at = at("2026-12-04T19:02:00.001Z");
    for seconds in [600, 1200] {
        let end = c.after(seconds).run();
        assert_eq!((end.wake_at, end.report.drain_stuck), (Some(stuck_at), false), "{:?}", end.report.reasons);
    }
    c.now = at("2026-12-04T19:02:00Z");
    assert!(!c.run().report.drain_stuck, "its bound has not passed");
    c.now = stuck_at;
    let end = c.run();
    assert!(end.report.drain_stuck);
    let stuck =
        |r: &Reason| matches!(r, Reason::DrainStuck { claim, since, .. } if claim == "old" && *since == at(NOW));
    assert!(end.report.reasons.iter().any(stuck), "{:?}", end.report.reasons);
    assert_eq!(c.pool.anchor(), Some("old"), "what drains keeps its anchor");
}
