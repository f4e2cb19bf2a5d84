//! Whatever keeps a NodePool from being rotated shows in the policy's condition and row, the metrics, one Event, and `check`
//! (§6.1): each reason is brought about on a real cluster, then told again to nobody by the next leader.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, clippy::cast_precision_loss)]

use std::collections::BTreeSet;
use std::process::Command;

use noderotation_rig::objects::{NodePool, node_pool};
use noderotation_rig::{Rig, repository};
use noderotation_shared::blocked::BlockedReason;
use noderotation_tests::ask::POLICIES;
use noderotation_tests::product::binary;
use noderotation_tests::stored::{CRD, replace_spec, store_before_the_rules};
use noderotation_tests::world::{self, PATIENCE};
use noderotation_tests::{Controller, Product};
use serde_json::{Value, json};
use strum::VariantArray;

/// How a NodePool, named after its reason in lower case, comes to be blocked, and the policy of that name.
struct Case {
    reason: BlockedReason,
    pool: NodePool,
    policy: Value,
    annotations: Value,
}

/// All but the one that is about the whole cluster: it has a test of its own.
fn reasons() -> impl Iterator<Item = BlockedReason> {
    BlockedReason::VARIANTS.iter().copied().filter(|reason| *reason != BlockedReason::OldSchema)
}

fn case(reason: BlockedReason) -> Case {
    let name = name(reason);
    let mut case = Case { reason, pool: node_pool(&name), policy: world::policy(&name), annotations: json!({}) };
    let spec = &mut case.policy["spec"];
    match reason {
        BlockedReason::InvalidPolicy => spec["maintenanceWindows"][0]["timezone"] = json!("Mars/Olympus"),
        BlockedReason::PolicyConflict | BlockedReason::OldSchema => {}
        BlockedReason::Unselected => {
            spec["nodePoolSelector"] = json!({"matchLabels": {"team": "web"}});
            case.pool = case.pool.node_label("team", "web");
        }
        BlockedReason::StaticNodePool => case.pool = case.pool.replicas(1),
        BlockedReason::FatalFinding => {
            spec["maintenanceWindows"][0]["days"] = json!(["Sat"]);
            case.pool = case.pool.expire_after("24h");
        }
        BlockedReason::NeverDue => case.pool = case.pool.expire_after("Never"),
        BlockedReason::NoWindowAhead => {
            spec["exclusions"] = json!([{"timezone": "UTC", "from": "2020-01-01", "until": "2099-01-01"}]);
        }
        BlockedReason::Suspended => spec["suspend"] = json!(true),
        BlockedReason::Frozen => case.annotations = json!({"noderotation.io/freeze": "2099-01-01T00:00:00Z"}),
        BlockedReason::FreezeUnreadable => case.annotations = json!({"noderotation.io/freeze": "next week"}),
        BlockedReason::LimitsExhausted => case.pool = case.pool.limits(json!({"cpu": "0"})),
    }
    case
}

fn name(reason: BlockedReason) -> String {
    reason.to_string().to_lowercase()
}

async fn bring_about(rig: &Rig) {
    let cases = || reasons().map(case);
    let invalid = cases().filter(|case| case.reason == BlockedReason::InvalidPolicy).map(|case| case.policy);
    store_before_the_rules(rig, &invalid.collect::<Vec<_>>()).await.unwrap();
    for case in cases() {
        let name = name(case.reason);
        if case.reason != BlockedReason::InvalidPolicy {
            rig.apply(&case.policy).unwrap();
        }
        case.pool.apply(rig).unwrap();
        rig.merge(
            &format!("/apis/karpenter.sh/v1/nodepools/{name}"),
            json!({"metadata": {"annotations": case.annotations}}),
        )
        .await
        .unwrap();
    }
    let mut rival = world::policy(&name(BlockedReason::PolicyConflict));
    rival["metadata"]["name"] = json!("rival");
    rig.apply(&rival).unwrap();
    // one NodePool goes on, so that a policy with another that is blocked says so
    node_pool("good").label("team", "web").apply(rig).unwrap();
}

async fn status(rig: &Rig, policy: &str) -> Value {
    rig.get(&format!("{POLICIES}/{policy}")).await.unwrap()["status"].clone()
}

/// The words in a NodePool's row of its policy's status; waits for a row.
async fn row(rig: &Rig, policy: &str, pool: &str) -> Value {
    rig.wait(&format!("the row of NodePool {pool}"), PATIENCE, async || {
        let status = status(rig, policy).await;
        let rows = status["nodePools"].as_array().cloned().unwrap_or_default();
        Ok(rows.into_iter().find(|row| row["name"] == pool))
    })
    .await
    .unwrap()
}

async fn shows(rig: &Rig, controller: &Controller, reason: BlockedReason) {
    let (word, pool) = (reason.to_string(), name(reason));
    let row = row(rig, &pool, &pool).await;
    assert_eq!((&row["blockedBy"], &row["state"]), (&json!([word]), &json!("Blocked")), "{word}: the row");
    let condition = status(rig, &pool).await["conditions"][0].clone();
    let expected = match reason {
        BlockedReason::InvalidPolicy => "Invalid".to_owned(),
        BlockedReason::PolicyConflict => "Conflict".to_owned(),
        _ => word.clone(),
    };
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!(expected)), "the condition");

    // a fatal finding is told as that finding
    let event = if reason == BlockedReason::FatalFinding { "ANonPositive" } else { &word };
    world::event(rig, event, &pool).await.unwrap();

    let labels = format!("nodepool=\"{pool}\",reason=\"{word}\"");
    assert_eq!(controller.sample("noderotation_pool_blocked", &labels).await, Some(1.0), "{word}: the gauge");
    let of_pool = format!("nodepool=\"{pool}\"");
    let since = row["blockedSince"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    // the two sides of the alert NodeRotationPoolBlocked
    rig.wait(&format!("since when {pool} has been blocked"), PATIENCE, async || {
        Ok(controller.sample("noderotation_pool_blocked_since_timestamp", &of_pool).await)
    })
    .await
    .map(|seconds| assert!((seconds - since.as_second() as f64).abs() < 1.0, "{word}: {seconds} {since}"))
    .unwrap();
    assert!(controller.sample("noderotation_lead_time_seconds", &of_pool).await.is_some(), "{word}: the lead time");
}

