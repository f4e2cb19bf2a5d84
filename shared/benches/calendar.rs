//! Benchmarks of the calendar, governance and selection: `cargo bench -p noderotation-shared`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use jiff::{SignedDuration, Timestamp};
use noderotation_shared::feasibility::{Cadence, rotation_bound};
use noderotation_shared::governance::{ParsedPolicy, govern};
use noderotation_shared::instant::{minus, plus};
use noderotation_shared::policy::Policy;
use noderotation_shared::selection::{latest_chance, latest_start};
use serde_json::{Value, json};

const ZONES: [&str; 8] = [
    "Asia/Tokyo",
    "Europe/Berlin",
    "America/New_York",
    "UTC",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Cairo",
    "Asia/Kathmandu",
];

fn now() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().unwrap()
}

/// A policy with `n` one-hour windows on different days and in different time zones.
fn policy(n: usize, exclusions: usize) -> Policy {
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let windows: Vec<Value> = (0..n)
        .map(|i| json!({"timezone": ZONES[i % 8], "days": [days[i % 7], days[(i + 3) % 7]], "start": format!("{:02}:{:02}", i % 24, i % 60), "end": format!("{:02}:{:02}", (i + 1) % 24, i % 60)}))
        .collect();
    let exclusions: Vec<Value> = (0..exclusions)
        .map(|i| json!({"timezone": ZONES[i % 8], "from": format!("20{:02}-12-24", 26 + i), "until": format!("20{:02}-12-31", 26 + i)}))
        .collect();
    Policy::from_json(&json!({"nodePoolSelector": {}, "maintenanceWindows": windows, "exclusions": exclusions}))
        .unwrap()
}

fn windows(c: &mut Criterion) {
    for n in [1, 4, 64] {
        let policy = policy(n, 4);
        c.bench_function(&format!("next occurrence, {n} entries"), |b| {
            b.iter(|| policy.schedule.next_opening(black_box(now())));
        });
    }
    let many = policy(64, 0);
    c.bench_function("P, D and gap over a year, 64 entries", |b| b.iter(|| many.schedule.measures(black_box(now()))));
}

fn governance(c: &mut Criterion) {
    let policies: Vec<ParsedPolicy> = (0..200)
        .map(|i| {
            let labels: BTreeMap<String, String> =
                (0..=i % 4).map(|k| (format!("k{k}"), format!("v{}", i % 50))).collect();
            let windows = json!([{"timezone": "UTC", "days": ["Sat"], "start": "02:00", "end": "06:00"}]);
            ParsedPolicy::read(
                &format!("p{i}"),
                &json!({"nodePoolSelector": {"matchLabels": labels}, "maintenanceWindows": windows}),
            )
        })
        .collect();
    let pools: Vec<BTreeMap<String, String>> =
        (0..1_000).map(|i| (0..4).map(|k| (format!("k{k}"), format!("v{}", i % 50))).collect()).collect();
    c.bench_function("governance, 1,000 pools x 200 policies", |b| {
        b.iter(|| pools.iter().filter(|p| govern(p, &policies).is_ok()).count());
    });
}

fn chances(c: &mut Criterion) {
    let policy = policy(4, 4);
    let p = Cadence::of(&policy, now()).measures.p();
    let bound = rotation_bound(&policy, Some(SignedDuration::from_hours(1)));
    let lives: Vec<(Timestamp, Timestamp)> = (0..5_000)
        .map(|i| {
            let created = minus(now(), SignedDuration::from_mins(i * 4));
            (created, minus(plus(created, SignedDuration::from_hours(336)), bound))
        })
        .collect();
    c.bench_function("L of 5,000 claims", |b| {
        b.iter(|| {
            lives.iter().filter_map(|(created, end)| latest_chance(&policy.schedule, p, 2, *created, *end)).count()
        });
    });
    // for comparison: without examining a short period first
    c.bench_function("L of 5,000 claims, whole lives", |b| {
        b.iter(|| {
            lives
                .iter()
                .filter_map(|(created, end)| latest_start(policy.schedule.occurrences(*created), p, 2, *created, *end))
                .count()
        });
    });
}

criterion_group! {
    name = calendar;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(3));
    targets = windows, governance, chances
}
criterion_main!(calendar);
