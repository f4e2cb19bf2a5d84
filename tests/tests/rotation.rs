//! Rotations without disturbance on a real control plane, judged by the audit log (§8, §9).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::unreadable_literal,
    missing_docs
)]

use std::collections::BTreeSet;

use noderotation_rig::objects::{budget, deployment, node_pool, stateful_set};
use noderotation_tests::Product;
use noderotation_tests::audit::{self, Write};
use noderotation_tests::world;
use serde_json::json;

/// The replacement is Ready before the old claim is deleted; one node at a time over three rotations in a row; one
/// NodeClaim is made for each; every Pod lands on the surge node.
async fn three_in_a_row(is_stateful: bool) -> anyhow::Result<()> {
    let product = Product::install().await?;
    let rig = &product.rig;
    node_pool("api").apply(rig)?;
    let app = if is_stateful { stateful_set("app", "api", 3).slow(5) } else { deployment("app", "api", 3) };
    app.cpu("1200m").apply(rig)?; // one to a node of 2 cores
    budget(rig, "app", &json!({"minAvailable": 2}))?;
    world::settled(rig, "app", 3).await?;
    let before = world::claims(rig, "api").await?;
    assert_eq!(before.len(), 3);

    rig.apply(&world::policy("api"))?;
    let _controller = product.start_leader().await?;
    for claim in &before {
        world::request(rig, &world::name(claim), "next-window").await?;
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    let rotate = async {
        let mut result = Ok(());
        for claim in &before {
            result = result.and(world::rotated(rig, "api", &world::name(claim)).await);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    };
    let (rotated, samples) = tokio::join!(rotate, watch_budget(rig, &done));
    rotated?;
    assert!(samples > 20, "only {samples} looks at the budget");
    world::settled(rig, "app", 3).await?;

    let after = world::claims(rig, "api").await?;
    let names = |claims: &[serde_json::Value]| claims.iter().map(world::name).collect::<BTreeSet<_>>();
    assert_eq!(after.len(), 3, "one NodeClaim for each rotation");
    assert!(names(&before).is_disjoint(&names(&after)));
    for node in world::nodes(rig, "api").await? {
        for key in ["surge-for", "do-not-disrupt-owned", "cordoned"] {
            assert_eq!(world::annotation(&node, &format!("noderotation.io/{key}")), None, "{node}");
        }
        assert!(node["spec"]["unschedulable"].is_null(), "{node}");
    }
    assert!(world::placeholders(rig).await?.is_empty());
    check_order(&audit::writes(rig)?, &names(&before));
    Ok(())
}

/// Samples the budget until told to stop: never fewer Pods than it demands.
async fn watch_budget(rig: &noderotation_rig::Rig, done: &std::sync::atomic::AtomicBool) -> usize {
    let mut samples = 0;
    while !done.load(std::sync::atomic::Ordering::Relaxed) {
        let budget = rig.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/app").await.unwrap();
        let (healthy, desired) = (&budget["status"]["currentHealthy"], &budget["status"]["desiredHealthy"]);
        assert!(healthy.as_u64() >= desired.as_u64(), "{healthy} of {desired} Pods");
        samples += 1;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    samples
}

/// Asserts the order of writes in the audit log, for each rotation.
fn check_order(writes: &[Write], old: &BTreeSet<String>) {
    let own: Vec<&Write> = writes.iter().filter(|w| w.user == audit::CONTROLLER).collect();
    let mut anchored: Option<&Write> = None;
    let mut rotated = BTreeSet::new();
    let made = |w: &&Write| w.resource == "nodeclaims" && w.verb == "create";
    for write in &own {
        assert!(write.code < 300 || write.code == 409, "{}", write.brief());
        if let Some(set) = write.annotation("active-rotation") {
            match set {
                Some(_) => assert!(anchored.replace(write).is_none(), "two at a time: {}", write.brief()),
                None => anchored = None,
            }
        }
        if write.resource == "nodeclaims" && write.verb == "delete" {
            assert!(old.contains(&write.name), "not asked for: {}", write.brief());
            let anchor = anchored.unwrap();
            assert_eq!(anchor.annotation("active-rotation"), Some(Some(write.name.clone())));
            rotated.insert(write.name.clone());
            let before = |w: &&&Write| w.at > anchor.at && w.answered < write.at;
            // the node on which the scheduler put the placeholder, and what was written of it before the deletion
            let bound = writes.iter().filter(|w| w.resource == "pods/binding" && w.name.starts_with("surge-"));
            let host = bound.collect::<Vec<_>>().iter().rfind(before).unwrap().body["target"]["name"]
                .as_str()
                .unwrap()
                .to_owned();
            let of_host: Vec<&Write> = writes.iter().filter(|w| w.name == host).collect();
            let is_ready = |w: &&&Write| {
                let conditions = w.body["status"]["conditions"].as_array();
                conditions.is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
            };
            assert!(of_host.iter().filter(before).any(|w| is_ready(&w)), "{host} was not Ready: {}", write.brief());
            let is_initialized = |w: &&&Write| w.body["metadata"]["labels"]["karpenter.sh/initialized"] == "true";
            assert!(
                of_host.iter().filter(before).any(|w| is_initialized(&w)),
                "{host} was not initialized: {}",
                write.brief()
            );
            assert_eq!(
                writes.iter().filter(made).filter(|w| w.at > anchor.at && w.at < write.at).count(),
                1,
                "{}",
                write.brief()
            );
        }
    }
    assert_eq!(&rotated, old);
    let conflicts: Vec<String> = own.iter().filter(|w| w.code == 409).map(|w| w.brief()).collect();
    println!("writes of the controller: {}, conflicts: {conflicts:?}", own.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_moves_node_by_node() {
    three_in_a_row(false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_moves_without_an_extra_node() {
    three_in_a_row(true).await.unwrap();
}
