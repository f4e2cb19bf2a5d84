//! Properties of windows, selection and feasibility that hold for every input, and the examples of the specification.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::feasibility::{self, Cadence, Code, PoolFacts};
use noderotation_shared::instant::plus;
use noderotation_shared::policy::Policy;
use noderotation_shared::schedule::{Clock, Day, Entry, Exclusion, Measures, Moment, Schedule};
use noderotation_shared::selection::{self, Candidate, Ineligible, RotateRequest, RotationState, latest_chance};
use noderotation_shared::zone;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Time zones with clock changes at night, at midnight, by half an hour, by two hours, on a Friday, and without any.
const ZONES: [&str; 9] = [
    "UTC",
    "Asia/Tokyo",
    "Europe/Berlin",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Africa/Cairo",
    "America/New_York",
    "Asia/Beirut",
];
const DAYS: [Day; 7] = [Day::Mon, Day::Tue, Day::Wed, Day::Thu, Day::Fri, Day::Sat, Day::Sun];
const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

#[derive(Clone, Debug)]
struct Window {
    zone: usize,
    days: u8,
    start: u16,
    end: u16,
}

impl Window {
    fn days(&self) -> Vec<Day> {
        DAYS.into_iter().filter(|d| self.days & (1 << d.index()) != 0).collect()
    }

    fn entry(&self) -> Entry {
        Entry::new(zone::find(ZONES[self.zone]).unwrap(), &self.days(), clock(self.start), clock(self.end))
    }

    fn json(&self) -> Value {
        let days: Vec<&str> = (0..7).filter(|d| self.days & (1 << d) != 0).map(|d| NAMES[d]).collect();
        json!({"timezone": ZONES[self.zone], "days": days, "start": text(self.start), "end": text(self.end)})
    }
}

