//! Many histories, each by its seed. `NODEROTATION_ROTATIONS` asks for more of them, `NODEROTATION_SEED` for those from
//! another first seed.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use noderotation_simulator::plan::Windows;
use noderotation_simulator::run::tell;
use noderotation_simulator::shrink::report;
use noderotation_simulator::{Outcome, Plan, simulate};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Runs a history in which no invariant may be violated; one that is comes as a short story and a unit test, or with
/// `NODEROTATION_NO_STORY`, which saves the minute of shortening it, as one sentence.
fn holds(plan: &Plan) -> Outcome {
    let outcome = simulate(plan);
    if let Some((invariant, what)) = &outcome.violation {
        let is_brief = std::env::var_os("NODEROTATION_NO_STORY").is_some();
        let sentence = || format!("seed {}: {invariant}: {what}", plan.seed);
        panic!("{}", if is_brief { sentence() } else { report(plan) });
    }
    outcome
}

#[test]
fn without_faults_every_node_is_rotated_before_it_expires() {
    for seed in 0..40 {
        let outcome = holds(&Plan { faults: false, has_room: true, ..Plan::of_seed(seed) });
        assert!(outcome.completed > 0, "seed {seed}");
        assert_eq!((outcome.expired, outcome.failed, outcome.crashes), (0, 0, 0), "seed {seed}");
    }
}

/// Four nodes that live for twelve hours are rotated eight times or more in two days.
#[test]
fn rotations_are_as_many_as_nodes_come_due() {
    for windows in [Windows::Always, Windows::Often] {
        let expire_after = jiff::SignedDuration::from_hours(if windows == Windows::Always { 12 } else { 22 });
        let outcome = holds(&Plan { faults: false, windows, expire_after, ..Plan::default() });
        assert!(outcome.completed >= 8, "{windows:?}: {} rotations", outcome.completed);
    }
}

#[test]
fn one_seed_is_one_history() {
    for seed in [3, 42] {
        let plan = Plan::of_seed(seed);
        let (a, b) = (tell(&plan), tell(&plan));
        assert!(a.story.lines().len() > 100);
        assert_eq!((&a.story, a.writes, a.passes), (&b.story, b.writes, b.passes));
        // whether it is written down changes nothing, and leaving nothing out neither
        let again = simulate(&Plan { only: Some(a.interventions.clone()), ..plan });
        assert_eq!((again.writes, again.passes, again.interventions), (a.writes, a.passes, a.interventions));
    }
}

#[test]
fn a_node_pool_that_cannot_be_written_delays_no_other() {
    for seed in 0..10 {
        let plan = Plan { faults: false, pools: 3, refused_pool: Some("web".into()), ..Plan::default() };
        let outcome = holds(&Plan { seed, ..plan });
        assert!(outcome.lost.get("web").is_some_and(|lost| *lost > 0), "seed {seed}: it was written after all");
        assert!(outcome.completed >= 16, "seed {seed}: {} rotations", outcome.completed);
    }
}

/// What the histories contain: a net without fish in it catches nothing.
#[test]
fn the_histories_contain_what_they_are_for() {
    let mut sum = Outcome::default();
    for seed in 1..=90 {
        let outcome = holds(&Plan::of_seed(seed));
        sum.completed += outcome.completed;
        sum.empty += outcome.empty;
        sum.failed += outcome.failed;
        sum.expired += outcome.expired;
        sum.crashes += outcome.crashes;
        sum.writes += outcome.writes;
        sum.passes += outcome.passes;
        sum.interventions.extend(outcome.interventions);
    }
    println!(
        "{} completed, {} of them empty, {} failed, {} expired, {} crashes, {} interventions, {} writes, {} passes",
        sum.completed,
        sum.empty,
        sum.failed,
        sum.expired,
        sum.crashes,
        sum.interventions.len(),
        sum.writes,
        sum.passes
    );
    assert!(sum.completed > 1_000 && sum.empty > 30 && sum.failed > 50 && sum.expired > 3 && sum.crashes > 300);
}

/// All cores; each worker takes the next seed, until one of them has found a violation. One line of progress for each
/// twentieth, with the time that is left.
#[test]
fn whatever_goes_wrong_every_invariant_holds() {
    let wanted = number("NODEROTATION_ROTATIONS", 2_000);
    let first = number("NODEROTATION_SEED", 1);
    let (next, rotations, found) = (AtomicU64::new(first), AtomicU64::new(0), Mutex::new(None));
    let began = std::time::Instant::now();
    let worker = || {
        while rotations.load(Ordering::Relaxed) < wanted && found.lock().unwrap().is_none() {
            let plan = Plan::of_seed(next.fetch_add(1, Ordering::Relaxed));
            let outcome = simulate(&plan);
            if outcome.violation.is_some() {
                found.lock().unwrap().get_or_insert(plan);
                return;
            }
            let ended = u64::try_from(outcome.completed + outcome.failed + outcome.expired).unwrap();
            let done = rotations.fetch_add(ended, Ordering::Relaxed) + ended;
            let twentieth = |n: u64| n * 20 / wanted.max(1);
            if twentieth(done - ended) < twentieth(done) {
                let left = began.elapsed().as_secs() * wanted.saturating_sub(done) / done;
                println!("{done} of {wanted} rotations, about {left} s left");
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    if let Some(plan) = found.into_inner().unwrap() {
        panic!("{}", report(&plan));
    }
    let histories = next.into_inner() - first;
    println!("{} rotations in {histories} histories from seed {first}", rotations.into_inner());
}
