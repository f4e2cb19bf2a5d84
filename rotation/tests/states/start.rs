//! The gates, the pick and the room.

use jiff::SignedDuration;
use noderotation_rotation::reason::Reason;
use noderotation_shared::blocked::Blocked;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::Annotations;
use noderotation_shared::quantity::Quantity;

use crate::cluster::*;

#[test]
fn each_gate_shuts_and_says_so() {
    let notes = |change: &dyn Fn(&mut Cluster)| {
        let mut c = Cluster::new(&spec());
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        change(&mut c);
        let decision = c.run();
        assert_eq!(c.done, Vec::<&str>::new(), "{:?}", decision.report.reasons);
        (decision.report.reasons, decision.wake_at.map(|t| t.to_string()))
    };
    let (n, wake) = notes(&|c| c.set_pool(keys::FREEZE, "2026-12-04T19:30:00Z"));
    assert_eq!(
        (n, wake.as_deref()),
        (vec![Reason::Blocked(Blocked::Frozen(at("2026-12-04T19:30:00Z")))], Some("2026-12-04T19:30:00Z"))
    );
    // one that ends this very instant holds nothing and wakes nobody
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().ready = false;
    c.set_pool(keys::FREEZE, NOW);
    assert!(c.run().wake_at.unwrap() > c.now);
    let (n, _) = notes(&|c| c.set_pool(keys::FREEZE, "72h"));
    assert_eq!(n, [Reason::Blocked(Blocked::FreezeUnreadable("72h".into()))]);
    let (n, wake) = notes(&|c| c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T17:55:00Z"));
    assert_eq!(
        (n, wake.as_deref()),
        (vec![Reason::Cooldown { until: at("2026-12-04T18:05:00Z") }], Some("2026-12-04T18:05:00Z"))
    );
    let (n, _) = notes(&|c| c.set_pool(keys::LAST_FAILURE_AT, "2026-12-04T17:55:00Z"));
    assert_eq!(n, [Reason::FailurePause { until: at("2026-12-04T18:05:00Z") }]);
    assert_eq!(notes(&|c| c.pool.is_static = true).0, [Reason::Blocked(Blocked::StaticNodePool)]);
    assert_eq!(notes(&|c| c.stale = true).0, [Reason::StaleView]);
    assert_eq!(notes(&|c| c.pool.meta.deleted = Some(c.now)).0, [Reason::PoolDeleting]);
    assert_eq!(notes(&|c| c.set_claim("young", keys::STATE, "draining")).0, [Reason::DrainUnanchored("young".into())]);
    let (n, _) = notes(&|c| c.pool.expire_after = Some(SignedDuration::from_hours(24)));
    assert!(
        matches!(n.as_slice(), [Reason::Blocked(Blocked::FatalFinding(codes, _))] if codes[0].name() == "ANonPositive"),
        "{n:?}"
    );
    let (n, wake) = notes(&|c| {
        c.pool.meta.annotations = Annotations::default();
        c.now = at("2026-12-04T16:59:59Z");
    });
    assert_eq!(n, [Reason::WindowClosed { opens: Some(at("2026-12-04T17:00:00Z")) }]);
    assert_eq!(wake.as_deref(), Some("2026-12-04T17:00:00Z"), "the next look is at the opening itself");
    let (n, _) = notes(&|c| {
        c.pool.limits = cpu("8500m");
    });
    assert!(
        matches!(n.as_slice(), [Reason::InsufficientHeadroom { wanted, remaining, .. }] if wanted == "1" && remaining == "500m"),
        "{n:?}"
    );
    let (n, _) = notes(&|c| {
        c.claims.get_mut("old").unwrap().ready = false;
    });
    assert_eq!(n, [Reason::NoCandidate]);
    // a stamp from the future, or unreadable, holds nothing
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T18:06:00Z");
    c.set_pool(keys::LAST_FAILURE_AT, "yesterday");
    c.set_claim("young", keys::ROTATE, "today");
    let told: Vec<String> = c
        .decide()
        .reasons
        .iter()
        .filter(|n| matches!(n, Reason::MalformedAnnotation { .. }))
        .map(ToString::to_string)
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].contains("last-rotation-at")
            && told[0].contains("lies in the future")
            && told[1].contains("last-failure-at holds \"yesterday\"")
            && told[2].contains("\"today\""),
        "{told:?}"
    );
    c.run();
    assert_eq!(c.pool.anchor(), Some("old"));
}

