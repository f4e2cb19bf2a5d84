//! Performs the live reads that a decision asks for, and caches what they show.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use noderotation_cluster::api::{Api, Selectors};
use noderotation_cluster::error::{Error, with_causes};
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;
use noderotation_rotation::caches::{CacheOf, Caches as State};
use noderotation_rotation::drainable::{self, Budget, Evictee, Obstacle, Remaining};
use noderotation_rotation::pass::Answer;
use noderotation_rotation::placeholder;
use noderotation_rotation::pod_role::{Role, role};
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::LiveRead;
use noderotation_rotation::world::Reapable;
use noderotation_shared::keys;
use noderotation_shared::kind::{Kind, ObjectRef};
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::quantity::Resources;
use serde::Deserialize;
use serde_json::Value;

use crate::watch::Caches;

/// Performs one read; `namespace` is where placeholders live.
pub async fn read(api: &Api, caches: &Caches, namespace: &str, wanted: &LiveRead) -> Result<Answer, Error> {
    Ok(match wanted {
        LiveRead::NodePool(name) => {
            Answer::NodePool(refresh::<NodePool>(api, caches, Kind::NodePool.named(name)).await?)
        }
        LiveRead::NodeClaim(name) => {
            Answer::NodeClaim(refresh::<NodeClaim>(api, caches, Kind::NodeClaim.named(name)).await?)
        }
        LiveRead::Node(name) => Answer::Node(refresh::<Node>(api, caches, Kind::Node.named(name)).await?),
        LiveRead::Placeholder(name) => {
            let placeholder = Kind::Pod.in_namespace(namespace, name);
            Answer::Placeholder(refresh::<Placeholder>(api, caches, placeholder).await?)
        }
        LiveRead::Surge { placeholder, node } => {
            let placeholder = Kind::Pod.in_namespace(namespace, placeholder);
            let (placeholder, node) = tokio::join!(
                refresh::<Placeholder>(api, caches, placeholder),
                refresh::<Node>(api, caches, Kind::Node.named(node))
            );
            Answer::Surge { placeholder: placeholder?, node: node? }
        }
        LiveRead::NodeLoad { claim, node, is_drain_unbounded, .. } => {
            Answer::NodeLoad(load(api, namespace, claim, node, *is_drain_unbounded).await?)
        }
        LiveRead::Drain { node, .. } => Answer::Drain(remaining(api, namespace, node).await?),
        LiveRead::Nomination { placeholder } => Answer::Nomination(nomination(api, namespace, placeholder).await?),
        LiveRead::SurgeClaim(name) => Answer::SurgeClaim(reapable(api, caches, namespace, name).await?),
    })
}

