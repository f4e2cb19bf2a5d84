//! Each of these was found by attacking the controller: what it did wrong once, and must not do again.

use jiff::SignedDuration;
use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::reason::Reason;
use noderotation_shared::blocked::Blocked;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::{Annotations, Placeholder};
use serde_json::json;

use crate::cluster::*;

fn expiries(c: &Cluster) -> usize {
    c.told.iter().filter(|a| matches!(a, Announcement::Expired { .. })).count()
}

/// One pass releases the first claim and anchors the second: what it knew of the first must not count for the second.
#[test]
fn no_claim_is_declared_expired_for_what_is_known_of_another() {
    let mut spec = spec();
    spec["surge"]["cooldownAfter"] = json!("0s");
    let mut c = Cluster::new(&spec);
    c.claims.get_mut("young").unwrap().meta.created = at("2026-11-23T00:00:00Z");
    c.run();
    c.after(60).drained("old");
    c.run();
    assert_eq!(expiries(&c), 0, "{:?}", c.told);
    assert_eq!(c.pool.anchor(), Some("young"));
    assert!(c.claims.contains_key("young"));
    c.after(60);
    // the same after an expiry and after a claim that vanished while pending
    for vanishes in [false, true] {
        let mut c = Cluster::new(&spec);
        c.provisions = false;
        c.claims.get_mut("young").unwrap().meta.created = at("2026-11-23T00:00:00Z");
        c.run();
        assert_eq!(c.pool.anchor(), Some("old"));
        c.claims.get_mut("old").unwrap().meta.deleted = Some(c.now);
        if vanishes {
            c.claims.remove("old");
        }
        c.after(5).run();
        assert_eq!(expiries(&c), 1, "{:?}", c.told);
        assert_eq!(c.pool.anchor(), Some("young"), "{:?}", c.done);
    }
}

/// Two requests for now: one after the other, each told once.
#[test]
fn two_requests_for_now_are_met_one_after_the_other() {
    let mut c = Cluster::new(&spec());
    c.now = at("2026-12-03T12:00:00Z"); // the window is closed
    for claim in ["old", "young"] {
        c.set_claim(claim, keys::ROTATE, "now");
    }
    c.run();
    let first = c.pool.anchor().unwrap().to_owned();
    c.after(60).drained(&first);
    c.run();
    assert_eq!(expiries(&c), 0, "{:?}", c.told);
    let starts = c.told.iter().filter(|a| matches!(a, Announcement::CandidateSelected { .. })).count();
    assert_eq!(starts, 2, "{:?}", c.told);
}

/// Once anchored and released 18 times a pass, for ever.
#[test]
fn a_request_for_now_on_a_failed_claim_passes_the_gates_on_its_retry_and_ends_its_backoff() {
    let mut c = Cluster::new(&spec());
    c.now = at("2026-12-03T12:00:00Z");
    c.set_claim("old", keys::STATE, "failed");
    c.set_claim("old", keys::FAILED_AT, "2026-12-03T11:59:00Z");
    c.set_claim("old", keys::RETRY_COUNT, "3");
    c.set_pool(keys::LAST_FAILURE_AT, "2026-12-03T11:59:00Z");
    assert!(c.decide().step.is_none());
    c.set_claim("old", keys::ROTATE, "now");
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"), "{:?}", c.done);
    assert_eq!(c.done.iter().filter(|step| **step == "anchor").count(), 1);
}

#[test]
fn a_request_that_cannot_be_met_is_answered() {
    let answer = |change: &dyn Fn(&mut Cluster)| {
        let mut c = Cluster::new(&spec());
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        c.set_claim("young", keys::ROTATE, "next-window");
        c.claims.get_mut("old").unwrap().meta.deleted = Some(c.now); // out of the way
        change(&mut c);
        let end = c.run();
        let unmet = end.report.reasons.iter().find_map(|reason| match reason {
            Reason::RequestNotMet { claim, why } => Some((claim.name.clone(), why.clone())),
            _ => None,
        });
        assert_eq!(c.pool.anchor(), None);
        unmet.unwrap_or_else(|| panic!("{:?}", end.report.reasons))
    };
    let (claim, why) = answer(&|c| c.claims.get_mut("young").unwrap().ready = false);
    assert_eq!((claim.as_str(), why.as_str()), ("young", "the NodeClaim or its Node is not Ready"));
    assert!(answer(&|c| c.claims.get_mut("young").unwrap().node = "".into()).1.contains("it has no Node"));
    let opted_out = |c: &mut Cluster| {
        c.nodes.get_mut("node-young").unwrap().meta.annotations = Annotations::of([(keys::DO_NOT_DISRUPT, "true")]);
    };
    assert!(answer(&opted_out).1.contains("do-not-disrupt"));
    assert!(answer(&|c| c.pool.is_static = true).1.contains("static NodePool"));
    assert!(answer(&|c| c.pool.expire_after = Some(SignedDuration::from_hours(24))).1.contains("ANonPositive"));
    assert!(answer(&|c| c.set_pool(keys::FREEZE, "2026-12-05T00:00:00Z")).1.contains("frozen"));
}