fn text(minutes: u16) -> String {
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn clock(minutes: u16) -> Clock {
    Clock::parse(&text(minutes)).unwrap()
}

fn window() -> impl Strategy<Value = Window> {
    (0..ZONES.len(), 1u8..128, 0u16..1440, 0u16..=1440)
        .prop_filter("start and end differ", |(_, _, start, end)| start != end)
        .prop_map(|(zone, days, start, end)| Window { zone, days, start, end })
}

fn instant() -> impl Strategy<Value = Timestamp> {
    // 2026 to 2030
    (1_767_225_600i64..1_893_456_000).prop_map(|s| Timestamp::from_second(s).unwrap())
}

fn exclusion(from: Timestamp, hours: i64) -> Exclusion {
    let at = |t: Timestamp| t.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let moment = |t| Moment::DateTime(at(t));
    Exclusion::new(
        String::new(),
        &jiff::tz::TimeZone::UTC,
        moment(from),
        moment(plus(from, SignedDuration::from_hours(hours))),
    )
    .unwrap()
}

/// Entries of three zones that together never close: one occurrence without an opening and without an end, wherever one
/// looks from, and `P` as for any window that is always open.
#[test]
fn zones_that_cover_the_week_together_are_always_open() {
    let windows = [
        Window { zone: 3, days: 62, start: 303, end: 140 },
        Window { zone: 2, days: 99, start: 242, end: 51 },
        Window { zone: 1, days: 95, start: 0, end: 1083 },
    ];
    let schedule = Schedule::new(windows.iter().map(Window::entry).collect(), &[]);
    for from in ["2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z", "2026-06-08T05:00:00Z", "2027-07-13T05:00:00Z"] {
        let seen: Vec<_> = schedule.recurring(at(from)).take(2).map(|o| (o.opening(), o.closing())).collect();
        assert_eq!(seen, [(None, None)], "{from}");
        assert_eq!(schedule.next_edge(at(from)), None, "{from}");
    }
    assert_eq!(schedule.measures(at("2026-01-01T00:00:00Z")), noderotation_shared::schedule::Measures::Always);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Occurrences are half-open, ordered, not empty, and do not touch.
    #[test]
    fn occurrences_are_ordered_and_apart(windows in prop::collection::vec(window(), 1..5), from in instant()) {
        let schedule = Schedule::new(windows.iter().map(Window::entry).collect(), &[]);
        let all: Vec<_> = schedule.recurring(from).take(60).collect();
        prop_assert!(!all.is_empty());
        for o in &all {
            prop_assert!(o.open < o.close);
            prop_assert!(o.contains(o.open) && !o.contains(o.close));
            prop_assert!(o.close > from);
        }
        for pair in all.windows(2) {
            prop_assert!(pair[0].close < pair[1].open, "{pair:?}");
        }
    }

    /// At every instant the union is open if and only if one of its entries is.
    #[test]
    fn the_union_is_the_or_of_its_entries(windows in prop::collection::vec(window(), 1..5), from in instant(), minutes in prop::collection::vec(0i64..20_160, 20)) {
        let schedule = Schedule::new(windows.iter().map(Window::entry).collect(), &[]);
        for minute in minutes {
            let at = plus(from, SignedDuration::from_mins(minute));
            let any = windows.iter().map(Window::entry).any(|entry| {
                let today = entry.local_date(at);
                (-3..=1).any(|n| {
                    let date = today.checked_add(jiff::Span::new().days(n)).unwrap();
                    entry.on(date).is_some_and(|o| o.contains(at))
                })
            });
            prop_assert_eq!(schedule.open_at(at).is_some(), any, "{}", at);
        }
    }

    /// An entry opens once on every matching local date, at its start unless that local time does not exist.
    #[test]
    fn one_opening_for_each_matching_date(window in window(), from in instant()) {
        let entry = window.entry();
        let mut date = entry.local_date(from);
        let mut last = None;
        for _ in 0..60 {
            let weekday = DAYS[usize::try_from(date.weekday().to_monday_zero_offset()).unwrap()];
            let opened = entry.on(date);
            prop_assert_eq!(opened.is_some(), entry.opens_on(weekday));
            if let Some(o) = opened {
                prop_assert!(last.is_none_or(|last| o.open > last));
                last = Some(o.open);
                let local = o.open.to_zoned(entry.zone().clone()).datetime();
                let late = local.duration_since(date.at(0, 0, 0, 0)) - SignedDuration::from_mins(i64::from(window.start));
                prop_assert!(late.is_zero() || (late.is_positive() && late <= SignedDuration::from_hours(2)), "{late:?}");
            }
            date = date.tomorrow().unwrap();
        }
    }

    /// The occurrences do not depend on the instant from which they are listed.
    #[test]
    fn the_starting_point_is_irrelevant(windows in prop::collection::vec(window(), 1..4), from in instant(), later in 0i64..40_000) {
        let schedule = Schedule::new(windows.iter().map(Window::entry).collect(), &[]);
        let at = plus(from, SignedDuration::from_mins(later));
        let seen: Vec<_> = schedule.recurring(from).skip_while(|o| o.close <= at).take(5).collect();
        let direct: Vec<_> = schedule.recurring(at).take(5).collect();
        prop_assert_eq!(seen, direct);
    }

    /// At every instant the window is open if and only if it recurs then and no exclusion covers it; `next_edge` is where
    /// that changes.
    #[test]
    fn exclusions_close_the_window(windows in prop::collection::vec(window(), 1..4), from in instant(), cuts in prop::collection::vec((0i64..600, 1i64..100), 1..4), minutes in prop::collection::vec(0i64..40_000, 30)) {
        let exclusions: Vec<_> = cuts.iter().map(|(after, hours)| exclusion(plus(from, SignedDuration::from_hours(*after)), *hours)).collect();
        let schedule = Schedule::new(windows.iter().map(Window::entry).collect(), &exclusions);
        for minute in minutes {
            let at = plus(from, SignedDuration::from_mins(minute));
            let excluded = exclusions.iter().any(|e| e.span.contains(at));
            let recurring = schedule.recurring(at).next().is_some_and(|o| o.contains(at));
            prop_assert_eq!(schedule.open_at(at).is_some(), recurring && !excluded, "{}", at);
            if let Some(edge) = schedule.next_edge(at) {
                prop_assert!(edge > at);
                let just_before = edge.checked_sub(SignedDuration::from_nanos(1)).unwrap();
                prop_assert_eq!(schedule.open_at(just_before).is_some(), schedule.open_at(at).is_some());
                prop_assert_ne!(schedule.open_at(edge).is_some(), schedule.open_at(at).is_some());
            }
        }
    }

    /// `L` satisfies its definition: enough chances from `L` on, too few one nanosecond later.
    #[test]
    fn l_is_the_latest_instant_with_enough_chances(windows in prop::collection::vec(window(), 1..3), end in instant(), k in 1i64..4, cut in prop::option::of((0i64..500, 1i64..200))) {
        let created = end.checked_sub(SignedDuration::from_hours(24 * 21)).unwrap();
        let exclusions: Vec<_> = cut.iter().map(|(before, hours)| exclusion(end.checked_sub(SignedDuration::from_hours(*before)).unwrap(), *hours)).collect();
        let schedule = Schedule::new(windows.iter().map(Window::entry).collect(), &exclusions);
        let p = schedule.measures(end).p();
        let offered = |at: Timestamp| -> i64 {
            schedule.occurrences(at).take_while(|o| o.open < end).map(|o| {
                let close = o.close.min(end);
                let floor = |from: Timestamp| i64::try_from(close.duration_since(from).as_nanos() / p.as_nanos()).unwrap();
                if o.open >= at { floor(o.open).max(1) } else { floor(at) }
            }).sum()
        };
        match latest_chance(&schedule, p, k, created, end) {
            Some(l) => {
                prop_assert!(l >= created && l < end);
                prop_assert!(offered(l) >= k, "{} at {l}", offered(l));
                prop_assert!(offered(plus(l, SignedDuration::from_nanos(1))) < k, "{l} is not the latest");
            }
            None => prop_assert!(offered(created) < k, "{} at creation", offered(created)),
        }
    }

    /// `P`, `D` and `gap` are those of the list of a year's occurrences.
    #[test]
    fn measures_are_those_of_a_years_list(windows in prop::collection::vec(window(), 1..3), now in instant()) {
        let schedule = Schedule::new(windows.iter().map(Window::entry).collect(), &[]);
        let Measures::Recurring(period) = schedule.measures(now) else { return Ok(()) };
        let monday = {
            let date = jiff::tz::TimeZone::UTC.to_datetime(now).date();
            let since = date.weekday().to_monday_zero_offset();
            date.checked_sub(jiff::Span::new().days(i64::from(since))).unwrap().to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp()
        };
        let end = plus(monday, SignedDuration::from_hours(24 * 365));
        let all: Vec<_> = schedule.recurring(monday).take_while(|o| o.open < end).filter(|o| o.open >= monday).collect();
        prop_assert_eq!(period.p, all.windows(2).map(|w| w[1].open.duration_since(w[0].open)).max().unwrap());
        prop_assert_eq!(period.d, all.iter().map(noderotation_shared::schedule::Occurrence::length).min().unwrap());
        prop_assert_eq!(period.gap, all.windows(2).map(|w| w[1].open.duration_since(w[0].close)).min().unwrap());
    }

    /// No number makes anything panic; without clock changes and exclusions, `L` is never earlier than the formula.
    #[test]
    fn saturation_at_both_ends(e in any::<i64>(), tgp in any::<i64>(), k in 1i32.., claims in 0i64.., timeout in 1u64..=99_999_999, created in any::<i64>(), now in instant()) {
        let spec = json!({
            "nodePoolSelector": {}, "minRotationChances": k,
            "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
            "surge": {"readyTimeout": format!("{timeout}s"), "retryBackoff": "99999h", "cooldownAfter": "99999h"},
        });
        let policy = Policy::from_json(&spec).unwrap();
        let cadence = Cadence::of(&policy, now);
        let facts = PoolFacts { expire_after: Some(SignedDuration::from_nanos(e)), termination_grace_period: Some(SignedDuration::from_nanos(tgp)), is_auto_mode: true, claims };
        let _ = feasibility::derive(&policy, &cadence, &facts);
        let _ = feasibility::findings(&policy, &cadence, &facts, []);
        let candidate = Candidate {
            name: "c", created: Timestamp::from_second(created.rem_euclid(500_000_000_000) - 250_000_000_000).unwrap(),
            expire_after: facts.expire_after, termination_grace_period: facts.termination_grace_period,
            ready: true, disrupting: false, deleting: false, state: RotationState::Failed, failed_at: Some(now), retry_count: claims,
            request: None, node: None,
        };
        let eligibilities = selection::assess(&policy, &cadence, &candidate, now);
        let _ = selection::ineligible(&candidate, &eligibilities);
        let _ = selection::next_attempt_at(&policy, now, claims);
    }

    /// Any JSON yields a policy or problems, and every problem has a path, a reason and a suggestion.
    #[test]
    fn any_json_is_bearable(windows in prop::collection::vec(window(), 0..3), mangle in 0usize..40, junk in "\\PC{0,12}") {
        let mut spec = json!({"nodePoolSelector": {"matchLabels": {"a": "b"}}, "maintenanceWindows": windows.iter().map(Window::json).collect::<Vec<_>>(), "surge": {"readyTimeout": "5m"}});
        let junks = [Value::Null, json!(junk), json!(7), json!([]), json!({}), json!([junk]), json!({junk.clone(): 1}), json!(true)];
        let junk = junks[mangle % junks.len()].clone();
        match mangle / junks.len() {
            0 => spec = junk,
            1 => spec["nodePoolSelector"] = junk,
            2 => spec["maintenanceWindows"] = junk,
            3 => spec["surge"] = junk,
            _ => spec["ageThreshold"] = junk,
        }
        if let Err(problems) = Policy::from_json(&spec) {
            prop_assert!(!problems.0.is_empty());
            for p in &problems.0 {
                prop_assert!(p.path.starts_with("spec") && !p.why.is_empty() && !p.instead.is_empty(), "{p}");
            }
        }
    }
}

fn policy(extra: &Value) -> Policy {
    let mut spec = json!({
        "nodePoolSelector": {},
        "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    Policy::from_json(&spec).unwrap()
}

fn candidate(created: &str) -> Candidate<'static> {
    Candidate {
        name: "c",
        created: created.parse().unwrap(),
        expire_after: Some(SignedDuration::from_hours(14 * 24)),
        termination_grace_period: Some(SignedDuration::from_hours(1)),
        ready: true,
        disrupting: false,
        deleting: false,
        state: RotationState::Empty,
        failed_at: None,
        retry_count: 0,
        request: None,
        node: Some(selection::NodeFacts { ready: true, disrupted: false, opted_out: false }),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

// §6's worked example.
#[test]
fn the_worked_example() {
    let policy = policy(&json!({}));
    let cadence = Cadence::of(&policy, at("2026-11-29T00:00:00Z"));
    let facts = PoolFacts {
        expire_after: Some(SignedDuration::from_hours(336)),
        termination_grace_period: Some(SignedDuration::from_hours(1)),
        claims: 10,
        is_auto_mode: true,
    };
    let d = feasibility::derive(&policy, &cadence, &facts);
    let hm = |h: i64, m: i64| SignedDuration::from_mins(h * 60 + m);
    assert_eq!((d.window_period, d.window_length, d.window_gap), (hm(96, 0), Some(hm(4, 0)), Some(hm(68, 0))));
    assert_eq!(
        (d.rotation_bound, d.age_threshold, d.rotation_estimate, d.starts_per_window, d.guaranteed_chances),
        (hm(1, 17), Some(hm(142, 43)), hm(0, 15), 10, 2)
    );
    assert!(feasibility::findings(&policy, &cadence, &facts, []).is_empty());
    let saturday = self::policy(
        &json!({"maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Sat"], "start": "02:00", "end": "06:00"}]}),
    );
    let cadence = Cadence::of(&saturday, at("2026-11-29T00:00:00Z"));
    assert_eq!(cadence.measures.p(), hm(168, 0));
    let found: Vec<_> = feasibility::findings(&saturday, &cadence, &facts, []).iter().map(|f| f.code.name()).collect();
    assert_eq!(found, ["ANonPositive"]);
}

/// Only EKS Auto Mode limits how long a node may live, to 21 days with its drain.
#[test]
fn the_hard_cap_is_one_of_eks_auto_mode() {
    let policy = policy(&json!({}));
    let cadence = Cadence::of(&policy, at("2026-11-29T00:00:00Z"));
    let is_found = |hours: i64, is_auto_mode: bool| {
        let facts = PoolFacts {
            expire_after: Some(SignedDuration::from_hours(hours)),
            termination_grace_period: Some(SignedDuration::from_hours(24)),
            claims: 1,
            is_auto_mode,
        };
        let found = feasibility::findings(&policy, &cadence, &facts, []);
        found.iter().any(|finding| finding.code.name() == "HardCapExceeded")
    };
    for (hours, expected) in [(336, false), (480, false), (481, true), (720, true)] {
        assert_eq!((is_found(hours, true), is_found(hours, false)), (expected, false), "{hours}h");
    }
    let pool = |group: &str| {
        let spec = json!({"template": {"spec": {"nodeClassRef": {"group": group, "kind": "x", "name": "default"}}}});
        let proposed =
            noderotation_shared::admission::ProposedNodePool::read(&json!({"spec": spec}), at("2026-11-29T00:00:00Z"));
        let hours = |d: Option<SignedDuration>| d.map(|d| d.as_hours());
        (
            hours(proposed.facts.expire_after),
            hours(proposed.facts.termination_grace_period),
            proposed.facts.is_auto_mode,
        )
    };
    assert_eq!(pool("eks.amazonaws.com"), (Some(336), Some(24), true));
    assert_eq!(pool("karpenter.k8s.aws"), (Some(720), None, false));
}

/// Who writes 23:59 means midnight: it is said so, and a rotation that spans the one minute is no finding.
#[test]
fn a_day_but_for_its_last_minute_is_a_whole_one() {
    let facts = PoolFacts {
        expire_after: Some(SignedDuration::from_hours(336)),
        termination_grace_period: Some(SignedDuration::from_hours(1)),
        claims: 1,
        is_auto_mode: false,
    };
    let judged = |start: &str, end: &str| {
        let all = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let window = json!({"timezone": "UTC", "days": all, "start": start, "end": end});
        let policy = policy(&json!({"maintenanceWindows": [window]}));
        let cadence = Cadence::of(&policy, at("2026-11-29T00:00:00Z"));
        let warnings: Vec<String> = policy.warnings.iter().map(ToString::to_string).collect();
        let found = feasibility::findings(&policy, &cadence, &facts, []);
        (warnings, found.iter().map(|finding| finding.code.name()).collect::<Vec<_>>())
    };
    let warning = "spec.maintenanceWindows[0].end: found \"23:59\": closes the window for one minute before midnight; write \"24:00\" for the whole day";
    assert_eq!(judged("00:00", "23:59"), (vec![warning.to_owned()], vec![]));
    assert_eq!(judged("00:00", "24:00"), (vec![], vec![]));
    assert_eq!(judged("00:00", "23:58"), (vec![], vec!["RotationSpansNextWindow"]));
    assert_eq!(judged("00:01", "23:59"), (vec![], vec!["RotationSpansNextWindow"]), "an end of its own");
}

/// §6: the drain may go on behind the window by as much as it is longer.
#[test]
fn a_drain_that_may_outlast_its_window_is_told() {
    let judged = |tgp: Option<i64>, end: &str| {
        let window = json!({"timezone": "UTC", "days": ["Mon", "Thu"], "start": "02:00", "end": end});
        let policy = policy(&json!({"maintenanceWindows": [window]}));
        let facts = PoolFacts {
            expire_after: Some(SignedDuration::from_hours(720)),
            termination_grace_period: tgp.map(SignedDuration::from_hours),
            claims: 1,
            is_auto_mode: false,
        };
        let found = feasibility::findings(&policy, &Cadence::of(&policy, at("2026-11-29T00:00:00Z")), &facts, []);
        let mut outlasting = found.into_iter().filter(|finding| finding.code == Code::DrainMayOutlastWindow);
        outlasting.next().map(|finding| finding.message)
    };
    let told = judged(Some(48), "05:00").unwrap();
    assert!(told.starts_with("terminationGracePeriod 2d is longer than the window of 3h: "), "{told}");
    assert_eq!((judged(Some(3), "05:00"), judged(Some(4), "05:00").is_some()), (None, true));
    assert_eq!(judged(None, "05:00"), None, "that it is unset is a finding of its own");
}

// §5.1's table.
#[test]
fn the_table_of_clock_changes() {
    for (days, start, end, zone, around, open, close) in [
        ("Sun", "23:00", "02:00", "Asia/Tokyo", "2026-12-05T15:30:00Z", "2026-12-06T14:00:00Z", "2026-12-06T17:00:00Z"),
        (
            "Sun",
            "02:30",
            "03:30",
            "Europe/Berlin",
            "2027-03-27T12:00:00Z",
            "2027-03-28T01:30:00Z",
            "2027-03-28T02:30:00Z",
        ),
        (
            "Sun",
            "02:10",
            "02:50",
            "Europe/Berlin",
            "2027-03-27T12:00:00Z",
            "2027-03-28T01:10:00Z",
            "2027-03-28T01:50:00Z",
        ),
        (
            "Sun",
            "00:00",
            "00:30",
            "America/Santiago",
            "2027-09-04T12:00:00Z",
            "2027-09-05T04:00:00Z",
            "2027-09-05T04:30:00Z",
        ),
        (
            "Sun",
            "02:00",
            "02:30",
            "Europe/Berlin",
            "2027-10-30T12:00:00Z",
            "2027-10-31T00:00:00Z",
            "2027-10-31T00:30:00Z",
        ),
        ("Mon", "23:55", "00:10", "UTC", "2026-11-29T12:00:00Z", "2026-11-30T23:55:00Z", "2026-12-01T00:10:00Z"),
    ] {
        let policy =
            policy(&json!({"maintenanceWindows": [{"timezone": zone, "days": [days], "start": start, "end": end}]}));
        assert!(policy.schedule.open_at(at(around)).is_none(), "{zone} {start}");
        let o = policy.schedule.next_opening(at(around)).unwrap();
        assert_eq!((o.open, o.close), (at(open), at(close)), "{zone} {start}");
        let second = SignedDuration::from_secs(1);
        let open_at = |t: Timestamp| policy.schedule.open_at(t).is_some();
        assert!(
            !open_at(o.open - second) && open_at(o.open) && open_at(o.close - second) && !open_at(o.close),
            "{zone} {start}"
        );
    }
}

#[test]
fn always_open_is_seen_and_has_no_edge() {
    let all = json!(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]);
    for windows in [
        json!([{"timezone": "Europe/Berlin", "days": all, "start": "00:00", "end": "24:00"}]),
        json!([{"timezone": "Europe/Berlin", "days": all, "start": "00:00", "end": "02:30"}, {"timezone": "Europe/Berlin", "days": all, "start": "02:30", "end": "00:00"}]),
        // only together, over two zones
        json!([{"timezone": "Asia/Tokyo", "days": all, "start": "00:00", "end": "13:00"}, {"timezone": "UTC", "days": all, "start": "03:00", "end": "16:00"}]),
    ] {
        let policy = policy(&json!({"maintenanceWindows": windows}));
        let now = at("2027-03-28T00:30:00Z");
        assert_eq!(policy.schedule.measures(now), Measures::Always, "{windows}");
        assert!(policy.schedule.open_at(now).is_some());
    }
    let single =
        policy(&json!({"maintenanceWindows": [{"timezone": "UTC", "days": all, "start": "00:00", "end": "24:00"}]}));
    assert_eq!(single.schedule.next_edge(at("2027-03-28T00:30:00Z")), None);
}

