//! The surge: what is waited for, what holds it, and what a timeout takes back.

use jiff::SignedDuration;
use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::pass::PassEnd;
use noderotation_rotation::reason::Reason;
use noderotation_shared::keys;
use noderotation_shared::objects::{Node, NodeClaim, Taint};

use crate::cluster::*;

#[test]
fn a_freeze_holds_what_is_pending_and_not_what_drains() {
    let mut c = Cluster::pending(&spec());
    c.set_pool(keys::FREEZE, "2026-12-04T23:00:00Z");
    c.provide();
    c.after(10).run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
    assert_eq!(c.mark("old", keys::SURGE_CLAIM).as_deref(), Some("new"), "what was reserved is still recorded");
    // markers go on being asserted
    c.nodes.get_mut("node-old").unwrap().unschedulable = false;
    c.after(10).run();
    assert!(c.nodes["node-old"].unschedulable);
    // it outlasts readyTimeout: a failure
    c.after(900).run();
    c.assert_clean();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
}

/// `suspend: true` may have been dropped.
#[test]
fn what_the_cluster_cannot_store_holds_what_is_pending() {
    let mut c = Cluster::pending(&spec());
    c.missing_fields = ["spec.suspend".to_owned()].into();
    c.provide();
    let end = c.after(10).run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
    let said = end.report.blocked[0].to_string();
    assert!(said.contains("is older than the controller and drops spec.suspend, so that"), "{said}");
    c.missing_fields = [].into();
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"));
}

/// Somebody with break-glass has overwritten the anchor of a claim that drains.
#[test]
fn a_claim_that_drains_without_its_anchor_holds_what_is_pending() {
    let drains = |c: &mut Cluster| {
        c.set_claim("young", keys::STATE, "draining");
        c.claims.get_mut("young").unwrap().meta.deleted = Some(c.now);
    };
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    drains(&mut c);
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    let reasons = c.run().report.reasons;
    assert!(reasons.contains(&Reason::DrainUnanchored("young".into())), "{reasons:?}");
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
    assert!(c.placeholder.is_none(), "nothing is reserved meanwhile");
    c.claims.remove("young");
    c.after(5).run();
    assert!(c.placeholder.is_some(), "it goes on once the other is gone");

    let mut c = Cluster::pending(&spec());
    c.provide();
    drains(&mut c);
    c.after(5).run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "two claims would drain at once");
    c.claims.remove("young");
    c.after(5).run();
    assert!(c.claims["old"].meta.deleted.is_some());
}

/// Every row of `surge::obstacle`, and every state of the placeholder before it: each alone holds the attempt, and is told.
#[test]
fn readiness_is_judged_on_the_host() {
    type Change = fn(&mut Cluster);
    let of_node: [(&str, Change); 6] = [
        ("is not Ready", |c| host(c).ready = false),
        ("is not initialized", |c| host(c).initialized = false),
        ("is unschedulable", |c| host(c).unschedulable = true),
        ("is being disrupted", |c| host(c).disrupted = true),
        ("belongs to another NodePool", |c| host(c).pool = "other".into()),
        ("has the taint spot-itn=soon:NoSchedule, which", |c| host(c).taints = [taint("soon")].into()),
    ];
    let of_others: [(&str, Change); 5] = [
        // a kubelet can label its Node with any pool; the NodeClaim it cannot write
        ("has no NodeClaim of this NodePool that names it", |c| drop(c.claims.remove("new"))),
        ("has no NodeClaim of this NodePool that names it", |c| claim_of_host(c).pool = "other".into()),
        ("has no NodeClaim of this NodePool that names it", |c| claim_of_host(c).node = "node-else".into()),
        ("is Pending", |c| c.placeholder.as_mut().unwrap().phase = "Pending".into()),
        ("candidate's own", |c| c.placeholder.as_mut().unwrap().node = "node-old".into()),
    ];
    let rows = of_node.into_iter().map(|row| (row, true)).chain(of_others.into_iter().map(|row| (row, false)));
    for ((why, change), is_late) in rows {
        let mut c = Cluster::pending(&spec());
        c.provide();
        let (started_at, told, cached) = (c.mark("old", keys::STARTED_AT), c.told.len(), c.world());
        change(&mut c);
        c.after(5);
        // what the watch has not told yet is seen by the live read
        let reasons = if is_late { c.pass_over(cached, usize::MAX).unwrap() } else { c.run() }.report.reasons;
        let is_told = |r: &Reason| matches!(r, Reason::AwaitingSurge { why: told, .. } if told.contains(why));
        assert!(reasons.iter().any(is_told), "{why}: {reasons:?}");
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "{why}: crossed");
        assert_eq!(c.mark("old", keys::STARTED_AT), started_at, "{why}: the attempt began anew");
        assert_eq!(c.told.len(), told, "{why}: {:?}", c.told);
        assert!(c.claims["old"].meta.deleted.is_none(), "{why}");
    }
}

