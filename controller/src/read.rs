//! The reads that a decision asks for: live, on demand, put into the world and into the caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use noderotation_rotation::size::{NodeLoad, Role, role};
use noderotation_rotation::step::LiveRead;
use noderotation_rotation::world::{Reapable, World};
use noderotation_shared::keys;
use noderotation_shared::objects::{Node, NodeClaim, Placeholder};
use serde::Deserialize;
use serde_json::Value;

use crate::watch::Caches;
use noderotation_cluster::api::{Api, ReadError};
use noderotation_cluster::objects::{Cached, amounts};
use noderotation_cluster::watch::EventHandler;

/// Pods in a page.
const PAGE: usize = 100;

/// Performs one read.
pub async fn read(api: &Api, caches: &Caches, world: &mut World, wanted: &LiveRead) -> Result<(), ReadError> {
    match wanted {
        LiveRead::NodeClaim(name) => claim(api, caches, world, name).await,
        LiveRead::NodeLoad { claim, node } => {
            let load = load(api, claim, node).await?;
            world.evidence.loads.insert(claim.clone(), load);
            Ok(())
        }
        LiveRead::Surge { placeholder: name, node: host } => {
            let (pod, host) =
                tokio::join!(placeholder(api, caches, world_namespace(world), name), node(api, caches, host));
            let (pod, host) = (pod?, host?);
            world.placeholder = pod;
            match host {
                Ok(host) => {
                    world.nodes.insert(host.meta.name.clone(), host);
                }
                Err(name) => {
                    world.nodes.remove(&*name);
                }
            }
            world.evidence.surge_confirmed = true;
            Ok(())
        }
        LiveRead::Nomination { placeholder } => {
            world.evidence.nominated = Some(nomination(api, world_namespace(world), placeholder).await?);
            Ok(())
        }
        LiveRead::SurgeClaim(name) => {
            world.evidence.surge_claim = Some(reapable(api, name).await?);
            Ok(())
        }
    }
}

fn world_namespace(world: &World) -> String {
    world.settings.namespace.clone()
}

/// A claim, live: its state, or the API server's own word that it is gone.
pub async fn claim(api: &Api, caches: &Caches, world: &mut World, name: &str) -> Result<(), ReadError> {
    let is_anchor = world.pool.anchor() == Some(name);
    match api.get(&format!("{}/{name}", NodeClaim::COLLECTION)).await {
        Ok(text) => {
            let claim = NodeClaim::read(&text).map_err(ReadError::Other)?;
            caches.apply(claim.clone());
            world.set_claim(claim);
            world.evidence.claim_confirmed |= is_anchor;
        }
        Err(ReadError::NotFound) => {
            caches.forget_claim(name);
            world.remove_claim(name);
            if is_anchor {
                world.evidence.claim_gone = true;
            } else {
                world.evidence.surge_claim = Some(Reapable::Gone);
            }
        }
        Err(other) => return Err(other),
    }
    Ok(())
}

