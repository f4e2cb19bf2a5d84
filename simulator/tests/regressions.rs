//! Histories that violated an invariant once, and what was wrong with the product.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use jiff::SignedDuration;
use noderotation_simulator::plan::Windows;
use noderotation_simulator::shrink::report;
use noderotation_simulator::{Plan, simulate};

fn holds(plan: &Plan) {
    assert!(simulate(plan).violation.is_none(), "{}", report(plan));
}

/// A process stood still behind the deletion of a NodeClaim. The answer was taken in after the watch had told that the
/// claim was gone, and put it back into the cache for ever.
#[test]
fn an_answer_after_the_deletion_brings_nothing_back() {
    holds(&Plan::of_seed(202_320));
}

/// Governance lost after the crossing: the rollback had taken the protection of the host when the process died. With
/// governance back, the next one went on with the drain, to a host that nobody kept free any more.
#[test]
fn a_rollback_that_was_cut_short_does_not_go_on_as_a_drain() {
    holds(&Plan::of_seed(40_012_584));
}

/// Somebody overwrote the anchor while the process stood still before the deletion. The host was fit all the time; the
/// invariant had looked for it only where an anchor was.
#[test]
fn a_host_is_fit_although_somebody_has_overwritten_the_anchor() {
    holds(&Plan::of_seed(50_022_601));
}

/// An empty Node's crossing stood on the pool, a Pod came, and the process died before it marked the claim. The next one
/// reserved a replacement, and its crossing kept the path `empty`.
#[test]
fn a_crossing_of_an_empty_node_is_forgotten_when_a_pod_has_come() {
    let causes = vec![536_870_913, 536_870_914, 536_870_916, 536_870_918, 1_073_741_834, 93, 109, 118, 536_870_922];
    holds(&Plan {
        seed: 1_796_103_748,
        faults: true,
        only: Some(causes),
        pools: 3,
        nodes: 4,
        replicas: 1,
        length: SignedDuration::from_hours(24),
        expire_after: SignedDuration::from_hours(8),
        grace_period: Some(SignedDuration::from_mins(45)),
        fallback: false,
        windows: Windows::Always,
        streams: true,
        has_room: true,
        refused_pool: None,
        has_static_pool: false,
    });
}
