//! Real nodes rotate on a real control plane.
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
    for claim in &before {
        world::rotated(rig, "api", &world::name(claim)).await?;
    }
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

/// What the audit log must show of each rotation.
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
            // the node that a status write made Ready since the anchor, before this deletion
            let ready = writes.iter().any(|w| {
                w.resource == "nodes/status"
                    && w.at > anchor.at
                    && w.answered < write.at
                    && w.body.to_string().contains("\"Ready\"")
            });
            assert!(ready, "deleted before a new node was Ready: {}", write.brief());
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