/// A placeholder, live.
pub async fn placeholder(
    api: &Api,
    caches: &Caches,
    namespace: String,
    name: &str,
) -> Result<Option<Arc<Placeholder>>, ReadError> {
    match api.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await {
        Ok(text) => {
            let pod = Placeholder::read(&text).map_err(ReadError::Other)?;
            caches.apply(pod.clone());
            Ok(Some(Arc::new(pod)))
        }
        Err(ReadError::NotFound) => {
            if let Some(known) = caches.placeholder(name) {
                caches.forget_placeholder(name, &known.meta.uid);
            }
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// A node, live; or its name where it is gone.
pub async fn node(api: &Api, caches: &Caches, name: &str) -> Result<Result<Arc<Node>, String>, ReadError> {
    match api.get(&format!("{}/{name}", Node::COLLECTION)).await {
        Ok(text) => {
            let node = Node::read(&text).map_err(ReadError::Other)?;
            caches.apply(node.clone());
            Ok(Ok(Arc::new(node)))
        }
        Err(ReadError::NotFound) => {
            caches.forget_node(name);
            Ok(Err(name.to_owned()))
        }
        Err(other) => Err(other),
    }
}

/// What runs on a node and what its claim can hold.
async fn load(api: &Api, claim: &str, node: &str) -> Result<NodeLoad, ReadError> {
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
    let raw_claim: RawClaim = decoded(&api.get(&format!("{}/{claim}", NodeClaim::COLLECTION)).await?)?;
    let labels = match api.get(&format!("{}/{node}", Node::COLLECTION)).await {
        Ok(text) => decoded::<RawNode>(&text)?.metadata.labels,
        Err(ReadError::NotFound) => BTreeMap::new(),
        Err(other) => return Err(other),
    };
    let is_in = raw_claim.spec.requirements.into_iter().filter(|r| r.operator == "In");
    let mut load = NodeLoad {
        labels,
        requirements: is_in.map(|r| (r.key, r.values)).collect(),
        allocatable: raw_claim.status.allocatable.as_ref().map(amounts),
        ..NodeLoad::default()
    };
    let mut volumes = Vec::new();
    for_each_pod(api, node, |pod| {
        load.count(pod);
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        volumes.extend(NodeLoad::volume_claims(pod).into_iter().map(|name| (namespace.clone(), name)));
    })
    .await?;
    for (namespace, name) in volumes {
        load.volume_zones.extend(volume_zones(api, &namespace, &name).await?);
    }
    Ok(load)
}

fn decoded<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, ReadError> {
    serde_json::from_str(text).map_err(|e| ReadError::Other(e.to_string()))
}

/// Lists the Pods of a node page by page; none is kept.
async fn for_each_pod(api: &Api, node: &str, mut see: impl FnMut(&Pod)) -> Result<(), ReadError> {
    #[derive(Deserialize)]
    struct Page {
        metadata: PageMeta,
        items: Vec<Pod>,
    }
    #[derive(Deserialize)]
    struct PageMeta {
        #[serde(default)]
        r#continue: String,
    }
    let mut next = String::new();
    loop {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&limit={PAGE}{next}");
        let page: Page = decoded(&api.get(&path).await?)?;
        page.items.iter().for_each(&mut see);
        if page.metadata.r#continue.is_empty() {
            return Ok(());
        }
        next = format!("&continue={}", page.metadata.r#continue);
    }
}

/// The zones that a bound volume allows; `None` where it is not bound, or to no zone.
async fn volume_zones(api: &Api, namespace: &str, claim: &str) -> Result<Option<(String, Vec<String>)>, ReadError> {
    let absent_is_none = |result| match result {
        Err(ReadError::NotFound) => Ok(None),
        other => other.map(Some),
    };
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}");
    let Some(text) = absent_is_none(api.get(&path).await)? else { return Ok(None) };
    let claim: Value = decoded(&text)?;
    let Some(volume) = claim.pointer("/spec/volumeName").and_then(Value::as_str) else { return Ok(None) };
    let Some(text) = absent_is_none(api.get(&format!("/api/v1/persistentvolumes/{volume}")).await)? else {
        return Ok(None);
    };
    let object: Value = decoded(&text)?;
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
    const ALSO: [&str; 5] = [
        "failure-domain.beta.kubernetes.io/zone",
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
        "topology.kubernetes.io/zone",
    ];
    key == keys::ZONE || ALSO.contains(&key)
}

/// The claim that Karpenter says it launched for a placeholder: `Pod should schedule on: nodeclaim/NAME`.
async fn nomination(api: &Api, namespace: String, placeholder: &str) -> Result<Option<String>, ReadError> {
    let path = format!(
        "/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{placeholder}%2Creason%3DNominated"
    );
    let events: Value = decoded(&api.get(&path).await?)?;
    let mut named: Vec<(String, String)> = events
        .get("items")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|event| {
            let text = event.get("message")?.as_str()?;
            let name = text.split("nodeclaim/").nth(1)?.split([',', ' ', '\n']).next()?;
            let at = event.pointer("/lastTimestamp").or_else(|| event.pointer("/eventTime"))?.as_str()?;
            Some((at.to_owned(), name.to_owned()))
        })
        .collect();
    named.sort();
    Ok(named.pop().map(|(_, name)| name))
}

/// Whether a surge claim may be taken back.
async fn reapable(api: &Api, name: &str) -> Result<Reapable, ReadError> {
    let claim = match api.get(&format!("{}/{name}", NodeClaim::COLLECTION)).await {
        Ok(text) => NodeClaim::read(&text).map_err(ReadError::Other)?,
        Err(ReadError::NotFound) => return Ok(Reapable::Gone),
        Err(other) => return Err(other),
    };
    if claim.meta.deleted.is_some() {
        return Ok(Reapable::Gone);
    }
    let mut strangers = Vec::new();
    if !claim.node.is_empty() {
        for_each_pod(api, &claim.node, |pod| {
            let is_placeholder = pod.metadata.labels.as_ref().is_some_and(|l| l.contains_key(keys::SURGE_FOR));
            if role(pod) != Role::Daemon && !is_placeholder {
                strangers.push(pod.metadata.name.clone().unwrap_or_default());
            }
        })
        .await?;
    }
    Ok(Reapable::Exists { uid: claim.meta.uid.to_string(), created: claim.meta.created, strangers })
}
