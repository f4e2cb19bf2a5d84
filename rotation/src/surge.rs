//! Is the replacement there? (§9.5)

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::instant::whole_seconds;

use crate::world::World;
use noderotation_shared::objects::{Node, NodeClaim};

/// The host that stands in for the candidate's node.
pub struct Ready<'a> {
    /// Its Node.
    pub host: &'a Arc<Node>,
    /// `provisioned`, `absorbed`, or unknown.
    pub path: Option<&'static str>,
}

/// `surge_ready`: the host, or in a few words what is missing.
pub fn ready<'a>(world: &'a World, candidate: &NodeClaim, started_at: Timestamp) -> Result<Ready<'a>, String> {
    let Some(placeholder) = &world.placeholder else { return Err("the placeholder is not there yet".into()) };
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
        return Err(format!("the placeholder on {} is {}", placeholder.node, placeholder.phase));
    }
    let Some(host) = world.nodes.get(&placeholder.node) else {
        return Err(format!("node {} is not known yet", placeholder.node));
    };
    let claim = world.claim_on(&host.meta.name);
    let fault = [
        (host.meta.name == candidate.node, "is the candidate's own"),
        (host.pool != world.pool.meta.name, "belongs to another NodePool"),
        (!host.ready, "is not Ready"),
        (!host.initialized, "is not initialized by Karpenter"),
        (host.unschedulable, "is unschedulable"),
        (host.disrupted, "is being disrupted by Karpenter"),
        (host.meta.deleted.is_some(), "is being deleted"),
        (claim.is_some_and(|c| c.meta.deleted.is_some()), "belongs to a NodeClaim that is being deleted"),
    ];
    if let Some((_, why)) = fault.iter().find(|(is_so, _)| *is_so) {
        return Err(format!("node {} {why}", host.meta.name));
    }
    // strictly younger, both in whole seconds: an equal one was there already
    let path = claim.map(|c| if c.meta.created > whole_seconds(started_at) { "provisioned" } else { "absorbed" });
    Ok(Ready { host, path })
}

/// Whether the placeholder's host is going away, so that the placeholder's protection would only stall its drain.
pub fn host_is_leaving(world: &World) -> bool {
    world.placeholder.as_ref().is_some_and(|p| {
        world.nodes.get(&p.node).is_some_and(|n| n.meta.deleted.is_some())
            || world.claim_on(&p.node).is_some_and(|c| c.meta.deleted.is_some())
    })
}
