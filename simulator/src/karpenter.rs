//! Karpenter, scheduler and kubelet, as far as a rotation depends on them: provisioning for Pending Pods, registration,
//! initialization, drains, expiry, limits (`docs/facts/karpenter.md`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::instant::plus;
use noderotation_shared::objects::{Node, NodeClaim};
use noderotation_shared::quantity::Quantity;

use crate::cluster::WorkPod;
use crate::run::{Event, Sim};

/// The CPU of every node, in thousandths.
pub const NODE_CPU: i64 = 4_000;

/// The CPU that a placeholder reserves here, in thousandths: what moves off one node.
pub const PLACEHOLDER_CPU: i64 = 3_000;

/// Quick things take a few seconds, slow ones up to a minute and a half.
fn soon(sim: &mut Sim, least: i64, most: i64) -> Timestamp {
    let millis = sim.rng.i64(least * 1_000..=most * 1_000);
    plus(sim.now, SignedDuration::from_millis(millis))
}

/// One round of the scheduler and of Karpenter's provisioner: places what fits, launches for what does not.
pub fn schedule(sim: &mut Sim) {
    let pending: Vec<Box<str>> =
        sim.cluster.pods.iter().filter(|(_, pod)| pod.node.is_none()).map(|(name, _)| name.clone()).collect();
    for pod in pending {
        let cpu = sim.cluster.pods.get(&pod).map_or(0, |pod| pod.cpu);
        if let Some(node) = room(sim, cpu, None) {
            preempt(sim, &node, cpu);
            if let Some(pod) = sim.cluster.pods.get_mut(&pod) {
                pod.node = Some(node);
            }
        } else {
            launch(sim, "api");
        }
    }
    let unplaced: Vec<(Box<str>, Box<str>, Box<str>)> = sim
        .cluster
        .placeholders
        .values()
        .filter(|p| p.node.is_empty() && p.meta.deleted.is_none())
        .map(|p| (p.meta.name.clone(), p.pool.clone(), p.claim().into()))
        .collect();
    for (placeholder, pool, claim) in unplaced {
        match room(sim, PLACEHOLDER_CPU, Some(&claim)) {
            Some(node) => {
                sim.cluster.change_placeholder(&placeholder, |p| {
                    p.node = node;
                    p.unschedulable = None;
                });
                let at = soon(sim, 0, 2);
                sim.after(at, Event::PlaceholderRuns(placeholder));
            }
            None => {
                let is_told = sim.cluster.placeholders.get(&placeholder).is_some_and(|p| p.unschedulable.is_some());
                if !is_told {
                    sim.cluster.change_placeholder(&placeholder, |p| p.unschedulable = Some("no node fits".into()));
                }
                launch(sim, &pool);
            }
        }
    }
}

/// A Ready, schedulable Node with this much room. Workload Pods may preempt a placeholder; a placeholder avoids the Node
/// of its own claim, since that is cordoned.
fn room(sim: &Sim, cpu: i64, for_claim: Option<&str>) -> Option<Box<str>> {
    let fits = |node: &&Node| {
        let reserved: i64 =
            sim.cluster.placeholders.values().filter(|p| p.node == node.meta.name).map(|_| PLACEHOLDER_CPU).sum();
        let reserved = if for_claim.is_some() { reserved } else { 0 };
        node.ready
            && !node.unschedulable
            && !node.disrupted
            && node.meta.deleted.is_none()
            && sim.cluster.used_cpu(&node.meta.name) + reserved + cpu <= NODE_CPU
    };
    sim.cluster.nodes.values().find(fits).map(|node| node.meta.name.clone())
}

/// A workload Pod outranks a placeholder: where both do not fit, the placeholder is gone at once.
fn preempt(sim: &mut Sim, node: &str, cpu: i64) {
    let victims: Vec<_> =
        sim.cluster.placeholders.values().filter(|p| &*p.node == node).map(|p| p.meta.name.clone()).collect();
    if !victims.is_empty() && sim.cluster.used_cpu(node) + cpu + PLACEHOLDER_CPU > NODE_CPU {
        for victim in victims {
            sim.tell(format!("scheduler: placeholder {victim} is preempted"));
            sim.cluster.remove_placeholder(&victim);
        }
    }
}

