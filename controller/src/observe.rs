//! Gathers one NodePool's world from the caches (see `noderotation_rotation::world`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_rotation::world::{GoverningPolicy, LiveKnowledge, Settings, World};
use noderotation_shared::governance::{Ungoverned, govern};

use crate::watch::Caches;

/// The NodePool's world; `None` when there is no such NodePool.
pub fn observe(caches: &Caches, settings: &Arc<Settings>, pool: &str, now: Timestamp) -> Option<World> {
    let pool = (*caches.pool(pool)?).clone();
    let anchor = pool.anchor();
    let placeholders = caches.placeholders_for(&pool.meta.name, anchor);
    let hosts = placeholders.values().map(|placeholder| &*placeholder.node);
    Some(World {
        governance: governing(caches, &pool.labels, now),
        claims: caches.claims_of(&pool.meta.name),
        foreign: anchor.and_then(|name| caches.claim(name)).filter(|claim| claim.pool != pool.meta.name),
        nodes: caches.nodes_for(&pool.meta.name, anchor, hosts),
        stale: caches.fresh.is_stale(),
        live: LiveKnowledge::default(),
        settings: settings.clone(),
        placeholders,
        pool,
    })
}

fn governing(
    caches: &Caches,
    labels: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<GoverningPolicy, Ungoverned> {
    let policies = caches.policies();
    let stored = policies.iter().filter(|p| p.meta.deleted.is_none()).map(|p| &*p.stored);
    let (winner, policy) = govern(labels, stored)?;
    let object = policies.iter().find(|p| *p.meta.name == *winner.name).ok_or(Ungoverned::NoMatch)?;
    let cadence = caches.cadence(object, policy, now);
    Ok(GoverningPolicy { name: winner.name.clone(), policy: policy.clone(), cadence })
}
