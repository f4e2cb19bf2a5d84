//! Cleans up what no anchor references: once before a new leader's first pass, and afterwards with each pass that found
//! nothing else to do (§8, *Start-up sweep*). What is an orphan, `noderotation_rotation::orphans` says.

use jiff::Timestamp;
use noderotation_cluster::api::Outcome;
use noderotation_cluster::error::{Error, with_causes};
use noderotation_rotation::orphans::{Inventory, Orphan, orphans};
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::NodePool;
use tracing::warn;

use crate::announce::announce;
use crate::apply::apply;
use crate::read::refresh;
use crate::reconcile::Reconciler;

/// Cleans up after whoever led before: all placeholders, Nodes and NodeClaims, whatever their pool.
pub async fn sweep(reconciler: &Reconciler) {
    let inventory = Inventory::of_all(&reconciler.caches.lock());
    clean_up(reconciler, &inventory).await;
}

/// The same for one NodePool whose pass found nothing to do, or that is gone: a deposed leader's create may land late.
pub async fn orphans_of(reconciler: &Reconciler, pool: &str, anchor: Option<String>) {
    let inventory = Inventory::of_pool(&reconciler.caches.lock(), pool, anchor);
    clean_up(reconciler, &inventory).await;
}

/// Best effort: what fails is left to a later pass, and nothing begins once the process is to stop.
async fn clean_up(reconciler: &Reconciler, inventory: &Inventory) {
    for orphan in orphans(inventory, Timestamp::now()) {
        if reconciler.stop.is_cancelled() {
            return;
        }
        clean_up_one(reconciler, &orphan).await;
    }
}

/// A rotation may have begun to use the object meanwhile: its pool's anchor is read live first.
async fn clean_up_one(reconciler: &Reconciler, orphan: &Orphan) {
    let (step, (kind, name)) = (orphan.act.name, orphan.act.write.target());
    let pool = match pool_of(reconciler, orphan).await {
        Ok(pool) => pool,
        Err(error) => {
            warn!(step, %kind, name, error = with_causes(&error), "sweep: the NodePool cannot be read");
            return;
        }
    };
    if pool.anchor() == Some(&*orphan.claim) || reconciler.term.check().is_err() {
        return;
    }
    let outcome = apply(&reconciler.api, &reconciler.settings.namespace, &orphan.act.write).await;
    reconciler.metrics.wrote(step, outcome.label());
    if let Outcome::Applied(answer) = outcome {
        reconciler.caches.take_in(&orphan.act.write, &answer);
        for announcement in &orphan.act.announce {
            announce(&reconciler.metrics, &reconciler.recorder, &pool, announcement);
        }
    }
}

/// The orphan's NodePool, live; one that is gone anchors nothing.
async fn pool_of(reconciler: &Reconciler, orphan: &Orphan) -> Result<NodePool, Error> {
    let mut pool = None;
    if !orphan.pool.is_empty() {
        pool = refresh::<NodePool>(&reconciler.api, &reconciler.caches, Kind::NodePool.named(&orphan.pool)).await?;
    }
    Ok(pool.unwrap_or_else(|| {
        let mut gone = NodePool::default();
        gone.meta.name = orphan.pool.as_str().into();
        gone
    }))
}
