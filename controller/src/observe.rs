//! Gathers one NodePool's world from the caches (see `rotation::world`).

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_rotation::placeholder;
use noderotation_rotation::world::{Evidence, Loss, Rule, Ruling, Settings, World};
use noderotation_shared::governance::{Governance, govern};

use crate::watch::View;

/// The pool's world; `None` when there is no such pool.
pub fn observe(view: &View, settings: &Arc<Settings>, pool: &str, now: Timestamp) -> Option<World> {
    let pool = (*view.pool(pool)?).clone();
    let ruling = ruling(view, &pool.labels, now);
    let anchor = pool.anchor().map(str::to_owned);
    let anchored = anchor.as_deref().and_then(|name| view.claim(name));
    let placeholder = anchor.as_deref().and_then(|claim| view.placeholder(&placeholder::name(claim)));
    let host = placeholder.as_ref().map(|p| p.node.clone());
    Some(World {
        claims: view.claims_of(&pool.meta.name),
        nodes: view.nodes_for(&pool.meta.name, anchor.as_deref(), host.as_deref()),
        anchored,
        placeholder,
        stale: view.fresh.is_stale(),
        evidence: Evidence::default(),
        settings: settings.clone(),
        ruling,
        pool,
    })
}

fn ruling(view: &View, labels: &std::collections::BTreeMap<String, String>, now: Timestamp) -> Ruling {
    let policies = view.policies();
    let stored = policies.iter().filter(|p| p.meta.deleted.is_none()).map(|p| &*p.stored);
    match govern(labels, stored) {
        Governance::Governed(winner, policy) => {
            let object = policies.iter().find(|p| *p.meta.name == *winner.name);
            let Some(object) = object else { return Ruling::Lost(Loss::Unmatched) };
            let cadence = view.cadence(object, policy, now);
            Ruling::Governed(Rule { name: winner.name.clone(), policy: policy.clone(), cadence })
        }
        Governance::Unmatched => Ruling::Lost(Loss::Unmatched),
        Governance::Conflict(tied) => Ruling::Lost(Loss::Conflict(tied.iter().map(|p| p.name.clone()).collect())),
        Governance::Invalid(winner, _) => Ruling::Lost(Loss::Invalid(winner.name.clone())),
    }
}
