//! The guard of noderotation.io keys (§10) on a real API server: every kind, key and way to write. The same cases run against
//! the webhook and against the ValidatingAdmissionPolicy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use noderotation_rig::cluster::{Reply, exchange};
use noderotation_shared::admission::annotation_guard::{REMEMBERED, is_guarded};
use noderotation_shared::keys::{self, Carrier, Owner};
use noderotation_tests::Product;
use noderotation_tests::ask::{APPLY, Asker, CLAIMS, JSON, MERGE, POOLS, STRATEGIC, claim, pool};
use noderotation_tests::product::{ACCOUNT, NAMESPACE};
use noderotation_tests::world::PATIENCE;
use serde_json::{Value, json};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/noderotation/pods";

/// A kind with guarded keys, and the ways to write it.
struct Guarded {
    carrier: Carrier,
    collection: &'static str,
    object: Value,
    /// Subresources through which annotations and labels can be written.
    through: &'static [&'static str],
    /// Subresources through which the API server drops such writes.
    dropped: &'static [&'static str],
    strategic: bool,
}

impl Guarded {
    fn path(&self) -> String {
        format!("{}/guarded", self.collection)
    }
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"a": "b"}, "annotations": {"c": "d"}}})
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
    })
}

fn kinds() -> Vec<Guarded> {
    let with_maps = |mut object: Value| {
        object["metadata"]["annotations"] = json!({"c": "d"});
        object["metadata"]["labels"]["a"] = json!("b");
        object
    };
    vec![
        Guarded {
            carrier: Carrier::NodePool,
            collection: POOLS,
            object: with_maps(pool("guarded", &json!({}))),
            through: &[],
            dropped: &["status"],
            strategic: false,
        },
        Guarded {
            carrier: Carrier::NodeClaim,
            collection: CLAIMS,
            object: with_maps(claim("guarded", "guarded")),
            through: &[],
            dropped: &["status"],
            strategic: false,
        },
        Guarded {
            carrier: Carrier::Node,
            collection: NODES,
            object: node("guarded"),
            through: &["status"],
            dropped: &[],
            strategic: true,
        },
        Guarded {
            carrier: Carrier::Placeholder,
            collection: PODS,
            object: pod("guarded"),
            through: &["status"],
            dropped: &["resize"],
            strategic: true,
        },
    ]
}

/// The guarded keys of a kind, each with its map (annotations or labels), and one that only a later version may have.
fn keys_of(carrier: Carrier) -> Vec<(&'static str, &'static str)> {
    let known = keys::ALL.iter().filter(|key| key.owner == Owner::Controller && key.on.contains(&carrier));
    let mut all: Vec<_> = known.map(|key| ("annotations", key.name)).collect();
    all.push(("annotations", "noderotation.io/future"));
    all.push(("labels", keys::SURGE_FOR));
    assert!(all.iter().all(|(_, key)| is_guarded(carrier, key)));
    all
}

