//! Karpenter, scheduler and kubelet, as far as a rotation depends on them: provisioning for Pending Pods, registration,
//! initialization, drains, expiry, limits, drift, consolidation of empty nodes (`docs/facts/karpenter.md`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::instant::{plus, whole_seconds};
use noderotation_shared::objects::{Node, NodeClaim, NodePool};
use noderotation_shared::quantity::{Quantity, Resources};

use crate::chance::Source;
use crate::cluster::WorkPod;
use crate::event::Event;
use crate::invariants;
use crate::run::Sim;

/// The CPU of every node, in thousandths.
pub const NODE_CPU: i64 = 4_000;

/// An empty node is taken away after this time.
const CONSOLIDATE_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// What was placed before the scheduler sees a cordon is bound up to this time after it, where things go wrong.
const CORDON_UNSEEN: SignedDuration = SignedDuration::from_secs(8);

/// Quick things take a few seconds, slow ones up to a minute and a half.
fn soon(sim: &Sim, what: &str, least: i64, most: i64) -> Timestamp {
    let millis = sim.rng(what).i64(least * 1_000..=most * 1_000);
    plus(sim.now, SignedDuration::from_millis(millis))
}

/// One round of the scheduler and of Karpenter's provisioner: places what fits, launches for what does not.
pub fn schedule(sim: &mut Sim) {
    let pending: Vec<Box<str>> =
        sim.cluster.pods.iter().filter(|(_, pod)| pod.node.is_none()).map(|(name, _)| name.clone()).collect();
    for name in pending {
        let Some(WorkPod { pool, cpu, .. }) = sim.cluster.pods.get(&name).cloned() else { continue };
        match room(sim, &pool, cpu, false) {
            Some(node) => {
                preempt(sim, &node, cpu);
                let now = sim.now;
                if sim.cluster.nodes.get(&node).is_some_and(|node| node.unschedulable) {
                    invariants::bound_past_the_cordon(sim, &node);
                } else {
                    sim.scheduled.insert(node.clone(), now);
                }
                if let Some(pod) = sim.cluster.pods.get_mut(&name) {
                    pod.node = Some(node);
                }
            }
            None => launch(sim, &pool),
        }
    }
    let unplaced: Vec<(Box<str>, Box<str>)> = sim
        .cluster
        .placeholders
        .iter()
        .filter(|p| p.node.is_empty() && p.meta.deleted.is_none())
        .map(|p| (p.meta.name.clone(), p.pool.clone()))
        .collect();
    for (placeholder, pool) in unplaced {
        let cpu = sim.cluster.reserved_cpu.get(&placeholder).copied().unwrap_or(0);
        match room(sim, &pool, cpu, true) {
            Some(node) => {
                sim.cluster.placeholders.change(&placeholder, |p| {
                    p.node = node;
                    p.unschedulable = None;
                });
                let at = soon(sim, &placeholder, 0, 2);
                sim.after(at, Event::PlaceholderRuns(placeholder));
            }
            None => {
                sim.cluster.placeholders.change(&placeholder, |p| p.unschedulable = Some("no node fits".into()));
                launch(sim, &pool);
                nominate(sim, placeholder, &pool);
            }
        }
    }
}

/// A Ready, schedulable Node of the pool with this much room. Workload Pods may preempt a placeholder; a placeholder
/// avoids the Node of its own claim, since that is cordoned.
fn room(sim: &Sim, pool: &str, cpu: i64, for_placeholder: bool) -> Option<Box<str>> {
    let fits = |node: &&Arc<Node>| {
        let is_seen_as_free = takes_pods(node) || (!for_placeholder && is_cordon_unseen(sim, node));
        &*node.pool == pool && is_seen_as_free && {
            let reserved = if for_placeholder { sim.cluster.reserved_on(&node.meta.name) } else { 0 };
            sim.cluster.used_cpu(&node.meta.name) + reserved + cpu <= NODE_CPU
        }
    };
    sim.cluster.nodes.iter().find(fits).map(|node| node.meta.name.clone())
}

