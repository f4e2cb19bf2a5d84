//! What can happen around a rotation, each scenario on a control plane of its own (§8, §9).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::unreadable_literal,
    missing_docs
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use noderotation_rig::objects::{budget, deployment, node_pool};
use noderotation_tests::ask::CLAIMS;
use noderotation_tests::audit;
use noderotation_tests::world::{self, PATIENCE};
use noderotation_tests::write_block::WRITE_BLOCKS;
use noderotation_tests::{Controller, Product};
use serde_json::json;

/// Creates a NodePool with one workload, one Pod to a node, and waits until all Pods run; its NodeClaims, oldest first.
async fn pool_of(product: &Product, name: &str, nodes: u32) -> Vec<String> {
    let rig = &product.rig;
    node_pool(name).apply(rig).unwrap();
    deployment(name, name, nodes).cpu("1200m").apply(rig).unwrap();
    world::settled(rig, name, nodes as usize).await.unwrap();
    world::claims(rig, name).await.unwrap().iter().map(world::name).collect()
}

async fn request(product: &Product, claim: &str) {
    world::request(&product.rig, claim, "next-window").await.unwrap();
}

/// The number of reconcile passes without an error so far.
async fn passes(controller: &Controller) -> f64 {
    controller.sample("noderotation_reconcile_total", "success").await.unwrap_or(0.0)
}

/// Waits until the controller has completed more such passes than `before`.
async fn looked(product: &Product, controller: &Controller, before: f64) {
    let done = async || Ok((passes(controller).await > before).then_some(()));
    product.rig.wait("another pass", PATIENCE, done).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_window_writes_nothing_and_its_opening_needs_no_event() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let claims = pool_of(&product, "api", 1).await;
    // the next whole minute that leaves time to see the closed window first
    let now = Timestamp::now();
    let open = Timestamp::from_second((now.as_second() + 45).div_euclid(60) * 60 + 60).unwrap();
    let mut policy = world::policy("api");
    policy["spec"]["maintenanceWindows"] = world::window(open, 10);
    rig.apply(&policy).unwrap();
    let controller = product.start_leader().await.unwrap();
    let before = passes(&controller).await;
    request(&product, &claims[0]).await;
    looked(&product, &controller, before).await;
    assert_eq!(controller.sample("noderotation_window_active", "api").await, Some(0.0));
    assert!(Timestamp::now() < open, "too slow to see the closed window");
    assert_eq!(audit::rotation(rig).unwrap().iter().map(audit::Write::brief).collect::<Vec<_>>(), Vec::<String>::new());

    world::rotated(rig, "api", &claims[0]).await.unwrap();
    let own = audit::rotation(rig).unwrap();
    let anchor = own.iter().find(|w| w.annotation("active-rotation").is_some()).unwrap();
    assert!(own.iter().all(|w| w.at >= open), "{}", own[0].brief());
    println!("anchored {:?} after the window opened", anchor.answered.duration_since(open));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_the_drain_and_nothing_else_starts_in_that_pool() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let held = pool_of(&product, "held", 2).await;
    let free = pool_of(&product, "free", 1).await;
    budget(rig, "held", &json!({"maxUnavailable": 0})).unwrap();
    for name in ["held", "free"] {
        rig.apply(&world::policy(name)).unwrap();
    }
    let controller = product.start_leader().await.unwrap();
    for claim in &held {
        request(&product, claim).await;
    }
    let draining = rig
        .wait("a drain that the budget holds", PATIENCE, async || {
            let claims = world::claims(rig, "held").await?;
            Ok(claims.iter().find(|c| !c["metadata"]["deletionTimestamp"].is_null()).map(world::name))
        })
        .await
        .unwrap();
    // the other pool's rotation goes on meanwhile
    request(&product, &free[0]).await;
    world::rotated(rig, "free", &free[0]).await.unwrap();
    // and a pass over the held pool, which a changed label triggers, starts nothing
    let before = passes(&controller).await;
    rig.kubectl(&["label", "nodepool", "held", "test=look"]).unwrap();
    looked(&product, &controller, before).await;

    let other = held.iter().find(|c| **c != draining).unwrap();
    let claims = world::claims(rig, "held").await.unwrap();
    let state = |name: &str| {
        claims
            .iter()
            .find(|c| world::name(c) == name)
            .map(|c| world::annotation(c, "noderotation.io/state").map(str::to_owned))
    };
    assert_eq!(state(&draining), Some(Some("draining".into())));
    assert_eq!(state(other), Some(None), "a second rotation began");
    assert_eq!(claims.len(), 3, "one surge node, no more");
    assert!(world::placeholders(rig).await.unwrap().is_empty(), "the placeholder goes when the drain starts");
    world::settled(rig, "held", 2).await.unwrap();

    budget(rig, "held", &json!({"maxUnavailable": 1})).unwrap();
    for claim in [&draining, other] {
        world::rotated(rig, "held", claim).await.unwrap();
    }
    world::settled(rig, "held", 2).await.unwrap();
    for claim in &held {
        assert!(
            world::events(rig, "SurgeUnschedulable", claim).await.unwrap().is_empty(),
            "told of every young placeholder"
        );
    }
}