/// Every way to set (`Some`) or remove (`None`) a key: name, method, path, content type and body.
fn ways(
    kind: &Guarded,
    live: &Value,
    map: &str,
    key: &str,
    value: Option<&str>,
) -> Vec<(String, &'static str, String, &'static str, Value)> {
    let path = kind.path();
    let pointer = format!("/metadata/{map}/{}", key.replace('/', "~1"));
    let patch = json!({"metadata": {map: {key: value}}});
    let operation = match value {
        Some(value) => json!([{"op": "add", "path": pointer, "value": value}]),
        None => json!([{"op": "remove", "path": pointer}]),
    };
    let mut replaced = live.clone();
    match value {
        Some(value) => replaced["metadata"][map][key] = json!(value),
        None => drop(replaced["metadata"][map].as_object_mut().unwrap().remove(key)),
    }
    let mut ways = Vec::new();
    let places: Vec<String> =
        std::iter::once(path.clone()).chain(kind.through.iter().map(|sub| format!("{path}/{sub}"))).collect();
    for place in places {
        let mut way = |name: &str, method, content, body: &Value| {
            ways.push((format!("{name} {place}"), method, place.clone(), content, body.clone()));
        };
        way("merge", "PATCH", MERGE, &patch);
        way("json", "PATCH", JSON, &operation);
        way("put", "PUT", "application/json", &replaced);
        if kind.strategic {
            way("strategic", "PATCH", STRATEGIC, &patch);
        }
        if value.is_some() {
            let mut applied = json!({"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {"name": "guarded", map: {key: value}}});
            applied["metadata"]["namespace"] = live["metadata"]["namespace"].clone();
            ways.push((
                format!("apply {place}"),
                "PATCH",
                format!("{place}?fieldManager=test&force=true"),
                APPLY,
                applied,
            ));
        }
    }
    if value.is_none() {
        // what `kubectl replace` and Argo's Replace=true send: the maps are not there at all
        let mut bare = live.clone();
        bare["metadata"].as_object_mut().unwrap().remove(map);
        ways.push((format!("put without {map}"), "PUT", path, "application/json", bare));
    }
    ways
}

#[track_caller]
fn refused(reply: &Reply, what: &str, key: &str) {
    assert_eq!(reply.code, 403, "{what} {key}: {:?}", reply.body);
    let message = reply.message();
    for part in
        [key, "rig-admin", "noderotation-controller may change them", "noderotation.io/break-glass: \"<reason>\""]
    {
        assert!(message.contains(part), "{what} {key}: {part} is not in\n{message}");
    }
}

#[track_caller]
fn fine(reply: &Reply) {
    assert!(matches!(reply.code, 200 | 201), "{}: {}", reply.code, reply.message());
}

struct Actors {
    product: Product,
    admin: Asker,
    controller: Asker,
}

impl Actors {
    async fn install(values: &[&str], with_webhook: bool) -> Self {
        // the controller's account writes here what the controller never would
        let values = &[&["--set", "accountPolicies.enabled=false"], values].concat();
        let product = if with_webhook {
            Product::install_bare_with_webhook(true, values).await.unwrap()
        } else {
            let rig = noderotation_rig::Rig::start(noderotation_rig::Options {
                bare: true,
                audit: true,
                ..Default::default()
            })
            .await
            .unwrap();
            rig.install_karpenter_kinds().unwrap();
            Product::install_bare_with(rig, values).unwrap()
        };
        let admin = Asker::admin(&product.rig);
        let controller = Asker(product.controller_client().await.unwrap());
        // no controller creates it on a bare rig, and Pods are refused without it
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}});
        fine(&admin.create("/api/v1/namespaces/noderotation/serviceaccounts", &account).await);
        Self { product, admin, controller }
    }

    /// Creates the object, and lets the controller set these keys; the stored object.
    async fn object(&self, kind: &Guarded, marks: &[(&str, &str, &str)]) -> Value {
        if self.admin.get(&kind.path()).await.code == 200 {
            fine(&self.admin.ask("DELETE", &kind.path(), "application/json", &json!({"gracePeriodSeconds": 0})).await);
        }
        let mut object = kind.object.clone();
        for (map, key, value) in marks {
            object["metadata"][*map][*key] = json!(value);
        }
        if kind.carrier == Carrier::Placeholder {
            // the controller's own way: it creates, and never changes
            fine(&self.controller.create(kind.collection, &object).await);
        } else {
            fine(&self.admin.create(kind.collection, &kind.object).await);
            if !marks.is_empty() {
                fine(&self.controller.merge(&kind.path(), &json!({"metadata": {"annotations": object["metadata"]["annotations"], "labels": object["metadata"]["labels"]}})).await);
            }
        }
        self.admin.get(&kind.path()).await.body
    }

    async fn unchanged(&self, kind: &Guarded, live: &Value, what: &str) {
        let now = self.admin.get(&kind.path()).await.body;
        assert_eq!(now["metadata"]["resourceVersion"], live["metadata"]["resourceVersion"], "{what} changed it");
    }
}

