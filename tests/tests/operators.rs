//! What an operator sees and can do while a rotation is under way: Events where people look, and a way to say stop (§7, §11, §13).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use noderotation_cluster::api::{Api, Outcome};
use noderotation_rig::objects::{budget, deployment, node_pool};
use noderotation_rig::{Options, Rig};
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_tests::ask::CLAIMS;
use noderotation_tests::audit;
use noderotation_tests::product::{ACCOUNT, NAMESPACE, chart};
use noderotation_tests::world::{self, PATIENCE};
use noderotation_tests::{Controller, Product};
use serde_json::json;

/// A NodePool `api` with one Pod, its policy and a controller; the names of its NodeClaim and Node.
async fn one_node(product: &Product) -> (Controller, String, String) {
    let rig = &product.rig;
    node_pool("api").apply(rig).unwrap();
    deployment("api", "api", 1).cpu("1200m").apply(rig).unwrap();
    let pods = world::settled(rig, "api", 1).await.unwrap();
    rig.apply(&world::policy("api")).unwrap();
    let controller = product.start_leader().await.unwrap();
    let claim = world::name(&world::claims(rig, "api").await.unwrap()[0]);
    (controller, claim, pods[0]["spec"]["nodeName"].as_str().unwrap().to_owned())
}

async fn is_cordoned(rig: &Rig, node: &str) -> bool {
    rig.get(&format!("/api/v1/nodes/{node}")).await.unwrap()["spec"]["unschedulable"] == true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_rotation_is_called_off() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let (_controller, claim, node) = one_node(&product).await;
    // nothing that Karpenter launches registers any more: the rotation stays pending
    let late = json!({"spec": {"nodeRegistrationDelay": "1h"}});
    rig.merge("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default", late).await.unwrap();
    world::request(rig, &claim, "next-window").await.unwrap();
    let told = world::event(rig, "Cordoned", &node).await.unwrap();
    let stop = format!("kubectl annotate nodeclaim {claim} noderotation.io/rotate=cancel --overwrite");
    assert!(told.contains("by RotationPolicy api") && told.ends_with(&stop), "{told}");
    rig.wait("the placeholder", PATIENCE, async || Ok((world::placeholders(rig).await?.len() == 1).then_some(())))
        .await
        .unwrap();

    rig.kubectl(&["uncordon", &node]).unwrap();
    let told = world::event(rig, "CordonRestored", &node).await.unwrap();
    assert!(told.starts_with("cordoned again") && told.ends_with(&stop), "{told}");
    assert!(is_cordoned(rig, &node).await);

    // the command that the Event gives
    rig.kubectl(&stop.split(' ').skip(1).collect::<Vec<_>>()).unwrap();
    let failed = world::failed(rig, &claim).await.unwrap();
    assert!(failed["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(world::annotation(&failed, keys::ROTATE), None);
    assert!(!is_cordoned(rig, &node).await);
    assert_eq!(world::placeholders(rig).await.unwrap(), Vec::<serde_json::Value>::new());
    let told = world::event(rig, "RotationFailed", &claim).await.unwrap();
    assert!(told.contains("called off by noderotation.io/rotate: cancel; next attempt at"), "{told}");

    // there is nothing more to call off
    rig.wait("the anchor to go", PATIENCE, async || {
        let pool = world::pool(rig, "api").await?;
        Ok(world::annotation(&pool, keys::ACTIVE_ROTATION).is_none().then_some(()))
    })
    .await
    .unwrap();
    world::request(rig, &claim, "cancel").await.unwrap();
    let told = world::event(rig, "RequestNotMet", &claim).await.unwrap();
    assert!(told.contains("nothing to call off"), "{told}");
    let object = rig.get(&format!("{CLAIMS}/{claim}")).await.unwrap();
    assert_eq!(world::annotation(&object, keys::ROTATE), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_drain_says_so_within_seconds_and_goes_on_when_it_may() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    budget(rig, "api", &json!({"maxUnavailable": 0})).unwrap();
    let (_controller, claim, node) = one_node(&product).await;
    world::request(rig, &claim, "next-window").await.unwrap();
    world::in_state(rig, "api", &claim, "draining").await.unwrap();
    let began = Instant::now();
    let told = world::event(rig, "DrainBlocked", &node).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let held = format!("the drain of Node {node} (NodeClaim {claim}) is held by Pod default/api-");
    assert!(told.starts_with(&held), "{told}");
    assert!(told.contains(": PodDisruptionBudget default/api allows no disruption (maxUnavailable: 0); "), "{told}");
    assert!(told.contains("Karpenter deletes the Pod at "), "{told}");
    assert_eq!(world::event(rig, "DrainBlocked", &claim).await.unwrap(), told);
    assert_eq!(world::event(rig, "DrainBlocked", "api").await.unwrap(), told);
    // too late to call it off
    world::request(rig, &claim, "cancel").await.unwrap();
    let told = world::event(rig, "RequestNotMet", &claim).await.unwrap();
    assert!(told.ends_with("cannot be called off: its Node drains already"), "{told}");
    budget(rig, "api", &json!({"maxUnavailable": 1})).unwrap();
    world::rotated(rig, "api", &claim).await.unwrap();
    assert_eq!(world::events(rig, "DrainBlocked", &node).await.unwrap().len(), 1, "told once");
}

/// Whoever installed it does not see our log: the NodePool says why nothing goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_webhook_of_somebody_else_is_told() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let (_controller, claim, _) = one_node(&product).await;
    let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    rig.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "theirs"},
        "webhooks": [{
            "name": "nodes.example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}],
            // it would hold Karpenter and the kubelets as well
            "matchConditions": [{"name": "ours", "expression": format!("request.userInfo.username == '{account}'")}],
        }],
    }))
    .unwrap();
    world::request(rig, &claim, "next-window").await.unwrap();
    let told = world::event(rig, "WriteRefused", "api").await.unwrap();
    assert!(told.contains("the write of step protect") && told.contains("nodes.example.com"), "{told}");
    rig.kubectl(&["delete", "validatingwebhookconfiguration", "theirs"]).unwrap();
    world::rotated(rig, "api", &claim).await.unwrap();
}

