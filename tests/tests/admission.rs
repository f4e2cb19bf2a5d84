//! Admission on a real API server (specification §10): the webhook behind the chart's Service, installed by helm.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::time::Duration;

use noderotation_rig::cluster::Reply;
use noderotation_tests::Product;
use noderotation_tests::ask::{Asker, CLAIMS, POLICIES, POOLS, claim, policy, pool};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

async fn install(values: &[&str]) -> (Product, Asker) {
    let product = Product::install_bare_with_webhook(false, values).await.unwrap();
    let admin = Asker::admin(&product.rig);
    (product, admin)
}

#[track_caller]
fn refused(reply: &Reply, parts: &[&str]) {
    assert_eq!(reply.code, 422, "{:?}", reply.body);
    for part in parts {
        assert!(reply.message().contains(part), "{part} is not in\n{}", reply.message());
    }
}

#[track_caller]
fn fine(reply: &Reply) {
    assert!(matches!(reply.code, 200 | 201), "{}: {}", reply.code, reply.message());
}

#[track_caller]
fn warned(reply: &Reply, part: &str) {
    fine(reply);
    assert!(reply.warnings.iter().any(|w| w.contains(part)), "{part} is not in {:#?}", reply.warnings);
}

#[track_caller]
fn silent(reply: &Reply) {
    fine(reply);
    assert_eq!(reply.warnings, Vec::<String>::new());
}

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tie_is_refused_in_every_way_it_can_arise() {
    let (product, admin) = install(&[]).await;
    silent(&admin.create(POOLS, &pool("api", &json!({"w": "api", "team": "a"}))).await);
    silent(&admin.create(POOLS, &pool("web", &json!({"w": "web"}))).await);
    silent(&admin.create(POLICIES, &policy("w-api", &json!({"w": "api"}))).await);

    // a policy is created
    let reply = admin.create(POLICIES, &policy("team-a", &json!({"team": "a"}))).await;
    refused(&reply, &["spec.nodePoolSelector", "RotationPolicies team-a and w-api", "NodePool api", "add a label"]);
    // its selector changes
    warned(&admin.create(POLICIES, &policy("team-a", &json!({"team": "b"}))).await, "no known NodePool matches both");
    let reply = admin
        .merge(&at(POLICIES, "team-a"), &json!({"spec": {"nodePoolSelector": {"matchLabels": {"team": "a"}}}}))
        .await;
    refused(&reply, &["RotationPolicies team-a and w-api", "NodePool api"]);
    // a pool is created
    let reply = admin.create(POOLS, &pool("both", &json!({"w": "api", "team": "b"}))).await;
    refused(&reply, &["metadata.labels", "RotationPolicies team-a and w-api", "add a label to the selector of one"]);
    // a pool's labels change
    let reply = admin.merge(&at(POOLS, "api"), &json!({"metadata": {"labels": {"team": "b"}}})).await;
    refused(&reply, &["metadata.labels", "RotationPolicies team-a and w-api"]);
    // two policies in one file, faster than any watch
    let two =
        [policy("x1", &json!({"w": "web"})), policy("x2", &json!({"w": "web"}))].map(|p| p.to_string()).join("\n---\n");
    let error = product.rig.apply_text(&two).unwrap_err().to_string();
    assert!(error.contains("RotationPolicies x1 and x2") && error.contains("NodePool web"), "{error}");
    assert_eq!(admin.get(&at(POLICIES, "x1")).await.code, 200);
    assert_eq!(admin.get(&at(POLICIES, "x2")).await.code, 404);
    // one lets go of a pool that two others then tie for
    silent(&admin.create(POOLS, &pool("deep", &json!({"k": "1", "l": "1", "m": "1"}))).await);
    fine(&admin.create(POLICIES, &policy("top", &json!({"k": "1", "l": "1", "m": "1"}))).await);
    fine(&admin.create(POLICIES, &policy("low-1", &json!({"k": "1"}))).await);
    fine(&admin.create(POLICIES, &policy("low-2", &json!({"l": "1"}))).await);
    let narrowed = json!({"spec": {"nodePoolSelector": {"matchLabels": {"k": "2"}}}});
    refused(
        &admin.merge(&at(POLICIES, "top"), &narrowed).await,
        &["RotationPolicies low-1 and low-2", "NodePool deep", "no longer selects it"],
    );
    // a deletion is never refused, but told of
    warned(
        &admin.delete(&at(POLICIES, "top")).await,
        "RotationPolicies low-1 and low-2 are equally specific for NodePool deep",
    );
    // what was so before keeps nobody from changing something else
    let other = json!({"spec": {"suspend": true}});
    warned(&admin.merge(&at(POLICIES, "low-1"), &other).await, "RotationPolicies low-1 and low-2");
    let limits = json!({"spec": {"limits": {"cpu": "10"}}});
    warned(&admin.merge(&at(POOLS, "deep"), &limits).await, "RotationPolicies low-1 and low-2");
    // and a dry run says the same
    let reply = admin.apply(&at(POLICIES, "team-a"), "test", true, &policy("team-a", &json!({"team": "a"}))).await;
    refused(&reply, &["RotationPolicies team-a and w-api"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pools_templates_freezes_and_requests() {
    let (_product, admin) = install(&[]).await;
    let with = |name: &str, pointer: &str, value: Value| {
        let mut object = pool(name, &json!({"w": "api"}));
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        object
    };
    // static, from the pool's side and from the policy's
    fine(&admin.create(POOLS, &with("static", "/spec/replicas", json!(2))).await);
    let reply = admin.create(POLICIES, &policy("w-api", &json!({"w": "api"}))).await;
    refused(&reply, &["spec.nodePoolSelector", "NodePool static", "is static", "exclude it by a label"]);
    fine(&admin.delete(&at(POOLS, "static")).await);
    assert_pool_is_gone(&admin, "static").await;
    silent(&admin.create(POLICIES, &policy("w-api", &json!({"w": "api"}))).await);
    let reply = admin.create(POOLS, &with("static", "/spec/replicas", json!(2))).await;
    refused(&reply, &["spec.replicas", "a static NodePool cannot surge", "RotationPolicy w-api"]);
    silent(&admin.create(POOLS, &pool("api", &json!({"w": "api"}))).await);

    // our keys in the template
    let template = with("bad", "/spec/template/metadata", json!({"annotations": {"noderotation.io/rotate": "now"}}));
    refused(
        &admin.create(POOLS, &template).await,
        &["spec.template.metadata.annotations[noderotation.io/rotate]", "found \"now\"", "not in the template"],
    );
    // freeze
    let freeze = |value: &str| json!({"metadata": {"annotations": {"noderotation.io/freeze": value}}});
    refused(
        &admin.merge(&at(POOLS, "api"), &freeze("72h")).await,
        &["metadata.annotations[noderotation.io/freeze]", "found \"72h\"", "RFC 3339"],
    );
    warned(&admin.merge(&at(POOLS, "api"), &freeze("2020-01-01T00:00:00Z")).await, "has passed");
    silent(&admin.merge(&at(POOLS, "api"), &freeze("2999-01-01T00:00:00Z")).await);
    silent(
        &admin.merge(&at(POOLS, "api"), &json!({"metadata": {"annotations": {"noderotation.io/freeze": null}}})).await,
    );
    // expireAfter
    let shorter = json!({"spec": {"template": {"spec": {"expireAfter": "96h"}}}});
    let reply = admin.merge(&at(POOLS, "api"), &shorter).await;
    warned(&reply, "makes every node of this NodePool drift");
    warned(&reply, "RotationPolicy w-api: ANonPositive");
    // findings of a policy, for every pool it would govern
    fine(&admin.create(POOLS, &with("api-2", "/spec/template/spec/expireAfter", json!("96h"))).await);
    let once = json!({"spec": {"minRotationChances": 3}});
    warned(&admin.merge(&at(POLICIES, "w-api"), &once).await, "NodePools api and api-2: ANonPositive");

    // many at once: as many as the API server lets through, and a count of the rest
    for n in 0..40 {
        fine(
            &admin
                .create(
                    POOLS,
                    &with(&format!("many-{n}"), "/spec/template/spec/expireAfter", json!(format!("{}h", 97 + n))),
                )
                .await,
        );
    }
    let reply = admin.merge(&at(POLICIES, "w-api"), &json!({"spec": {"minRotationChances": 4}})).await;
    warned(&reply, "more warnings: kubectl noderotation check");
    warned(&reply, "expireAfter 4d − (4 × 4d between windows"); // beyond ASCII, as it was sent
    let characters: usize = reply.warnings.iter().map(|w| w.chars().count()).sum();
    assert!(
        reply.warnings.len() > 5 && characters > 3_000 && characters <= 4_096,
        "{} warnings, {characters}",
        reply.warnings.len()
    );

    // the operator's request
    silent(&admin.create(CLAIMS, &claim("api-1", "api")).await);
    let rotate = |value: &str| json!({"metadata": {"annotations": {"noderotation.io/rotate": value}}});
    refused(
        &admin.merge(&at(CLAIMS, "api-1"), &rotate("soon")).await,
        &["metadata.annotations[noderotation.io/rotate]", "found \"soon\"", "write now, next-window or cancel"],
    );
    silent(&admin.merge(&at(CLAIMS, "api-1"), &rotate("now")).await);
    warned(&admin.merge(&at(CLAIMS, "api-1"), &freeze("2999-01-01T00:00:00Z")).await, "set it on its NodePool");
    warned(&admin.merge(&at(POOLS, "api"), &rotate("now")).await, "set it on the NodeClaim");
}

/// Asserts that a NodePool is gone. Nothing to wait for: without Karpenter it has no finalizers.
async fn assert_pool_is_gone(admin: &Asker, name: &str) {
    assert_eq!(admin.get(&at(POOLS, name)).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pools_may_be_allowed_with_a_warning() {
    let (_product, admin) = install(&["--set", "webhook.staticPools=warn"]).await;
    let mut fixed = pool("fixed", &json!({"w": "api"}));
    fixed["spec"]["replicas"] = json!(1);
    silent(&admin.create(POOLS, &fixed).await);
    warned(&admin.create(POLICIES, &policy("w-api", &json!({"w": "api"}))).await, "NodePool fixed, which is static");
    fixed["metadata"]["name"] = json!("fixed-2");
    warned(&admin.create(POOLS, &fixed).await, "spec.replicas: a static NodePool cannot surge");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_told_everything_that_is_wrong_before_schema_and_cel() {
    let (product, admin) = install(&[]).await;
    let mut bad = policy("bad", &json!({"w": "api"}));
    bad["spec"]["maintenanceWindows"][0] = json!({"timezone": "JST", "days": "Mon", "start": "2:00", "end": "25:00"});
    bad["spec"]["minRotationChances"] = json!("two");
    bad["spec"]["surge"] = json!({"readyTimeout": "1d"});
    let parts = [
        "spec.maintenanceWindows[0].timezone: found \"JST\"",
        "write Asia/Tokyo",
        "spec.maintenanceWindows[0].days",
        "spec.maintenanceWindows[0].start: found \"2:00\"",
        "write \"02:00\"",
        "spec.maintenanceWindows[0].end",
        "spec.minRotationChances",
        "spec.surge.readyTimeout: found \"1d\"",
        "write 24h",
    ];
    let reply = admin.create(POLICIES, &bad).await;
    refused(&reply, &parts);
    assert!(
        reply.message().starts_with("admission webhook \"defaults.noderotation.io\" denied the request: spec."),
        "{}",
        reply.message()
    );
    // server-side apply itself refuses what has another type than the schema says; the rest is told as above
    bad["spec"]["maintenanceWindows"][0]["days"] = json!(["Mon"]);
    bad["spec"]["minRotationChances"] = json!(0);
    let error = product.rig.apply(&bad).unwrap_err().to_string();
    assert!(
        parts
            .iter()
            .filter(|part| !part.contains("[0].days") && !part.contains("minRotation"))
            .all(|part| error.contains(part)),
        "{error}"
    );
    // shapes that no reader expects
    for spec in [
        json!(null),
        json!([]),
        json!("x"),
        json!({}),
        json!({"nodePoolSelector": 7}),
        json!({"maintenanceWindows": [7, null, {}]}),
    ] {
        let mut odd = policy("odd", &json!({}));
        odd["spec"] = spec.clone();
        let reply = admin.create(POLICIES, &odd).await;
        assert!(matches!(reply.code, 400 | 422), "{spec}: {} {}", reply.code, reply.message());
    }
    let mut missing = policy("odd", &json!({}));
    missing.as_object_mut().unwrap().remove("spec");
    refused(&admin.create(POLICIES, &missing).await, &["spec"]);
    // inverted signs are legal
    let mut signs = policy("signs", &json!({"w": "x"}));
    signs["spec"]["maintenanceWindows"][0]["timezone"] = json!("Etc/GMT+9");
    warned(&admin.create(POLICIES, &signs).await, "spec.maintenanceWindows[0].timezone");
    // a generated name
    let mut generated = policy("x", &json!({"w": "y"}));
    generated["metadata"] = json!({"generateName": "made-"});
    let reply = admin.create(POLICIES, &generated).await;
    fine(&reply);
    assert!(reply.body["metadata"]["name"].as_str().unwrap().starts_with("made-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_a_changed_spec_is_ever_judged() {
    let (product, admin) = install(&[]).await;
    let rig = &product.rig;
    fine(&admin.create(POOLS, &pool("api", &json!({"w": "api"}))).await);
    // stored before any rule existed: without schema, CEL and webhook
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rotationpolicies.noderotation.io";
    let strict = rig.get(crd).await.unwrap();
    let configurations = ["mutating", "validating"]
        .map(|kind| format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/noderotation"));
    let mut saved = Vec::new();
    for path in &configurations {
        saved.push(rig.get(path).await.unwrap());
        fine(&admin.delete(path).await);
    }
    let lax = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut loosened = strict.clone();
    loosened["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = lax;
    fine(&admin.put(crd, &loosened).await);
    let mut bad = policy("bad", &json!({"w": "api"}));
    bad["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bad["spec"]["maintenanceWindows"] = json!("Mon");
    rig.wait("the lax schema", PATIENCE, async || Ok((admin.create(POLICIES, &bad).await.code == 201).then_some(())))
        .await
        .unwrap();
    let now = rig.get(crd).await.unwrap();
    let mut tightened = strict.clone();
    tightened["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
    fine(&admin.put(crd, &tightened).await);
    for (path, mut configuration) in configurations.iter().zip(saved) {
        for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"] {
            configuration["metadata"].as_object_mut().unwrap().remove(field);
        }
        fine(&admin.create(path.rsplit_once('/').unwrap().0, &configuration).await);
    }
    let wrong = json!({"spec": {"suspend": "perhaps"}});
    rig.wait("schema and webhooks to be back", PATIENCE, async || {
        let reply = admin.merge(&at(POLICIES, "bad"), &wrong).await;
        Ok((reply.code == 422 && reply.message().contains("denied the request")).then_some(()))
    })
    .await
    .unwrap();

    let webhook = product.webhook.as_ref().unwrap();
    let before = webhook.reviews().await;
    let bad = at(POLICIES, "bad");
    silent(&admin.merge(&bad, &json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})).await);
    silent(&admin.merge(&format!("{bad}/status"), &json!({"status": {"candidates": 1}})).await);
    silent(&admin.merge(&at(POOLS, "api"), &json!({"metadata": {"annotations": {"c": "d"}}})).await);
    silent(
        &admin.merge(&format!("{}/status", at(POOLS, "api")), &json!({"status": {"resources": {"nodes": "3"}}})).await,
    );
    silent(&admin.delete(&bad).await);
    silent(&admin.merge(&bad, &json!({"metadata": {"finalizers": null}})).await);
    assert_eq!(admin.get(&bad).await.code, 404);
    // the deletion alone was asked about
    assert_eq!(webhook.reviews().await - before, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_managers_apply_the_same_policy_and_nothing_drifts() {
    let (_product, admin) = install(&["--set", "webhook.defaultTimezone=Asia/Tokyo"]).await;
    let mut whole = policy("shared", &json!({"w": "api"}));
    whole["spec"]["maintenanceWindows"][0].as_object_mut().unwrap().remove("timezone");
    let path = at(POLICIES, "shared");
    silent(&admin.apply(&path, "kubectl", false, &whole).await);
    let base = admin.get(&path).await.body;
    assert_eq!(base["spec"]["maintenanceWindows"][0]["timezone"], "Asia/Tokyo", "filled in by the webhook's patch");
    let part = |spec: Value| json!({"apiVersion": "noderotation.io/v1alpha1", "kind": "RotationPolicy", "metadata": {"name": "shared"}, "spec": spec});
    silent(&admin.apply(&path, "security", false, &part(json!({"suspend": false}))).await);
    silent(&admin.apply(&path, "platform", false, &part(json!({"surge": {"cooldownAfter": "24h"}}))).await);
    let all = admin.get(&path).await.body;
    assert_eq!(all["spec"]["surge"]["cooldownAfter"], "24h", "the spelling stays");
    assert_eq!(all["spec"]["nodePoolSelector"], base["spec"]["nodePoolSelector"]);
    for (manager, object) in [("kubectl", &whole), ("platform", &part(json!({"surge": {"cooldownAfter": "24h"}})))] {
        let again = admin.apply(&path, manager, false, object).await;
        silent(&again);
        assert_eq!(again.body["metadata"]["resourceVersion"], all["metadata"]["resourceVersion"], "{manager}");
    }
    // one of them makes a mistake: he alone is refused
    let wrong = part(json!({"surge": {"cooldownAfter": "1d"}}));
    refused(&admin.apply(&path, "platform", false, &wrong).await, &["spec.surge.cooldownAfter"]);
    silent(&admin.apply(&path, "security", false, &part(json!({"suspend": true}))).await);
}

/// Ready only with everything known; on a signal it says that it is not, serves on for a while, and ends without a loss.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_begins_and_ends_cleanly() {
    let (mut product, admin) = install(&[]).await;
    silent(&admin.create(POOLS, &pool("api", &json!({"w": "api"}))).await);
    product.webhook = None;
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/noderotation-webhook";
    let rights = admin.get(binding).await.body;
    fine(&admin.delete(binding).await);
    let listen = "127.0.0.1:0".parse().unwrap();
    let blind = product.spawn_webhook(listen, &[]).await.unwrap();
    let log = || std::fs::read_to_string(blind.process.log()).unwrap();
    product
        .rig
        .wait("the webhook to say what it may not", PATIENCE, async || {
            Ok(log().contains("nodepools.karpenter.sh is forbidden").then_some(()))
        })
        .await
        .unwrap();
    assert!(!blind.is_ready().await);
    drop(blind);
    let mut rights = rights;
    for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
        rights["metadata"].as_object_mut().unwrap().remove(field);
    }
    fine(&admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &rights).await);

    let mut webhook = product.start_webhook_with(&["--shutdown-delay", "3s"]).await.unwrap();
    let works = async || {
        admin
            .ask("POST", &format!("{POLICIES}?dryRun=All"), "application/json", &policy("p", &json!({"w": "x"})))
            .await
            .code
            == 201
    };
    product.rig.wait("admission", PATIENCE, async || Ok(works().await.then_some(()))).await.unwrap();
    webhook.process.signal("TERM").unwrap();
    product
        .rig
        .wait("the webhook to be unready", PATIENCE, async || Ok((!webhook.is_ready().await).then_some(())))
        .await
        .unwrap();
    for _ in 0..20 {
        assert!(works().await, "it serves on while API servers may still ask");
    }
    assert_eq!(webhook.process.wait(PATIENCE).unwrap(), Some(0), "{}", webhook.process.tail(5));
}
