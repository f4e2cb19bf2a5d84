//! What tenants, kubelets and stolen accounts try, each with its real rights, and what comes of it: nothing
//! (`docs/security.md`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::too_many_lines, missing_docs)]

use noderotation_rig::Rig;
use noderotation_rig::cluster::exchange;
use noderotation_rig::objects::{deployment, node_pool};
use noderotation_shared::keys;
use noderotation_tests::Product;
use noderotation_tests::ask::{self, Asker, CLAIMS, JSON, MERGE, POLICIES, POOLS, claim, pool};
use noderotation_tests::audit;
use noderotation_tests::product::{ACCOUNT, NAMESPACE, WEBHOOK_ACCOUNT};
use noderotation_tests::world::{self, PATIENCE};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/noderotation/pods";
const SECRETS: &str = "/api/v1/namespaces/noderotation/secrets";
const NODES: &str = "/api/v1/nodes";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/noderotation";

/// One write that an account tries.
struct Attempt {
    what: &'static str,
    method: &'static str,
    path: String,
    content: &'static str,
    body: Value,
}

fn attempt(
    what: &'static str,
    method: &'static str,
    path: impl Into<String>,
    content: &'static str,
    body: Value,
) -> Attempt {
    Attempt { what, method, path: path.into(), content, body }
}

/// Sends each as `who`; it must be refused by the policy for this account, whose message has `part`.
async fn all_refused(who: &Asker, attempts: Vec<Attempt>, part: &str) {
    for Attempt { what, method, path, content, body } in attempts {
        let reply = who.ask(method, &path, content, &body).await;
        assert_eq!(reply.code, 403, "{what}: {:?}", reply.body);
        assert!(reply.message().contains("ValidatingAdmissionPolicy"), "{what}: {}", reply.message());
        assert!(reply.message().contains(part), "{what}: {}", reply.message());
    }
}

#[track_caller]
fn done(what: &str, reply: &noderotation_rig::cluster::Reply) {
    assert!(matches!(reply.code, 200 | 201), "{what}: {}: {}", reply.code, reply.message());
}

/// A Pod as the controller creates it, changed by these fields of its spec and of its container.
fn placeholder(spec: &Value, container: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "surge-x", "namespace": NAMESPACE, "labels": {keys::SURGE_FOR: "surge-x"}, "annotations": {keys::SURGE_FOR: "x"}},
        "spec": {
            "automountServiceAccountToken": false, "priorityClassName": "noderotation-placeholder", "preemptionPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
            }],
        },
    });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    pod
}

/// Waits until an attempt to rotate a NodeClaim has failed; the NodeClaim.
async fn failed(rig: &Rig, claim: &str) -> Value {
    rig.wait("the attempt to fail", PATIENCE, async || {
        let claim = rig.get(&format!("{CLAIMS}/{claim}")).await?;
        Ok((world::annotation(&claim, keys::STATE) == Some("failed")).then_some(claim))
    })
    .await
    .unwrap()
}

