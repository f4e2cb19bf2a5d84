//! What holds a drain is told where people look, once for each answer (§13).

use k8s_openapi::api::core::v1::Pod;
use noderotation_rotation::drainable::{Evictee, Remaining};
use noderotation_rotation::event_dedup::{EventDedup, notices};
use noderotation_rotation::event_reason::EventReason;
use noderotation_rotation::pass::PassEnd;
use noderotation_rotation::pod_role::Role;
use noderotation_rotation::reason::Reason;
use noderotation_shared::kind::Kind;
use serde_json::json;

use crate::cluster::*;

/// A Pod that nothing lets go, with this grace period.
fn protected(name: &str, grace: i64) -> Evictee {
    let pod = json!({
        "metadata": {"namespace": "shop", "name": name, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"containers": [], "terminationGracePeriodSeconds": grace},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    Evictee::of(&pod, Role::Moves).unwrap()
}

/// `old` was deleted at 18:00 and has a terminationGracePeriod of one hour; these Pods remain.
fn draining(pods: Vec<Evictee>) -> (Cluster, PassEnd) {
    let mut c = Cluster::new(&spec());
    c.remaining = Remaining { pods, budgets: Vec::new() };
    let end = c.run();
    assert_eq!(c.mark("old", noderotation_shared::keys::STATE).as_deref(), Some("draining"));
    (c, end)
}

fn blocked(end: &PassEnd) -> Option<String> {
    let mut reasons = end.report.reasons.iter();
    reasons.find(|reason| matches!(reason, Reason::DrainBlocked { .. })).map(ToString::to_string)
}

#[test]
fn the_pod_what_to_do_and_the_end_are_told() {
    let (_, end) = draining(vec![protected("db-1", 600), protected("db-0", 600)]);
    assert_eq!(
        blocked(&end).as_deref(),
        Some(
            "the drain of Node node-old (NodeClaim old) is held by Pod shop/db-0 and 1 more: it bears karpenter.sh/do-not-disrupt: \"true\", which has no end; remove that annotation or give it a duration such as 4h. Karpenter deletes the Pod at 2026-12-04T18:50:00Z all the same"
        )
    );
    // its grace period is longer than the claim's: it is deleted as the drain begins
    let (_, end) = draining(vec![protected("db-0", 7200)]);
    assert!(blocked(&end).unwrap().ends_with("at 2026-12-04T18:00:00Z all the same"));
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().termination_grace_period = None;
    c.remaining.pods = vec![protected("db-0", 30)];
    assert!(blocked(&c.run()).unwrap().ends_with("has no terminationGracePeriod, so that nothing else ends this"));
    assert_eq!(blocked(&draining(Vec::new()).1), None);
}

/// After fifteen seconds, then whenever it has taken twice as long.
#[test]
fn the_next_look_comes_ever_later() {
    let (mut c, end) = draining(vec![protected("db-0", 30)]);
    for (seconds, wake_at) in [(0, "18:00:15"), (15, "18:00:30"), (15, "18:01:00"), (210, "18:08:00")] {
        let end = if seconds == 0 { end.clone() } else { c.after(seconds).run() };
        assert_eq!(end.wake_at, Some(at(&format!("2026-12-04T{wake_at}Z"))));
    }
    c.remaining.pods.clear();
    assert_eq!(c.run().wake_at, Some(at("2026-12-04T19:02:00.001Z")), "nothing but the bound is left to wait for");
}

#[test]
fn three_objects_have_the_event_once_for_each_answer() {
    let mut dedup = EventDedup::default();
    let mut told = |end: &PassEnd| -> Vec<_> {
        let noticed = notices(&end.report, "uid-api", |claim| format!("uid-{claim}"));
        let new = dedup.transition("api", noticed).into_iter().filter_map(|notice| notice.event);
        let blocked = new.filter(|event| event.reason == EventReason::DrainBlocked);
        blocked.map(|event| (event.kind, event.name, event.uid)).collect()
    };
    let (mut c, end) = draining(vec![protected("db-0", 30), protected("db-1", 30)]);
    let named = |kind: Kind, name: &str| (kind, name.to_owned(), format!("uid-{name}"));
    let all = [named(Kind::NodePool, "api"), named(Kind::NodeClaim, "old"), named(Kind::Node, "node-old")];
    assert_eq!(told(&end), all);
    assert_eq!(told(&c.after(15).run()), [], "told already");
    c.remaining.pods.pop();
    assert_eq!(told(&c.after(15).run()), [], "another Pod that is not named has left");
    c.remaining.pods = vec![protected("db-2", 30)];
    assert_eq!(told(&c.after(15).run()).len(), 3, "another answer");
    c.remaining.pods.clear();
    assert_eq!(told(&c.after(15).run()), []);
}
