//! What must always hold, each with a name.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::pass::PassResult;
use noderotation_rotation::step::{Act, Write};
use noderotation_shared::instant::plus;
use noderotation_shared::keys;
use noderotation_shared::objects::{Freeze, Node, NodeClaim};
use noderotation_shared::selection::RotateRequest;

use crate::cluster::Cluster;
use crate::run::{QUIET_AFTER, Sim};

/// What was announced, by claim.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// `Completed` by claim.
    pub completed: BTreeMap<String, usize>,
    /// `Expired` by claim.
    pub expired: BTreeMap<String, usize>,
    /// `DrainStarted` by claim.
    pub drains: BTreeMap<String, usize>,
    /// `AttemptFailed`.
    pub failed: usize,
    /// Claims that the controller has deleted as old ones.
    pub deleted: BTreeMap<Box<str>, Timestamp>,
    /// When a fit host was last there for a claim.
    pub fit_host: BTreeMap<Box<str>, Timestamp>,
}

/// How long after a host was last seen fit a drain may begin: the time of a few requests, and of a host that turned
/// unfit just then.
const FIT_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// After every event.
pub fn always(sim: &mut Sim) {
    let Some(pool) = sim.cluster.pools.get("api") else { return };
    let Some(anchor) = pool.anchor().map(Box::<str>::from) else { return };
    if sim.cluster.claims.get(&anchor).is_some_and(|claim| has_fit_host(&sim.cluster, claim)) {
        sim.signals.fit_host.insert(anchor, sim.now);
    }
}

/// Another Node of the pool, Ready and schedulable, that is frozen for this claim or bears its placeholder.
fn has_fit_host(cluster: &Cluster, claim: &NodeClaim) -> bool {
    let bears_placeholder = |node: &Node| {
        let runs = |p: &noderotation_shared::objects::Placeholder| &*p.phase == "Running" && p.node == node.meta.name;
        cluster.placeholders.values().any(|p| p.claim() == &*claim.meta.name && runs(p))
    };
    cluster.nodes.values().any(|node| {
        node.meta.name != claim.node
            && node.ready
            && node.initialized
            && !node.unschedulable
            && !node.disrupted
            && node.meta.deleted.is_none()
            && (node.meta.annotations.get(keys::SURGE_FOR) == Some(&claim.meta.name) || bears_placeholder(node))
    })
}

/// A write of the controller has landed; `before` is the cluster that it met.
pub fn landed(sim: &mut Sim, before: &Cluster, act: &Act) {
    match (act.name, &act.write) {
        ("anchor", _) => started(sim, before, act),
        ("delete-claim", Write::DeleteClaim { name, .. }) => drain_begins(sim, before, name),
        ("reap", Write::DeleteClaim { name, .. }) => {
            let node = before.claims.get(name.as_str()).map(|c| c.node.clone()).unwrap_or_default();
            let is_busy = !node.is_empty() && before.used_cpu(&node) > 0;
            let is_old = name.starts_with("old-");
            if is_busy || is_old {
                sim.violated(format!("reap: NodeClaim {name} was taken back although it is old or has Pods of others"));
            }
        }
        _ => {}
    }
}

/// No start against any gate that the pool itself shows.
fn started(sim: &mut Sim, before: &Cluster, act: &Act) {
    let Some(pool) = before.pools.get("api") else { return };
    let claim = act.announce.iter().find_map(|told| match told {
        Announcement::CandidateSelected { claim, .. } => Some(claim.name.clone()),
        _ => None,
    });
    let claim = claim.unwrap_or_default();
    let is_frozen = match pool.freeze() {
        Freeze::None => false,
        Freeze::Until(until) => until > sim.now,
        Freeze::Unreadable(_) => true,
    };
    let request = before.claims.get(claim.as_str()).and_then(NodeClaim::request);
    let is_draining = before.claims.keys().any(|name| sim.signals.deleted.contains_key(name));
    if is_frozen {
        sim.violated(format!("gate: NodeClaim {claim} was started under a freeze"));
    }
    if pool.anchor().is_some() {
        sim.violated(format!("serial: NodeClaim {claim} was started while another was anchored"));
    }
    if is_draining {
        sim.violated(format!("serial: NodeClaim {claim} was started while another one that we deleted still drains"));
    }
    let last = pool.meta.annotations.instant(keys::LAST_ROTATION_AT, sim.now);
    let cooldown = last.is_some_and(|at| plus(at, SignedDuration::from_mins(1)) > sim.now);
    if cooldown && request != Some(RotateRequest::Now) {
        sim.violated(format!("gate: NodeClaim {claim} was started during the cooldown"));
    }
}