/// `check` over what the cluster has: the words for each NodePool, and whether it exits with 1.
fn check(rig: &Rig) -> (Value, Option<i32>) {
    let objects = rig.kubectl(&["get", "rotationpolicies,nodepools,nodeclaims", "-o", "json"]).unwrap();
    let file = rig.folder().join("cluster.json");
    std::fs::write(&file, objects).unwrap();
    let output = Command::new(binary("kubectl-noderotation").unwrap())
        .current_dir(repository())
        .args(["check", "-o", "json", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (report, output.status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_blocks_a_pool_shows_everywhere_and_is_told_once() {
    let product = Product::install_without_webhook().await.unwrap();
    let rig = &product.rig;
    bring_about(rig).await;
    let mut controller = product.start_leader().await.unwrap();
    for reason in reasons() {
        shows(rig, &controller, reason).await;
    }
    let good = controller.metrics().await;
    assert!(good.contains("noderotation_pool_blocked{nodepool=\"good\",reason=\"NeverDue\"} 0"), "{good}");

    let (report, code) = check(rig);
    assert_eq!(code, Some(1));
    for reason in reasons() {
        let pools = report["nodePools"].as_array().unwrap();
        let row = pools.iter().find(|row| row["name"] == name(reason)).unwrap();
        let words: Vec<&Value> = row["blocked"].as_array().unwrap().iter().map(|b| &b["reason"]).collect();
        assert_eq!(words, [&json!(reason.to_string())], "check");
    }

    // the columns that people look at
    let table = rig.kubectl(&["get", "rotationpolicies"]).unwrap();
    let of = |policy: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.starts_with(&format!("{policy} "))).unwrap_or(&table);
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(of("NAME")[..5], ["NAME", "POOLS", "ROTATING", "BLOCKED", "WINDOW"]);
    assert_eq!(of("neverdue")[1..5], ["1", "0", "1", "open"], "{table}");
    assert_eq!(of("nowindowahead")[1..5], ["1", "0", "1", "in"], "{table}");
    assert_eq!(of("unselected")[1..4], ["1", "0", "1"], "{table}");

    let events = told(rig).await;
    controller.stop().unwrap();
    let next = product.start_leader().await.unwrap();
    // its first passes are over once it has written what it cannot know from before
    rig.wait("the next leader to know since when", PATIENCE, async || {
        let page = next.metrics().await;
        Ok((page.matches("noderotation_pool_blocked_since_timestamp{").count() == reasons().count()).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(told(rig).await, events, "the next leader tells nothing again");
}

/// Every Event of the controller, with its count.
async fn told(rig: &Rig) -> BTreeSet<String> {
    let events = rig.list("/apis/events.k8s.io/v1/events").await.unwrap();
    let ours = events.iter().filter(|event| event["reportingController"] == "noderotation.io/controller");
    ours.map(|e| format!("{} {} {} {}", e["reason"], e["regarding"]["name"], e["note"], e["series"]["count"])).collect()
}

/// A CustomResourceDefinition of before `suspend`: what policies say there is gone, so nothing starts.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_definition_holds_everything_until_it_is_replaced() {
    let product = Product::install_without_webhook().await.unwrap();
    let rig = &product.rig;
    node_pool("api").apply(rig).unwrap();
    rig.apply(&world::policy("api")).unwrap();
    let ours = rig.get(CRD).await.unwrap()["spec"].take();
    let mut older = ours.clone();
    let spec = older.pointer_mut("/versions/0/schema/openAPIV3Schema/properties/spec").unwrap();
    spec["properties"].as_object_mut().unwrap().remove("suspend").unwrap();
    // its status knew nothing of rows
    let status = older.pointer_mut("/versions/0/schema/openAPIV3Schema/properties/status/properties").unwrap();
    status.as_object_mut().unwrap().remove("nodePools").unwrap();
    status["matchedNodePools"] = json!({"type": "array", "items": {"type": "string"}});
    replace_spec(rig, older).await.unwrap();
    let controller = product.start_leader().await.unwrap();
    let condition = rig
        .wait("the condition", PATIENCE, async || {
            let condition = status_condition(rig).await?;
            Ok((condition["reason"] == "OldSchema").then_some(condition))
        })
        .await
        .unwrap();
    assert_eq!(condition["status"], "False");
    assert!(condition["message"].as_str().unwrap().contains("drops spec.suspend, so that"), "{condition}");
    world::event(rig, "OldSchema", "api").await.unwrap();
    let labels = "nodepool=\"api\",reason=\"OldSchema\"";
    assert_eq!(controller.sample("noderotation_pool_blocked", labels).await, Some(1.0));

    // nobody restarts the controller
    replace_spec(rig, ours).await.unwrap();
    rig.wait("the condition to turn", PATIENCE, async || {
        Ok((status_condition(rig).await?["reason"] == "Accepted").then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(controller.sample("noderotation_pool_blocked", labels).await, Some(0.0));
}

async fn status_condition(rig: &Rig) -> anyhow::Result<Value> {
    let policy = rig.get(&format!("{POLICIES}/api")).await?;
    Ok(policy.pointer("/status/conditions/0").cloned().unwrap_or_default())
}