/// Tries every way for every key of every kind; the number of refusals.
async fn nobody_else_changes_a_guarded_key(actors: &Actors) -> u64 {
    let mut count = 0;
    for kind in kinds() {
        let keys = keys_of(kind.carrier);
        let plain = actors.object(&kind, &[]).await;
        for (map, key) in &keys {
            for (what, method, path, content, body) in ways(&kind, &plain, map, key, Some("added")) {
                refused(&actors.admin.ask(method, &path, content, &body).await, &what, key);
                count += 1;
            }
        }
        actors.unchanged(&kind, &plain, "adding").await;

        let mut created = kind.object.clone();
        created["metadata"]["name"] = json!("forged");
        for (map, key) in &keys {
            let mut forged = created.clone();
            forged["metadata"][*map][*key] = json!("forged");
            if kind.carrier == Carrier::NodePool && REMEMBERED.contains(key) {
                continue;
            }
            refused(&actors.admin.create(kind.collection, &forged).await, "create", key);
            count += 1;
        }

        let mut marks: Vec<_> = keys.iter().map(|(map, key)| (*map, *key, "set")).collect();
        if kind.carrier == Carrier::NodePool {
            assert!(marks.iter().any(|(_, key, _)| *key == keys::ACTIVE_ROTATION));
        }
        marks.sort_unstable();
        let marked = actors.object(&kind, &marks).await;
        for (map, key) in &keys {
            for value in [Some("changed"), None] {
                for (what, method, path, content, body) in ways(&kind, &marked, map, key, value) {
                    refused(&actors.admin.ask(method, &path, content, &body).await, &what, key);
                    count += 1;
                }
            }
        }
        let mut bare = marked.clone();
        for map in ["annotations", "labels"] {
            bare["metadata"].as_object_mut().unwrap().remove(map);
        }
        refused(&actors.admin.put(&kind.path(), &bare).await, "put without both maps", keys[0].1);
        actors.unchanged(&kind, &marked, "changing").await;

        for sub in kind.dropped {
            let path = format!("{}/{sub}", kind.path());
            let reply = actors.admin.merge(&path, &json!({"metadata": {"annotations": {keys[0].1: "x"}}})).await;
            assert!(matches!(reply.code, 200 | 404 | 422), "{path}: {} {}", reply.code, reply.message());
            let now = actors.admin.get(&kind.path()).await.body;
            assert_eq!(now["metadata"]["annotations"], marked["metadata"]["annotations"], "{path} changed it");
        }
    }
    count + bindings(actors).await
}

/// Tries to set guarded keys by a Binding, whose annotations and labels the API server copies to the Pod.
async fn bindings(actors: &Actors) -> u64 {
    let bound = |annotations: Value| {
        json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain", "namespace": NAMESPACE, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "guarded"},
        })
    };
    fine(&actors.admin.create(PODS, &pod("plain")).await);
    let forged = bound(json!({keys::SURGE_FOR: "x"}));
    let ways = [format!("{PODS}/plain/binding"), "/api/v1/namespaces/noderotation/bindings".to_owned()];
    // the API server does not remove a deletionTimestamp from a Binding that somebody sends
    let mut leaving = forged.clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-12-04T18:00:00Z");
    for path in &ways {
        for binding in [&forged, &leaving] {
            refused(&actors.admin.create(path, binding).await, path, keys::SURGE_FOR);
        }
    }
    fine(&actors.admin.create(&ways[0], &bound(json!({"c": "e"}))).await);
    assert_eq!(actors.admin.get(&format!("{PODS}/plain")).await.body["metadata"]["annotations"], json!({"c": "e"}));
    4
}

/// Writes that do not change a guarded key, and writes to objects that are being deleted, must pass.
async fn everything_else_is_free(actors: &Actors) {
    for kind in kinds() {
        let mut marks: Vec<_> = keys_of(kind.carrier).into_iter().map(|(map, key)| (map, key, "set")).collect();
        marks.sort_unstable();
        actors.object(&kind, &marks).await;
        let path = kind.path();
        for patch in [
            json!({"metadata": {"annotations": {"c": "e", "new": "x"}, "labels": {"a": "c", "new": "x"}}}),
            json!({"metadata": {"annotations": {"c": null}, "labels": {"a": null}}}),
            json!({"metadata": {"annotations": {keys::BREAK_GLASS: "only written down"}}}),
            json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        ] {
            fine(&actors.admin.merge(&path, &patch).await);
        }
        if matches!(kind.carrier, Carrier::NodePool) {
            fine(
                &actors
                    .admin
                    .merge(&path, &json!({"metadata": {"annotations": {keys::FREEZE: "2999-01-01T00:00:00Z"}}}))
                    .await,
            );
        }
        if matches!(kind.carrier, Carrier::NodeClaim) {
            fine(
                &actors.admin.merge(&path, &json!({"metadata": {"annotations": {keys::ROTATE: "next-window"}}})).await,
            );
        }
        if kind.carrier == Carrier::Placeholder {
            fine(&actors.admin.merge(&path, &json!({"metadata": {"annotations": {keys::NOMINATION: "{}"}}})).await);
        }
        if kind.carrier == Carrier::Node {
            // as Karpenter copies them from the NodeClaim when a node registers
            fine(
                &actors
                    .admin
                    .merge(
                        &path,
                        &json!({"metadata": {"annotations": {keys::STATE: "pending", keys::RETRY_COUNT: "1"}}}),
                    )
                    .await,
            );
        }
        // an object that is being deleted is free
        fine(&actors.admin.delete(&path).await);
        // a write begins with the object in the API server's cache, and asks about that one as well if it is an older one
        let cached = format!("{path}?resourceVersion=0");
        let is_shown = async || {
            let deleted = !actors.admin.get(&cached).await.body["metadata"]["deletionTimestamp"].is_null();
            Ok(deleted.then_some(()))
        };
        actors.product.rig.wait("the deletion to be shown", PATIENCE, is_shown).await.unwrap();
        fine(
            &actors.admin.merge(&path, &json!({"metadata": {"annotations": {keys_of(kind.carrier)[0].1: null}}})).await,
        );
        fine(&actors.admin.merge(&path, &json!({"metadata": {"finalizers": null}})).await);
    }
    // Pods elsewhere are no placeholders
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}});
    let _ = actors.admin.create("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let mut elsewhere = pod("elsewhere");
    elsewhere["metadata"]["namespace"] = json!("default");
    elsewhere["metadata"]["annotations"][keys::SURGE_FOR] = json!("x");
    fine(&actors.admin.create("/api/v1/namespaces/default/pods", &elsewhere).await);
}

