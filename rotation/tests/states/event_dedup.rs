//! How each reason is told (§11): an Event on the object that somebody can do something about, a line in the log, or nothing.

use std::collections::BTreeSet;

use noderotation_rotation::announcement::ClaimId;
use noderotation_rotation::event_dedup::{EventAbout, EventDedup, Notice, notices};
use noderotation_rotation::event_reason::EventReason;
use noderotation_rotation::reason::Reason;
use noderotation_rotation::report::PoolReport;
use noderotation_shared::blocked::{Blocked, BlockedReason};
use noderotation_shared::feasibility::{Code, Finding};
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::kind::Kind;
use strum::VariantNames as _;

use crate::cluster::*;

fn old() -> ClaimId {
    ClaimId { name: "old".into(), uid: "uid-old".into() }
}

/// The report of a pass that ended well, with these reasons in place of its own.
fn report(reasons: Vec<Reason>) -> PoolReport {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    PoolReport { reasons, findings: Vec::new(), blocked: Vec::new(), ..c.run().report }
}

fn told(report: &PoolReport) -> Vec<Notice> {
    notices(report, "uid-api", |claim| format!("uid-{claim}"))
}

/// The Event's reason, and the kind, name and UID of its object.
type Event = (EventReason, Kind, &'static str, &'static str);

#[test]
fn each_reason_is_told_where_it_belongs() {
    let on_pool = |reason| Some((reason, Kind::NodePool, "api", "uid-api"));
    let on_claim = |reason| Some((reason, Kind::NodeClaim, "old", "uid-old"));
    let text = || "x".to_owned();
    let events: Vec<(Reason, &str, Option<Event>)> = vec![
        (
            Reason::InsufficientHeadroom {
                claim: old(),
                resource: text(),
                wanted: text(),
                remaining: text(),
                limit: text(),
            },
            "InsufficientHeadroom",
            on_pool(EventReason::InsufficientHeadroom),
        ),
        (
            Reason::HeadroomTight { claim: old(), resource: text(), capacity: text(), remaining: text() },
            "HeadroomTight",
            on_pool(EventReason::InsufficientHeadroom),
        ),
        (
            Reason::DrainStuck { claim: text(), since: at(NOW), bound: jiff::SignedDuration::from_hours(1) },
            "DrainStuck",
            on_pool(EventReason::DrainStuck),
        ),
        (
            Reason::SurgeZoneConflict { claim: old(), message: text() },
            "SurgeZoneConflict/old",
            on_claim(EventReason::SurgeZoneConflict),
        ),
        (
            Reason::Undrainable { claim: old(), pod: text(), why: text(), remedy: "x" },
            "Undrainable/old",
            on_claim(EventReason::Undrainable),
        ),
        (
            Reason::BudgetsUnreadable { claim: old(), why: text() },
            "BudgetsUnreadable/old",
            on_claim(EventReason::BudgetsUnreadable),
        ),
        (
            Reason::RequestNotMet { claim: old(), why: text() },
            "RequestNotMet/old",
            on_claim(EventReason::RequestNotMet),
        ),
        (Reason::NotCalledOff { claim: old(), why: text() }, "NotCalledOff/old", on_claim(EventReason::RequestNotMet)),
        (
            Reason::SurgeUnschedulable { claim: old(), message: text() },
            "SurgeUnschedulable/old",
            on_claim(EventReason::SurgeUnschedulable),
        ),
        (
            Reason::MalformedAnnotation {
                object: "NodeClaim old".into(),
                key: "noderotation.io/state",
                value: text(),
                why: "x",
                instead: "x",
            },
            "malformed NodeClaim old noderotation.io/state",
            None,
        ),
        (Reason::NotReaped { claim: text(), why: text() }, "NotReaped", None),
        (Reason::ForeignAnchor { claim: text(), pool: text() }, "ForeignAnchor", None),
    ];
    // what the status and the metrics show, and no Event of its own
    let silent = vec![
        Reason::Ungoverned(Ungoverned::NoMatch),
        Reason::PoolDeleting,
        Reason::StaleView,
        Reason::Blocked(Blocked::Suspended),
        Reason::WindowClosed { opens: None },
        Reason::Cooldown { until: at(NOW) },
        Reason::FailurePause { until: at(NOW) },
        Reason::DrainUnanchored(text()),
        Reason::NoCandidate,
        Reason::NothingToMove { claim: text(), until: at(NOW) },
        Reason::AwaitingSurge { claim: text(), why: text(), until: at(NOW) },
        Reason::Draining { claim: text(), since: at(NOW) },
    ];
    let tried: BTreeSet<&str> = events.iter().map(|(reason, ..)| reason).chain(&silent).map(Reason::name).collect();
    let mut all: BTreeSet<&str> = Reason::VARIANTS.iter().copied().collect();
    assert!(all.remove("DrainBlocked"), "it has three Events: drain_blocked.rs");
    assert_eq!(tried, all, "every reason is in this test");
    for (reason, topic, event) in events {
        let event =
            event.map(|(reason, kind, name, uid)| EventAbout { reason, kind, name: name.into(), uid: uid.into() });
        let expected = Notice { topic: topic.into(), text: reason.to_string(), is_warning: true, event };
        assert_eq!(told(&report(vec![reason])), [expected]);
    }
    for reason in silent {
        assert_eq!(told(&report(vec![reason.clone()])), [], "{reason}");
    }
}