/// Without a `terminationGracePeriod` a budget that never allows a disruption would hold the drain for ever, and the pool
/// with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_would_never_drain_is_left_alone_and_the_others_go() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    node_pool("api").grace(None).apply(rig).unwrap();
    let claim_of = async |app: &str| {
        deployment(app, "api", 1).cpu("1200m").apply(rig).unwrap();
        let pods = world::settled(rig, app, 1).await.unwrap();
        let claims = world::claims(rig, "api").await.unwrap();
        let own = claims.iter().find(|claim| claim["status"]["nodeName"] == pods[0]["spec"]["nodeName"]);
        world::name(own.unwrap())
    };
    // the older one would go first
    let held = claim_of("held").await;
    let free = claim_of("free").await;
    assert_ne!(held, free);
    budget(rig, "held", &json!({"maxUnavailable": 0})).unwrap();
    budget(rig, "free", &json!({"maxUnavailable": 1})).unwrap();
    for claim in [&held, &free] {
        request(&product, claim).await;
    }
    let controller = product.start_leader().await.unwrap();
    rig.apply(&world::policy("api")).unwrap();

    let note = world::event(rig, "Undrainable", &held).await.unwrap();
    assert!(
        note.contains("Pod default/held-")
            && note.contains("PodDisruptionBudget default/held allows no disruption (maxUnavailable: 0)")
            && note.contains("spec.template.spec.terminationGracePeriod"),
        "{note}"
    );
    let unmet = world::event(rig, "RequestNotMet", &held).await.unwrap();
    assert!(unmet.contains("PodDisruptionBudget default/held"), "{unmet}");
    world::rotated(rig, "api", &free).await.unwrap();
    world::settled(rig, "free", 1).await.unwrap();
    assert_eq!(world::events(rig, "Undrainable", &free).await.unwrap(), Vec::<String>::new());

    let before = passes(&controller).await;
    rig.kubectl(&["label", "nodepool", "api", "test=look"]).unwrap();
    looked(&product, &controller, before).await;
    let claim = rig.get(&format!("/apis/karpenter.sh/v1/nodeclaims/{held}")).await.unwrap();
    assert!(claim["metadata"]["deletionTimestamp"].is_null());
    let node = rig.get(&format!("/api/v1/nodes/{}", claim["status"]["nodeName"].as_str().unwrap())).await.unwrap();
    assert!(node["spec"]["unschedulable"].is_null(), "cordoned");
    let touched = [&held, &world::name(&node)];
    let writes: Vec<String> = audit::rotation(rig)
        .unwrap()
        .iter()
        .filter(|write| touched.iter().any(|name| **name == write.name))
        .map(audit::Write::brief)
        .collect();
    assert_eq!(writes, Vec::<String>::new());

    // once a disruption is allowed it goes like any other
    budget(rig, "held", &json!({"maxUnavailable": 1})).unwrap();
    rig.kubectl(&["label", "nodepool", "api", "test=again", "--overwrite"]).unwrap();
    world::rotated(rig, "api", &held).await.unwrap();
    world::settled(rig, "held", 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_under_the_limits_nothing_starts() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    node_pool("api").limits(json!({"cpu": "2"})).apply(rig).unwrap();
    deployment("api", "api", 1).cpu("1200m").apply(rig).unwrap();
    world::settled(rig, "api", 1).await.unwrap();
    let claim = world::name(&world::claims(rig, "api").await.unwrap()[0]);
    rig.apply(&world::policy("api")).unwrap();
    let _controller = product.start_leader().await.unwrap();
    request(&product, &claim).await;
    let note = world::event(rig, "InsufficientHeadroom", "api").await.unwrap();
    assert!(note.contains("1200m cpu") && note.contains("limit 2"), "{note}");
    assert_eq!(world::annotation(&world::pool(rig, "api").await.unwrap(), "noderotation.io/active-rotation"), None);
    // more room, and it goes
    rig.merge("/apis/karpenter.sh/v1/nodepools/api", json!({"spec": {"limits": {"cpu": "10"}}})).await.unwrap();
    world::rotated(rig, "api", &claim).await.unwrap();
    assert_eq!(world::events(rig, "InsufficientHeadroom", "api").await.unwrap().len(), 1, "told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn capacity_that_never_comes_is_rolled_back_and_tried_again_after_its_backoff() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let claims = pool_of(&product, "api", 1).await;
    let mut policy = world::policy("api");
    policy["spec"]["surge"] =
        json!({"readyTimeout": "30s", "cooldownAfter": "0s", "failurePause": "2s", "retryBackoff": "20s"});
    rig.apply(&policy).unwrap();
    // from now on nodes never register
    rig.merge(
        "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default",
        json!({"spec": {"nodeRegistrationDelay": "1h"}}),
    )
    .await
    .unwrap();
    let node = async || {
        let nodes = world::nodes(rig, "api").await.unwrap();
        assert_eq!(nodes.len(), 1);
        let mut node = nodes[0].clone();
        node["metadata"] =
            json!({"annotations": node["metadata"]["annotations"], "labels": node["metadata"]["labels"]});
        (node["metadata"].clone(), node["spec"].clone())
    };
    let before = node().await;
    let _controller = product.start_leader().await.unwrap();
    // a request would end with the attempt; an old node asks again and again
    let override_age = json!({"spec": {"ageThreshold": "1s"}});
    rig.merge("/apis/noderotation.io/v1alpha1/rotationpolicies/api", override_age).await.unwrap();

    let failed = |count: &'static str| {
        let claim = claims[0].clone();
        async move {
            rig.wait("the attempt to fail", PATIENCE, async || {
                let object = rig.get(&format!("/apis/karpenter.sh/v1/nodeclaims/{claim}")).await?;
                let pool = world::pool(rig, "api").await?;
                let done = world::annotation(&object, "noderotation.io/state") == Some("failed")
                    && world::annotation(&object, "noderotation.io/retry-count") == Some(count)
                    && world::annotation(&pool, "noderotation.io/active-rotation").is_none();
                Ok(done.then_some((object, pool)))
            })
            .await
            .unwrap()
        }
    };
    let (object, pool) = failed("1").await;
    assert_eq!(
        world::annotation(&pool, "noderotation.io/last-failure-at"),
        world::annotation(&object, "noderotation.io/failed-at")
    );
    assert_eq!(world::annotation(&object, "noderotation.io/started-at"), None);
    assert_eq!(node().await, before, "the old node is as it was before");
    assert!(world::placeholders(rig).await.unwrap().is_empty());
    let note = world::event(rig, "RotationFailed", &claims[0]).await.unwrap();
    let late = world::event(rig, "SurgeUnschedulable", &claims[0]).await.unwrap();
    assert!(late.contains("not schedulable"), "{late}");
    assert!(note.contains("attempt 1 failed") && note.contains("readyTimeout 30s"), "{note}");
    // what was launched for us and never registered is taken back
    rig.wait("the surge claim to be reaped", PATIENCE, async || {
        Ok((world::claims(rig, "api").await?.len() == 1).then_some(()))
    })
    .await
    .unwrap();

    let (_, _) = failed("2").await;
    let own = audit::rotation(rig).unwrap();
    let at = |w: &audit::Write, key: &str| w.annotation(key).flatten().and_then(|t| t.parse::<Timestamp>().ok());
    let failed_at = own.iter().find_map(|w| at(w, "failed-at")).unwrap();
    let started: Vec<Timestamp> = own.iter().filter_map(|w| at(w, "started-at")).collect();
    assert_eq!(started.len(), 2);
    assert!(started[1] >= failed_at + SignedDuration::from_secs(20), "{started:?} after {failed_at}");
    assert!(!own.iter().any(|w| w.verb == "delete" && w.resource == "nodeclaims" && w.name == claims[0]));
}