// A claim born 2026-12-14T00:00Z: deadline 28th 00:00, due by the formula from 19th 22:43 (A = 5d22h43m).
#[test]
fn a_holiday_makes_nodes_due_earlier() {
    let due = |policy: &Policy| {
        let cadence = Cadence::of(policy, at("2026-12-01T00:00:00Z"));
        selection::assess(policy, &cadence, &candidate("2026-12-14T00:00:00Z"), at("2026-12-15T00:00:00Z"))
            .due_at
            .unwrap()
    };
    let plain = due(&policy(&json!({})));
    assert_eq!(plain.duration_since(at("2026-12-19T22:43:00Z")), SignedDuration::from_nanos(1));
    // windows open Tue and Fri 17:00Z; with the 25th excluded, the last two before the deadline open on the 18th and 22nd
    let holiday =
        policy(&json!({"exclusions": [{"timezone": "Asia/Tokyo", "from": "2026-12-24", "until": "2026-12-31"}]}));
    assert_eq!(due(&holiday), at("2026-12-18T17:00:00Z"));
    let whole = policy(&json!({"exclusions": [{"timezone": "UTC", "from": "2026-12-01", "until": "2026-12-31"}]}));
    assert_eq!(due(&whole), at("2026-12-14T00:00:00Z"), "no chance at all: due at once");
    let cadence = Cadence::of(&whole, at("2026-12-01T00:00:00Z"));
    let facts = PoolFacts {
        expire_after: Some(SignedDuration::from_hours(336)),
        termination_grace_period: Some(SignedDuration::from_hours(1)),
        claims: 1,
        is_auto_mode: true,
    };
    let life = feasibility::Lifespan {
        created: at("2026-12-14T00:00:00Z"),
        expire_after: facts.expire_after,
        termination_grace_period: facts.termination_grace_period,
    };
    let found: Vec<_> = feasibility::findings(&whole, &cadence, &facts, [life]).iter().map(|f| f.code.name()).collect();
    assert_eq!(found, ["ExclusionStarvesClaims"]);
}

