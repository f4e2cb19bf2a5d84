//! Room under the NodePool's limits (§9.4): necessary, not sufficient.

use noderotation_shared::quantity::{Quantity, Resources};

use crate::announcement::ClaimId;
use crate::reason::Reason;
use crate::world::World;
use noderotation_shared::objects::NodeClaim;

/// What the limits leave for a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// There is room.
    Enough,
    /// There is room, but not for another node of the candidate's size. Karpenter compares an instance type's whole
    /// capacity, so it may find none that fits.
    Tight(Reason),
    /// There is no room.
    Short(Reason),
}

/// Whether the limits leave room for a placeholder that requests `request`.
pub fn check(world: &World, claim: &NodeClaim, request: &Resources) -> Headroom {
    let usage = usage(world);
    let mut tight = None;
    for (resource, limit) in &world.pool.limits.0 {
        let remaining = limit.minus(usage.get(resource));
        let wanted = if resource == "nodes" { Quantity::whole(1) } else { request.get(resource) };
        if wanted > remaining {
            return Headroom::Short(Reason::InsufficientHeadroom {
                claim: ClaimId::of(claim),
                resource: resource.clone(),
                wanted: wanted.to_string(),
                remaining: remaining.to_string(),
                limit: limit.to_string(),
            });
        }
        let capacity = claim.capacity.get(resource);
        if resource != "nodes" && capacity > remaining && tight.is_none() {
            tight = Some(Reason::HeadroomTight {
                claim: ClaimId::of(claim),
                resource: resource.clone(),
                capacity: capacity.to_string(),
                remaining: remaining.to_string(),
            });
        }
    }
    tight.map_or(Headroom::Enough, Headroom::Tight)
}

/// The capacity of the pool's claims that are not being deleted; `status.resources` of the pool lags by seconds and
/// counts those.
pub(crate) fn usage(world: &World) -> Resources {
    let mut usage = Resources::default();
    let mut nodes = 0;
    for claim in world.claims.iter().filter(|c| c.meta.deleted.is_none()) {
        usage.add(&claim.capacity);
        nodes += 1;
    }
    usage.0.insert("nodes".into(), Quantity::whole(nodes));
    usage
}