/// A controller is killed in each phase; the next one goes on with the same claim, and never with two.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_controllers_rotation_goes_on() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    pool_of(&product, "api", 1).await;
    rig.apply(&world::policy("api")).unwrap();
    for block in WRITE_BLOCKS {
        let claims: Vec<String> = world::claims(rig, "api").await.unwrap().iter().map(world::name).collect();
        assert_eq!(claims.len(), 1, "before {}", block.step);
        let since = Timestamp::now();
        block.put_up(rig).await.unwrap();
        let mut first = product
            .start_leader_with(&["--lease-duration", "5s", "--renew-deadline", "4s", "--retry-period", "500ms"])
            .await
            .unwrap();
        request(&product, &claims[0]).await;
        let refused = format!("step=\"{}\",outcome=\"rejected\"", block.step);
        rig.wait(&format!("a rotation that stands before {}", block.step), PATIENCE, async || {
            first.process.check()?;
            Ok(first.sample("noderotation_write_outcomes_total", &refused).await.map(|_| ()))
        })
        .await
        .unwrap();
        first.process.kill();
        block.lift(rig).await.unwrap();

        let mut second = product.start_leader().await.unwrap();
        world::rotated(rig, "api", &claims[0]).await.unwrap();
        world::settled(rig, "api", 1).await.unwrap();
        let after: BTreeSet<String> = world::claims(rig, "api").await.unwrap().iter().map(world::name).collect();
        assert_eq!(after.len(), 1, "after {}", block.step);
        let own: Vec<_> = audit::rotation(rig).unwrap().into_iter().filter(|w| w.at > since).collect();
        let deleted: Vec<&str> = own
            .iter()
            .filter(|w| w.resource == "nodeclaims" && w.verb == "delete" && w.code == 200)
            .map(|w| w.name.as_str())
            .collect();
        assert_eq!(deleted, [claims[0].as_str()], "{}", block.step);
        let anchored: BTreeSet<String> = own.iter().filter_map(|w| w.annotation("active-rotation").flatten()).collect();
        assert_eq!(anchored.len(), 1, "{}", block.step);
        assert!(world::placeholders(rig).await.unwrap().is_empty());
        for node in world::nodes(rig, "api").await.unwrap() {
            assert!(
                node["spec"]["unschedulable"].is_null()
                    && world::annotation(&node, "noderotation.io/surge-for").is_none(),
                "{node}"
            );
        }
        assert_eq!(second.stop().unwrap(), Some(0), "{}", block.step);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_takes_over() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let mut leader = product.start_leader().await.unwrap();
    let standby = product.start_controller().await.unwrap();
    rig.wait("the standby to be ready", PATIENCE, async || {
        Ok((standby.status("/readyz").await == Some(200)).then_some(()))
    })
    .await
    .unwrap();
    assert!(!standby.leads().await);
    let page = standby.metrics().await;
    assert!(!page.contains("noderotation_watch_lists_total{"), "a standby keeps no caches");

    // stopped: the lease is released, so that nobody waits for its end
    let lease = async || {
        let path = "/apis/coordination.k8s.io/v1/namespaces/noderotation/leases/noderotation-controller";
        rig.get(path).await.unwrap()["spec"].clone()
    };
    let before = lease().await;
    let began = Instant::now();
    assert_eq!(leader.stop().unwrap(), Some(0));
    assert_ne!(lease().await["holderIdentity"], before["holderIdentity"], "the lease is not released");
    rig.wait("the standby to lead", PATIENCE, async || Ok(standby.leads().await.then_some(()))).await.unwrap();
    println!("took over {:?} after a clean stop", began.elapsed());

    // killed: within the lease
    let third = product.start_controller().await.unwrap();
    rig.wait(
        "the third to be ready",
        PATIENCE,
        async || Ok((third.status("/readyz").await == Some(200)).then_some(())),
    )
    .await
    .unwrap();
    let mut second = standby;
    second.process.kill();
    let began = Instant::now();
    rig.wait("the third to lead", PATIENCE, async || Ok(third.leads().await.then_some(()))).await.unwrap();
    println!("took over {:?} after a kill", began.elapsed());
    assert_eq!(lease().await["leaseTransitions"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_policy_stops_its_own_pools_only() {
    let product = Product::install_without_webhook().await.unwrap();
    let rig = &product.rig;
    let good = pool_of(&product, "good", 1).await;
    let bad = pool_of(&product, "bad", 1).await;
    // stored before its rule existed
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rotationpolicies.noderotation.io";
    let real = rig.get(crd).await.unwrap();
    let mut lax = real.clone();
    lax["metadata"] = json!({"name": real["metadata"]["name"], "resourceVersion": real["metadata"]["resourceVersion"]});
    lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(rig.send("PUT", crd, "application/json", &lax).await.unwrap().0, 200);
    let mut policy = world::policy("bad");
    policy["spec"]["maintenanceWindows"][0]["timezone"] = "JST".into();
    rig.wait("the malformed policy to be stored", PATIENCE, async || {
        let (code, _) =
            rig.send("POST", "/apis/noderotation.io/v1alpha1/rotationpolicies", "application/json", &policy).await?;
        Ok((code == 200).then_some(()))
    })
    .await
    .unwrap();
    rig.merge(crd, json!({"spec": {"versions": real["spec"]["versions"]}})).await.unwrap();
    rig.apply(&world::policy("good")).unwrap();

    let controller = product.start_leader().await.unwrap();
    for claim in good.iter().chain(&bad) {
        request(&product, claim).await;
    }
    world::rotated(rig, "good", &good[0]).await.unwrap();
    let told = rig
        .wait("the policy's condition", PATIENCE, async || {
            let policy = rig.get("/apis/noderotation.io/v1alpha1/rotationpolicies/bad").await?;
            let ready = policy["status"]["conditions"].as_array().and_then(|c| c.first()).cloned();
            Ok(ready)
        })
        .await
        .unwrap();
    assert_eq!(
        (&told["type"], &told["status"], &told["reason"]),
        (&json!("Ready"), &json!("False"), &json!("Invalid"))
    );
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("spec.maintenanceWindows[0].timezone") && message.contains("Asia/Tokyo"), "{message}");
    assert_eq!(controller.sample("noderotation_policy_conflict", "bad").await, Some(1.0));
    let object = rig.get(&format!("/apis/karpenter.sh/v1/nodeclaims/{}", bad[0])).await.unwrap();
    assert_eq!(world::annotation(&object, "noderotation.io/state"), None);
    assert!(
        world::event(rig, "InvalidPolicy", "bad")
            .await
            .unwrap()
            .contains("RotationPolicy bad governs this NodePool but is invalid")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_world_is_not_written() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    pool_of(&product, "inside", 1).await;
    pool_of(&product, "outside", 1).await;
    rig.apply(&world::policy("inside")).unwrap();
    let mut outside = world::policy("outside");
    // opens and closes far from now
    outside["spec"]["maintenanceWindows"] = world::window(Timestamp::now() + SignedDuration::from_hours(11), 60);
    rig.apply(&outside).unwrap();
    let _controller = product.start_leader().await.unwrap();
    rig.wait("both policies to be accepted", PATIENCE, async || {
        let policies = rig.list("/apis/noderotation.io/v1alpha1/rotationpolicies").await?;
        Ok((policies.len() == 2 && policies.iter().all(|p| world::condition(p, "Ready") == Some("True"))).then_some(()))
    })
    .await
    .unwrap();
    rig.wait("the window's stamp", PATIENCE, async || {
        let pool = world::pool(rig, "inside").await?;
        Ok(world::annotation(&pool, "noderotation.io/window-opened-at").map(|_| ()))
    })
    .await
    .unwrap();
    let quiet = || audit::writes(rig).unwrap().into_iter().filter(|w| w.user == audit::CONTROLLER).count();
    // the first pass may still be telling what it found
    rig.wait("five seconds without a write", PATIENCE, async || {
        let before = quiet();
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok((quiet() == before).then_some(()))
    })
    .await
    .unwrap();
    let before = quiet();
    // two minutes in which nothing may happen: here time itself is the condition
    tokio::time::sleep(Duration::from_secs(120)).await;
    let writes = audit::writes(rig).unwrap();
    let own: Vec<String> =
        writes.iter().filter(|w| w.user == audit::CONTROLLER).skip(before).map(audit::Write::brief).collect();
    assert_eq!(own, Vec::<String>::new());
}

/// A placeholder of a rotation that nobody has anchored.
fn orphan() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "surge-gone-0123456789abcdef", "namespace": "noderotation",
            "labels": {"karpenter.sh/nodepool": "api", "noderotation.io/surge-for": "surge-gone-0123456789abcdef"}, "annotations": {"noderotation.io/surge-for": "gone"},
        },
        "spec": {"containers": [{"name": "pause", "image": "pause"}], "nodeSelector": {"nowhere": "true"}},
    })
}

