//! Makes the history behind a violation short: fewer interventions, nodes, pools and hours, as long as the same invariant
//! is violated.

use jiff::SignedDuration;

use crate::invariants::Invariant;
use crate::plan::Plan;
use crate::run::{Outcome, simulate, tell};

/// So many histories are tried at most.
const TRIES: usize = 250;

/// A short plan with the same violation, and its history with a story. `None`: this plan violates nothing.
pub fn shrink(plan: &Plan) -> Option<(Plan, Outcome)> {
    let found = simulate(plan);
    let (invariant, _) = found.violation?;
    let mut best = Plan { only: Some(found.interventions), ..plan.clone() };
    let mut tries = 0;
    loop {
        let before = best.clone();
        fewer_interventions(&mut best, invariant, &mut tries);
        for smaller in smaller(&best) {
            keep_if_violated(&mut best, smaller, invariant, &mut tries);
        }
        if best == before || tries >= TRIES {
            break;
        }
    }
    let outcome = tell(&best);
    Some((best, outcome))
}

/// Leaves out halves, quarters, and in the end single interventions.
fn fewer_interventions(best: &mut Plan, invariant: Invariant, tries: &mut usize) {
    let mut size = best.only.as_ref().map_or(0, Vec::len).div_ceil(2);
    while size > 0 && *tries < TRIES {
        let mut start = 0;
        while let Some(only) = best.only.clone().filter(|only| start < only.len()) {
            let end = (start + size).min(only.len());
            let rest = only.iter().take(start).chain(only.iter().skip(end)).copied().collect();
            if !keep_if_violated(best, Plan { only: Some(rest), ..best.clone() }, invariant, tries) {
                start = end;
            }
            if *tries >= TRIES {
                return;
            }
        }
        size /= 2;
    }
}

fn smaller(plan: &Plan) -> Vec<Plan> {
    vec![
        Plan { pools: plan.pools - 1, ..plan.clone() },
        Plan { replicas: plan.replicas - 1, ..plan.clone() },
        Plan { nodes: plan.nodes - 1, ..plan.clone() },
        Plan { length: plan.length / 2, ..plan.clone() },
        Plan { length: plan.length - SignedDuration::from_hours(2), ..plan.clone() },
    ]
}

/// Takes `candidate` over if it violates the same invariant.
fn keep_if_violated(best: &mut Plan, candidate: Plan, invariant: Invariant, tries: &mut usize) -> bool {
    let is_possible = candidate.pools > 0
        && candidate.replicas > 0
        && candidate.nodes > 0
        && candidate.length > SignedDuration::from_hours(1);
    if !is_possible {
        return false;
    }
    *tries += 1;
    let is_violated = simulate(&candidate).violation.is_some_and(|(violated, _)| violated == invariant);
    if is_violated {
        *best = candidate;
    }
    is_violated
}

/// The violation as a report: the sentence, the story, and a unit test that plays it again.
pub fn report(plan: &Plan) -> String {
    let Some((short, outcome)) = shrink(plan) else { return format!("seed {} violates nothing", plan.seed) };
    let (invariant, what) = outcome.violation.clone().unwrap_or((Invariant::Serial, String::new()));
    format!(
        "seed {}: {invariant}: {what}\n\n{}\n#[test]\nfn seed_{}_{}() {{\n    holds(&{});\n}}\n",
        plan.seed,
        outcome.story,
        plan.seed,
        invariant.to_string().to_lowercase(),
        short.as_code(),
    )
}