fn taint(value: &str) -> Taint {
    Taint { key: "spot-itn".into(), value: value.into(), effect: "NoSchedule".into() }
}

/// What all nodes of the pool have, the placeholder tolerates, and so do the Pods that must move.
#[test]
fn a_taint_of_the_template_keeps_nothing_away() {
    for (of_template, crosses) in [("soon", true), ("later", false)] {
        let mut c = Cluster::new(&spec());
        c.provisions = false;
        c.pool.taints = vec![taint(of_template)];
        c.run();
        c.provide();
        host(&mut c).taints = [taint("soon")].into();
        c.after(5).run();
        assert_eq!(c.claims["old"].meta.deleted.is_some(), crosses, "{of_template}");
    }
}

/// The placeholder goes where its host goes; another one asks for another node.
#[test]
fn a_host_that_leaves_is_replaced() {
    let leaves: [fn(&mut Cluster); 2] =
        [|c| host(c).meta.deleted = Some(c.now), |c| claim_of_host(c).meta.deleted = Some(c.now)];
    for leave in leaves {
        let mut c = Cluster::pending(&spec());
        c.provide();
        leave(&mut c);
        c.after(5).run();
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "crossed");
        assert_eq!(c.placeholder.as_ref().map(|p| &*p.node), Some(""), "another one, not placed yet: {:?}", c.done);
    }
}

fn host(c: &mut Cluster) -> &mut Node {
    c.nodes.get_mut("node-new").unwrap()
}

fn claim_of_host(c: &mut Cluster) -> &mut NodeClaim {
    c.claims.get_mut("new").unwrap()
}

/// Being unschedulable is how a placeholder asks Karpenter for a node; only one that still is after the time in which a
/// node is expected (5m) is told.
#[test]
fn a_placeholder_without_a_node_is_told_when_it_is_late() {
    let mut c = Cluster::pending(&spec());
    c.placeholder.as_mut().unwrap().unschedulable = Some("0/3 nodes are available".into());
    let told = |d: &PassEnd| d.report.reasons.iter().any(|n| matches!(n, Reason::SurgeUnschedulable { .. }));
    let decision = c.after(10).run();
    assert!(!told(&decision));
    assert_eq!(decision.wake_at, Some(at("2026-12-04T18:05:00Z")));
    assert!(told(&c.after(290).run()));

    // where the attempt ends soon after, half of its time is over first
    let mut spec = spec();
    spec["surge"]["readyTimeout"] = "6m".into();
    let mut c = Cluster::pending(&spec);
    c.placeholder.as_mut().unwrap().unschedulable = Some("0/3 nodes are available".into());
    assert_eq!(c.after(179).run().wake_at, Some(at("2026-12-04T18:03:00Z")));
    assert!(told(&c.after(1).run()));
}