/// A Node with as many annotations as the API server admits: the budget of CEL suffices for the guard, which still guards, and
/// a heartbeat takes about as long as a write to an object that nobody guards.
async fn many_annotations_cost_little(actors: &Actors) {
    let many: serde_json::Map<String, Value> = (0..43_000).map(|n| (format!("k{n:05}"), json!(""))).collect();
    let mut node = node("many");
    node["metadata"]["annotations"] = many.clone().into();
    let plain = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "many", "namespace": "default", "annotations": many}});
    let maps = "/api/v1/namespaces/default/configmaps";
    fine(&actors.admin.create(NODES, &node).await);
    fine(&actors.admin.create(maps, &plain).await);
    let (node, plain) = (format!("{NODES}/many"), format!("{maps}/many"));
    fine(
        &actors.admin.merge(&node, &json!({"metadata": {"annotations": {"k00000": "x"}, "labels": {"l": "x"}}})).await,
    );
    for annotation in [keys::CORDONED, "noderotation.io/future"] {
        let forged = json!({"metadata": {"annotations": {annotation: "true"}}});
        refused(&actors.admin.merge(&node, &forged).await, "merge", annotation);
    }
    let timed = async |path: &str, patch: Value| {
        let began = std::time::Instant::now();
        fine(&actors.admin.merge(path, &patch).await);
        began.elapsed()
    };
    let (mut guarded, mut free) = (Vec::new(), Vec::new());
    for n in 0..7 {
        let heartbeat =
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": n.to_string()}]}});
        guarded.push(timed(&format!("{node}/status"), heartbeat).await);
        free.push(timed(&plain, json!({"data": {"n": n.to_string()}})).await);
    }
    let (guarded, free) = (guarded.into_iter().min().unwrap(), free.into_iter().min().unwrap());
    println!(
        "a heartbeat of a Node with 43,000 annotations: {guarded:?}; a write of a ConfigMap with as many: {free:?}"
    );
    // walking through the annotations made it tenfold
    assert!(guarded < free * 5, "{guarded:?} for a Node, {free:?} for a ConfigMap");
}