/// §9.4: a replacement needs one more of the nodes that a limit counts.
#[test]
fn a_full_node_pool_starts_nothing() {
    let limited = |nodes: i64| {
        let mut c = Cluster::new(&spec());
        c.pool.limits.0.insert("nodes".into(), Quantity::whole(nodes));
        let end = c.run();
        (c.pool.anchor().is_some(), end.report.reasons)
    };
    let (is_anchored, reasons) = limited(2);
    assert!(!is_anchored);
    assert!(
        matches!(reasons.as_slice(), [Reason::InsufficientHeadroom { resource, wanted, remaining, limit, .. }]
            if resource == "nodes" && wanted == "1" && remaining == "0" && limit == "2"),
        "{reasons:?}"
    );
    assert!(limited(3).0, "one more fits");
}

#[test]
fn a_request_for_now_skips_window_and_pauses_but_no_freeze() {
    let mut c = Cluster::new(&spec());
    c.now = at("2026-12-03T12:00:00Z"); // closed
    c.set_pool(keys::LAST_ROTATION_AT, "2026-12-03T11:59:00Z");
    c.set_claim("young", keys::ROTATE, "now");
    c.claims.get_mut("young").unwrap().meta.created = at("2026-12-03T00:00:00Z");
    c.set_pool(keys::FREEZE, "2026-12-03T13:00:00Z");
    assert!(c.decide().step.is_none());
    c.now = at("2026-12-03T13:00:00Z");
    c.run();
    assert_eq!(c.pool.anchor(), Some("young"));
}

#[test]
fn two_volumes_in_two_zones_are_refused_and_another_claim_goes() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("young").unwrap().meta.created = at("2026-11-23T00:00:00Z");
    c.load.volume_zones = vec![("v1".into(), vec!["a".into()]), ("v2".into(), vec!["b".into()])];
    let decision = c.run();
    let conflicts = decision.report.reasons.iter().filter(|n| matches!(n, Reason::SurgeZoneConflict { .. })).count();
    assert_eq!((conflicts, c.done.as_slice()), (2, ["stamp-window"].as_slice()));
}

/// At the instant for which a pass asked to be woken, the gate is open: not a moment later.
#[test]
fn a_pause_is_over_at_its_end() {
    for key in [keys::LAST_ROTATION_AT, keys::LAST_FAILURE_AT] {
        let mut c = Cluster::new(&spec());
        c.set_pool(key, "2026-12-04T17:55:00Z");
        let end = c.run();
        assert_eq!((c.pool.anchor(), end.wake_at), (None, Some(at("2026-12-04T18:05:00Z"))), "{key}");
        c.now = end.wake_at.unwrap();
        c.run();
        assert_eq!(c.pool.anchor(), Some("old"), "{key}");
    }
}

/// §9.4: what the limits leave, by resource; each limit alone can be short, and one that is exact is enough.
#[test]
fn headroom_is_judged_by_each_limited_resource() {
    // two claims of 4 CPUs each; the placeholder requests 1
    for (limits, expected) in [
        ("cpu=9", "tight: cpu"),
        ("cpu=8999m", "short: cpu wanted 1 remaining 999m limit 8999m"),
        ("cpu=11999m", "tight: cpu"),
        ("cpu=12", "enough"),
        ("memory=1", "enough"),
        ("nodes=3", "enough"),
        ("nodes=2", "short: nodes wanted 1 remaining 0 limit 2"),
        ("cpu=9,nodes=2", "short: nodes wanted 1 remaining 0 limit 2"),
        ("cpu=12,memory=0,nodes=3", "enough"),
    ] {
        let mut c = Cluster::new(&spec());
        c.provisions = false;
        c.pool.limits = limits
            .split(',')
            .map(|limit| limit.split_once('=').unwrap())
            .map(|(name, amount)| (name.to_owned(), Quantity::parse(amount).unwrap()))
            .collect();
        let reasons = c.one_pass(usize::MAX).unwrap().report.reasons;
        let found = reasons.iter().find_map(|reason| match reason {
            Reason::InsufficientHeadroom { resource, wanted, remaining, limit, .. } => {
                Some(format!("short: {resource} wanted {wanted} remaining {remaining} limit {limit}"))
            }
            Reason::HeadroomTight { resource, capacity, .. } if capacity == "4" => Some(format!("tight: {resource}")),
            _ => None,
        });
        assert_eq!(found.as_deref().unwrap_or("enough"), expected, "{limits}");
        assert_eq!(c.placeholder.is_some(), !expected.starts_with("short"), "{limits}");
    }
    // what is being deleted takes no room any more
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.pool.limits = cpu("8");
    c.claims.get_mut("young").unwrap().meta.deleted = Some(c.now);
    c.run();
    assert!(c.placeholder.is_some());
}