/// No drain before its surge was ready, the fallback apart; never two claims of a pool.
fn drain_begins(sim: &mut Sim, before: &Cluster, claim: &str) {
    let others: Vec<_> = before
        .claims
        .keys()
        .filter(|name| sim.signals.deleted.contains_key(*name) && ***name != *claim)
        .cloned()
        .collect();
    if !others.is_empty() {
        sim.violated(format!("serial: NodeClaim {claim} was deleted while {others:?} still drain"));
    }
    let is_fallback = before.pools.get("api").is_some_and(noderotation_shared::objects::NodePool::is_fallback);
    let was_fit = sim.signals.fit_host.get(claim).is_some_and(|at| plus(*at, FIT_WITHIN) >= sim.now);
    if !is_fallback && !was_fit {
        sim.violated(format!("surge: NodeClaim {claim} was deleted without a replacement that is Ready"));
    }
    sim.signals.deleted.insert(claim.into(), sim.now);
}

/// An announcement: at most once, and only for what happened.
pub fn announced(sim: &mut Sim, announcement: &Announcement) {
    let mut twice = None;
    let mut count = |by_claim: &mut BTreeMap<String, usize>, claim: &str, word: &str| {
        let n = by_claim.entry(claim.to_owned()).or_default();
        *n += 1;
        if *n > 1 {
            twice = Some(format!("once: {word} was told {n} times of NodeClaim {claim}"));
        }
    };
    let mut phantom = None;
    match announcement {
        Announcement::Completed { claim, .. } => {
            count(&mut sim.signals.completed, &claim.name, "completed");
            if sim.cluster.claims.contains_key(claim.name.as_str()) {
                phantom = Some(format!("phantom: NodeClaim {claim} was declared rotated and exists"));
            }
        }
        Announcement::Expired { claim, .. } => {
            count(&mut sim.signals.expired, &claim.name, "expired");
            let lives = sim.cluster.claims.get(claim.name.as_str()).is_some_and(|c| c.meta.deleted.is_none());
            if lives {
                phantom = Some(format!("phantom: NodeClaim {claim} was declared expired and lives"));
            }
        }
        Announcement::DrainStarted { claim, .. } => count(&mut sim.signals.drains, &claim.name, "drain started"),
        Announcement::AttemptFailed { .. } => sim.signals.failed += 1,
        _ => {}
    }
    if let Some(what) = twice.or(phantom) {
        sim.violated(what);
    }
}

/// A pass has ended.
pub fn pass_ended(sim: &mut Sim, result: PassResult, wake_at: Option<Timestamp>) {
    if result == PassResult::Failed && sim.rarity() == 0 {
        sim.violated("bounded: a pass failed although nothing went wrong");
    }
    if wake_at.is_some_and(|at| at <= sim.now) {
        sim.violated("wake: a wake-up that does not lie ahead");
    }
}

/// Without faults no node is lost to Karpenter's expiry.
pub fn expired_by_karpenter(sim: &mut Sim, claim: &str) {
    if !sim.plan.faults && !sim.is_calm {
        sim.violated(format!("guarantee: NodeClaim {claim} expired although nothing went wrong"));
    }
}

/// After the calm: nothing of ours is left anywhere, and nothing is written any more.
pub fn at_rest(sim: &mut Sim) {
    let mut left = Vec::new();
    for pool in sim.cluster.pools.values() {
        for key in keys::ANCHOR_SET.into_iter().chain([keys::WINDOW_OPENED_AT]) {
            if pool.meta.annotations.has(key) {
                left.push(format!("{key} on NodePool {}", pool.meta.name));
            }
        }
    }
    left.extend(sim.cluster.placeholders.keys().map(|name| format!("placeholder {name}")));
    for node in sim.cluster.nodes.values() {
        let ours = [keys::SURGE_FOR, keys::DO_NOT_DISRUPT, keys::DO_NOT_DISRUPT_OWNED, keys::CORDONED];
        left.extend(
            ours.into_iter()
                .filter(|key| node.meta.annotations.has(key))
                .map(|key| format!("{key} on {}", node.meta.name)),
        );
        if node.unschedulable {
            left.push(format!("the cordon of {}", node.meta.name));
        }
    }
    for claim in sim.cluster.claims.values() {
        if matches!(claim.meta.annotations.get(keys::STATE), Some("pending" | "draining")) {
            left.push(format!("state {:?} on NodeClaim {}", claim.meta.annotations.get(keys::STATE), claim.meta.name));
        }
    }
    if !left.is_empty() {
        sim.violated(format!("rest: left behind: {}", left.join(", ")));
    }
    if sim.now.duration_since(sim.last_write) < QUIET_AFTER / 8 {
        sim.violated("rest: the controller still writes to an unchanged world");
    }
}