/// A year 9000 once wedged the pool: the attempt never timed out.
#[test]
fn an_instant_that_lies_ahead_is_none() {
    const FAR: &str = "9000-01-01T00:00:00Z";
    let mut c = Cluster::pending(&spec());
    c.set_claim("old", keys::STARTED_AT, FAR);
    let end = c.after(10).one_pass(usize::MAX).unwrap();
    assert_eq!(c.mark("old", keys::STARTED_AT).as_deref(), Some("2026-12-04T18:00:10Z"), "stamped anew");
    assert_eq!(end.report.reasons.iter().filter(|r| matches!(r, Reason::MalformedAnnotation { .. })).count(), 1);
    c.set_claim("young", keys::STATE, "failed");
    c.set_claim("young", keys::FAILED_AT, FAR);
    c.set_pool(keys::DRAINING_AT, FAR);
    let malformed = |reason: &Reason| matches!(reason, Reason::MalformedAnnotation { why: "lies in the future", .. });
    assert_eq!(c.decide().reasons.iter().filter(|r| malformed(r)).count(), 2);
    // up to five minutes are the clocks' difference
    let mut c = Cluster::pending(&spec());
    c.set_claim("old", keys::STARTED_AT, "2026-12-04T18:05:00Z");
    c.run();
    assert_eq!(c.mark("old", keys::STARTED_AT).as_deref(), Some("2026-12-04T18:05:00Z"));
    c.set_claim("old", keys::STARTED_AT, "2026-12-04T18:05:01Z");
    c.run();
    assert_eq!(c.mark("old", keys::STARTED_AT).as_deref(), Some("2026-12-04T18:00:00Z"));
}

/// A drain that seems to begin in the future has no negative length.
#[test]
fn a_drain_is_never_shorter_than_nothing() {
    let mut c = Cluster::new(&spec());
    c.run();
    c.set_pool(keys::DRAINING_AT, "2026-12-04T18:04:00Z");
    c.after(60).drained("old");
    c.run();
    let drain = c.told.iter().find_map(|a| match a {
        Announcement::Completed { drain, .. } => Some(*drain),
        _ => None,
    });
    assert_eq!(drain, Some(Some(SignedDuration::ZERO)));
}

#[test]
fn an_anchor_that_can_be_no_name_is_told_once_and_removed() {
    for anchor in ["", "../nodes/x", "Old", "a b", "old/status", "-", &"a".repeat(254)] {
        let mut c = Cluster::new(&spec());
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        c.set_pool(keys::ACTIVE_ROTATION, anchor);
        c.set_pool(keys::ACTIVE_ROTATION_STATE, "draining");
        c.claims.get_mut("old").unwrap().ready = false;
        let end = c.one_pass(usize::MAX).unwrap();
        assert_eq!(c.done, ["clear-anchor"], "{anchor}");
        assert!(!c.pool.meta.annotations.has(keys::ACTIVE_ROTATION) && !c.pool.is_draining());
        let told = |r: &&Reason| matches!(r, Reason::MalformedAnnotation { key: keys::ACTIVE_ROTATION, .. });
        assert_eq!(end.report.reasons.iter().filter(told).count(), 1, "{anchor}");
        assert_eq!(c.told, []);
    }
}

