//! `rotate: cancel`, by which an operator calls a rotation off (§7), and what a Node's Events say of its cordon.

use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::reason::Reason;
use noderotation_shared::keys;
use serde_json::json;

use crate::cluster::*;

fn failure(c: &Cluster) -> Option<&str> {
    c.told.iter().find_map(|told| match told {
        Announcement::AttemptFailed { reason, .. } => Some(reason.as_str()),
        _ => None,
    })
}

#[test]
fn a_pending_rotation_is_rolled_back_at_once_and_backs_off() {
    let mut c = Cluster::pending(&spec());
    c.set_claim("old", keys::ROTATE, "cancel");
    let end = c.after(60).run();
    c.assert_clean();
    let order: Vec<_> = c.done.iter().skip_while(|n| **n != "rollback-placeholder").copied().collect();
    assert_eq!(order, ["rollback-placeholder", "unprotect", "failed", "release-failed"]);
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
    assert_eq!(c.mark("old", keys::FAILED_AT).as_deref(), Some("2026-12-04T18:01:00Z"));
    assert_eq!(c.mark("old", keys::ROTATE), None, "it was an act");
    assert_eq!(failure(&c), Some("called off by noderotation.io/rotate: cancel"));
    assert_eq!(end.report.counts.in_backoff, 1);
}

/// A crash behind any request, and the next pass goes on with it.
#[test]
fn a_crash_while_it_is_rolled_back_loses_nothing() {
    for crash in 0..5 {
        let mut c = Cluster::pending(&spec());
        c.set_claim("old", keys::ROTATE, "cancel");
        c.pass(c.done.len() + crash);
        c.run();
        c.assert_clean();
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"), "{crash}");
        assert!(c.claims["old"].meta.deleted.is_none());
    }
}

/// A freeze holds what is pending, but not the word that ends it; nor does a stale view.
#[test]
fn what_holds_a_rotation_does_not_hold_its_end() {
    for hold in [
        &|c: &mut Cluster| c.set_pool(keys::FREEZE, "2026-12-05T00:00:00Z"),
        &|c: &mut Cluster| c.stale = true,
        &|c: &mut Cluster| c.set_claim("old", keys::STARTED_AT, "nonsense"),
    ] as [&dyn Fn(&mut Cluster); 3]
    {
        let mut c = Cluster::pending(&spec());
        c.set_claim("old", keys::ROTATE, "cancel");
        hold(&mut c);
        c.run();
        c.assert_clean();
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
    }
}

/// The crossing has landed and the deletion has not.
#[test]
fn before_the_deletion_it_still_counts() {
    let mut c = Cluster::new(&spec());
    let crossing = 1 + {
        let mut whole = Cluster::new(&spec());
        whole.run();
        whole.done.iter().position(|step| *step == "draining").unwrap()
    };
    assert!(c.pass(crossing).is_none(), "the process dies behind the crossing");
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"));
    c.set_claim("old", keys::ROTATE, "cancel");
    c.run();
    assert!(c.claims["old"].meta.deleted.is_none());
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
    c.assert_clean();
}

/// Without a replacement the Node has lost nothing before its deletion either.
#[test]
fn a_fallback_is_called_off_before_the_deletion() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    let mut c = Cluster::new(&spec);
    // deadline 2026-12-04T19:10Z, t_rot 1h17m
    c.claims.get_mut("old").unwrap().meta.created = at("2026-11-20T19:10:00Z");
    assert!(c.pass(3).is_none(), "the process dies behind the crossing");
    assert_eq!(c.done, ["stamp-window", "anchor", "draining"]);
    c.set_claim("old", keys::ROTATE, "cancel");
    c.run();
    assert!(c.claims["old"].meta.deleted.is_none());
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
    c.assert_clean();
}

#[test]
fn a_drain_cannot_be_called_off_and_that_is_said() {
    let mut c = Cluster::new(&spec());
    c.run();
    c.set_claim("old", keys::ROTATE, "cancel");
    let end = c.run();
    let said: Vec<_> = end.report.reasons.iter().filter(|r| matches!(r, Reason::NotCalledOff { .. })).collect();
    assert_eq!(said[0].to_string(), "the rotation of NodeClaim old cannot be called off: its Node drains already");
    c.after(60).drained("old");
    c.run();
    c.assert_clean();
}

/// It must not wait for a later rotation.
#[test]
fn where_nothing_is_pending_it_is_removed_and_that_is_said() {
    let mut c = Cluster::pending(&spec());
    c.set_claim("young", keys::ROTATE, "cancel");
    c.run();
    assert_eq!(c.mark("young", keys::ROTATE), None);
    let told =
        c.told.iter().filter(|told| matches!(told, Announcement::NothingToCallOff { claim } if claim.name == "young"));
    assert_eq!(told.count(), 1);
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "the other one goes on");
    // neither is one written that is going anyway, nor one of a pool that is
    let mut c = Cluster::pending(&spec());
    c.set_claim("young", keys::ROTATE, "cancel");
    c.claims.get_mut("young").unwrap().meta.deleted = Some(c.now);
    c.run();
    assert_eq!(c.mark("young", keys::ROTATE).as_deref(), Some("cancel"));
    let mut c = Cluster::new(&spec());
    c.set_claim("young", keys::ROTATE, "cancel");
    c.pool.meta.deleted = Some(c.now);
    c.run();
    assert_eq!(c.done, [""; 0]);
}

/// The word came between the failure and its release.
#[test]
fn a_failed_attempt_that_was_called_off_is_not_retried() {
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    for (key, value) in [(keys::STATE, "failed"), (keys::FAILED_AT, "2026-12-04T17:10:00Z"), (keys::ROTATE, "cancel")] {
        c.set_claim("old", key, value);
    }
    c.one_pass(usize::MAX).unwrap();
    assert_eq!(c.done[0], "release-failed");
}

fn cordons(c: &Cluster) -> Vec<(String, String, String, bool)> {
    let told = c.told.iter().filter_map(|told| match told {
        Announcement::Cordoned { node, claim, policy, until, is_again } => {
            assert_eq!(*until, at("2026-12-04T18:15:00Z"));
            Some((node.uid.clone(), claim.name.clone(), policy.clone(), *is_again))
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn a_node_says_who_has_cordoned_it_and_that_an_uncordon_was_undone() {
    let mut c = Cluster::pending(&spec());
    let told = |again| ("uid-node-old".to_owned(), "old".to_owned(), "p".to_owned(), again);
    assert_eq!(cordons(&c), [told(false)]);
    c.nodes.get_mut("node-old").unwrap().unschedulable = false;
    c.run();
    assert!(c.nodes["node-old"].unschedulable);
    assert_eq!(cordons(&c), [told(false), told(true)]);
    // another mark was taken away, and the cordon was not
    c.set_node("node-old", keys::SURGE_FOR, "");
    c.run();
    assert_eq!(cordons(&c).len(), 2);
}

/// An operator had cordoned it before: it is none of ours.
#[test]
fn an_operators_cordon_is_not_told() {
    let mut c = Cluster { provisions: false, ..Cluster::new(&spec()) };
    c.nodes.get_mut("node-old").unwrap().unschedulable = true;
    c.run();
    assert!(c.done.contains(&"protect"));
    assert_eq!(cordons(&c), []);
}
