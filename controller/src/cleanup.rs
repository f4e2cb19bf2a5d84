//! `--cleanup`: before the release is removed, everything that this program has written to other objects is, too (§9.5).
//!
//! The controller is scaled to nothing and its lease taken, so that nobody writes at the same time. Every removal is
//! conditional on what was read and tried again if that has changed; it may be run again at any time.

use std::time::Duration;

use noderotation_cluster::api::{Api, Outcome, ReadError};
use noderotation_cluster::client::connect;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::ListWatch;
use noderotation_rotation::cordon;
use noderotation_rotation::step::{ObjectKind, Patch};
use noderotation_shared::keys::{self, Owner};
use noderotation_shared::objects::{Meta, Node, NodeClaim, NodePool, Placeholder};
use serde_json::json;
use tracing::info;

use crate::args::Args;
use crate::leader::Election;
use crate::metrics::Metrics;

/// How long the running controller may take to release its lease.
const LEASE_WITHIN: Duration = Duration::from_secs(60);

/// How often a lost race is run again.
const ATTEMPTS: usize = 10;

/// Stops the controller, removes everything, and ends.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let agent = concat!("noderotation-controller/", env!("CARGO_PKG_VERSION"));
    let client = connect(args.kubeconfig.as_deref(), agent).await.map_err(anyhow::Error::msg)?;
    let api = Api::new(client, args.api_rate, args.api_burst, Metrics::new().client_metrics.clone());
    if let Some(deployment) = &args.cleanup_deployment {
        scale_down(&api, &args.namespace, deployment).await?;
    }
    let election = Election::new(&api, &args.namespace, &args.identity, args.timing());
    let term = tokio::time::timeout(LEASE_WITHIN, election.win()).await.map_err(|_| {
        anyhow::anyhow!("a controller still holds the lease after {LEASE_WITHIN:?}; stop it and run this again")
    })?;
    let removed = tokio::select! {
        removed = remove_everything(&api, &args.namespace) => removed,
        lost = hold(&election, &term) => Err(lost),
    };
    election.release().await;
    let removed = removed.map_err(anyhow::Error::msg)?;
    info!(removed, "nothing of ours is left on nodes, NodeClaims and NodePools");
    Ok(())
}

async fn hold(election: &Election, term: &crate::leader::Term) -> String {
    match election.hold(term, &tokio_util::sync::CancellationToken::new()).await {
        Ok(()) => "the lease is held no more".into(),
        Err(why) => why,
    }
}

async fn scale_down(api: &Api, namespace: &str, deployment: &str) -> anyhow::Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}");
    match api.patch(&path, &json!({"spec": {"replicas": 0}})).await {
        Outcome::Applied(_) | Outcome::NotFound => Ok(()),
        Outcome::Conflict => anyhow::bail!("Deployment {deployment} cannot be scaled: it changes all the time"),
        Outcome::Unknown(why) | Outcome::Rejected(why) | Outcome::Throttled(_, why) => {
            anyhow::bail!("Deployment {deployment} cannot be scaled: {why}")
        }
    }
}

/// Placeholders first: without them nothing new is launched for a rotation. Gives how many objects were changed.
async fn remove_everything(api: &Api, namespace: &str) -> Result<usize, String> {
    let mut removed = 0;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    for placeholder in list::<Placeholder>(api, &ListWatch::labelled(pods.as_str(), keys::SURGE_FOR)).await? {
        let path = format!("{pods}/{}", placeholder.meta.name);
        if let Outcome::Applied(_) = api.delete(&path, &placeholder.meta.uid, None).await {
            removed += 1;
        }
    }
    removed += clear::<Node>(api, cordon::unfreeze).await?;
    removed += clear::<NodeClaim>(api, |claim| without_ours(ObjectKind::NodeClaim, &claim.meta)).await?;
    removed += clear::<NodePool>(api, |pool| without_ours(ObjectKind::NodePool, &pool.meta)).await?;
    Ok(removed)
}

/// Everything of the controller's goes; what the operator wrote stays.
fn without_ours(kind: ObjectKind, meta: &Meta) -> Option<Patch> {
    let ours = keys::ALL.iter().filter(|key| key.owner == Owner::Controller && meta.annotations.has(key.name));
    let annotations: std::collections::BTreeMap<_, _> = ours.map(|key| (key.name, None)).collect();
    (!annotations.is_empty()).then(|| Patch {
        kind,
        name: meta.name.to_string(),
        version: meta.version.to_string(),
        annotations,
        unschedulable: None,
    })
}

async fn clear<K: Cached>(api: &Api, patch: impl Fn(&K) -> Option<Patch>) -> Result<usize, String> {
    let mut cleared = 0;
    for object in list::<K>(api, &ListWatch::all(K::COLLECTION)).await? {
        if clear_one(api, object, &patch).await? {
            cleared += 1;
        }
    }
    Ok(cleared)
}

async fn clear_one<K: Cached>(api: &Api, mut object: K, patch: &impl Fn(&K) -> Option<Patch>) -> Result<bool, String> {
    let path = format!("{}/{}", K::COLLECTION, object.meta().name);
    for _ in 0..ATTEMPTS {
        let Some(patch) = patch(&object) else { return Ok(false) };
        match api.patch(&path, &patch.body()).await {
            Outcome::Applied(_) => {
                info!(resource = K::RESOURCE, name = &*object.meta().name, "cleaned");
                return Ok(true);
            }
            Outcome::NotFound => return Ok(false),
            Outcome::Conflict | Outcome::Throttled(..) | Outcome::Unknown(_) => match api.get(&path).await {
                Ok(text) => object = K::read(&text)?,
                Err(ReadError::NotFound) => return Ok(false),
                Err(error) => return Err(format!("{path}: {error}")),
            },
            Outcome::Rejected(why) => return Err(format!("{path}: {why}")),
        }
    }
    Err(format!("{path}: changes all the time"))
}

async fn list<K: Cached>(api: &Api, list_watch: &ListWatch) -> Result<Vec<K>, String> {
    let mut all = Vec::new();
    let read = list_watch.pages(api, |json| all.extend(K::read(json).ok())).await;
    read.map_err(|error| format!("{}: {error}", K::RESOURCE))?;
    Ok(all)
}
