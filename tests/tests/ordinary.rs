//! Ordinary writes of kubelets, Karpenter and people never call the webhook, and work while it is down (§10).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use futures::{StreamExt, TryStreamExt, stream};
use noderotation_rig::Rig;
use noderotation_rig::objects::{budget, deployment, node_pool};
use noderotation_tests::ask::{Asker, CLAIMS, POLICIES, POOLS, STRATEGIC};
use noderotation_tests::world;
use noderotation_tests::{Controller, Product};
use serde_json::json;

const NODES: usize = 1_000;

/// The number of calls of our webhooks, as the API server counts them.
async fn calls(admin: &Asker) -> u64 {
    let reply = admin.get("/metrics").await;
    let page = reply.body.as_str().unwrap_or_default();
    assert!(page.contains("apiserver_request_total"), "no metrics");
    let ours = |line: &&str| {
        (line.starts_with("apiserver_admission_webhook_request_total")
            || line.starts_with("apiserver_admission_webhook_fail_open_count"))
            && line.contains("noderotation.io")
    };
    page.lines().filter(ours).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The writes of the kubelets of a thousand nodes, and of people who label and annotate these nodes.
async fn thousand_nodes(admin: &Asker) {
    let each = |n: usize| async move {
        let name = format!("plain-{n}");
        let path = format!("/api/v1/nodes/{name}");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"plain": "true"}}});
        let status = |message: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": message}]}});
        let replies = [
            admin.create("/api/v1/nodes", &node).await,
            admin.ask("PATCH", &format!("{path}/status"), STRATEGIC, &status("posting")).await,
            admin.ask("PATCH", &format!("{path}/status"), STRATEGIC, &status("still posting")).await,
            admin.merge(&path, &json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}}})).await,
            admin.delete(&path).await,
        ];
        match replies.iter().find(|r| !matches!(r.code, 200 | 201)) {
            None => Ok(()),
            Some(reply) => Err(format!("{name}: {} {}", reply.code, reply.message())),
        }
    };
    stream::iter(0..NODES).map(each).buffer_unordered(16).try_collect::<Vec<()>>().await.unwrap();
}

/// The everyday writes of people, the scheduler and Karpenter.
async fn daily_work(rig: &Rig, round: usize) {
    let app = format!("app-{round}");
    deployment(&app, "api", 2).cpu("1200m").apply(rig).unwrap();
    budget(rig, &app, &json!({"maxUnavailable": 1})).unwrap();
    let pods = world::settled(rig, &app, 2).await.unwrap();
    let node = pods[0]["spec"]["nodeName"].as_str().unwrap();
    let claim = world::name(&world::claims(rig, "api").await.unwrap()[0]);
    for command in [
        vec!["label", "node", node, "team=a"],
        vec!["annotate", "node", node, "note=x"],
        // in the second round it may be a node of the first
        vec!["taint", "node", node, "example.com/x=y:PreferNoSchedule", "--overwrite"],
        vec!["cordon", node],
        vec!["uncordon", node],
        vec!["annotate", "nodeclaim", &claim, "note=x", "--overwrite"],
        vec!["annotate", "nodepool", "api", "note=x", "--overwrite"],
        vec!["scale", "deployment", &app, "--replicas=3"],
    ] {
        rig.kubectl(&command).unwrap();
    }
    world::settled(rig, &app, 3).await.unwrap();
    // Karpenter launches, registers, taints, drains and removes
    rig.kubectl(&["delete", "deployment", &app]).unwrap();
    rig.kubectl(&["delete", "nodeclaim", &claim, "--wait=false"]).unwrap();
    rig.wait("a node to be gone", world::PATIENCE, async || {
        Ok(rig.try_get(&format!("{CLAIMS}/{claim}")).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
}

async fn rotation(product: &Product, controller: &Controller, app: &str) {
    let rig = &product.rig;
    deployment(app, "api", 1).cpu("1200m").apply(rig).unwrap();
    let pods = world::settled(rig, app, 1).await.unwrap();
    let claims = world::claims(rig, "api").await.unwrap();
    let claim =
        claims.iter().find(|c| c["status"]["nodeName"] == pods[0]["spec"]["nodeName"]).map(world::name).unwrap();
    world::request(rig, &claim, "next-window").await.unwrap();
    world::rotated(rig, "api", &claim).await.unwrap();
    assert!(controller.sample("noderotation_completed_total", "success").await.unwrap() >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_work_asks_nobody_and_goes_on_while_the_webhook_is_down() {
    let mut product = Product::install().await.unwrap();
    let admin = Asker::admin(&product.rig);
    node_pool("api").apply(&product.rig).unwrap();
    product.rig.apply(&world::policy("api")).unwrap();
    let controller = product.start_leader().await.unwrap();
    // the operator's request alone is asked about
    let webhook = product.webhook.as_ref().unwrap();
    let (own, theirs) = (webhook.reviews().await, calls(&admin).await);
    assert!(own > 0 && theirs > 0);

    thousand_nodes(&admin).await;
    daily_work(&product.rig, 1).await;
    assert_eq!((webhook.reviews().await, calls(&admin).await), (own, theirs), "ordinary work was asked about");
    rotation(&product, &controller, "rotated").await;
    assert_eq!(
        (webhook.reviews().await, calls(&admin).await),
        (own + 1, theirs + 1),
        "one request to rotate, nothing else"
    );

    product.webhook = None;
    daily_work(&product.rig, 2).await;
    rotation(&product, &controller, "rotated-again").await;
    // an operator stops everything, although nobody answers
    let freeze = json!({"metadata": {"annotations": {"noderotation.io/freeze": "2999-01-01T00:00:00Z"}}});
    assert_eq!(admin.merge(&format!("{POOLS}/api"), &freeze).await.code, 200);
    // what does need the webhook says so
    let reply = admin.merge(&format!("{POLICIES}/api"), &json!({"spec": {"minRotationChances": 1}})).await;
    assert_eq!(reply.code, 500);
    assert!(
        reply.message().contains("failed calling webhook \"rotationpolicies.noderotation.io\""),
        "{}",
        reply.message()
    );
    let mark = json!({"metadata": {"annotations": {"noderotation.io/active-rotation": "x"}}});
    assert_eq!(admin.merge(&format!("{POOLS}/api"), &mark).await.code, 500);
    // a template with a key of ours gets in while nobody answers; the guard must not keep its nodes from joining afterwards
    node_pool("marked").node_label("noderotation.io/team", "a").apply(&product.rig).unwrap();
    // and a policy can still be labelled and removed
    assert_eq!(admin.merge(&format!("{POLICIES}/api"), &json!({"metadata": {"labels": {"a": "b"}}})).await.code, 200);
    assert_eq!(admin.delete(&format!("{POLICIES}/api")).await.code, 200);

    let webhook = product.start_webhook().await.unwrap();
    let error =
        node_pool("marked-too").node_label("noderotation.io/team", "a").apply(&product.rig).unwrap_err().to_string();
    assert!(error.contains("spec.template.metadata.labels[noderotation.io/team]"), "{error}");
    deployment("marked", "marked", 1).cpu("1200m").apply(&product.rig).unwrap();
    world::settled(&product.rig, "marked", 1).await.unwrap();
    let claim = world::claims(&product.rig, "marked").await.unwrap().remove(0);
    assert_eq!(claim["metadata"]["labels"]["noderotation.io/team"], "a");
    assert!(
        webhook.reviews_with("guard/annotations").await > 0 && webhook.reviews_with("verdict=\"warned\"").await > 0
    );
}
