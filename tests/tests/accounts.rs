//! What a thief of an account's token can do, with its real rights: no more than `docs/security.md` says.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::too_many_lines, missing_docs)]

use std::collections::BTreeSet;

use noderotation_rig::Rig;
use noderotation_rig::cluster::Reply;
use noderotation_shared::keys;
use noderotation_tests::Product;
use noderotation_tests::ask::{Asker, CLAIMS, JSON, MERGE, POOLS, claim, done, placeholder, pool};
use noderotation_tests::product::{NAMESPACE, WEBHOOK_ACCOUNT, chart, documents};
use noderotation_tests::world::PATIENCE;
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

/// Sends each as `who`; it must be refused by the policy for this account, whose message has `part`. API servers enforce a new
/// policy a moment after it is written: the first one is tried without storing anything until then.
async fn all_refused(rig: &Rig, who: &Asker, attempts: Vec<Attempt>, part: &str) {
    let refused = |reply: &Reply| reply.code == 403 && reply.message().contains(part);
    if let Some(Attempt { what, method, path, content, body }) = attempts.first() {
        let (path, mut body) = (format!("{path}?dryRun=All"), body.clone());
        if *method == "DELETE" {
            // a deletion that has a body takes its options from there alone
            body["dryRun"] = json!(["All"]);
        }
        rig.wait(what, PATIENCE, async || Ok(refused(&who.ask(method, &path, content, &body).await).then_some(())))
            .await
            .unwrap();
    }
    for Attempt { what, method, path, content, body } in attempts {
        let reply = who.ask(method, &path, content, &body).await;
        assert_eq!(reply.code, 403, "{what}: {:?}", reply.body);
        assert!(reply.message().contains("ValidatingAdmissionPolicy"), "{what}: {}", reply.message());
        assert!(reply.message().contains(part), "{what}: {}", reply.message());
    }
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
    let refused = async |attempts, part: &str| all_refused(&product.rig, &thief, attempts, part).await;
    let none = json!({});
    let create = |what, spec: Value, container: Value| {
        attempt(what, "POST", PODS, "application/json", placeholder(&spec, &container))
    };
    let priority = "has the PriorityClass noderotation-placeholder";
    refused(
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
    refused(
        vec![
            create("the node's network", json!({"hostNetwork": true}), none.clone()),
            create("the node's processes", json!({"hostPID": true}), none.clone()),
            create("the node's messages", json!({"hostIPC": true}), none.clone()),
            create("a device", json!({"resourceClaims": [{"name": "c", "resourceClaimName": "gpu"}]}), none.clone()),
            create("the account of the webhook", json!({"serviceAccountName": WEBHOOK_ACCOUNT}), none.clone()),
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
    refused(
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
    let confined = |field: &str, value: Value| {
        let mut context = json!({"allowPrivilegeEscalation": false});
        context[field] = value;
        json!({"securityContext": context})
    };
    let confined_container =
        |name: &str| json!({"name": name, "image": "i", "securityContext": {"allowPrivilegeEscalation": false}});
    refused(
        vec![
            create("privileged", none.clone(), json!({"securityContext": {"privileged": true}})),
            create("escalation", none.clone(), confined("allowPrivilegeEscalation", json!(true))),
            create("perhaps root", none.clone(), confined("runAsNonRoot", json!(false))),
            create("root", none.clone(), confined("runAsUser", json!(0))),
            create("/proc", none.clone(), confined("procMount", json!("Default"))),
            create("another SELinux type", none.clone(), confined("seLinuxOptions", json!({"type": "spc_t"}))),
            create("no AppArmor", none.clone(), confined("appArmorProfile", json!({"type": "Unconfined"}))),
            create("every system call", none.clone(), confined("seccompProfile", json!({"type": "Unconfined"}))),
            create(
                "a second container",
                json!({"containers": [confined_container("a"), confined_container("b")]}),
                none.clone(),
            ),
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
                "the webhook's key",
                none.clone(),
                json!({"envFrom": [{"secretRef": {"name": "noderotation-webhook"}}]}),
            ),
            create("a command at its start", none.clone(), json!({"lifecycle": {"postStart": command}})),
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
    refused(vec![attempt("an endpoint of the webhook", "POST", PODS, "application/json", endpoint)], "no endpoint")
        .await;
    let mut unlabelled = placeholder(&none, &none);
    unlabelled["metadata"]["labels"] = json!({});
    let mut webhook = unlabelled.clone();
    webhook["metadata"] = json!({"name": "webhook-0", "namespace": NAMESPACE});
    done("the webhook's Pod", &admin.create(PODS, &webhook).await);
    refused(
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
    refused(
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
    refused(
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
    refused(
        vec![
            of_pool("a pool's spec", json!({"spec": {"template": {"spec": {"expireAfter": "1h"}}}})),
            of_pool("a pool's label", json!({"metadata": {"labels": {"a": null}}})),
            of_claim("a claim's finalizer", json!({"metadata": {"finalizers": null}})),
            of_claim("a claim's label", json!({"metadata": {"labels": {"x": "y"}}})),
        ],
        "never changes spec",
    )
    .await;
    refused(
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
    refused(
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
    let refused = async |attempts, part: &str| all_refused(&product.rig, &thief, attempts, part).await;
    let hook = admin.get(HOOKS).await.body["webhooks"][0].clone();
    let patch = |what, operation: Value| attempt(what, "PATCH", HOOKS, JSON, json!([operation]));
    let secrets = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]});
    let mut further = hook.clone();
    further["name"] = json!("further.noderotation.io");
    refused(
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
            patch("an annotation", json!({"op": "add", "path": "/metadata/annotations/x", "value": "y"})),
            patch("a finalizer", json!({"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]})),
            patch("more patience", json!({"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30})),
            patch(
                "other objects",
                json!({"op": "replace", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"a": "b"}}}),
            ),
            patch("another name", json!({"op": "replace", "path": "/webhooks/0/name", "value": "x.noderotation.io"})),
            patch(
                "other versions of reviews",
                json!({"op": "add", "path": "/webhooks/0/admissionReviewVersions/-", "value": "v1beta1"}),
            ),
            patch("exact versions", json!({"op": "replace", "path": "/webhooks/0/matchPolicy", "value": "Exact"})),
            patch("side effects", json!({"op": "replace", "path": "/webhooks/0/sideEffects", "value": "NoneOnDryRun"})),
        ],
        "caBundle of its own webhooks",
    )
    .await;
    // every field of a webhook is among these attempts, so that a condition that forgets one fails here
    let fields: BTreeSet<&str> = hook.as_object().unwrap().keys().map(String::as_str).collect();
    let tried = BTreeSet::from([
        "admissionReviewVersions",
        "clientConfig",
        "failurePolicy",
        "matchConditions",
        "matchPolicy",
        "name",
        "namespaceSelector",
        "objectSelector",
        "rules",
        "sideEffects",
        "timeoutSeconds",
    ]);
    assert_eq!(fields, tried);
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
    refused(
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
    // the running webhook may have been faster
    let created = thief.create(SECRETS, &secret("noderotation-webhook", "kubernetes.io/tls")).await;
    assert!([201, 409].contains(&created.code), "{:?}", created.body);
    let fixed = attempt(
        "no more certificates",
        "PATCH",
        format!("{SECRETS}/noderotation-webhook"),
        MERGE,
        json!({"immutable": true}),
    );
    refused(vec![fixed], "never makes it immutable").await;
}

/// The account that exists while `helm uninstall` removes what the controller has written.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_cleanup_opens_no_node() {
    let (product, admin) = bare().await;
    let rig = &product.rig;
    let chart = chart();
    let command =
        ["template", "noderotation", &chart, "--namespace", NAMESPACE, "--api-versions", "apiregistration.k8s.io/v1"];
    let rendered = rig.helm(&command).unwrap();
    let of_cleanup = |object: &Value| {
        object["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("noderotation-cleanup"))
            && object["kind"] != "Job"
    };
    for object in documents(&rendered).unwrap().into_iter().filter(of_cleanup) {
        rig.apply(&object).unwrap();
    }
    let config = rig.kubeconfig_for(NAMESPACE, "noderotation-cleanup").await.unwrap();
    let thief = Asker(Rig::client_of(&config).await.unwrap());

    // as the hooks find the cluster: the release, and so the guard, is gone
    for kind in ["mutating", "validating"] {
        done("no guard", &admin.delete(&HOOKS.replace("validating", kind)).await);
    }
    let mut api = pool("api", &json!({"a": "b"}));
    api["metadata"]["annotations"] = json!({"c": "d", keys::LAST_ROTATION_AT: "2026-11-29T00:00:00Z"});
    done("pool", &admin.create(POOLS, &api).await);
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "annotations": {"c": "d", keys::CORDONED: "true", keys::DO_NOT_DISRUPT: "true"}},
        "spec": {"unschedulable": true, "taints": [{"key": "a", "effect": "NoSchedule"}]},
    });
    done("node", &admin.create(NODES, &node).await);
    let mut webhook = placeholder(&json!({}), &json!({}));
    webhook["metadata"] = json!({"name": "webhook-0", "namespace": NAMESPACE});
    done("the webhook's Pod", &admin.create(PODS, &webhook).await);
    done("a placeholder", &admin.create(PODS, &placeholder(&json!({}), &json!({}))).await);

    let of_pool = |what, patch: Value| attempt(what, "PATCH", format!("{POOLS}/api"), MERGE, patch);
    let of_node = |what, patch: Value| attempt(what, "PATCH", format!("{NODES}/n"), MERGE, patch);
    for (attempts, part) in [
        (
            vec![
                of_pool("a pool's spec", json!({"spec": {"template": {"spec": {"expireAfter": "1h"}}}})),
                of_pool("a pool's label", json!({"metadata": {"labels": {"a": null}}})),
            ],
            "the cleanup never changes spec",
        ),
        (
            vec![of_pool("a pool's annotation", json!({"metadata": {"annotations": {"c": "e"}}}))],
            "the cleanup changes annotations with the prefix noderotation.io/ and nothing else",
        ),
        (
            vec![
                of_node("an untaint", json!({"spec": {"taints": null}})),
                of_node("a label", json!({"metadata": {"labels": {"a": "c"}}})),
            ],
            "the cleanup changes unschedulable only",
        ),
        (vec![of_node("an annotation", json!({"metadata": {"annotations": {"c": "e"}}}))], "of a Node, and no others"),
        (
            vec![attempt("the webhook's Pod", "DELETE", format!("{PODS}/webhook-0"), "application/json", json!({}))],
            "the cleanup deletes placeholder Pods only",
        ),
    ] {
        all_refused(rig, &thief, attempts, part).await;
    }

    // what it is there for
    let clean = json!({"metadata": {"annotations": {keys::LAST_ROTATION_AT: null}}});
    done("the pool", &thief.merge(&format!("{POOLS}/api"), &clean).await);
    let uncordon = json!({"spec": {"unschedulable": false}, "metadata": {"annotations": {keys::CORDONED: null, keys::DO_NOT_DISRUPT: null}}});
    done("the node", &thief.merge(&format!("{NODES}/n"), &uncordon).await);
    done("the placeholder", &thief.delete(&format!("{PODS}/surge-x")).await);
}
