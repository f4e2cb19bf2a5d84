//! Performs one request and puts the answer into the world and the caches, so that the next decision sees it (§8).

use std::sync::Arc;

use noderotation_rotation::step::{Act, ObjectKind, Patch, Write};
use noderotation_rotation::world::{Reapable, World};
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};

use crate::read;
use crate::watch::Caches;
use noderotation_cluster::api::{Api, Outcome, ReadError};
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;

/// Sends the request of an act. On anything but *applied* the object is read live, so that what follows is decided on
/// what is there.
pub async fn apply(api: &Api, caches: &Caches, world: &mut World, act: &Act) -> Result<Outcome, ReadError> {
    let outcome = send(api, &world.settings.namespace, &act.request).await;
    match &outcome {
        Outcome::Applied(text) => take_in(caches, world, &act.request, text),
        Outcome::Conflict | Outcome::NotFound | Outcome::Unknown(_) => reread(api, caches, world, &act.request).await?,
        Outcome::Rejected(_) | Outcome::Throttled(..) => {}
    }
    Ok(outcome)
}

fn collection(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::NodePool => NodePool::COLLECTION,
        ObjectKind::NodeClaim => NodeClaim::COLLECTION,
        ObjectKind::Node => Node::COLLECTION,
    }
}

async fn send(api: &Api, namespace: &str, request: &Write) -> Outcome {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    match request {
        Write::Patch(patch) => api.patch(&format!("{}/{}", collection(patch.kind), patch.name), &patch.body()).await,
        Write::Create(pod) => api.create(&pods, pod).await,
        Write::DeletePlaceholder { name, uid } => api.delete(&format!("{pods}/{name}"), uid, None).await,
        Write::DeleteClaim { name, uid, version } => {
            api.delete(&format!("{}/{name}", NodeClaim::COLLECTION), uid, version.as_deref()).await
        }
    }
}

/// An applied write: the answer is the object as it is now.
fn take_in(caches: &Caches, world: &mut World, request: &Write, text: &str) {
    match request {
        Write::Patch(Patch { kind: ObjectKind::NodePool, .. }) => {
            if let Ok(pool) = NodePool::read(text) {
                caches.apply(pool.clone());
                world.pool = pool;
            }
        }
        Write::Patch(Patch { kind: ObjectKind::NodeClaim, .. }) => {
            if let Ok(claim) = NodeClaim::read(text) {
                caches.apply(claim.clone());
                world.set_claim(claim);
                world.evidence.claim_confirmed = true;
            }
        }
        Write::Patch(Patch { kind: ObjectKind::Node, .. }) => {
            if let Ok(node) = Node::read(text) {
                caches.apply(node.clone());
                world.nodes.insert(node.meta.name.clone(), Arc::new(node));
            }
        }
        Write::Create(_) => {
            if let Ok(pod) = Placeholder::read(text) {
                caches.apply(pod.clone());
                world.placeholder = Some(Arc::new(pod));
            }
        }
        Write::DeletePlaceholder { name, uid } => {
            // without a grace period it is gone with the answer
            caches.forget_placeholder(name, uid);
            world.placeholder = None;
        }
        Write::DeleteClaim { name, .. } => {
            if world.pool.anchor() != Some(name) {
                world.evidence.surge_claim = Some(Reapable::Gone);
            }
            match NodeClaim::read(text) {
                Ok(claim) if *claim.meta.name == **name => {
                    caches.apply(claim.clone());
                    world.set_claim(claim);
                }
                // a mere status: whether it is gone says a live read
                _ => world.evidence.claim_confirmed = false,
            }
        }
    }
}

/// The object of a write that did not land, or may have, read live.
async fn reread(api: &Api, caches: &Caches, world: &mut World, request: &Write) -> Result<(), ReadError> {
    match request {
        Write::Patch(Patch { kind: ObjectKind::NodePool, name, .. }) => {
            match api.get(&format!("{}/{name}", NodePool::COLLECTION)).await {
                Ok(text) => {
                    let pool = NodePool::read(&text).map_err(ReadError::Other)?;
                    caches.apply(pool.clone());
                    world.pool = pool;
                    Ok(())
                }
                Err(other) => Err(other),
            }
        }
        Write::Patch(Patch { kind: ObjectKind::NodeClaim, name, .. }) | Write::DeleteClaim { name, .. } => {
            read::claim(api, caches, world, name).await
        }
        Write::Patch(Patch { kind: ObjectKind::Node, name, .. }) => {
            match read::node(api, caches, name).await? {
                Ok(node) => {
                    world.nodes.insert(node.meta.name.clone(), node);
                }
                Err(gone) => {
                    world.nodes.remove(&*gone);
                }
            }
            Ok(())
        }
        Write::Create(pod) => {
            let name = pod.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or_default();
            world.placeholder = read::placeholder(api, caches, world.settings.namespace.clone(), name).await?;
            Ok(())
        }
        Write::DeletePlaceholder { name, .. } => {
            world.placeholder = read::placeholder(api, caches, world.settings.namespace.clone(), name).await?;
            Ok(())
        }
    }
}
