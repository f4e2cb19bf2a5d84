//! Claims whose drain nothing would ever end (§9.7).

use noderotation_rotation::drainable::Obstacle;
use noderotation_rotation::reason::Reason;
use noderotation_shared::keys;
use noderotation_shared::objects::Annotations;
use serde_json::json;

use crate::cluster::*;

/// Both claims are due, `old` first, and a Pod on the Node of `old` would never leave.
fn held() -> Cluster {
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.claims.get_mut("young").unwrap().meta.created = at("2026-11-23T00:00:00Z");
    c.never_drains("old");
    c
}

/// The first pass: its reasons that name `old`.
fn said_of_old(c: &mut Cluster) -> Vec<Reason> {
    let names_old = |reason: &Reason| reason.to_string().contains("NodeClaim old ");
    c.one_pass(usize::MAX).unwrap().report.reasons.into_iter().filter(names_old).collect()
}

#[test]
fn a_claim_that_would_never_drain_is_passed_over_and_the_next_one_goes() {
    let mut c = held();
    let said = said_of_old(&mut c);
    assert!(
        matches!(said.as_slice(), [Reason::Undrainable { claim, pod, .. }] if claim.name == "old" && pod == "shop/db-0"),
        "{said:?}"
    );
    assert_eq!(
        said[0].to_string(),
        "NodeClaim old has no terminationGracePeriod, and Pod shop/db-0 would hold its drain for ever: \
         PodDisruptionBudget shop/db allows no disruption; let it allow one, or set \
         spec.template.spec.terminationGracePeriod on the NodePool for new nodes"
    );
    assert_eq!(c.pool.anchor(), Some("young"));
    assert_eq!(c.claims["old"].meta.annotations, Annotations::default(), "untouched");
    assert_eq!(
        (c.nodes["node-old"].unschedulable, &c.nodes["node-old"].meta.annotations),
        (false, &Annotations::default())
    );
}

#[test]
fn alone_it_is_the_reason_why_nothing_starts() {
    let mut c = held();
    c.claims.remove("young");
    let end = c.run();
    let names: Vec<_> = end.report.reasons.iter().map(Reason::name).collect();
    assert_eq!((names.as_slice(), c.done.len()), (["Undrainable"].as_slice(), 0), "{:?}", end.report.reasons);
}

#[test]
fn with_a_grace_period_it_goes_whatever_holds_its_pods() {
    let mut c = held();
    c.claims.get_mut("old").unwrap().termination_grace_period = Some(jiff::SignedDuration::from_hours(1));
    c.run();
    assert_eq!((c.pool.anchor(), c.mark("old", keys::STATE).as_deref()), (Some("old"), Some("draining")));
}

#[test]
fn without_the_right_to_judge_it_does_not_go_and_others_do() {
    let mut c = held();
    c.obstacles.insert("old", Obstacle::BudgetsUnreadable("forbidden".into()));
    let said = said_of_old(&mut c);
    assert!(matches!(said.as_slice(), [Reason::BudgetsUnreadable { .. }]), "{said:?}");
    let text = said[0].to_string();
    assert!(text.contains("grant") && text.contains("list on poddisruptionbudgets.policy"), "{text}");
    assert_eq!(c.pool.anchor(), Some("young"));
}

#[test]
fn a_request_for_it_is_answered() {
    let mut c = held();
    c.set_claim("old", keys::ROTATE, "now");
    let said = said_of_old(&mut c);
    let [Reason::RequestNotMet { claim, why }, undrainable @ Reason::Undrainable { .. }] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!((claim.name.as_str(), why), ("old", &undrainable.to_string()));
    assert_eq!(c.pool.anchor(), Some("young"));
}

/// The same holds for everything else that keeps one claim alone from going.
#[test]
fn a_request_without_room_is_answered() {
    let unmet = |change: &dyn Fn(&mut Cluster)| {
        let mut c = held();
        c.set_claim("young", keys::ROTATE, "next-window");
        change(&mut c);
        let reasons = c.one_pass(usize::MAX).unwrap().report.reasons;
        assert_eq!(c.pool.anchor(), None);
        reasons.into_iter().find_map(|reason| match reason {
            Reason::RequestNotMet { claim, why } if claim.name == "young" => Some(why),
            _ => None,
        })
    };
    let zones = vec![("v1".into(), vec!["a".into()]), ("v2".into(), vec!["b".into()])];
    assert!(unmet(&|c| c.load.volume_zones.clone_from(&zones)).unwrap().contains("v1"));
    assert!(unmet(&|c| c.pool.limits = cpu("8500m")).unwrap().contains("only 500m is left"));
}

/// Without a grace period nothing is forceful about the fallback: the node would be left half drained all the same.
#[test]
fn the_forceful_fallback_does_not_take_it_either() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    let late = || {
        let mut c = Cluster::new(&spec);
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        // deadline 2026-12-04T19:10Z, t_rot 1h17m
        c.claims.get_mut("old").unwrap().meta.created = at("2026-11-20T19:10:00Z");
        c.never_drains("old");
        c
    };
    let mut c = late();
    let said = said_of_old(&mut c);
    assert!(matches!(said.as_slice(), [Reason::Undrainable { .. }]), "{said:?}");
    assert_eq!(c.done, Vec::<&str>::new());
    // with nothing in the way it goes, grace period or not
    let mut c = late();
    c.obstacles.clear();
    c.run();
    assert_eq!(c.done, ["anchor", "draining", "delete-claim"]);
    assert!(c.pool.is_fallback());
}

/// A pass takes more such claims than it has steps.
#[test]
fn a_long_row_of_them_does_not_hide_the_one_that_can_go() {
    let names: Vec<&'static str> = (0..100).map(|n| &*format!("held-{n}").leak()).collect();
    let mut c = held();
    for name in &names {
        c.claims.insert((*name).into(), claim(name, "2026-11-22T00:00:00Z"));
        c.nodes.insert(format!("node-{name}"), node(&format!("node-{name}")));
        c.never_drains(name);
    }
    let told = c.one_pass(usize::MAX).unwrap().report.reasons;
    assert_eq!(told.iter().filter(|reason| matches!(reason, Reason::Undrainable { .. })).count(), 101);
    assert_eq!(c.pool.anchor(), Some("young"));
}