#[test]
fn each_condition_has_its_reason() {
    let policy = policy(&json!({}));
    let now = at("2026-12-13T00:00:00Z");
    let cadence = Cadence::of(&policy, now);
    let reasons = |change: &dyn Fn(&mut Candidate<'_>)| {
        let mut s = candidate("2026-12-01T00:00:00Z");
        change(&mut s);
        let eligibilities = selection::assess(&policy, &cadence, &s, now);
        selection::ineligible(&s, &eligibilities)
    };
    let host = selection::NodeFacts { ready: true, disrupted: false, opted_out: false };
    assert_eq!(reasons(&|_| ()), []);
    assert_eq!(reasons(&|s| s.created = at("2026-12-12T00:00:00Z")), [Ineligible::NotDue]);
    assert_eq!(reasons(&|s| s.expire_after = None), [Ineligible::NotDue], "never expires, never due");
    assert_eq!(reasons(&|s| (s.expire_after, s.request) = (None, Some(RotateRequest::NextWindow))), []);
    assert_eq!(reasons(&|s| s.ready = false), [Ineligible::NotReady]);
    assert_eq!(reasons(&|s| s.node = Some(selection::NodeFacts { ready: false, ..host })), [Ineligible::NotReady]);
    assert_eq!(reasons(&|s| s.disrupting = true), [Ineligible::Disrupting]);
    assert_eq!(reasons(&|s| s.node = Some(selection::NodeFacts { disrupted: true, ..host })), [Ineligible::Disrupting]);
    assert_eq!(reasons(&|s| s.deleting = true), [Ineligible::Deleting]);
    assert_eq!(reasons(&|s| s.state = RotationState::Pending), [Ineligible::InFlight]);
    assert_eq!(reasons(&|s| s.state = RotationState::Draining), [Ineligible::InFlight]);
    assert_eq!(reasons(&|s| s.state = RotationState::Expired), [Ineligible::Expired]);
    assert_eq!(
        reasons(
            &|s| (s.state, s.failed_at, s.retry_count) = (RotationState::Failed, Some(at("2026-12-12T23:45:00Z")), 1)
        ),
        [Ineligible::InBackoff]
    );
    assert_eq!(
        reasons(
            &|s| (s.state, s.failed_at, s.retry_count) = (RotationState::Failed, Some(at("2026-12-12T23:30:00Z")), 1)
        ),
        []
    );
    assert_eq!(reasons(&|s| s.state = RotationState::Failed), [], "without failed-at it is past its backoff");
    assert_eq!(reasons(&|s| s.node = Some(selection::NodeFacts { opted_out: true, ..host })), [Ineligible::OptedOut]);
    assert_eq!(reasons(&|s| s.node = None), [Ineligible::NoNode]);
}