/// Launches a NodeClaim, unless one is on its way already, there is no capacity, or the limit is reached.
fn launch(sim: &mut Sim, pool: &str) {
    let is_coming = sim.cluster.claims.values().any(|c| !c.ready && c.meta.deleted.is_none());
    let Some(stored) = sim.cluster.pools.get(pool).filter(|p| p.meta.deleted.is_none()).cloned() else { return };
    if is_coming || sim.now < sim.no_capacity_until {
        return;
    }
    let counted = sim.cluster.claims.values().filter(|c| *c.pool == *pool && c.meta.deleted.is_none()).count();
    let wanted = Quantity::whole(i64::try_from(counted + 1).unwrap_or(i64::MAX) * 4);
    if stored.limits.0.get("cpu").is_some_and(|limit| wanted > *limit) {
        return;
    }
    sim.launched += 1;
    let name = format!("{pool}-{}", sim.launched);
    let meta = sim.cluster.new_meta(&name, sim.now);
    sim.tell(format!("karpenter: launches NodeClaim {name}"));
    sim.cluster.put_claim(NodeClaim {
        meta,
        pool: pool.into(),
        expire_after: stored.expire_after,
        termination_grace_period: stored.termination_grace_period,
        capacity: Arc::new([("cpu".to_owned(), Quantity::whole(4))].into_iter().collect()),
        ..NodeClaim::default()
    });
    let never = sim.plan.faults && sim.rng.u8(0..20) == 0;
    let at = if never { plus(sim.now, SignedDuration::from_mins(15)) } else { soon(sim, 10, 90) };
    sim.after(
        at,
        if never { Event::LaunchFailed(name.as_str().into()) } else { Event::Registers(name.as_str().into()) },
    );
    if let Some(e) = stored.expire_after {
        let at = plus(sim.now, e);
        sim.after(at, Event::Expires(name.as_str().into()));
    }
}

/// A launched node joins: the Node exists and is Ready; Karpenter marks it initialized a moment later.
pub fn registers(sim: &mut Sim, claim: &str) {
    let Some(stored) = sim.cluster.claims.get(claim).filter(|c| c.meta.deleted.is_none()).cloned() else { return };
    let name = format!("node-{claim}");
    let meta = sim.cluster.new_meta(&name, sim.now);
    let node = Node { meta, pool: stored.pool.clone(), hostname: claim.into(), ready: true, ..Node::default() };
    sim.cluster.put_node(node);
    sim.cluster.change_claim(claim, |c| {
        c.node = name.as_str().into();
        c.ready = true;
    });
    let at = soon(sim, 0, 3);
    sim.after(at, Event::Initialized(name.as_str().into()));
}

/// A claim with a deletionTimestamp: taint, drain, then gone. Returns whether it is gone.
pub fn drain(sim: &mut Sim, claim: &str) {
    let Some(stored) = sim.cluster.claims.get(claim).cloned() else { return };
    let Some(deleted) = stored.meta.deleted else { return };
    let node = stored.node.clone();
    if let Some(stored_node) = sim.cluster.nodes.get(&node).filter(|n| !n.disrupted).cloned() {
        sim.cluster.put_node(Node { disrupted: true, ..stored_node });
        let at = soon(sim, 5, 8);
        return sim.after(at, Event::Drains(claim.into()));
    }
    let bound = stored.termination_grace_period.map(|tgp| plus(deleted, tgp));
    let is_forced = bound.is_some_and(|at| sim.now >= at);
    if sim.now < sim.pdb_holds_until && !is_forced && sim.cluster.used_cpu(&node) > 0 {
        let at = bound.map_or(sim.pdb_holds_until, |at| at.min(sim.pdb_holds_until));
        return sim.after(at, Event::Drains(claim.into()));
    }
    // a placeholder with do-not-disrupt stalls the drain until the grace period ends
    let is_stalled = sim.cluster.placeholders.values().any(|p| p.node == node && !node.is_empty());
    if is_stalled && !is_forced {
        let at = soon(sim, 5, 10);
        return sim.after(at, Event::Drains(claim.into()));
    }
    sim.tell(format!("karpenter: NodeClaim {claim} is drained and gone"));
    sim.cluster.remove_node(&node);
    sim.cluster.remove_claim(claim);
    schedule(sim);
}

/// A node that Karpenter has launched before the history begins.
pub fn existing(sim: &mut Sim, name: &str, age: SignedDuration) {
    let created = plus(sim.now, -age);
    let Some(pool) = sim.cluster.pools.get("api").cloned() else { return };
    let mut meta = sim.cluster.new_meta(name, created);
    meta.created = created;
    let node_name = format!("node-{name}");
    sim.cluster.put_claim(NodeClaim {
        meta,
        pool: pool.meta.name.clone(),
        expire_after: pool.expire_after,
        termination_grace_period: pool.termination_grace_period,
        node: node_name.as_str().into(),
        ready: true,
        capacity: Arc::new([("cpu".to_owned(), Quantity::whole(4))].into_iter().collect()),
        ..NodeClaim::default()
    });
    let mut meta = sim.cluster.new_meta(&node_name, created);
    meta.created = created;
    sim.cluster.put_node(Node {
        meta,
        pool: pool.meta.name.clone(),
        hostname: name.into(),
        ready: true,
        initialized: true,
        ..Node::default()
    });
    for i in 0..3 {
        let pod = WorkPod { node: Some(node_name.as_str().into()), cpu: 1_000 };
        sim.cluster.pods.insert(format!("pod-{name}-{i}").into(), pod);
    }
    if let Some(e) = pool.expire_after {
        sim.after(plus(created, e), Event::Expires(name.into()));
    }
}