/// Whether the scheduler does not know yet that we have cordoned this Node.
fn is_cordon_unseen(sim: &Sim, node: &Node) -> bool {
    let cordoned = sim.cordoned.get(&node.meta.name);
    let is_fresh = cordoned.is_some_and(|at| sim.now.duration_since(*at) < CORDON_UNSEEN);
    let as_before = Node { unschedulable: false, ..node.clone() };
    sim.has_faults() && is_fresh && takes_pods(&as_before)
}

/// A workload Pod outranks a placeholder: where both do not fit, the placeholder is gone at once.
fn preempt(sim: &mut Sim, node: &str, cpu: i64) {
    let reserved = sim.cluster.reserved_on(node);
    if reserved == 0 || sim.cluster.used_cpu(node) + cpu + reserved <= NODE_CPU {
        return;
    }
    let victims: Vec<_> = sim.cluster.placeholders_on(node).map(|p| p.meta.name.clone()).collect();
    for victim in victims {
        sim.tell(|| format!("scheduler: placeholder {victim} is preempted"));
        sim.cluster.remove_placeholder(&victim, sim.now);
    }
}

/// Karpenter tells, by an Event that outlives the Pod, on which claim it counts for a placeholder.
fn nominate(sim: &mut Sim, placeholder: Box<str>, pool: &str) {
    if let Some(claim) = coming(sim, pool) {
        sim.nominated.insert(placeholder, claim);
    }
}

/// The first claim of this pool that is on the way.
fn coming(sim: &Sim, pool: &str) -> Option<Box<str>> {
    on_the_way(sim, pool).next().map(|claim| claim.meta.name.clone())
}

/// The claims of this pool that were launched and are not Ready yet.
fn on_the_way<'a>(sim: &'a Sim, pool: &'a str) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    sim.cluster.claims.iter().filter(move |c| &*c.pool == pool && !c.ready && c.meta.deleted.is_none())
}

/// Launches a NodeClaim, unless one is on its way already.
fn launch(sim: &mut Sim, pool: &str) {
    if coming(sim, pool).is_none() {
        launch_one(sim, pool);
    }
}

/// Launches a NodeClaim, unless there is no capacity, or the limit is reached.
fn launch_one(sim: &mut Sim, pool: &str) {
    let Some(stored) = sim.cluster.pools.get(pool).filter(|p| p.meta.deleted.is_none()).cloned() else { return };
    if sim.now < sim.no_capacity_until {
        return;
    }
    let counted = sim.cluster.claims.iter().filter(|c| *c.pool == *pool && c.meta.deleted.is_none()).count();
    let wanted = Quantity::whole(i64::try_from(counted + 1).unwrap_or(i64::MAX) * 4);
    if stored.limits.0.get("cpu").is_some_and(|limit| wanted > *limit) {
        return;
    }
    sim.launched += 1;
    let name = format!("{pool}-{}", sim.launched);
    let meta = sim.cluster.new_meta(&name, sim.now);
    sim.tell(|| format!("karpenter: launches NodeClaim {name}"));
    sim.cluster.claims.put(NodeClaim { meta, ..claim_of(&stored) });
    let rarity = if sim.has_faults() { 20 } else { 0 };
    let name: Box<str> = name.into();
    let is_doomed = sim.chance.take(Source::Launch, rarity).is_some() || sim.script.never_registers;
    if is_doomed {
        sim.after(plus(sim.now, SignedDuration::from_mins(15)), Event::LaunchFailed(name.clone()));
    } else {
        let at = soon(sim, &name, 10, 90);
        sim.after(at, Event::Registers(name.clone()));
    }
    if let Some(e) = stored.expire_after {
        sim.after(plus(sim.now, e), Event::Expires(name));
    }
}