// The window is 17:00–21:00 on 2026-12-04; retryBackoff is 30m.
#[test]
fn backoff_is_clamped_to_its_occurrence() {
    let policy = policy(&json!({}));
    let end = |failed: &str, count| selection::effective_backoff_end(&policy, at(failed), count).to_string();
    assert_eq!(end("2026-12-04T17:10:00Z", 1), "2026-12-04T17:40:00Z");
    assert_eq!(end("2026-12-04T17:10:00Z", 3), "2026-12-04T19:10:00Z");
    assert_eq!(end("2026-12-04T17:10:00Z", 4), "2026-12-04T19:10:00Z", "4h would be past the close, 2h fits");
    assert_eq!(end("2026-12-04T17:10:00Z", 99), "2026-12-04T19:10:00Z", "at most eightfold");
    assert_eq!(end("2026-12-04T20:15:00Z", 3), "2026-12-04T20:45:00Z");
    assert_eq!(
        end("2026-12-04T20:30:00Z", 1),
        "2026-12-04T21:00:00Z",
        "at the close is no longer inside: free when it closes"
    );
    assert_eq!(end("2026-12-04T20:50:00Z", 2), "2026-12-04T21:00:00Z");
    assert_eq!(end("2026-12-04T22:00:00Z", 4), "2026-12-05T02:00:00Z", "outside every occurrence: not clamped");
    assert_eq!(selection::next_attempt_at(&policy, at("2026-12-04T20:50:00Z"), 2), Some(at("2026-12-08T17:00:00Z")));
    assert_eq!(selection::next_attempt_at(&policy, at("2026-12-04T17:10:00Z"), 1), Some(at("2026-12-04T17:40:00Z")));
}