/// The controller may change guarded keys; a user who impersonates it may not; break-glass lets anyone, once per reason.
async fn who_may(actors: &Actors, warns: bool) {
    let claims = kinds().remove(1);
    actors.object(&claims, &[]).await;
    let (path, state) = (claims.path(), |value: &str| json!({"metadata": {"annotations": {keys::STATE: value}}}));
    fine(&actors.controller.merge(&path, &state("pending")).await);

    let played = [
        ("content-type", MERGE),
        ("impersonate-user", "system:serviceaccount:noderotation:noderotation-controller"),
        ("impersonate-group", "system:masters"),
    ];
    let reply = exchange(&actors.admin.0, "PATCH", &path, &played, &state("failed")).await.unwrap();
    assert_eq!(reply.code, 403, "{:?}", reply.body);
    assert!(reply.message().contains(ACCOUNT), "{}", reply.message());

    let glass = |reason: &str, value: &str| json!({"metadata": {"annotations": {keys::BREAK_GLASS: reason, keys::STATE: value}}});
    refused(&actors.admin.merge(&path, &glass(" ", "failed")).await, "a blank reason", keys::STATE);
    let reply = actors.admin.merge(&path, &glass("incident 7", "failed")).await;
    fine(&reply);
    if warns {
        assert!(
            reply.warnings.iter().any(|w| w.contains("noderotation.io/break-glass") && w.contains("incident 7")),
            "{:?}",
            reply.warnings
        );
    }
    // the annotation counts only in the write that adds or changes it
    refused(&actors.admin.merge(&path, &state("pending")).await, "an old reason", keys::STATE);
    refused(&actors.admin.merge(&path, &glass("incident 7", "pending")).await, "the same reason", keys::STATE);
    fine(&actors.admin.merge(&path, &glass("incident 8", "pending")).await);
    fine(&actors.admin.merge(&path, &json!({"metadata": {"annotations": {keys::BREAK_GLASS: null}}})).await);

    let audit = actors.product.rig.audit().unwrap();
    let told = |reason: &str| {
        audit.iter().any(|event| {
            let annotations = event["annotations"].as_object();
            annotations
                .is_some_and(|all| all.iter().any(|(key, value)| key.ends_with("/break-glass") && value == reason))
        })
    };
    assert!(told("incident 7") && told("incident 8"));

    // a replaced NodePool without a rotation in flight
    let pools = kinds().remove(0);
    let idle = actors.object(&pools, &[("annotations", keys::LAST_ROTATION_AT, "2026-11-01T00:00:00Z")]).await;
    let mut bare = idle.clone();
    bare["metadata"].as_object_mut().unwrap().remove("annotations");
    let reply = actors.admin.put(&pools.path(), &bare).await;
    fine(&reply);
    if warns {
        assert!(reply.warnings.iter().any(|w| w.contains("no rotation is in flight")), "{:?}", reply.warnings);
    }
    // a NodePool from a backup, as Velero creates it
    let restored = |key: &str| {
        let mut pool = pool("restored", &json!({"w": "restored"}));
        pool["metadata"]["annotations"] = json!({"c": "d", key: "2026-11-01T00:00:00Z"});
        pool
    };
    for key in REMEMBERED {
        fine(&actors.admin.create(POOLS, &restored(key)).await);
        fine(&actors.admin.delete(&format!("{POOLS}/restored")).await);
    }
    let in_flight = actors.admin.create(POOLS, &restored(keys::ACTIVE_ROTATION)).await;
    refused(&in_flight, "restoring a rotation in flight", keys::ACTIVE_ROTATION);

    // kubectl, as people use it
    fine(&actors.controller.merge(&path, &state("pending")).await);
    let error = actors
        .product
        .rig
        .kubectl(&["annotate", "nodeclaim", "guarded", "noderotation.io/state=failed", "--overwrite"])
        .unwrap_err();
    assert!(error.to_string().contains("noderotation.io/state"), "{error}");
    let error = actors.product.rig.kubectl(&["label", "node", "guarded", "noderotation.io/surge-for=x"]);
    assert!(error.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_guards_every_key_on_every_kind() {
    let actors = Actors::install(&[], true).await;
    let webhook = actors.product.webhook.as_ref().unwrap();
    let guarded = async || webhook.reviews_with("guard/annotations").await;
    let refusals = nobody_else_changes_a_guarded_key(&actors).await;
    let asked = guarded().await;
    println!("{refusals} refusals by {asked} reviews");
    assert!(asked >= refusals);
    fine(&actors.admin.create(NODES, &node("guarded-again")).await);
    everything_else_is_free(&actors).await;
    assert_eq!(guarded().await, asked, "an ordinary write was asked about");
    fine(&actors.admin.create(NODES, &node("guarded")).await);
    who_may(&actors, true).await;
    many_annotations_cost_little(&actors).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_guards_as_the_webhook_does() {
    let actors = Actors::install(&["--set", "webhook.enabled=false", "--set", "guardPolicy.enabled=true"], false).await;
    // policies take effect a moment after they are created
    let probe = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "probe", "annotations": {keys::CORDONED: "true"}}});
    let forged_pod = {
        let mut pod = pod("probe");
        pod["metadata"]["annotations"][keys::SURGE_FOR] = json!("x");
        pod
    };
    let mut forged_claim = claim("probe", "probe");
    forged_claim["metadata"]["annotations"] = json!({keys::STATE: "pending"});
    for (collection, object) in [(NODES, &probe), (PODS, &forged_pod), (CLAIMS, &forged_claim)] {
        actors
            .product
            .rig
            .wait("the policies to take effect", std::time::Duration::from_secs(60), async || {
                let reply =
                    actors.admin.ask("POST", &format!("{collection}?dryRun=All"), "application/json", object).await;
                Ok((reply.code == 403).then_some(()))
            })
            .await
            .unwrap();
    }
    let refusals = nobody_else_changes_a_guarded_key(&actors).await;
    println!("{refusals} refusals");
    everything_else_is_free(&actors).await;
    fine(&actors.admin.create(NODES, &node("guarded")).await);
    who_may(&actors, false).await;
    many_annotations_cost_little(&actors).await;
}