#[test]
fn a_fallback_neither_crosses_a_freeze_nor_goes_by_stale_caches() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    let held = |hold: &dyn Fn(&mut Cluster)| {
        let mut c = Cluster::new(&spec);
        c.claims.get_mut("old").unwrap().meta.created = at("2026-11-20T19:10:00Z");
        c.pass(2); // killed behind the anchor
        assert_eq!(c.done, ["stamp-window", "anchor"]);
        hold(&mut c);
        c.run();
        assert_eq!(c.done, ["stamp-window", "anchor"]);
        assert!(c.claims["old"].meta.deleted.is_none());
    };
    held(&|c| c.set_pool(keys::FREEZE, "2026-12-04T23:00:00Z"));
    held(&|c| c.stale = true);
}

/// The deadline has come too near for a surge while the claim was failed: not a retry with a surge and without a look at
/// the limits, but a fallback of its own.
#[test]
fn a_retry_that_is_too_late_for_a_surge_is_no_retry() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    let mut c = Cluster::new(&spec);
    c.claims.get_mut("old").unwrap().meta.created = at("2026-11-20T19:10:00Z");
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    c.set_claim("old", keys::STATE, "failed");
    c.set_claim("old", keys::FAILED_AT, "2026-12-04T17:10:00Z");
    c.run();
    assert_eq!(c.done, ["release-failed", "anchor", "retry", "draining", "delete-claim"]);
    assert!(c.pool.is_fallback());
}

/// With short headroom nothing starts; but where the fallback is wanted, time alone changes that.
#[test]
fn short_headroom_wakes_when_the_fallback_may_go() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    let mut c = Cluster::new(&spec);
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.claims.get_mut("old").unwrap().meta.created = at("2026-11-20T20:00:00Z");
    c.pool.limits = cpu("8500m");
    let end = c.run();
    // deadline 20:00, t_rot = 15m + 1h + 2m
    assert_eq!(end.wake_at, Some(at("2026-12-04T18:43:00.000000001Z")), "{:?}", end.report.reasons);
    c.now = end.wake_at.unwrap();
    c.run();
    assert!(c.pool.is_fallback());
}

#[test]
fn governance_lost_takes_the_request_with_it() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.set_claim("old", keys::ROTATE, "now");
    c.run();
    c.lost = Some(Ungoverned::NoMatch);
    c.run();
    assert_eq!(c.mark("old", keys::ROTATE), None);
}

/// The other pool's rotation of that claim goes on untouched.
#[test]
fn a_foreign_anchor_leaves_the_other_pools_rotation_alone() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().pool = "other".into();
    let mut meta = meta(&noderotation_rotation::placeholder::name("old"), NOW);
    meta.annotations = Annotations::of([(keys::SURGE_FOR, "old")]);
    c.placeholder = Some(Placeholder { meta, pool: "other".into(), ..Placeholder::default() });
    let marked = [(keys::SURGE_FOR, "old"), (keys::DO_NOT_DISRUPT, "true"), (keys::DO_NOT_DISRUPT_OWNED, "true")];
    c.nodes.get_mut("node-old").unwrap().meta.annotations = Annotations::of(marked);
    c.claims.get_mut("young").unwrap().ready = false;
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    let (placeholder, nodes) = (c.placeholder.clone(), c.nodes.clone());
    c.one_pass(usize::MAX).unwrap();
    assert_eq!((c.placeholder.clone(), c.nodes.clone()), (placeholder, nodes));
    assert_eq!(c.pool.anchor(), None);
}

#[test]
fn a_pool_that_is_being_deleted_gets_no_placeholder() {
    let mut c = Cluster::new(&spec());
    c.pass(3); // anchor and claim are written
    assert_eq!(c.done, ["stamp-window", "anchor", "pending"]);
    c.pool.meta.deleted = Some(c.now);
    c.run();
    assert_eq!(c.done.len(), 3, "{:?}", c.done);
}

/// The controller died between the crossing and the deletion, and comes back much later: nothing is deleted blindly.
#[test]
fn a_long_outage_never_ends_in_a_blind_deletion() {
    for crash in 8..=10 {
        let mut c = crossed(crash);
        c.after(301);
        c.nodes.remove("node-new");
        c.claims.remove("new");
        c.placeholder = None;
        c.provisions = false;
        c.run();
        assert!(c.claims["old"].meta.deleted.is_none(), "deleted without a replacement after a crash at {crash}");
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "{:?}", c.done);
        assert!(!c.pool.is_draining() && c.placeholder.is_some());
        // and when a replacement comes, all goes on
        c.provide();
        c.after(5).run();
        assert!(c.claims["old"].meta.deleted.is_some(), "{:?}", c.done);
        c.after(60).drained("old");
        c.run();
        c.assert_clean();
        assert!(matches!(c.told.last(), Some(Announcement::Completed { .. })));
    }
}

