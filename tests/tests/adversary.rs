//! What tenants and kubelets try, each with their real rights, and what comes of it: nothing (`docs/security.md`). What
//! thieves of our own accounts try is in `accounts.rs`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::too_many_lines, missing_docs)]

use noderotation_rig::cluster::exchange;
use noderotation_rig::objects::{deployment, node_pool};
use noderotation_shared::keys;
use noderotation_tests::Product;
use noderotation_tests::ask::{self, Asker, CLAIMS, MERGE, POLICIES, POOLS, done, placeholder, pool};
use noderotation_tests::audit;
use noderotation_tests::product::{ACCOUNT, NAMESPACE, WEBHOOK_ACCOUNT};
use noderotation_tests::world::{self, PATIENCE};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/noderotation/pods";
const SECRETS: &str = "/api/v1/namespaces/noderotation/secrets";
const NODES: &str = "/api/v1/nodes";

/// A tenant may create Pods in a namespace of his, with any label.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_pod_with_our_label_is_counted_like_any_other() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    node_pool("api").apply(rig).unwrap();
    deployment("api", "api", 1).cpu("700m").apply(rig).unwrap();
    let pods = world::settled(rig, "api", 1).await.unwrap();
    let node = pods[0]["spec"]["nodeName"].as_str().unwrap();
    let tenant = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "surge-web", "namespace": "default", "labels": {keys::SURGE_FOR: "surge-web"}, "annotations": {keys::SURGE_FOR: "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]},
    });
    done("tenant", &Asker::admin(rig).create("/api/v1/namespaces/default/pods", &tenant).await);
    rig.apply(&world::policy("api")).unwrap();
    let _controller = product.start_leader().await.unwrap();
    let claim = world::name(&world::claims(rig, "api").await.unwrap()[0]);
    world::request(rig, &claim, "next-window").await.unwrap();
    let ours = rig
        .wait("the placeholder", PATIENCE, async || Ok(world::placeholders(rig).await?.into_iter().next()))
        .await
        .unwrap();
    assert_eq!(ours["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1200m", "700m and the tenant's 500m");
    world::rotated(rig, "api", &claim).await.unwrap();
}

