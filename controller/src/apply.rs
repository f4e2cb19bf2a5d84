//! Performs one request and puts the answer into the world and the caches, so that the next decision sees it (§8).

use std::sync::Arc;

use noderotation_rotation::step::{Act, Kind, Patch, Request};
use noderotation_rotation::world::{Claim, Node, Placeholder, Pool, Reapable, World};

use crate::look;
use crate::watch::View;
use noderotation_cluster::api::{Api, Outcome, ReadError};
use noderotation_cluster::objects::Kept;
use noderotation_cluster::watch::Sink;

/// Sends the request of an act. On anything but *claimed* the object is read live, so that what follows is decided on
/// what is there.
pub async fn apply(api: &Api, view: &View, world: &mut World, act: &Act) -> Result<Outcome, ReadError> {
    let outcome = send(api, &world.settings.namespace, &act.request).await;
    match &outcome {
        Outcome::Claimed(text) => take_in(view, world, &act.request, text),
        Outcome::Raced | Outcome::Gone | Outcome::Unknown(_) => reread(api, view, world, &act.request).await?,
        Outcome::Refused(_) | Outcome::Throttled(..) => {}
    }
    Ok(outcome)
}

fn collection(kind: Kind) -> &'static str {
    match kind {
        Kind::NodePool => Pool::COLLECTION,
        Kind::NodeClaim => Claim::COLLECTION,
        Kind::Node => Node::COLLECTION,
    }
}

async fn send(api: &Api, namespace: &str, request: &Request) -> Outcome {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    match request {
        Request::Patch(patch) => api.patch(&format!("{}/{}", collection(patch.kind), patch.name), &patch.body()).await,
        Request::Create(pod) => api.create(&pods, pod).await,
        Request::DeletePlaceholder { name, uid } => api.delete(&format!("{pods}/{name}"), uid, None).await,
        Request::DeleteClaim { name, uid, version } => {
            api.delete(&format!("{}/{name}", Claim::COLLECTION), uid, version.as_deref()).await
        }
    }
}

/// A claimed write: the answer is the object as it is now.
fn take_in(view: &View, world: &mut World, request: &Request, text: &str) {
    match request {
        Request::Patch(Patch { kind: Kind::NodePool, .. }) => {
            if let Ok(pool) = Pool::read(text) {
                view.put(pool.clone());
                world.pool = pool;
            }
        }
        Request::Patch(Patch { kind: Kind::NodeClaim, .. }) => {
            if let Ok(claim) = Claim::read(text) {
                view.put(claim.clone());
                world.set_claim(claim);
                world.evidence.claim_confirmed = true;
            }
        }
        Request::Patch(Patch { kind: Kind::Node, .. }) => {
            if let Ok(node) = Node::read(text) {
                view.put(node.clone());
                world.nodes.insert(node.meta.name.clone(), Arc::new(node));
            }
        }
        Request::Create(_) => {
            if let Ok(pod) = Placeholder::read(text) {
                view.put(pod.clone());
                world.placeholder = Some(Arc::new(pod));
            }
        }
        Request::DeletePlaceholder { name, uid } => {
            // without a grace period it is gone with the answer
            view.forget_placeholder(name, uid);
            world.placeholder = None;
        }
        Request::DeleteClaim { name, .. } => {
            if world.pool.anchor() != Some(name) {
                world.evidence.surge_claim = Some(Reapable::Gone);
            }
            match Claim::read(text) {
                Ok(claim) if *claim.meta.name == **name => {
                    view.put(claim.clone());
                    world.set_claim(claim);
                }
                // a mere status: whether it is gone says a live read
                _ => world.evidence.claim_confirmed = false,
            }
        }
    }
}

/// The object of a write that did not land, or may have, read live.
async fn reread(api: &Api, view: &View, world: &mut World, request: &Request) -> Result<(), ReadError> {
    match request {
        Request::Patch(Patch { kind: Kind::NodePool, name, .. }) => {
            match api.get(&format!("{}/{name}", Pool::COLLECTION)).await {
                Ok(text) => {
                    let pool = Pool::read(&text).map_err(ReadError::Other)?;
                    view.put(pool.clone());
                    world.pool = pool;
                    Ok(())
                }
                Err(other) => Err(other),
            }
        }
        Request::Patch(Patch { kind: Kind::NodeClaim, name, .. }) | Request::DeleteClaim { name, .. } => {
            look::claim(api, view, world, name).await
        }
        Request::Patch(Patch { kind: Kind::Node, name, .. }) => {
            match look::node(api, view, name).await? {
                Ok(node) => {
                    world.nodes.insert(node.meta.name.clone(), node);
                }
                Err(gone) => {
                    world.nodes.remove(&*gone);
                }
            }
            Ok(())
        }
        Request::Create(pod) => {
            let name = pod.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or_default();
            world.placeholder = look::placeholder(api, view, world.settings.namespace.clone(), name).await?;
            Ok(())
        }
        Request::DeletePlaceholder { name, .. } => {
            world.placeholder = look::placeholder(api, view, world.settings.namespace.clone(), name).await?;
            Ok(())
        }
    }
}