/// A NodeClaim as this NodePool's template makes it.
fn claim_of(pool: &NodePool) -> NodeClaim {
    NodeClaim {
        pool: pool.meta.name.clone(),
        expire_after: pool.expire_after,
        termination_grace_period: pool.termination_grace_period,
        capacity: Arc::new(Resources([("cpu".to_owned(), Quantity::whole(NODE_CPU / 1_000))].into())),
        ..NodeClaim::default()
    }
}

/// A launched node joins: the Node exists and is Ready; Karpenter marks it initialized a moment later, and its claim Ready
/// after that. Clouds name nodes after addresses, so that a name comes again.
pub fn registers(sim: &mut Sim, claim: &str) {
    let Some(stored) = sim.cluster.claims.get(claim).filter(|c| c.meta.deleted.is_none()).cloned() else { return };
    let name = free_name(sim);
    let meta = sim.cluster.new_meta(&name, sim.now);
    let node = Node { meta, pool: stored.pool.clone(), hostname: claim.into(), ready: true, ..Node::default() };
    sim.cluster.nodes.put(node);
    sim.cluster.claims.change(claim, |c| c.node = name.clone());
    let at = soon(sim, &name, 0, 3);
    sim.after(at, Event::Initialized(name.clone()));
    sim.after(plus(sim.now, CONSOLIDATE_AFTER), Event::Consolidates(claim.into()));
}

/// Karpenter marks a Node initialized.
pub fn initialized(sim: &mut Sim, node: &str) {
    sim.cluster.nodes.change(node, |n| n.initialized = true);
    if let Some(claim) = sim.cluster.nodes.get(node).map(|node| node.hostname.clone()) {
        let at = soon(sim, node, 0, 1);
        sim.after(at, Event::Ready(claim));
    }
}

fn free_name(sim: &Sim) -> Box<str> {
    let name = |n: usize| Box::<str>::from(format!("ip-10-0-0-{n}"));
    let is_free = |name: &str| {
        // an address is free again once its claim is gone, too
        sim.cluster.nodes.get(name).is_none() && sim.cluster.claims.iter().all(|claim| *claim.node != *name)
    };
    (0..1_000).map(name).find(|name| is_free(name)).unwrap_or_default()
}

/// An empty node is taken away, unless something forbids it; later, while the node lives.
pub fn consolidates(sim: &mut Sim, claim: &str) {
    let Some(stored) = sim.cluster.claims.get(claim).filter(|c| c.meta.deleted.is_none()).cloned() else { return };
    let is_empty = sim.cluster.used_cpu(&stored.node) == 0 && sim.cluster.reserved_on(&stored.node) == 0;
    if is_empty && !is_protected(sim, &stored) {
        sim.tell(|| format!("karpenter: NodeClaim {claim} is empty and is consolidated"));
        return delete(sim, claim);
    }
    sim.after(plus(sim.now, CONSOLIDATE_AFTER), Event::Consolidates(claim.into()));
}

/// Drift: the template has changed, Karpenter replaces the node by itself.
pub fn drifts(sim: &mut Sim, claim: &str) {
    let Some(stored) = sim.cluster.claims.get(claim).filter(|c| c.meta.deleted.is_none() && c.ready).cloned() else {
        return;
    };
    if is_protected(sim, &stored) {
        return;
    }
    sim.tell(|| format!("karpenter: NodeClaim {claim} has drifted and is replaced"));
    sim.cluster.nodes.change(&stored.node, |node| node.disrupted = true);
    sim.cluster.claims.change(claim, |claim| claim.disrupting = true);
    launch(sim, &stored.pool);
    let at = soon(sim, claim, 20, 120);
    sim.after(at, Event::Deletes(claim.into()));
}

/// `karpenter.sh/do-not-disrupt: "true"` on the Node keeps Karpenter's own disruptions away.
fn is_protected(sim: &Sim, claim: &NodeClaim) -> bool {
    let key = noderotation_shared::keys::DO_NOT_DISRUPT;
    sim.cluster.nodes.get(&claim.node).is_some_and(|node| node.meta.annotations.get(key) == Some("true"))
}