#[test]
fn findings_and_short_leads_are_events() {
    let mut report = report(Vec::new());
    let finding = Finding { code: Code::RotationSpansNextWindow, message: "too short".into() };
    report.findings = vec![finding];
    report.counts.short_lead = vec!["old".into()];
    let events: Vec<_> = told(&report)
        .into_iter()
        .map(|notice| (notice.topic, notice.is_warning, notice.event.map(|e| (e.reason, e.kind, e.name, e.uid))))
        .collect();
    let gap = EventReason::Finding(Code::RotationSpansNextWindow);
    let lead = EventReason::ShortLead;
    assert_eq!(
        events,
        [
            (gap.to_string(), true, Some((gap, Kind::NodePool, "api".into(), "uid-api".into()))),
            (format!("{lead}/old"), true, Some((lead, Kind::NodeClaim, "old".into(), "uid-old".into()))),
        ]
    );
}

/// §6.1: one Event for each, a Warning unless the operator has wanted it. A fatal finding is told as that finding.
#[test]
fn whatever_blocks_a_pool_is_an_event_on_it() {
    let one = || vec!["p".to_owned()];
    let all = [
        Blocked::InvalidPolicy("p".into()),
        Blocked::PolicyConflict(one()),
        Blocked::Unselected("p".into()),
        Blocked::OldSchema(one()),
        Blocked::StaticNodePool,
        Blocked::FatalFinding(vec![Code::NoWindows], "x".into()),
        Blocked::NeverDue,
        Blocked::NoWindowAhead(None),
        Blocked::Suspended,
        Blocked::Frozen(at(NOW)),
        Blocked::FreezeUnreadable("x".into()),
        Blocked::LimitsExhausted("cpu".into(), noderotation_shared::quantity::Quantity::whole(0)),
    ];
    assert_eq!(all.iter().map(Blocked::reason).collect::<Vec<_>>(), BlockedReason::all());
    for blocked in all {
        let report = PoolReport { blocked: vec![blocked.clone()], ..report(Vec::new()) };
        let word = blocked.word();
        let reason = EventReason::Blocked(blocked.reason());
        let event = EventAbout { reason, kind: Kind::NodePool, name: "api".into(), uid: "uid-api".into() };
        let is_warning = !["Suspended", "Frozen"].contains(&word);
        let expected = Notice { topic: word.into(), text: blocked.to_string(), is_warning, event: Some(event) };
        let expected = if word == "FatalFinding" { vec![] } else { vec![expected] };
        assert_eq!(told(&report), expected);
    }
}

/// A finding counts nodes, and a freeze may be prolonged: neither is news while it stands.
#[test]
fn what_stands_is_told_once() {
    let finding = |message: &str| {
        let found = Finding { code: Code::ThroughputBelowArrival, message: message.into() };
        told(&PoolReport { findings: vec![found], ..report(Vec::new()) })
    };
    let frozen = |until: &str| told(&PoolReport { blocked: vec![Blocked::Frozen(at(until))], ..report(Vec::new()) });
    let mut dedup = EventDedup::default();
    assert_eq!(dedup.transition("api", finding("10 nodes")), finding("10 nodes"));
    assert_eq!(dedup.transition("api", finding("11 nodes")), []);
    assert_eq!(dedup.transition("api", frozen("2026-12-05T00:00:00Z")), frozen("2026-12-05T00:00:00Z"));
    assert_eq!(dedup.transition("api", frozen("2026-12-06T00:00:00Z")), []);
    assert_eq!(dedup.transition("api", finding("11 nodes")), finding("11 nodes"), "it was gone in between");
    // of others, another text is another notice
    let short = |claim: &str| {
        let reason =
            Reason::DrainStuck { claim: claim.into(), since: at(NOW), bound: jiff::SignedDuration::from_hours(1) };
        told(&report(vec![reason]))
    };
    assert_eq!(dedup.transition("api", short("a")), short("a"));
    assert_eq!(dedup.transition("api", short("b")), short("b"));
}

/// While nothing is in flight, the log says why, and nobody is warned of it.
#[test]
fn why_nothing_starts_is_a_line_in_the_log() {
    let mut report = report(vec![Reason::Cooldown { until: at(NOW) }, Reason::NoCandidate]);
    assert_eq!(told(&report), [], "a rotation is in flight");
    report.in_progress = false;
    let counts = report.counts.to_string();
    let line = Notice {
        topic: "no rotation candidate".into(),
        text: format!(
            "the cooldown after the last rotation lasts until 2026-12-04T18:00:00Z; no NodeClaim is eligible ({counts})"
        ),
        is_warning: false,
        event: None,
    };
    assert_eq!(told(&report), [line]);
    report.governance = Err(Ungoverned::NoMatch);
    assert_eq!(told(&report), [], "nobody wants it to rotate");
}