#[test]
fn why_claims_are_not_eligible_is_counted() {
    let mut c = Cluster::new(&spec());
    for name in ["young", "younger"] {
        let mut unready = claim(name, "2026-12-04T00:00:00Z");
        unready.ready = false;
        c.claims.insert(name.into(), unready);
    }
    c.claims.get_mut("old").unwrap().ready = false;
    let counts = c.run().report.counts;
    let ineligible: Vec<_> = counts.ineligible.iter().map(|(why, count)| (format!("{why:?}"), *count)).collect();
    assert_eq!((counts.eligible, counts.in_backoff), (0, 0));
    let expected = [("NotDue", 2), ("NotReady", 3), ("NoNode", 1)].map(|(why, count)| (why.to_owned(), count));
    assert_eq!(ineligible, expected);
}

/// §6.1: what keeps a pool from being rotated is in every report, whether a start is tried or not.
#[test]
fn what_blocks_a_pool_is_reported() {
    let words = |change: &dyn Fn(&mut Cluster)| {
        let mut c = Cluster::new(&spec());
        c.provisions = false;
        change(&mut c);
        c.one_pass(0).map_or_else(Vec::new, |end| end.report.blocked.iter().map(Blocked::word).collect())
    };
    let calm = |c: &mut Cluster| {
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        c.claims.get_mut("old").unwrap().ready = false;
    };
    assert_eq!(words(&calm), [""; 0]);
    let blocked = |change: &dyn Fn(&mut Cluster)| words(&|c| [&calm, change].iter().for_each(|change| change(c)));
    assert_eq!(blocked(&|c| c.pool.is_static = true), ["StaticNodePool"]);
    assert_eq!(blocked(&|c| c.missing_fields = ["spec.suspend".to_owned()].into()), ["OldSchema"]);
    assert_eq!(blocked(&|c| c.set_pool(keys::FREEZE, "2026-12-05T00:00:00Z")), ["Frozen"]);
    // by the template no node expires, but one of before does
    assert_eq!(blocked(&|c| c.pool.expire_after = None), [""; 0]);
    let never = |c: &mut Cluster| {
        c.pool.expire_after = None;
        c.claims.values_mut().for_each(|claim| claim.expire_after = None);
    };
    assert_eq!(blocked(&never), ["NeverDue"]);
    assert_eq!(blocked(&|c| c.pool.limits = cpu("8")), ["LimitsExhausted"]);
    assert_eq!(blocked(&|c| c.pool.limits = cpu("9")), [""; 0]);
    let in_flight = |c: &mut Cluster| {
        c.pool.limits = cpu("8");
        c.set_pool(keys::ACTIVE_ROTATION, "young");
        c.set_claim("young", keys::STATE, "draining");
        c.claims.get_mut("young").unwrap().meta.deleted = Some(c.now);
    };
    assert_eq!(blocked(&in_flight), [""; 0], "a rotation holds a node more than usual");
    for (lost, word) in [
        (Ungoverned::Conflict(vec!["a".into()]), "PolicyConflict"),
        (Ungoverned::InvalidPolicy("a".into()), "InvalidPolicy"),
        (Ungoverned::OnlyTemplate("a".into()), "Unselected"),
    ] {
        let mut c = Cluster::new(&spec());
        c.lost = Some(lost);
        assert_eq!(c.run().report.blocked.iter().map(Blocked::word).collect::<Vec<_>>(), [word]);
    }
}