/// Somebody deletes a claim.
pub fn delete(sim: &mut Sim, claim: &str) {
    let now = sim.now;
    sim.cluster.delete_claim(claim, now);
    sim.after(now, Event::Drains(claim.into()));
}

/// Karpenter expires a claim, whatever anybody does.
pub fn expires(sim: &mut Sim, claim: &str) {
    let Some(stored) = sim.cluster.claims.get(claim).filter(|c| c.meta.deleted.is_none()).cloned() else { return };
    sim.tell(|| format!("karpenter: NodeClaim {claim} has expired"));
    delete(sim, claim);
    invariants::expired_by_karpenter(sim, &stored);
}

/// A claim with a deletionTimestamp, one step after another: its Node is deleted and tainted, what runs there is evicted,
/// the Node is gone, the claim is gone.
pub fn drain(sim: &mut Sim, claim: &str) {
    let Some(stored) = sim.cluster.claims.get(claim).filter(|c| c.meta.deleted.is_some()).cloned() else { return };
    // a name may have come again, on the Node of another claim
    let node = sim.cluster.nodes.get(&stored.node).filter(|node| *node.hostname == *claim).cloned();
    let next = match node {
        None => {
            sim.tell(|| format!("karpenter: NodeClaim {claim} is drained and gone"));
            return sim.cluster.claims.remove(claim);
        }
        Some(node) if node.meta.deleted.is_none() || !node.disrupted => {
            give_up(sim, &stored.node);
            soon(sim, claim, 1, 2)
        }
        Some(_) => match held_until(sim, &stored) {
            Some(at) => at,
            None if is_in_use(sim, &stored.node) => {
                evict(sim, &stored.node);
                soon(sim, claim, 3, 5)
            }
            None => {
                let now = sim.now;
                sim.cluster.remove_node(&stored.node, now);
                soon(sim, claim, 0, 1)
            }
        },
    };
    sim.after(next, Event::Drains(claim.into()));
}

/// The Node of a claim that is being deleted: Karpenter deletes it, too, and its finalizer holds it; then comes the taint.
fn give_up(sim: &mut Sim, node: &str) {
    let now = whole_seconds(sim.now);
    sim.cluster.nodes.change(node, |n| n.meta.deleted = n.meta.deleted.or(Some(now)));
    sim.cluster.nodes.change(node, |n| n.disrupted = true);
    let at = soon(sim, node, 1, 1);
    sim.after(at, Event::Replaces(node.into()));
}

/// While a Node drains Karpenter launches for what runs on it, unless all of that fits elsewhere. It counts Nodes as they are
/// occupied: a placeholder is not preempted in its mind (`docs/facts/karpenter.md`).
pub fn replaces(sim: &mut Sim, node: &str) {
    let Some(stored) = sim.cluster.nodes.get(node).filter(|n| n.meta.deleted.is_some()).cloned() else { return };
    let mut moving: Vec<i64> = sim.cluster.pods_on(node).map(|(_, pod)| pod.cpu).collect();
    let pool = &stored.pool;
    let here = sim.cluster.nodes.iter().filter(|other| other.pool == *pool && takes_pods(other));
    let free_here = here.map(|other| {
        let name = &other.meta.name;
        NODE_CPU - sim.cluster.used_cpu(name) - sim.cluster.reserved_on(name)
    });
    let free: Vec<i64> = free_here.chain([free_on_the_way(sim, pool)]).collect();
    for mut free in free {
        moving.retain(|cpu| {
            let fits = *cpu <= free;
            free -= if fits { *cpu } else { 0 };
            !fits
        });
    }
    if !moving.is_empty() {
        launch_one(sim, pool);
    }
    let at = plus(sim.now, SignedDuration::from_secs(10));
    sim.after(at, Event::Replaces(node.into()));
}