#[test]
fn the_order_is_deadline_age_name_and_requests_go_first() {
    let auto = policy(&json!({}));
    let by_age = policy(&json!({"ageThreshold": "24h"}));
    let now = at("2026-12-13T00:00:00Z");
    let sorted = |policy: &Policy, subjects: &[Candidate<'static>]| {
        let cadence = Cadence::of(policy, now);
        let mut all: Vec<_> = subjects.iter().map(|s| (s, selection::assess(policy, &cadence, s, now))).collect();
        all.sort_by(|a, b| selection::order(policy, (a.0, &a.1), (b.0, &b.1)));
        all.iter().map(|(s, _)| s.name).collect::<Vec<_>>()
    };
    let s = |name: &'static str, created: &str, days: i64, request| Candidate {
        name,
        expire_after: Some(SignedDuration::from_hours(24 * days)),
        request,
        ..candidate(created)
    };
    let all = [
        s("late", "2026-12-02T00:00:00Z", 20, None),
        s("b", "2026-12-03T00:00:00Z", 14, None),
        s("a", "2026-12-03T00:00:00Z", 14, None),
        s("older", "2026-12-02T00:00:00Z", 15, None),
        s("next", "2026-12-12T00:00:00Z", 14, Some(RotateRequest::NextWindow)),
        s("now", "2026-12-12T00:00:00Z", 14, Some(RotateRequest::Now)),
    ];
    assert_eq!(sorted(&auto, &all), ["now", "next", "older", "a", "b", "late"]);
    assert_eq!(sorted(&by_age, &all), ["now", "next", "late", "older", "a", "b"]);
}
