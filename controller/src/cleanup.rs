//! `--cleanup`: everything that this program has written to other objects is removed (§9.5), after the release, or by hand
//! before it.
//!
//! The lease is taken, so that no controller writes at the same time. Every removal is conditional on what was read and
//! tried again if that has changed. What cannot be removed is told at the end and holds up nothing else; it may all be run
//! again at any time.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::client::connect;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::{ListWatch, Unparsed};
use noderotation_rotation::cordon;
use noderotation_rotation::patch::Patch;
use noderotation_shared::keys::{self, Owner};
use noderotation_shared::kind::{Kind, ObjectRef};
use noderotation_shared::objects::{Meta, Node, NodeClaim, NodePool, Placeholder};
use serde::Deserialize;
use tracing::{info, warn};

use crate::args::Args;
use crate::leader::Election;
use crate::metrics::Metrics;

/// How long the running controller may take to release its lease.
const LEASE_WITHIN: Duration = Duration::from_secs(60);

/// How often a lost race is run again.
const ATTEMPTS: usize = 10;

/// Removes everything, and ends.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let agent = concat!("noderotation-controller/", env!("CARGO_PKG_VERSION"));
    let client = connect(args.kubeconfig.as_deref(), agent).await?;
    let api = Api::new(client, args.api_rate, args.api_burst, Metrics::new().client_metrics.clone());
    if let Some(deployment) = &args.cleanup_unless_deployed {
        refuse_while_deployed(&api, &args.namespace, deployment).await?;
    }
    let election = Election::new(&api, &args.namespace, &args.identity, args.timing());
    let term = tokio::time::timeout(LEASE_WITHIN, election.win()).await.map_err(|_| {
        anyhow::anyhow!("a controller still holds the lease after {LEASE_WITHIN:?}; stop it (kubectl scale deployment … --replicas=0) and run this again")
    })?;
    let outcome = tokio::select! {
        outcome = remove_everything(&api, &args.namespace) => Ok(outcome),
        lost = hold(&election, &term) => Err(anyhow::Error::msg(lost)),
    };
    election.release().await;
    outcome?.report()
}

/// What a cleanup did.
#[derive(Default)]
struct Cleanup {
    /// The number of objects that were changed or deleted.
    removed: usize,
    /// One sentence for each object or kind that could not be cleaned up.
    left: Vec<String>,
}

impl Cleanup {
    /// Counts one object, or keeps why it could not be cleaned up.
    fn add(&mut self, target: ObjectRef<'_>, changed: anyhow::Result<bool>) {
        match changed {
            Ok(changed) => self.removed += usize::from(changed),
            Err(error) => self.keep(format!("{target}: {error:#}")),
        }
    }

    fn keep(&mut self, problem: String) {
        warn!(problem, "could not be cleaned up");
        self.left.push(problem);
    }

    /// An error that lists everything that is left.
    fn report(self) -> anyhow::Result<()> {
        let removed = self.removed;
        if self.left.is_empty() {
            info!(removed, "nothing of ours is left on nodes, NodeClaims and NodePools");
            return Ok(());
        }
        anyhow::bail!(
            "{removed} objects were cleaned up, {} could not be: {}; see to the causes and run this again",
            self.left.len(),
            self.left.join("; ")
        )
    }
}

/// Fails while this Deployment exists: then its release was not uninstalled, and what the cleanup would remove is in use. Fails
/// as well where that cannot be told.
pub async fn refuse_while_deployed(api: &Api, namespace: &str, deployment: &str) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Deployed {
        metadata: ObjectMeta,
    }
    let target = Kind::Deployment.in_namespace(namespace, deployment);
    match api.read::<Deployed>(target).await {
        Ok(deployed) if deployed.metadata.deletion_timestamp.is_some() => Ok(()),
        Ok(_) => anyhow::bail!(
            "{target} exists, so its release is not uninstalled; nothing was removed. This Job is for `helm uninstall`: delete it, or, to clean up by hand, scale the Deployment to 0 and run noderotation-controller --cleanup"
        ),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(anyhow::Error::new(error).context(format!("whether {target} exists cannot be told"))),
    }
}

/// Renews the lease; returns why it was lost.
async fn hold(election: &Election, term: &crate::leader::Term) -> String {
    match election.hold(term, &tokio_util::sync::CancellationToken::new()).await {
        Ok(()) => "the lease is no longer held".into(),
        Err(lost) => lost.to_string(),
    }
}

/// Placeholders first: without them nothing new is launched for a rotation.
async fn remove_everything(api: &Api, namespace: &str) -> Cleanup {
    let mut cleanup = Cleanup::default();
    for placeholder in list::<Placeholder>(api, &ListWatch::labelled(namespace, keys::SURGE_FOR), &mut cleanup).await {
        let target = Kind::Pod.in_namespace(namespace, &placeholder.meta.name);
        let deleted = match api.delete(target, &placeholder.meta.uid, None).await {
            Outcome::Applied(_) => Ok(true),
            Outcome::NotFound => Ok(false),
            refused => Err(anyhow::anyhow!("{refused}")),
        };
        cleanup.add(target, deleted);
    }
    clear::<Node>(api, cordon::unprotect, &mut cleanup).await;
    clear::<NodeClaim>(api, |claim| without_ours(Kind::NodeClaim, &claim.meta), &mut cleanup).await;
    clear::<NodePool>(api, |pool| without_ours(Kind::NodePool, &pool.meta), &mut cleanup).await;
    cleanup
}

/// Removes everything of the controller's; what the operator wrote stays.
fn without_ours(kind: Kind, meta: &Meta) -> Option<Patch> {
    let ours = keys::ALL.iter().filter(|key| key.owner == Owner::Controller && meta.annotations.has(key.name));
    let patch = Patch::new(kind, meta, ours.map(|key| (key.name, None)));
    (!patch.annotations.is_empty()).then_some(patch)
}

async fn clear<K: Cached>(api: &Api, patch: impl Fn(&K) -> Option<Patch>, cleanup: &mut Cleanup) {
    for object in list::<K>(api, &ListWatch::all(), cleanup).await {
        let name = object.meta().name.clone();
        let target = K::KIND.named(&name);
        let changed = clear_one(api, target, object, &patch).await;
        cleanup.add(target, changed);
    }
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

/// What exists of a kind; nothing where the kind itself does not exist, as without Karpenter's CRDs.
async fn list<K: Cached>(api: &Api, list_watch: &ListWatch, cleanup: &mut Cleanup) -> Vec<K> {
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    let listed = list_watch.list(api, |object: Result<K, Unparsed>| match object {
        Ok(object) => all.push(object),
        Err(error) => unread.push(format!("{}: cannot be read: {error}", K::KIND.resource())),
    });
    if let Err(error) = listed.await
        && !error.is_not_found()
    {
        cleanup.keep(format!("{} cannot be listed: {:#}", K::KIND.resource(), anyhow::Error::new(error)));
    }
    for problem in unread {
        cleanup.keep(problem);
    }
    all
}
