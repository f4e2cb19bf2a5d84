//! `--cleanup`: before the release is removed, everything that this program has written to other objects is, too (§9.5).
//!
//! The controller is scaled to 0 and its lease taken, so that nobody writes at the same time. Every removal is
//! conditional on what was read and tried again if that has changed; it may be run again at any time.

use std::time::Duration;

use anyhow::Context;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::client::connect;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::ListWatch;
use noderotation_rotation::cordon;
use noderotation_rotation::patch::Patch;
use noderotation_shared::keys::{self, Owner};
use noderotation_shared::kind::{Kind, ObjectRef};
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
    let client = connect(args.kubeconfig.as_deref(), agent).await?;
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
        lost = hold(&election, &term) => Err(anyhow::Error::msg(lost)),
    };
    election.release().await;
    let removed = removed?;
    info!(removed, "nothing of ours is left on nodes, NodeClaims and NodePools");
    Ok(())
}

/// Renews the lease; returns why it was lost.
async fn hold(election: &Election, term: &crate::leader::Term) -> String {
    match election.hold(term, &tokio_util::sync::CancellationToken::new()).await {
        Ok(()) => "the lease is no longer held".into(),
        Err(lost) => lost.to_string(),
    }
}

async fn scale_down(api: &Api, namespace: &str, deployment: &str) -> anyhow::Result<()> {
    let target = Kind::Deployment.in_namespace(namespace, deployment);
    match api.patch(target, &json!({"spec": {"replicas": 0}})).await {
        Outcome::Applied(_) | Outcome::NotFound => Ok(()),
        Outcome::Conflict => anyhow::bail!("{target} cannot be scaled to 0: it is changed all the time"),
        Outcome::Unknown(error) | Outcome::Rejected(error) | Outcome::Throttled(error) => {
            Err(anyhow::Error::new(error).context(format!("{target} cannot be scaled to 0")))
        }
    }
}

/// Placeholders first: without them nothing new is launched for a rotation. Returns how many objects were changed.
async fn remove_everything(api: &Api, namespace: &str) -> anyhow::Result<usize> {
    let mut removed = 0;
    for placeholder in list::<Placeholder>(api, &ListWatch::labelled(namespace, keys::SURGE_FOR)).await? {
        let target = Kind::Pod.in_namespace(namespace, &placeholder.meta.name);
        if let Outcome::Applied(_) = api.delete(target, &placeholder.meta.uid, None).await {
            removed += 1;
        }
    }
    removed += clear::<Node>(api, cordon::unprotect).await?;
    removed += clear::<NodeClaim>(api, |claim| without_ours(Kind::NodeClaim, &claim.meta)).await?;
    removed += clear::<NodePool>(api, |pool| without_ours(Kind::NodePool, &pool.meta)).await?;
    Ok(removed)
}

/// Removes everything of the controller's; what the operator wrote stays.
fn without_ours(kind: Kind, meta: &Meta) -> Option<Patch> {
    let ours = keys::ALL.iter().filter(|key| key.owner == Owner::Controller && meta.annotations.has(key.name));
    let patch = Patch::new(kind, meta, ours.map(|key| (key.name, None)));
    (!patch.annotations.is_empty()).then_some(patch)
}

async fn clear<K: Cached>(api: &Api, patch: impl Fn(&K) -> Option<Patch>) -> anyhow::Result<usize> {
    let mut cleared = 0;
    for object in list::<K>(api, &ListWatch::all()).await? {
        let name = object.meta().name.clone();
        let target = K::KIND.named(&name);
        let changed = clear_one(api, target, object, &patch).await;
        cleared += usize::from(changed.with_context(|| format!("{target} cannot be cleaned up"))?);
    }
    Ok(cleared)
}

async fn clear_one<K: Cached>(
    api: &Api,
    target: ObjectRef<'_>,
    mut object: K,
    patch: &impl Fn(&K) -> Option<Patch>,
) -> anyhow::Result<bool> {
    for _ in 0..ATTEMPTS {
        let Some(patch) = patch(&object) else { return Ok(false) };
        match api.patch(target, &patch.body()).await {
            Outcome::Applied(_) => {
                info!(resource = K::KIND.plural(), name = target.name, "cleaned up");
                return Ok(true);
            }
            Outcome::NotFound => return Ok(false),
            Outcome::Conflict | Outcome::Throttled(_) | Outcome::Unknown(_) => match api.get(target).await {
                Ok(text) => object = K::read(&text)?,
                Err(error) if error.is_not_found() => return Ok(false),
                Err(error) => return Err(error.into()),
            },
            Outcome::Rejected(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("it is changed all the time")
}

async fn list<K: Cached>(api: &Api, list_watch: &ListWatch) -> anyhow::Result<Vec<K>> {
    let mut all = Vec::new();
    let listed = list_watch.list(api, |object| all.extend(object.ok())).await;
    listed.with_context(|| format!("{} cannot be listed", K::KIND.resource()))?;
    Ok(all)
}
