//! Many histories, each by its seed. `NODEROTATION_ROTATIONS` asks for more, `NODEROTATION_SEED` for one of them.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use noderotation_simulator::{Outcome, Plan, simulate};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn run(plan: &Plan) -> Outcome {
    let outcome = simulate(plan);
    if let Some(violation) = &outcome.violation {
        panic!("seed {}: {violation}\n{}", plan.seed, outcome.story);
    }
    outcome
}

#[test]
fn without_faults_every_node_is_rotated_before_it_expires() {
    for seed in 0..20 {
        let outcome = run(&Plan { seed, faults: false, ..Plan::default() });
        assert!(outcome.completed >= 8, "seed {seed}: {} rotations", outcome.completed);
        assert_eq!((outcome.expired, outcome.failed, outcome.crashes), (0, 0, 0), "seed {seed}");
    }
}

#[test]
fn one_seed_is_one_history() {
    let plan = Plan { seed: 42, ..Plan::default() };
    let (a, b) = (simulate(&plan), simulate(&plan));
    assert_eq!((a.story, a.writes, a.passes), (b.story, b.writes, b.passes));
}

#[test]
fn whatever_goes_wrong_every_invariant_holds() {
    let wanted = number("NODEROTATION_ROTATIONS", 2_000);
    let first = number("NODEROTATION_SEED", 1);
    let (mut rotations, mut seed) = (0, first);
    while rotations < wanted {
        let outcome = run(&Plan { seed, fallback: seed % 3 == 0, ..Plan::default() });
        rotations += u64::try_from(outcome.completed + outcome.failed + outcome.expired).unwrap().max(1);
        seed += 1;
    }
    println!("{rotations} rotations in {} histories from seed {first}", seed - first);
}

/// What the histories contain: a net without fish in it catches nothing.
#[test]
fn the_histories_contain_what_they_are_for() {
    let mut sum = Outcome::default();
    for seed in 1..=60 {
        let outcome = run(&Plan { seed, ..Plan::default() });
        sum.completed += outcome.completed;
        sum.failed += outcome.failed;
        sum.expired += outcome.expired;
        sum.crashes += outcome.crashes;
        sum.writes += outcome.writes;
        sum.passes += outcome.passes;
    }
    println!(
        "{} completed, {} failed, {} expired, {} crashes, {} writes, {} passes",
        sum.completed, sum.failed, sum.expired, sum.crashes, sum.writes, sum.passes
    );
    assert!(sum.completed > 200 && sum.failed > 20 && sum.expired > 0 && sum.crashes > 100);
}