/// A new leader removes what a former leader, or a NodePool that is gone, may have left behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_sweeps_what_no_anchor_references() {
    let product = Product::install_without_webhook().await.unwrap();
    let rig = &product.rig;
    let claims = pool_of(&product, "api", 2).await;
    let nodes = world::nodes(rig, "api").await.unwrap();
    let path = |n: usize| format!("/api/v1/nodes/{}", world::name(&nodes[n]));
    let ours = json!({"noderotation.io/surge-for": "gone", "noderotation.io/cordoned": "true", "noderotation.io/do-not-disrupt-owned": "true", "karpenter.sh/do-not-disrupt": "true"});
    rig.merge(&path(0), json!({"metadata": {"annotations": ours}, "spec": {"unschedulable": true}})).await.unwrap();
    // an operator's own cordon and protection are nobody's leftovers
    let operators =
        json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "spec": {"unschedulable": true}});
    rig.merge(&path(1), operators).await.unwrap();
    let state = json!({"metadata": {"annotations": {"noderotation.io/state": "pending", "noderotation.io/started-at": "2026-11-29T00:00:00Z"}}});
    rig.merge(&format!("/apis/karpenter.sh/v1/nodeclaims/{}", claims[0]), state).await.unwrap();
    rig.apply(&orphan()).unwrap();

    let _controller = product.start_leader().await.unwrap();
    rig.wait("everything to be swept", PATIENCE, async || {
        let node = rig.get(&path(0)).await?;
        let clean = node["spec"]["unschedulable"].is_null()
            && [
                "noderotation.io/surge-for",
                "noderotation.io/cordoned",
                "noderotation.io/do-not-disrupt-owned",
                "karpenter.sh/do-not-disrupt",
            ]
            .iter()
            .all(|key| world::annotation(&node, key).is_none());
        let claim = rig.get(&format!("/apis/karpenter.sh/v1/nodeclaims/{}", claims[0])).await?;
        let failed = world::annotation(&claim, "noderotation.io/state") == Some("failed")
            && world::annotation(&claim, "noderotation.io/started-at").is_none();
        Ok((clean && failed && world::placeholders(rig).await?.is_empty()).then_some(()))
    })
    .await
    .unwrap();
    // and what a deposed leader's late write brings afterwards
    rig.apply(&orphan()).unwrap();
    let marker = json!({"metadata": {"annotations": {"noderotation.io/surge-for": "gone"}}});
    rig.merge(&path(0), marker).await.unwrap();
    rig.wait("latecomers to be swept", PATIENCE, async || {
        let node = rig.get(&path(0)).await?;
        let clean = world::annotation(&node, "noderotation.io/surge-for").is_none();
        Ok((clean && world::placeholders(rig).await?.is_empty()).then_some(()))
    })
    .await
    .unwrap();
    let node = rig.get(&path(1)).await.unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(world::annotation(&node, "karpenter.sh/do-not-disrupt"), Some("true"));
}