/// The CPU of the NodePool's nodes that are on the way, which nobody waits for yet, in thousandths.
fn free_on_the_way(sim: &Sim, pool: &str) -> i64 {
    let without_node = on_the_way(sim, pool).filter(|claim| claim.node.is_empty());
    let coming = i64::try_from(without_node.count()).unwrap_or(i64::MAX);
    let pods = sim.cluster.pods.values().filter(|pod| &*pod.pool == pool && pod.node.is_none()).map(|pod| pod.cpu);
    let unbound = sim.cluster.placeholders_on("").filter(|p| &*p.pool == pool);
    let reserved = unbound.filter_map(|p| sim.cluster.reserved_cpu.get(&p.meta.name)).copied();
    coming.saturating_mul(NODE_CPU) - pods.chain(reserved).sum::<i64>()
}

/// Whether the scheduler puts Pods on a Node.
pub fn takes_pods(node: &Node) -> bool {
    node.ready && !node.unschedulable && !node.disrupted && node.meta.deleted.is_none()
}

/// When to look again at a drain that something holds; `None`: nothing does, or its grace period has ended.
fn held_until(sim: &Sim, claim: &NodeClaim) -> Option<Timestamp> {
    let bound = claim.meta.deleted.zip(claim.termination_grace_period).map(|(deleted, grace)| plus(deleted, grace));
    if bound.is_some_and(|at| sim.now >= at) {
        return None;
    }
    let node = &claim.node;
    let at = if sim.now < sim.pdb_holds_until && sim.cluster.used_cpu(node) > 0 {
        sim.pdb_holds_until
    } else if sim.cluster.protected_pod(node).is_some() {
        plus(sim.now, SignedDuration::from_mins(5))
    } else if sim.cluster.placeholders_on(node).next().is_some() {
        soon(sim, &claim.meta.name, 5, 10) // its do-not-disrupt
    } else {
        return None;
    };
    Some(bound.map_or(at, |bound| bound.min(at)))
}

fn is_in_use(sim: &Sim, node: &str) -> bool {
    sim.cluster.pods_on(node).next().is_some() || sim.cluster.placeholders_on(node).next().is_some()
}

/// Every Pod of the Node ends. Those of the workload are created again, Pending; the Node goes when they have ended.
fn evict(sim: &mut Sim, node: &str) {
    let now = sim.now;
    sim.cluster.release_pods(node, now);
    sim.look_for_work();
}

/// A claim and its Node are gone at once.
pub fn vanishes(sim: &mut Sim, claim: &str) {
    let node = sim.cluster.claims.get(claim).map(|c| c.node.clone()).filter(|node| !node.is_empty());
    if let Some(node) = node {
        sim.cluster.remove_node(&node, sim.now);
    }
    sim.cluster.claims.remove(claim);
    schedule(sim);
}

/// A node that Karpenter has launched before the history begins, with so many Pods.
pub fn existing(sim: &mut Sim, pool: &str, name: &str, age: SignedDuration, pods: usize) {
    let created = plus(sim.now, -age);
    let Some(pool) = sim.cluster.pools.get(pool).cloned() else { return };
    let node_name = free_name(sim);
    let mut meta = sim.cluster.new_meta(name, created);
    meta.created = created;
    sim.cluster.claims.put(NodeClaim { meta, node: node_name.clone(), ready: true, ..claim_of(&pool) });
    let meta = sim.cluster.new_meta(&node_name, created);
    sim.cluster.nodes.put(Node {
        meta,
        pool: pool.meta.name.clone(),
        hostname: name.into(),
        ready: true,
        initialized: true,
        ..Node::default()
    });
    for i in 0..pods {
        let pod =
            WorkPod { pool: pool.meta.name.clone(), node: Some(node_name.clone()), cpu: 1_000, protected_since: None };
        sim.cluster.pods.insert(format!("pod-{name}-{i}").into(), pod);
    }
    if let Some(e) = pool.expire_after {
        sim.after(plus(created, e), Event::Expires(name.into()));
    }
}
