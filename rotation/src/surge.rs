//! Is the replacement there (§9.5)?

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::instant::whole_seconds;
use noderotation_shared::objects::{Node, NodeClaim, Placeholder, SurgePath};

use crate::world::World;

/// The replacement is ready.
pub struct Ready<'a> {
    /// The placeholder that reserves it.
    pub placeholder: &'a Arc<Placeholder>,
    /// The Node that stands in for the candidate's.
    pub host: &'a Arc<Node>,
    /// Which node the host is; `None` where that is unknown.
    pub path: Option<SurgePath>,
}

/// `surge_ready`: the host, or a sentence about what is missing.
pub fn ready<'a>(world: &'a World, candidate: &NodeClaim, started_at: Timestamp) -> Result<Ready<'a>, String> {
    let placeholder =
        world.placeholder_of(&candidate.meta.name).ok_or_else(|| "the placeholder does not exist yet".to_owned())?;
    if placeholder.meta.deleted.is_some() {
        return Err("the placeholder is terminating".into());
    }
    if placeholder.node.is_empty() {
        return Err(placeholder.unschedulable.as_ref().map_or_else(
            || "the placeholder is not scheduled yet".into(),
            |why| format!("the placeholder is not schedulable: {why}"),
        ));
    }
    if &*placeholder.phase != "Running" {
        return Err(format!("the placeholder on Node {} is {}", placeholder.node, placeholder.phase));
    }
    let host =
        world.nodes.get(&placeholder.node).ok_or_else(|| format!("Node {} is not known yet", placeholder.node))?;
    if let Some(obstacle) = obstacle(world, candidate, host) {
        return Err(format!("Node {} {obstacle}", host.meta.name));
    }
    // strictly younger, both in whole seconds: one of the same second existed already
    let claim = world.claim_on(&host.meta.name);
    let is_younger = |claim: &Arc<NodeClaim>| claim.meta.created > whole_seconds(started_at);
    let path = claim.map(|claim| if is_younger(claim) { SurgePath::Provisioned } else { SurgePath::Absorbed });
    Ok(Ready { placeholder, host, path })
}

/// Why this Node cannot stand in for the candidate's; `None` where it can.
pub fn obstacle(world: &World, candidate: &NodeClaim, host: &Node) -> Option<String> {
    let claim = world.claim_on(&host.meta.name);
    // placed there before the taint came; what must move would not be
    let taint = host.taints.iter().find(|taint| !world.pool.taints.contains(taint));
    let obstacles = [
        (host.meta.name == candidate.node, "is the candidate's own"),
        (host.pool != world.pool.meta.name, "belongs to another NodePool"),
        (!host.ready, "is not Ready"),
        (!host.initialized, "is not initialized by Karpenter"),
        (host.unschedulable, "is unschedulable"),
        (host.disrupted, "is being disrupted by Karpenter"),
        (host.meta.deleted.is_some(), "is being deleted"),
        (claim.is_none(), "has no NodeClaim of this NodePool that names it"),
        (claim.is_some_and(|c| c.meta.deleted.is_some()), "belongs to a NodeClaim that is being deleted"),
    ];
    let found = obstacles.into_iter().find(|(is_so, _)| *is_so).map(|(_, obstacle)| obstacle.to_owned());
    found.or_else(|| taint.map(|taint| format!("has the taint {taint}, which the NodePool's template has not")))
}

/// Whether the placeholder's host is going away. The placeholder's own do-not-disrupt would then only stall the drain.
pub fn host_is_leaving(world: &World, placeholder: &Placeholder) -> bool {
    world.nodes.get(&placeholder.node).is_some_and(|n| n.meta.deleted.is_some())
        || world.claim_on(&placeholder.node).is_some_and(|c| c.meta.deleted.is_some())
}