/// A kubelet may create Events in every namespace, and write its own Node.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_nomination_and_a_forged_node_move_nothing() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    node_pool("api").apply(rig).unwrap();
    deployment("api", "api", 1).cpu("1200m").apply(rig).unwrap();
    world::settled(rig, "api", 1).await.unwrap();
    let old = world::name(&world::claims(rig, "api").await.unwrap()[0]);
    // nothing that Karpenter launches registers any more
    rig.merge(
        "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default",
        json!({"spec": {"nodeRegistrationDelay": "1h"}}),
    )
    .await
    .unwrap();
    let mut policy = world::policy("api");
    policy["spec"]["surge"]["readyTimeout"] = json!("90s");
    rig.apply(&policy).unwrap();
    let _controller = product.start_leader().await.unwrap();
    world::request(rig, &old, "next-window").await.unwrap();
    let ours = rig
        .wait("the placeholder", PATIENCE, async || Ok(world::placeholders(rig).await?.into_iter().next()))
        .await
        .unwrap();

    // another pool's claim, launched after the attempt began
    node_pool("other").apply(rig).unwrap();
    deployment("other", "other", 1).cpu("1200m").apply(rig).unwrap();
    let theirs = rig
        .wait("another pool's claim", PATIENCE, async || {
            Ok(world::claims(rig, "other").await?.first().map(world::name))
        })
        .await
        .unwrap();
    let binding =
        ["create", "clusterrolebinding", "kubelet", "--clusterrole", "system:node", "--user", "system:node:evil"];
    rig.kubectl(&binding).unwrap();
    let told = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "forged", "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": ours["metadata"]["name"], "uid": ours["metadata"]["uid"]},
        "reason": "Nominated", "type": "Normal", "source": {"component": "karpenter"},
        "message": format!("Pod should schedule on: nodeclaim/{theirs}"),
        "firstTimestamp": "2100-01-01T00:00:00Z", "lastTimestamp": "2100-01-01T00:00:00Z",
    });
    let mut bare = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "evil", "labels": {
            "karpenter.sh/nodepool": "api", "karpenter.sh/initialized": "true", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "rig/pool": "api",
        }},
    });
    for (key, value) in
        ours["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            [0]["matchExpressions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e["key"].as_str().unwrap(), &e["values"][0]))
    {
        bare["metadata"]["labels"][key] = value.clone();
    }
    let kubelet = async |method: &str, path: &str, content: &str, body: &Value| {
        let headers = [("content-type", content), ("impersonate-user", "system:node:evil")];
        let reply = exchange(&rig.client, method, path, &headers, body).await.unwrap();
        done(path, &reply);
    };
    kubelet("POST", "/api/v1/namespaces/noderotation/events", "application/json", &told).await;
    kubelet("POST", NODES, "application/json", &bare).await;
    let now = jiff::Timestamp::now();
    let status = json!({"status": {
        "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"}, "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready", "lastHeartbeatTime": now, "lastTransitionTime": now}],
    }});
    kubelet("PATCH", &format!("{NODES}/evil/status"), MERGE, &status).await;
    let pod = format!("{PODS}/{}", ours["metadata"]["name"].as_str().unwrap());
    rig.wait("the placeholder on the forged Node", PATIENCE, async || {
        let placed = rig.try_get(&pod).await?.is_some_and(|pod| pod["spec"]["nodeName"] == "evil");
        Ok(placed.then_some(()))
    })
    .await
    .unwrap();
    // and its kubelet says that it runs
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    kubelet("PATCH", &format!("{pod}/status"), MERGE, &running).await;

    let old = world::failed(rig, &old).await.unwrap();
    assert!(old["metadata"]["deletionTimestamp"].is_null(), "drained for a Node without a NodeClaim");
    let claim = rig.get(&format!("{CLAIMS}/{theirs}")).await.unwrap();
    assert!(claim["metadata"]["deletionTimestamp"].is_null(), "another pool's claim was taken back");
    world::settled(rig, "api", 1).await.unwrap();
}