#[test]
fn a_surge_that_never_comes_is_rolled_back() {
    let mut c = Cluster::pending(&spec());
    let note = |d: &PassEnd| d.report.reasons.iter().any(|n| matches!(n, Reason::AwaitingSurge { .. }));
    let decision = c.after(60).run();
    assert!(note(&decision));
    assert_eq!(decision.wake_at, Some(at("2026-12-04T18:15:00.000000001Z")), "exactly when readyTimeout is over");
    // a claim was launched and never registered
    let mut launched = claim("new", "2026-12-04T18:00:02Z");
    launched.node = "".into();
    c.claims.insert("new".into(), launched);
    c.now = at("2026-12-04T18:15:00Z");
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "the timeout is over when it has passed");
    c.now = decision.wake_at.unwrap();
    c.run();
    c.assert_clean();
    assert!(c.claims["new"].meta.deleted.is_some(), "what was launched for us is taken back");
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
    assert_eq!(c.mark("old", keys::RETRY_COUNT).as_deref(), Some("1"));
    assert_eq!((c.mark("old", keys::STARTED_AT), c.mark("old", keys::SURGE_CLAIM)), (None, None));
    assert_eq!(c.pool.meta.annotations.get(keys::LAST_FAILURE_AT), Some("2026-12-04T18:15:00Z"));
    let order: Vec<_> = c.done.iter().skip_while(|n| **n != "rollback-placeholder").copied().collect();
    assert_eq!(order, ["rollback-placeholder", "reap", "unprotect", "failed", "release-failed"]);
    let Some(Announcement::AttemptFailed { retry_count, next_attempt_at, .. }) =
        c.told.iter().find(|a| matches!(a, Announcement::AttemptFailed { .. }))
    else {
        panic!("{:?}", c.told)
    };
    assert_eq!((*retry_count, *next_attempt_at), (1, Some(at("2026-12-04T18:45:00Z"))));
    // and tried again when its backoff is over
    c.claims.remove("new");
    c.provisions = true;
    let decision = c.run();
    assert_eq!(decision.report.counts.in_backoff, 1);
    c.now = at("2026-12-04T18:45:00Z");
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"));
}

#[test]
fn an_absorbed_host_is_told_and_never_reaped() {
    let mut c = Cluster::pending(&spec());
    let placeholder = c.placeholder.as_mut().unwrap();
    placeholder.node = "node-young".into();
    placeholder.phase = "Running".into();
    let mut timed_out = Cluster { told: Vec::new(), done: Vec::new(), ..c };
    timed_out.nodes.get_mut("node-young").unwrap().ready = false;
    timed_out.after(901).run();
    assert!(timed_out.claims["young"].meta.deleted.is_none(), "an older node was reaped");
    timed_out.assert_clean();
}

/// Both instants are in whole seconds: a claim of the attempt's own second may have existed before it (§9.5).
#[test]
fn a_claim_of_the_same_second_counts_as_absorbed_and_is_not_taken_back() {
    let launched = |seconds: i64| {
        let mut c = Cluster::pending(&spec());
        c.provide();
        c.claims.get_mut("new").unwrap().meta.created = at(NOW) + SignedDuration::from_secs(seconds);
        c
    };
    for (seconds, path) in [(-1, "absorbed"), (0, "absorbed"), (1, "provisioned")] {
        let mut c = launched(seconds);
        c.after(5).run();
        assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some(path), "{seconds} s after started-at");
        let mut c = launched(seconds);
        c.nodes.get_mut("node-new").unwrap().ready = false;
        c.after(901).run();
        c.assert_clean();
        assert_eq!(c.claims["new"].meta.deleted.is_some(), path == "provisioned", "{seconds} s after started-at");
    }
}

#[test]
fn a_replacement_on_which_others_run_already_is_not_taken_back() {
    let mut c = Cluster::pending(&spec());
    c.provide();
    c.nodes.get_mut("node-new").unwrap().ready = false;
    c.strangers = vec!["web-0".into()];
    // the pass that ends the attempt; a later one would not look again
    let end = c.after(901).one_pass(usize::MAX).unwrap();
    assert!(c.claims["new"].meta.deleted.is_none(), "{:?}", c.done);
    let told = |r: &&Reason| matches!(r, Reason::NotReaped { claim, why } if claim == "new" && why.contains("web-0"));
    assert_eq!(end.report.reasons.iter().filter(told).count(), 1, "{:?}", end.report.reasons);
    c.run();
    c.assert_clean();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
}