/// The chart on a bare rig with the kinds of Karpenter, and what no controller creates there: the service account of Pods.
async fn bare() -> (Product, Asker) {
    let product = Product::install_bare_with_webhook(false, &[]).await.unwrap();
    let admin = Asker::admin(&product.rig);
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}});
    done("account", &admin.create("/api/v1/namespaces/noderotation/serviceaccounts", &account).await);
    (product, admin)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_controller_opens_no_node() {
    let (product, admin) = bare().await;
    let thief = Asker(product.controller_client().await.unwrap());
    let none = json!({});
    let create = |what, spec: Value, container: Value| {
        attempt(what, "POST", PODS, "application/json", placeholder(&spec, &container))
    };
    let priority = "has the PriorityClass noderotation-placeholder";
    all_refused(
        &thief,
        vec![
            create(
                "a Pod that preempts",
                json!({"priorityClassName": "system-node-critical", "preemptionPolicy": "PreemptLowerPriority"}),
                none.clone(),
            ),
            create("a Pod on a chosen node", json!({"nodeName": "control-plane"}), none.clone()),
        ],
        priority,
    )
    .await;
    let host = json!([{"name": "host", "hostPath": {"path": "/"}}]);
    let token = json!([{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
    all_refused(
        &thief,
        vec![
            create("the node's network", json!({"hostNetwork": true}), none.clone()),
            create("the node's processes", json!({"hostPID": true}), none.clone()),
            create("the node's files", json!({"volumes": host}), none.clone()),
            create("a token in a volume", json!({"volumes": token}), none.clone()),
            create("a token", json!({"automountServiceAccountToken": true}), none.clone()),
        ],
        "no host namespaces",
    )
    .await;
    let secured = |field: &str, value: Value| {
        let mut context =
            json!({"runAsNonRoot": true, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}});
        context[field] = value;
        json!({"securityContext": context})
    };
    all_refused(
        &thief,
        vec![
            create("root", secured("runAsUser", json!(0)), none.clone()),
            create("perhaps root", secured("runAsNonRoot", json!(false)), none.clone()),
            create("every system call", secured("seccompProfile", json!({"type": "Unconfined"})), none.clone()),
            create("no AppArmor", secured("appArmorProfile", json!({"type": "Unconfined"})), none.clone()),
            create("another SELinux type", secured("seLinuxOptions", json!({"type": "spc_t"})), none.clone()),
            create(
                "a sysctl",
                secured("sysctls", json!([{"name": "kernel.shm_rmid_forced", "value": "1"}])),
                none.clone(),
            ),
        ],
        "does not run as root",
    )
    .await;
    let command = json!({"exec": {"command": ["sh", "-c", "id"]}});
    all_refused(
        &thief,
        vec![
            create("privileged", none.clone(), json!({"securityContext": {"privileged": true}})),
            create(
                "a capability",
                none.clone(),
                json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"add": ["SYS_ADMIN"]}}}),
            ),
            create("a command", none.clone(), json!({"command": ["sh"]})),
            create("arguments", none.clone(), json!({"args": ["-c", "id"]})),
            create("a command as a probe", none.clone(), json!({"startupProbe": command})),
            create("a request of the kubelet", none.clone(), json!({"readinessProbe": {"tcpSocket": {"port": 80}}})),
            create("another one", none.clone(), json!({"livenessProbe": {"tcpSocket": {"port": 80}}})),
            create("environment", none.clone(), json!({"env": [{"name": "A", "value": "b"}]})),
            create(
                "an init container",
                json!({"initContainers": [{"name": "i", "image": "i", "securityContext": {"privileged": true}}]}),
                none.clone(),
            ),
            create("a port of the node", none.clone(), json!({"ports": [{"containerPort": 22, "hostPort": 22}]})),
        ],
        "one container",
    )
    .await;
    let mut endpoint = placeholder(&none, &none);
    endpoint["metadata"]["labels"]["app.kubernetes.io/component"] = json!("webhook");
    all_refused(
        &thief,
        vec![attempt("an endpoint of the webhook", "POST", PODS, "application/json", endpoint)],
        "no endpoint",
    )
    .await;
    let mut unlabelled = placeholder(&none, &none);
    unlabelled["metadata"]["labels"] = json!({});
    let mut webhook = unlabelled.clone();
    webhook["metadata"] = json!({"name": "webhook-0", "namespace": NAMESPACE});
    done("the webhook's Pod", &admin.create(PODS, &webhook).await);
    all_refused(
        &thief,
        vec![
            attempt("a Pod that is no placeholder", "POST", PODS, "application/json", unlabelled),
            attempt("the webhook's Pod", "DELETE", format!("{PODS}/webhook-0"), "application/json", json!({})),
        ],
        "placeholder Pods only",
    )
    .await;

    let control_plane = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "control-plane", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/hold"]},
        "spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}], "providerID": "x://1"},
    });
    done("node", &admin.create(NODES, &control_plane).await);
    let node = |what, patch: Value| attempt(what, "PATCH", format!("{NODES}/control-plane"), MERGE, patch);
    all_refused(
        &thief,
        vec![
            node("an untaint", json!({"spec": {"taints": null}})),
            node("a taint", json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})),
            node("a label", json!({"metadata": {"labels": {"a": "c"}}})),
            node("a new label", json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})),
            node("a finalizer", json!({"metadata": {"finalizers": null}})),
            node("an owner", json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}})),
        ],
        "unschedulable only",
    )
    .await;
    all_refused(
        &thief,
        vec![
            node("an annotation", json!({"metadata": {"annotations": {"c": "e"}}})),
            node("a new annotation", json!({"metadata": {"annotations": {"x": "y"}}})),
            node("no annotation", json!({"metadata": {"annotations": {"c": null}}})),
        ],
        "of a Node, and no others",
    )
    .await;

    let mut api = pool("api", &json!({"a": "b"}));
    api["metadata"]["annotations"] = json!({"c": "d"});
    done("pool", &admin.create(POOLS, &api).await);
    let mut api_1 = claim("api-1", "api");
    api_1["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    done("claim", &admin.create(CLAIMS, &api_1).await);
    let of_pool = |what, patch: Value| attempt(what, "PATCH", format!("{POOLS}/api"), MERGE, patch);
    let of_claim = |what, patch: Value| attempt(what, "PATCH", format!("{CLAIMS}/api-1"), MERGE, patch);
    all_refused(
        &thief,
        vec![
            of_pool("a pool's spec", json!({"spec": {"template": {"spec": {"expireAfter": "1h"}}}})),
            of_pool("a pool's label", json!({"metadata": {"labels": {"a": null}}})),
            of_claim("a claim's finalizer", json!({"metadata": {"finalizers": null}})),
            of_claim("a claim's label", json!({"metadata": {"labels": {"x": "y"}}})),
        ],
        "never changes spec",
    )
    .await;
    all_refused(
        &thief,
        vec![
            of_pool("a pool's annotation", json!({"metadata": {"annotations": {"c": "e"}}})),
            of_claim("a claim's annotation", json!({"metadata": {"annotations": {"karpenter.sh/x": "y"}}})),
        ],
        "noderotation.io/ and nothing else",
    )
    .await;

    // a kubelet cannot keep the controller from its Node: the same with twenty thousand annotations
    let many: serde_json::Map<String, Value> = (0..20_000)
        .map(|n| (format!("k{n}"), json!("")))
        .chain([("z".to_owned(), json!("\"noderotation.io/x"))])
        .collect();
    done("many", &admin.merge(&format!("{NODES}/control-plane"), &json!({"metadata": {"annotations": many}})).await);
    all_refused(
        &thief,
        vec![
            node("one of many annotations", json!({"metadata": {"annotations": {"k19999": "x"}}})),
            node("the last of many", json!({"metadata": {"annotations": {"z": "x"}}})),
            node("beside ours", json!({"metadata": {"annotations": {keys::CORDONED: "true", "z": null}}})),
        ],
        "of a Node, and no others",
    )
    .await;

    // nor anybody from writing to it: a value full of our prefix is no key
    let evil = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "evil", "annotations": {"evil": "\"noderotation.io/".repeat(15_000)}},
    });
    done("evil", &admin.create(NODES, &evil).await);
    done("a write", &admin.merge(&format!("{NODES}/evil"), &json!({"metadata": {"annotations": {"a": "b"}}})).await);

    // what a rotation needs
    let (state, cordon) = (
        json!({"metadata": {"annotations": {keys::STATE: "pending"}}}),
        json!({"spec": {"unschedulable": true}, "metadata": {"annotations": {keys::CORDONED: "true", keys::DO_NOT_DISRUPT: "true"}}}),
    );
    done("cordon", &thief.merge(&format!("{NODES}/control-plane"), &cordon).await);
    for mark in [json!("2h"), Value::Null] {
        let uncordon = json!({"spec": {"unschedulable": false}, "metadata": {"annotations": {keys::CORDONED: null, keys::DO_NOT_DISRUPT: mark}}});
        done("uncordon", &thief.merge(&format!("{NODES}/control-plane"), &uncordon).await);
    }
    done(
        "anchor",
        &thief
            .merge(&format!("{POOLS}/api"), &json!({"metadata": {"annotations": {keys::ACTIVE_ROTATION: "api-1"}}}))
            .await,
    );
    done("state", &thief.merge(&format!("{CLAIMS}/api-1"), &state).await);
    done("placeholder", &thief.create(PODS, &placeholder(&none, &none)).await);
    done("placeholder's end", &thief.delete(&format!("{PODS}/surge-x")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_webhook_hooks_nothing_else() {
    let (product, admin) = bare().await;
    let config = product.rig.kubeconfig_for(NAMESPACE, WEBHOOK_ACCOUNT).await.unwrap();
    let thief = Asker(Rig::client_of(&config).await.unwrap());
    let hook = admin.get(HOOKS).await.body["webhooks"][0].clone();
    let patch = |what, operation: Value| attempt(what, "PATCH", HOOKS, JSON, json!([operation]));
    let secrets = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]});
    let mut further = hook.clone();
    further["name"] = json!("further.noderotation.io");
    all_refused(
        &thief,
        vec![
            patch("a rule for Secrets", json!({"op": "add", "path": "/webhooks/0/rules/-", "value": secrets})),
            patch("no conditions", json!({"op": "remove", "path": "/webhooks/0/matchConditions"})),
            patch("a further webhook", json!({"op": "add", "path": "/webhooks/-", "value": further})),
            patch("one webhook less", json!({"op": "remove", "path": "/webhooks/0"})),
            patch(
                "another service",
                json!({"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "mine"}),
            ),
            patch(
                "another path",
                json!({"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": "/x"}),
            ),
            patch(
                "other namespaces",
                json!({"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {"matchLabels": {"a": "b"}}}),
            ),
            patch("another policy", json!({"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"})),
            patch("a label", json!({"op": "add", "path": "/metadata/labels/x", "value": "y"})),
        ],
        "caBundle of its own webhooks",
    )
    .await;
    let bundle = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": hook["clientConfig"]["caBundle"]}]);
    done("caBundle", &thief.ask("PATCH", HOOKS, JSON, &bundle).await);

    let secret = |name: &str, kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {"kubernetes.io/service-account.name": "noderotation-controller"}},
            "stringData": {"tls.crt": "", "tls.key": ""},
        })
    };
    let token = "kubernetes.io/service-account-token";
    done("the Secret's end", &admin.delete(&format!("{SECRETS}/noderotation-webhook")).await);
    all_refused(
        &thief,
        vec![
            attempt(
                "a token of the controller",
                "POST",
                SECRETS,
                "application/json",
                secret("noderotation-webhook", token),
            ),
            attempt("another Secret", "POST", SECRETS, "application/json", secret("other", "kubernetes.io/tls")),
        ],
        "the Secret noderotation-webhook",
    )
    .await;
}

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
    policy["spec"]["surge"]["readyTimeout"] = json!("45s");
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

    let old = failed(rig, &old).await;
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
    policy["spec"]["surge"]["readyTimeout"] = json!("30s");
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
    failed(rig, &second).await;
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