/// Every right of the chart's roles is made use of, so that whoever removes one finds something named missing; the reasons
/// stand beside the rules. What is left over would only serve a thief.
#[tokio::test(flavor = "multi_thread")]
async fn no_account_has_a_right_that_it_does_not_use() {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    // volumes to ask for, no terminationGracePeriod, so that budgets are asked for as well
    for object in [
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "", "hostPath": {"path": "/data"},
            "claimRef": {"namespace": "default", "name": "disk"},
        }}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk", "namespace": "default"}, "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": "disk", "resources": {"requests": {"storage": "1Gi"}},
        }}),
    ] {
        rig.apply(&object).unwrap();
    }
    node_pool("api").grace(None).apply(rig).unwrap();
    deployment("api", "api", 1).cpu("1200m").apply(rig).unwrap();
    let volumes = json!({"spec": {"template": {"spec": {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]}}}});
    rig.merge("/apis/apps/v1/namespaces/default/deployments/api", volumes).await.unwrap();
    rig.wait("the Pod with its volume", PATIENCE, async || {
        let pods = world::pods(rig, "api").await?;
        let has_volume =
            |pod: &Value| pod["spec"]["volumes"].as_array().is_some_and(|v| v.iter().any(|v| v["name"] == "disk"));
        Ok((pods.len() == 1 && has_volume(&pods[0])).then_some(()))
    })
    .await
    .unwrap();
    world::settled(rig, "api", 1).await.unwrap();
    let mut policy = world::policy("api");
    policy["spec"]["surge"]["readyTimeout"] = json!("60s");
    rig.apply(&policy).unwrap();
    // left behind by somebody's crash: its NodePool is read live before it goes
    let mut orphan = placeholder(&json!({}), &json!({}));
    orphan["metadata"]["labels"][keys::KARPENTER_NODEPOOL] = json!("api");
    done("orphan", &Asker(product.controller_client().await.unwrap()).create(PODS, &orphan).await);
    let mut controller = product.start_leader().await.unwrap();
    let in_use = async || {
        let pods = world::settled(rig, "api", 1).await.unwrap();
        let claims = world::claims(rig, "api").await.unwrap();
        world::name(claims.iter().find(|claim| claim["status"]["nodeName"] == pods[0]["spec"]["nodeName"]).unwrap())
    };
    let first = in_use().await;
    world::request(rig, &first, "next-window").await.unwrap();
    world::rotated(rig, "api", &first).await.unwrap();
    // and one that fails
    rig.merge(
        "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default",
        json!({"spec": {"nodeRegistrationDelay": "1h"}}),
    )
    .await
    .unwrap();
    let second = in_use().await;
    world::request(rig, &second, "next-window").await.unwrap();
    world::failed(rig, &second).await.unwrap();
    // another replica watches the Lease and takes over
    let standby = product.start_controller().await.unwrap();
    let user = |account: &str| format!("system:serviceaccount:{NAMESPACE}:{account}");
    let watches = |right: &audit::Right| right.verb == "watch" && right.resource == "leases";
    rig.wait("the standby to watch the Lease", PATIENCE, async || {
        Ok(audit::used_rights(rig, &user(ACCOUNT))?.iter().any(watches).then_some(()))
    })
    .await
    .unwrap();
    controller.stop().unwrap();
    rig.wait("the standby to lead", PATIENCE, async || Ok(standby.leads().await.then_some(()))).await.unwrap();

    // admitted and never stored, since the names exist: the webhook reads live what it remembers of them
    let admin = Asker::admin(rig);
    let labels = json!({"w": "twice"});
    for (collection, object) in [(POOLS, pool("api", &labels)), (POLICIES, ask::policy("api", &labels))] {
        assert_eq!(admin.create(collection, &object).await.code, 409);
    }
    done("a policy that could tie with both", &admin.create(POLICIES, &ask::policy("other", &labels)).await);

    // a Secret that somebody spoils is put right
    let spoilt = json!({"data": {"tls.crt": "eA=="}});
    done("the Secret", &admin.merge(&format!("{SECRETS}/noderotation-webhook"), &spoilt).await);
    let mends = |right: &audit::Right| right.verb == "patch" && right.resource == "secrets";
    rig.wait("the Secret to be put right", PATIENCE, async || {
        Ok(audit::used_rights(rig, &user(WEBHOOK_ACCOUNT))?.iter().any(mends).then_some(()))
    })
    .await
    .unwrap();

    let roles = "/apis/rbac.authorization.k8s.io/v1";
    for (account, paths) in [
        (
            "noderotation-controller",
            vec![
                "clusterroles/noderotation-controller",
                "namespaces/noderotation/roles/noderotation-controller",
                "namespaces/default/roles/noderotation-controller-events",
            ],
        ),
        (
            "noderotation-webhook",
            vec!["clusterroles/noderotation-webhook", "namespaces/noderotation/roles/noderotation-webhook"],
        ),
    ] {
        let used = audit::used_rights(rig, &user(account)).unwrap();
        for path in paths {
            let role = rig.get(&format!("{roles}/{path}")).await.unwrap();
            // where the API server cannot stream an initial list, a reflector asks for it instead of watching at once
            let is_fallback = |right: &audit::Right| {
                right.verb == "list" && used.contains(&audit::Right { verb: "watch".into(), ..right.clone() })
            };
            let rights = audit::listed_rights(&role).into_iter();
            let unused: Vec<_> = rights.filter(|right| !used.contains(right) && !is_fallback(right)).collect();
            assert!(unused.is_empty(), "{path}: {unused:#?}");
        }
    }
}