/// Whoever may create Events can name any NodeClaim as the one that Karpenter launched for our placeholder.
#[test]
fn a_replacement_of_another_pool_is_not_taken_back() {
    let mut c = Cluster::pending(&spec());
    let mut named = claim("new", NOW);
    named.meta.created = c.now + SignedDuration::from_secs(1);
    named.pool = "other".into();
    named.node = "".into();
    c.claims.insert("new".into(), named);
    let end = c.after(901).one_pass(usize::MAX).unwrap();
    assert!(c.claims["new"].meta.deleted.is_none(), "{:?}", c.done);
    let told =
        |r: &&Reason| matches!(r, Reason::NotReaped { claim, why } if claim == "new" && why.contains("NodePool other"));
    assert_eq!(end.report.reasons.iter().filter(told).count(), 1, "{:?}", end.report.reasons);
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
}

/// §9.1: the new node is none that is about to go itself; the candidate's own comes first, since the list is cut.
#[test]
fn hosts_that_are_due_themselves_are_avoided() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    // due as well, but later than `old`; of one that has no Node, and of one whose Node has no hostname, nothing is known
    for name in ["also-due", "bare", "nameless"] {
        c.claims.insert(name.into(), claim(name, "2026-11-22T01:00:00Z"));
    }
    c.nodes.insert("node-also-due".into(), node("node-also-due"));
    c.nodes.insert("node-nameless".into(), Node { hostname: "".into(), ..node("node-nameless") });
    c.run();
    let terms = &c.pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let avoided = &terms.as_array().unwrap().last().unwrap()["preference"]["matchExpressions"][0];
    let expected = serde_json::json!(["node-old", "node-also-due"]);
    assert_eq!((&avoided["operator"], &avoided["values"]), (&"NotIn".into(), &expected));
}

/// A placeholder that has ended reserves nothing any more: another one takes its place.
#[test]
fn a_placeholder_that_has_ended_is_replaced() {
    for (phase, is_replaced) in [("Failed", true), ("Succeeded", true), ("Pending", false), ("Running", false)] {
        let mut c = Cluster::pending(&spec());
        c.placeholder.as_mut().unwrap().phase = phase.into();
        let before = c.done.len();
        c.after(5).run();
        let expected: &[&str] = if is_replaced { &["useless-placeholder", "placeholder"] } else { &[] };
        assert_eq!(c.done[before..], *expected, "{phase}");
    }
}

/// A claim that bears an instant and no state is in no attempt, whoever wrote it.
#[test]
fn an_attempt_begins_with_its_state() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.set_pool(keys::WINDOW_OPENED_AT, NOW);
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    c.set_claim("old", keys::STARTED_AT, "2026-12-04T17:59:00Z");
    c.run();
    assert_eq!(c.done.first(), Some(&"pending"));
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
    assert_eq!(c.mark("old", keys::STARTED_AT).as_deref(), Some("2026-12-04T17:59:00Z"), "stamped once per attempt");
}

/// The pool tells of a crossing, the claim of none (yet): a crash in between, which holds for five minutes, or a crossing that
/// came to nothing.
#[test]
fn a_crossing_that_came_to_nothing_is_forgotten() {
    // the attempt began at 18:00:00
    for (draining_at, seconds, is_kept) in [
        ("2026-12-04T18:00:00Z", 300, true),
        ("2026-12-04T18:00:00Z", 301, false),
        ("2026-12-04T18:05:00Z", 600, true),
        ("2026-12-04T18:05:00Z", 601, false),
        ("2026-12-04T17:59:59Z", 10, false),
        ("2026-12-04T18:30:00Z", 10, false),
        ("yesterday", 10, false),
    ] {
        let mut c = Cluster::pending(&spec());
        c.set_pool(keys::ACTIVE_ROTATION_STATE, "draining");
        c.set_pool(keys::DRAINING_AT, draining_at);
        c.set_pool(keys::SURGE_PATH, "absorbed");
        let before = c.done.len();
        c.after(seconds).run();
        let expected: &[&str] = if is_kept { &[] } else { &["forget-crossing"] };
        assert_eq!(c.done[before..], *expected, "{draining_at} after {seconds} s");
        assert_eq!(c.pool.is_draining(), is_kept);
        assert_eq!(c.pool.meta.annotations.has(keys::SURGE_PATH), is_kept);
    }
}