/// Within the five minutes the recorded host decides, read live.
#[test]
fn a_host_that_is_no_longer_ready_is_judged_before_the_deletion() {
    let mut c = crossed(10);
    c.provisions = false;
    c.nodes.get_mut("node-new").unwrap().ready = false;
    c.after(5).run();
    assert!(c.claims["old"].meta.deleted.is_none());
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
    let mut c = crossed(10);
    c.after(299).run();
    assert!(c.claims["old"].meta.deleted.is_some(), "still ready and recent: the deletion that the crash left out");
    assert_eq!(c.told.iter().filter(|a| matches!(a, Announcement::SurgeReady { .. })).count(), 1);
}

/// A conflict of policies began to roll back a rotation whose surge was judged a moment ago; the controller died in the
/// middle of that, and comes back when the conflict is over. The host was given up meanwhile: anybody may have filled it.
#[test]
fn a_rollback_that_was_cut_short_does_not_go_on_as_a_drain() {
    let mut c = crossed(10);
    c.lost = Some(Ungoverned::Conflict(vec!["a".into(), "b".into()]));
    c.pass(c.done.len() + 2);
    assert_eq!(c.done[c.done.len() - 2..], ["unprotect", "unprotect"], "the candidate and its host");
    c.lost = None;
    let before = c.done.len();
    c.after(60).run();
    assert_eq!(c.done[before], "back-to-pending", "{:?}", c.done);
    let crossed_again = c.done[before..].iter().position(|what| *what == "delete-claim").unwrap();
    let judged = c.done[before..].iter().position(|what| *what == "placeholder").unwrap();
    assert!(judged < crossed_again, "deleted after a new judgement only: {:?}", c.done);
    c.after(60).drained("old");
    c.run();
    c.assert_clean();
    assert!(matches!(c.told.last(), Some(Announcement::Completed { .. })));
}

/// A rotation that was killed after so many requests, the crossing among them.
fn crossed(requests: usize) -> Cluster {
    let mut c = Cluster::new(&spec());
    c.pass(requests);
    assert!(c.pool.is_draining() && c.claims["old"].meta.deleted.is_none(), "{:?}", c.done);
    c
}

/// What an early decision of a pass noticed is reported although a later one took a step.
#[test]
fn what_any_decision_of_a_pass_noticed_is_reported() {
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.pool.limits = cpu("9"); // 1 is left for the placeholder, the candidate itself has 4
    let end = c.one_pass(usize::MAX).unwrap();
    assert_eq!(c.pool.anchor(), Some("old"));
    assert!(end.report.reasons.iter().any(|r| matches!(r, Reason::HeadroomTight { .. })), "{:?}", end.report.reasons);
    // an unreadable freeze is told while a rotation is pending, too
    let mut c = Cluster::pending(&spec());
    c.set_pool(keys::FREEZE, "tomorrow");
    let end = c.after(5).run();
    assert!(
        end.report.reasons.contains(&Reason::Blocked(Blocked::FreezeUnreadable("tomorrow".into()))),
        "{:?}",
        end.report.reasons
    );
}

/// The controller dies behind each request of an expiry, and the claim is gone when the next one looks: told once.
#[test]
fn an_expiry_is_told_once_whenever_the_claim_goes() {
    for crash in 5..=10 {
        for crossed in [false, true] {
            let mut c = Cluster::pending(&spec());
            if crossed {
                c.set_pool(keys::ACTIVE_ROTATION_STATE, "draining");
                c.set_pool(keys::DRAINING_AT, NOW);
            }
            c.claims.get_mut("old").unwrap().meta.deleted = Some(c.now);
            c.after(5).pass(crash);
            c.claims.remove("old");
            c.claims.get_mut("young").unwrap().ready = false;
            c.run();
            let completed = c.told.iter().filter(|a| matches!(a, Announcement::Completed { .. })).count();
            // a crossing that was overtaken before anything was written of it counts as a success, by agreement
            let agreed = usize::from(crossed && expiries(&c) == 0);
            assert_eq!((expiries(&c), completed), (1 - agreed, agreed), "crash after {crash}: {:?}", c.done);
            c.assert_clean();
        }
    }
}