/// Whoever asks for a rotation learns at once that it cannot be, and why (§7).
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_cannot_be_met_is_answered_at_once() {
    let product = Product::install_without_webhook().await.unwrap();
    let rig = &product.rig;
    let cases = [
        ("fatal", node_pool("fatal").expire_after("24h"), "ANonPositive"),
        // the webhook would refuse a policy that governs it
        ("static", node_pool("static").replicas(1), "a static NodePool cannot surge"),
        ("frozen", node_pool("frozen"), "frozen by its operator until 2099-01-01T00:00:00Z"),
        ("suspended", node_pool("suspended"), "suspend"),
        ("optedout", node_pool("optedout"), "which somebody has set; remove it"),
    ];
    for (name, pool, _) in cases.clone() {
        pool.apply(rig).unwrap();
        if name != "static" {
            deployment(name, name, 1).cpu("1200m").apply(rig).unwrap();
            world::settled(rig, name, 1).await.unwrap();
        }
        let mut policy = world::policy(name);
        match name {
            "fatal" => policy["spec"]["maintenanceWindows"][0]["days"] = json!(["Sat"]),
            "suspended" => policy["spec"]["suspend"] = json!(true),
            "frozen" => {
                rig.kubectl(&["annotate", "nodepool", name, "noderotation.io/freeze=2099-01-01T00:00:00Z"]).unwrap();
            }
            "optedout" => {
                let node = world::name(&world::nodes(rig, name).await.unwrap()[0]);
                rig.kubectl(&["annotate", "node", &node, "karpenter.sh/do-not-disrupt=true"]).unwrap();
            }
            _ => {}
        }
        rig.apply(&policy).unwrap();
    }
    let _controller = product.start_leader().await.unwrap();
    for (name, _, why) in cases {
        let claim = rig
            .wait("its NodeClaim", PATIENCE, async || Ok(world::claims(rig, name).await?.first().map(world::name)))
            .await
            .unwrap();
        world::request(rig, &claim, "now").await.unwrap();
        let asked = Instant::now();
        let told = world::event(rig, "RequestNotMet", &claim).await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(10), "{name}: {:?}", asked.elapsed());
        assert!(told.contains(why), "{told}");
    }
}

/// Its guard lets only its own controller write: the one that was here before says so when it begins to lead, not in the night
/// in which the first node is due.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_release_is_told_at_the_start() {
    let rig = Rig::start(Options { bare: true, audit: true, ..Options::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    let product = Product::install_bare(rig).unwrap();
    let rig = &product.rig;
    rig.apply(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "api"},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": "x.example", "kind": "X", "name": "x"}, "requirements": []}}},
    }))
    .unwrap();
    let mut first = product.start_leader().await.unwrap();
    first.stop().unwrap();
    assert_eq!(world::events(rig, "WriteRefused", "api").await.unwrap(), [""; 0]);

    let values = "webhook.enabled=false,guardPolicy.enabled=true,crds.enabled=false,fullnameOverride=other";
    rig.helm(&["install", "other", &chart(), "--namespace", "other", "--create-namespace", "--set", values]).unwrap();
    let api = Api::new(product.controller_client().await.unwrap(), 100, 100, Arc::default());
    let body = json!({"metadata": {"annotations": {keys::WINDOW_OPENED_AT: "2026-12-01T00:00:00Z"}}});
    rig.wait("the other guard", PATIENCE, async || {
        let outcome = api.try_patch(Kind::NodePool.named("api"), &body).await;
        Ok(matches!(outcome, Outcome::Rejected(_)).then_some(()))
    })
    .await
    .unwrap();

    let _controller = product.start_leader().await.unwrap();
    let told = world::event(rig, "WriteRefused", "api").await.unwrap();
    assert!(told.contains("ValidatingAdmissionPolicy 'other-guard-karpenter'"), "{told}");
    assert!(told.ends_with("; is a second release of the chart installed, or was one left behind?"), "{told}");
    let pool = world::pool(rig, "api").await.unwrap();
    assert_eq!(world::annotation(&pool, keys::WINDOW_OPENED_AT), None, "a trial stores nothing");
    assert_eq!(audit::rotation(rig).unwrap().len(), 0, "{:?}", audit::rotation(rig).unwrap());
}
