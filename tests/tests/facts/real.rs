//! The same scenario on a real control plane with a real Karpenter.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use kube::core::WatchEvent;
use noderotation_cluster::api::{Api, Selectors};
use noderotation_cluster::objects::Cached;
use noderotation_rig::objects::{node_pool, stateful_set};
use noderotation_shared::kind::Kind;
use noderotation_shared::{duration, keys};
use noderotation_simulator::Scenario;
use noderotation_simulator::scenario::POOL;
use noderotation_tests::product::NAMESPACE;
use noderotation_tests::world::{self, PATIENCE};
use noderotation_tests::{Product, audit};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Facts;
use crate::history::{Cast, Change, written};

/// The annotation after which a watch has told enough.
const END: &str = "example.com/end";

/// Plays it until each of the facts `until` is there.
pub async fn play(scenario: &Scenario, until: &[&str]) -> Facts {
    let product = Product::install().await.unwrap();
    let rig = &product.rig;
    let (expire_after, grace) = (duration::format(scenario.expire_after), duration::format(scenario.grace_period));
    node_pool(POOL).expire_after(&expire_after).grace(Some(&grace)).apply(rig).unwrap();
    // most of a node's CPU: there is no room for a placeholder beside it
    stateful_set("app", POOL, 1).cpu("1200m").apply(rig).unwrap();
    world::settled(rig, "app", 1).await.unwrap();
    let old = rig
        .wait("the NodeClaim to be Ready", PATIENCE, async || {
            let claims = world::claims(rig, POOL).await?;
            Ok(claims.first().filter(|claim| world::condition(claim, "Ready") == Some("True")).cloned())
        })
        .await
        .unwrap();
    let (old_claim, old_node) = (world::name(&old), old["status"]["nodeName"].as_str().unwrap().to_owned());
    if scenario.never_registers {
        let class = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default";
        rig.merge(class, json!({"spec": {"nodeRegistrationDelay": "1h"}})).await.unwrap();
    }
    let mut policy = world::policy(POOL);
    policy["spec"].as_object_mut().unwrap().extend(scenario.policy.clone());

    let api = Api::new(rig.client.clone(), 1000, 1000, Arc::default());
    let seen: Seen = Arc::default();
    let watches: Vec<JoinHandle<()>> = [Kind::NodePool, Kind::NodeClaim, Kind::Node, Kind::Pod]
        .map(|kind| tokio::spawn(watch(api.clone(), kind, seen.clone())))
        .into();
    let controller = product.start_leader().await.unwrap();
    if scenario.is_requested {
        world::request(rig, &old_claim, "next-window").await.unwrap();
    }
    let created: Timestamp = old["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    // here time itself is the condition
    rig.wait("the age of the NodeClaim", PATIENCE + scenario.age.unsigned_abs(), async || {
        Ok((Timestamp::now() >= created + scenario.age).then_some(()))
    })
    .await
    .unwrap();
    rig.apply(&policy).unwrap();
    let happened = |seen: &Seen| {
        let mut changes = seen.lock().clone();
        changes.sort_by_key(Change::version);
        let mut cast = Cast::new(&old_claim, &old_node);
        (cast.facts(&changes), cast)
    };
    let waited = rig
        .wait("the last facts", PATIENCE, async || {
            let (facts, _) = happened(&seen);
            Ok(until.iter().all(|fact| facts.iter().any(|f| f == fact)).then_some(()))
        })
        .await;
    let log = controller.process.tail(40);
    drop(controller);
    assert!(waited.is_ok(), "{:#?}\n{log}", happened(&seen).0);
    for path in last_objects(&product).await {
        rig.merge(&path, json!({"metadata": {"annotations": {END: "true"}}})).await.unwrap();
    }
    for watch in watches {
        tokio::time::timeout(PATIENCE, watch).await.unwrap().unwrap();
    }
    let (happened, cast) = happened(&seen);
    let landed = audit::rotation(rig).unwrap().into_iter().filter(|write| write.code < 300);
    let writes = landed.map(|write| {
        let part = if write.resource == "nodepools" { "NodePool" } else { &cast.parts[&part_name(&write)] };
        written(&write.verb, part, &write.body)
    });
    Facts { writes: writes.collect(), happened }
}

/// A create may come without a name in the audit log's reference.
fn part_name(write: &audit::Write) -> String {
    if write.name.is_empty() { world::name(&write.body) } else { write.name.clone() }
}

/// One object of each kind that is watched, and that stays.
async fn last_objects(product: &Product) -> Vec<String> {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let mut paths = Vec::new();
    for collection in ["/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.sh/v1/nodeclaims", "/api/v1/nodes", &pods] {
        let objects = product.rig.list(collection).await.unwrap();
        let stays = objects.iter().find(|object| object["metadata"]["deletionTimestamp"].is_null()).unwrap();
        paths.push(format!("{collection}/{}", world::name(stays)));
    }
    paths
}

type Seen = Arc<parking_lot::Mutex<Vec<Change>>>;

/// Collects the changes of a kind, from its initial state to the mark of the end.
async fn watch(api: Api, kind: Kind, seen: Seen) {
    let namespace = (kind == Kind::Pod).then_some(NAMESPACE);
    let events = api.watch::<Value>(kind, namespace, &Selectors::default(), None).await.unwrap();
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        let (object, is_gone) = match event.unwrap() {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("{status:?}"),
        };
        if world::annotation(&object, END).is_some() {
            return;
        }
        seen.lock().extend(change(kind, &object, is_gone));
    }
    panic!("the watch of {kind}s has ended");
}

fn change(kind: Kind, object: &Value, is_gone: bool) -> Option<Change> {
    let text = object.to_string();
    Some(match kind {
        Kind::NodePool => Change::Pool(Cached::read(&text).unwrap(), is_gone),
        Kind::NodeClaim => Change::Claim(Cached::read(&text).unwrap(), is_gone),
        Kind::Node if world::name(object) == "rig-system" => return None,
        Kind::Node => Change::Node(Cached::read(&text).unwrap(), is_gone),
        _ if object["metadata"]["labels"][keys::SURGE_FOR].is_null() => return None,
        _ => Change::Placeholder(Cached::read(&text).unwrap(), is_gone),
    })
}
