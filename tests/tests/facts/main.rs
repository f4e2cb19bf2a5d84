//! One rotation happens in the simulator as it does on a real control plane with a real Karpenter: the same writes of the
//! controller and the same facts, in the same order as far as there is one.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod history;
mod order;
mod real;
mod simulated;

use jiff::SignedDuration;
use noderotation_simulator::Scenario;
use order::{before_their_causes, by_different_actors, differences, never, until, without_chance};
use serde_json::{Map, Value, json};

/// What one side has seen.
pub struct Facts {
    /// The writes of the controller that have landed, in order.
    pub writes: Vec<String>,
    /// What has become of the objects, in the order of resourceVersions.
    pub happened: Vec<String>,
}

/// Plays a scenario on both sides until the anchor is gone (`release`) and the last of `others` has happened.
async fn is_the_same(scenario: &Scenario, release: &str, others: &[&str]) {
    let (simulated, story) = simulated::play(scenario);
    let last: Vec<&str> = others.iter().copied().chain([release]).collect();
    let real = real::play(scenario, &last).await;
    let written = [&*format!("patch {release}")];
    let mut wrong = differences(&until(&real.writes, &written), &until(&simulated.writes, &written), never);
    let (real, simulated) = (until(&real.happened, &last), until(&simulated.happened, &last));
    wrong.extend(differences(&without_chance(&real), &without_chance(&simulated), by_different_actors));
    wrong.extend(before_their_causes(&real));
    wrong.extend(before_their_causes(&simulated));
    if std::env::var_os("NODEROTATION_SHOW_FACTS").is_some() {
        eprintln!("real:\n  {}\nsimulated:\n  {}", real.join("\n  "), simulated.join("\n  "));
    }
    assert!(
        wrong.is_empty(),
        "{}\nreal:\n  {}\nsimulated:\n  {}\nthe simulator's story:\n{story}",
        wrong.join("\n"),
        real.join("\n  "),
        simulated.join("\n  "),
    );
}

/// The policy's `spec.surge` with a `readyTimeout`.
fn policy(ready_timeout: &str, has_fallback: bool) -> Map<String, Value> {
    let fallback = json!({"enabled": has_fallback});
    let surge = json!({"readyTimeout": ready_timeout, "cooldownAfter": "1m", "forcefulFallback": fallback});
    [("surge".to_owned(), surge), ("minRotationChances".to_owned(), 1.into())].into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation() {
    let scenario = Scenario { policy: policy("5m", false), is_requested: true, ..Scenario::default() };
    let release =
        "NodePool: -active-rotation -active-rotation-state -draining-at +last-rotation-at -surge-path -surge-wait";
    is_the_same(&scenario, release, &["old claim is gone"]).await;
}

/// The node that is launched for the placeholder never registers.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback() {
    let scenario =
        Scenario { policy: policy("45s", false), is_requested: true, never_registers: true, ..Scenario::default() };
    is_the_same(&scenario, "NodePool: -active-rotation +last-failure-at", &["surge claim is gone"]).await;
}

/// A claim that expires after 245 s. With `readyTimeout` 55 s and `terminationGracePeriod` 5 s one rotation takes up to
/// 180 s (§2), so that the claim is due after 5 s, since one chance of 60 s is wanted, and too late for a surge after 65 s.
fn short_lived(has_fallback: bool) -> Scenario {
    Scenario {
        expire_after: SignedDuration::from_secs(245),
        grace_period: SignedDuration::from_secs(5),
        policy: policy("55s", has_fallback),
        ..Scenario::default()
    }
}

/// The attempt begins at an age of 210 s or little more, and Karpenter expires the claim before it has timed out.
#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_that_overtakes() {
    let scenario = Scenario { age: SignedDuration::from_secs(210), never_registers: true, ..short_lived(false) };
    is_the_same(&scenario, "NodePool: -active-rotation -active-rotation-state", &["old claim is gone"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_at_the_deadline() {
    let scenario = Scenario { age: SignedDuration::from_secs(70), ..short_lived(true) };
    let release = "NodePool: -active-rotation -active-rotation-state -draining-at +last-rotation-at -rotation-mode";
    is_the_same(&scenario, release, &["old claim is gone", "surge claim is Ready"]).await;
}