/// A controller that lacks a right or a CRD says which before it starts.
#[tokio::test(flavor = "multi_thread")]
async fn the_preflight_says_what_is_missing() {
    let rig =
        noderotation_rig::Rig::start(noderotation_rig::Options { bare: true, ..Default::default() }).await.unwrap();
    let product = Product::install_bare(rig).unwrap();
    let rig = &product.rig;
    let said = async |flags: &'static [&'static str]| {
        let mut controller = product.start_controller_with(flags).await.unwrap();
        let code = controller.process.wait(Duration::from_secs(60)).unwrap();
        (code, controller.process.tail(5))
    };
    let (code, log) = said(&[]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("does not serve nodepools.karpenter.sh: install Karpenter 1.0 or newer"), "{log}");

    rig.install_karpenter_kinds().unwrap();
    rig.kubectl(&["delete", "clusterrolebinding", "noderotation-controller"]).unwrap();
    let (code, log) = rig
        .wait("the right to be gone", PATIENCE, async || {
            let (code, log) = said(&[]).await;
            Ok(log.contains("cannot be listed").then_some((code, log)))
        })
        .await
        .unwrap();
    assert_eq!(code, Some(1));
    assert!(
        log.contains("nodepools.karpenter.sh cannot be listed") && log.contains("grant this service account"),
        "{log}"
    );

    let (code, log) = said(&["--renew-deadline", "20s"]).await;
    assert!(code == Some(1) && log.contains("must be shorter than --lease-duration"), "{log}");
}