/// Reads one object live and caches it; `None` is the API server's own 404, which the caches remember as well.
pub async fn refresh<K: Cached>(api: &Api, caches: &Caches, object: ObjectRef<'_>) -> Result<Option<K>, Error>
where
    Caches: EventHandler<K>,
    State: CacheOf<K>,
{
    match api.get(object).await {
        Ok(text) => {
            let live = K::read(&text).map_err(|source| Error::Parse { kind: object.kind, source })?;
            caches.apply(live.clone());
            Ok(Some(live))
        }
        Err(error) if error.is_not_found() => {
            caches.forget::<K>(object.name);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads one object that need not exist.
async fn find<T: for<'de> Deserialize<'de>>(api: &Api, object: ObjectRef<'_>) -> Result<Option<T>, Error> {
    match api.read::<T>(object).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What runs on a node, what its claim can hold and, where that is to be judged, whether its drain would end.
async fn load(
    api: &Api,
    namespace: &str,
    claim: &str,
    node: &str,
    is_drain_unbounded: bool,
) -> Result<NodeLoad, Error> {
    #[derive(Deserialize)]
    struct RawClaim {
        #[serde(default)]
        spec: Spec,
        #[serde(default)]
        status: Status,
    }
    #[derive(Default, Deserialize)]
    struct Spec {
        #[serde(default)]
        requirements: Vec<Requirement>,
    }
    #[derive(Deserialize)]
    struct Requirement {
        key: String,
        #[serde(default)]
        operator: String,
        #[serde(default)]
        values: Vec<String>,
    }
    #[derive(Default, Deserialize)]
    struct Status {
        allocatable: Option<BTreeMap<String, Value>>,
    }
    #[derive(Deserialize)]
    struct RawNode {
        metadata: RawMeta,
    }
    #[derive(Default, Deserialize)]
    struct RawMeta {
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }
    let raw_claim: RawClaim = api.read(Kind::NodeClaim.named(claim)).await?;
    let raw_node: Option<RawNode> = find(api, Kind::Node.named(node)).await?;
    let labels = raw_node.map(|node| node.metadata.labels).unwrap_or_default();
    let is_in = raw_claim.spec.requirements.into_iter().filter(|r| r.operator == "In");
    let mut load = NodeLoad {
        labels,
        requirements: is_in.map(|r| (r.key, r.values)).collect(),
        allocatable: raw_claim.status.allocatable.as_ref().map(Resources::from_json),
        ..NodeLoad::default()
    };
    let mut volumes = Vec::new();
    let mut evictees = Vec::new();
    for_each_pod(api, node, |pod| {
        let role = role(&pod, namespace);
        evictees.extend(is_drain_unbounded.then(|| Evictee::of(&pod, role)).flatten());
        let of_pod = pod.metadata.namespace.clone().unwrap_or_default();
        volumes.extend(load.count(&pod, role).into_iter().map(|name| (of_pod.clone(), name)));
    })
    .await?;
    for (namespace, name) in volumes {
        load.volume_zones.extend(volume_zones(api, &namespace, &name).await?);
    }
    load.obstacle = obstacle(api, &evictees).await?;
    Ok(load)
}

/// Whether one of these Pods would never leave. A missing right is an answer, since the pool's other claims may go without.
async fn obstacle(api: &Api, evictees: &[Evictee]) -> Result<Option<Obstacle>, Error> {
    match budgets(api, evictees).await {
        Ok(budgets) => Ok(drainable::obstacle(evictees, &budgets)),
        Err(error) if error.is_forbidden() => Ok(Some(Obstacle::BudgetsUnreadable(with_causes(&error)))),
        Err(error) => Err(error),
    }
}

/// What a drain under way still has to evict. Without the right to list budgets what they hold is not told.
async fn remaining(api: &Api, namespace: &str, node: &str) -> Result<Remaining, Error> {
    let mut pods = Vec::new();
    for_each_pod(api, node, |pod| pods.extend(Evictee::of(&pod, role(&pod, namespace)))).await?;
    match budgets(api, &pods).await {
        Ok(budgets) => Ok(Remaining { pods, budgets }),
        Err(error) if error.is_forbidden() => Ok(Remaining { pods, budgets: Vec::new() }),
        Err(error) => Err(error),
    }
}

/// The PodDisruptionBudgets of these Pods' namespaces; without Pods no request.
async fn budgets(api: &Api, evictees: &[Evictee]) -> Result<Vec<Budget>, Error> {
    let mut budgets = Vec::new();
    for namespace in drainable::namespaces(evictees) {
        let each = |budget: PodDisruptionBudget| budgets.push(Budget::of(&budget));
        api.list(Kind::PodDisruptionBudget, Some(namespace), &Selectors::default(), each).await?;
    }
    Ok(budgets)
}

/// Lists the Pods of a Node page by page; none is kept.
async fn for_each_pod(api: &Api, node: &str, each: impl FnMut(Pod)) -> Result<(), Error> {
    let on_node = Selectors::fields(format!("spec.nodeName={node}"));
    api.list(Kind::Pod, None, &on_node, each).await.map(|_| ())
}

/// The zones that a bound volume allows; `None` where it is not bound, or to no zone.
async fn volume_zones(api: &Api, namespace: &str, claim: &str) -> Result<Option<(String, Vec<String>)>, Error> {
    let Some(claim) = find::<Value>(api, Kind::PersistentVolumeClaim.in_namespace(namespace, claim)).await? else {
        return Ok(None);
    };
    let Some(volume) = claim.pointer("/spec/volumeName").and_then(Value::as_str) else { return Ok(None) };
    let Some(object) = find::<Value>(api, Kind::PersistentVolume.named(volume)).await? else { return Ok(None) };
    let zones: Vec<String> = object
        .pointer("/spec/nodeAffinity/required/nodeSelectorTerms")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|term| term.get("matchExpressions")?.as_array())
        .flatten()
        .filter(|e| e.get("key").and_then(Value::as_str).is_some_and(is_zone_key))
        .filter(|e| e.get("operator").and_then(Value::as_str) == Some("In"))
        .filter_map(|e| e.get("values")?.as_array())
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect();
    Ok((!zones.is_empty()).then(|| (volume.to_owned(), zones)))
}

/// The general zone key, its predecessor, and those that CSI drivers of the large clouds write instead.
fn is_zone_key(key: &str) -> bool {
    const ALSO: [&str; 4] = [
        "failure-domain.beta.kubernetes.io/zone",
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
    ];
    key == keys::ZONE || ALSO.contains(&key)
}

/// The claim that Karpenter says it launched for a placeholder: `Pod should schedule on: nodeclaim/NAME`.
async fn nomination(api: &Api, namespace: &str, placeholder: &str) -> Result<Option<String>, Error> {
    let about = Selectors::fields(format!("involvedObject.name={placeholder},reason=Nominated"));
    let mut named: Vec<(String, String)> = Vec::new();
    api.list(Kind::CoreEvent, Some(namespace), &about, |event: Value| named.extend(placeholder::nominated_by(&event)))
        .await?;
    Ok(named.into_iter().max().map(|(_, name)| name))
}

/// Whether a surge claim may be taken back.
async fn reapable(api: &Api, caches: &Caches, namespace: &str, name: &str) -> Result<Reapable, Error> {
    let claim = refresh::<NodeClaim>(api, caches, Kind::NodeClaim.named(name)).await?;
    let Some(claim) = claim.filter(|claim| claim.meta.deleted.is_none()) else { return Ok(Reapable::Gone) };
    let mut strangers = Vec::new();
    if !claim.node.is_empty() {
        for_each_pod(api, &claim.node, |pod| {
            if !matches!(role(&pod, namespace), Role::Daemon | Role::Static | Role::Placeholder) {
                strangers.push(pod.metadata.name.unwrap_or_default());
            }
        })
        .await?;
    }
    let (uid, pool) = (claim.meta.uid.to_string(), claim.pool.to_string());
    Ok(Reapable::Exists { uid, pool, created: claim.meta.created, strangers })
}
