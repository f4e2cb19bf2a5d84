//! Gathers one NodePool's world from the caches (see `rotation::world`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use noderotation_rotation::placeholder;
use noderotation_rotation::world::{Evidence, GoverningPolicy, Settings, World};
use noderotation_shared::governance::{Ungoverned, govern};

use crate::watch::Caches;

/// The pool's world; `None` when there is no such pool.
pub fn observe(caches: &Caches, settings: &Arc<Settings>, pool: &str, now: Timestamp) -> Option<World> {
    let pool = (*caches.pool(pool)?).clone();
    let governance = governing(caches, &pool.labels, now);
    let anchor = pool.anchor().map(str::to_owned);
    let anchored = anchor.as_deref().and_then(|name| caches.claim(name));
    let placeholder = anchor.as_deref().and_then(|claim| caches.placeholder(&placeholder::name(claim)));
    let host = placeholder.as_ref().map(|p| p.node.clone());
    Some(World {
        claims: caches.claims_of(&pool.meta.name),
        nodes: caches.nodes_for(&pool.meta.name, anchor.as_deref(), host.as_deref()),
        anchored,
        placeholder,
        stale: caches.fresh.is_stale(),
        evidence: Evidence::default(),
        settings: settings.clone(),
        governance,
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