/// An API server that answers nothing: the leader stops writing before its lease can pass to another, and ends; the next
/// one goes on with the same claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_api_server_ends_the_leader_and_the_rotation_goes_on() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let claims = pool_of(&product, "api", 1).await;
    rig.apply(&world::policy("api")).unwrap();
    let timing = ["--lease-duration", "6s", "--renew-deadline", "4s", "--retry-period", "1s"];
    let mut first = product.start_leader_with(&timing).await.unwrap();
    request(&product, &claims[0]).await;
    world::in_state(rig, "api", &claims[0], "pending").await.unwrap();
    rig.process("kube-apiserver").unwrap().signal("STOP").unwrap();
    let code = first.process.wait(Duration::from_secs(60));
    rig.process("kube-apiserver").unwrap().signal("CONT").unwrap();
    assert_eq!(code.unwrap(), Some(1));
    assert!(first.process.tail(3).contains("lease could not be renewed"), "{}", first.process.tail(3));

    let _second = product.start_leader().await.unwrap();
    world::rotated(rig, "api", &claims[0]).await.unwrap();
    world::settled(rig, "api", 1).await.unwrap();
    let own = audit::rotation(rig).unwrap();
    let deleted: Vec<&str> = own
        .iter()
        .filter(|w| w.resource == "nodeclaims" && w.verb == "delete" && w.code == 200)
        .map(|w| w.name.as_str())
        .collect();
    assert_eq!(deleted, [claims[0].as_str()]);
    assert_eq!(world::claims(rig, "api").await.unwrap().len(), 1);
}

/// Karpenter would launch nothing for such a node either (§9.8).
#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_which_nothing_has_to_move_goes_without_a_replacement() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let mut claims = pool_of(&product, "api", 2).await;
    rig.kubectl(&["scale", "deployment", "api", "--replicas=0"]).unwrap();
    world::settled(rig, "api", 0).await.unwrap();
    rig.apply(&world::policy("api")).unwrap();
    let _controller = product.start_leader().await.unwrap();

    let (empty, busy) = (claims.remove(0), claims.remove(0));
    request(&product, &empty).await;
    world::rotated(rig, "api", &empty).await.unwrap();
    let told = world::event(rig, "RotationCompleted", "api").await.unwrap();
    assert!(
        told.starts_with(&format!("rotated NodeClaim {empty} in ")) && told.ends_with(" (nothing had to move)"),
        "{told}"
    );
    let left: Vec<_> = world::claims(rig, "api").await.unwrap().iter().map(world::name).collect();
    assert_eq!(left, std::slice::from_ref(&busy), "nothing was launched");
    let writes = audit::own(rig).unwrap();
    assert!(writes.iter().all(|write| write.annotation("surge-wait").is_none()));
    assert!(writes.iter().all(|write| write.resource != "pods"), "{writes:?}");

    // a Pod that comes past the cordon before the deletion
    request(&product, &busy).await;
    world::in_state(rig, "api", &busy, "draining").await.unwrap();
    let claim = rig.get(&format!("{CLAIMS}/{busy}")).await.unwrap();
    assert!(claim["metadata"]["deletionTimestamp"].is_null());
    rig.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "namespace": "default", "labels": {"app": "late"}},
        "spec": {
            "nodeName": claim["status"]["nodeName"],
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1200m"}}}],
        },
    }))
    .unwrap();
    world::rotated(rig, "api", &busy).await.unwrap();
    let left = world::claims(rig, "api").await.unwrap();
    assert!(left.len() == 1 && world::name(&left[0]) != busy, "its replacement was launched first: {left:?}");
    let paths = audit::own(rig)
        .unwrap()
        .iter()
        .filter_map(|write| write.annotation("surge-path").flatten())
        .collect::<Vec<_>>();
    assert_eq!(paths, ["empty", "empty", "provisioned"]);
}
