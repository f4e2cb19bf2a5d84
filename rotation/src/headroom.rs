//! Room under the NodePool's limits (§9.4): necessary, not sufficient.

use noderotation_shared::quantity::{Quantity, Resources};

use crate::note::Note;
use crate::world::{Claim, World};

/// Whether the limits leave room for `request`. Karpenter compares an instance type's whole capacity, so a candidate
/// that itself would not fit is worth a warning.
pub fn check(world: &World, claim: &Claim, request: &Resources) -> Result<Option<Note>, Note> {
    let usage = usage(world);
    let mut tight = None;
    for (resource, limit) in &world.pool.limits.0 {
        let remaining = limit.minus(usage.get(resource));
        let wanted = if resource == "nodes" { Quantity::whole(1) } else { request.get(resource) };
        if wanted > remaining {
            return Err(Note::InsufficientHeadroom {
                claim: claim.meta.name.to_string(),
                resource: resource.clone(),
                wanted: wanted.to_string(),
                remaining: remaining.to_string(),
                limit: limit.to_string(),
            });
        }
        let capacity = claim.capacity.get(resource);
        if resource != "nodes" && capacity > remaining && tight.is_none() {
            tight = Some(Note::HeadroomTight {
                claim: claim.meta.name.to_string(),
                resource: resource.clone(),
                capacity: capacity.to_string(),
                remaining: remaining.to_string(),
            });
        }
    }
    Ok(tight)
}

/// The capacity of the pool's claims that are not being deleted; `status.resources` of the pool lags by seconds and
/// counts those.
fn usage(world: &World) -> Resources {
    let mut usage = Resources::default();
    let mut nodes = 0;
    for claim in world.claims.iter().filter(|c| c.meta.deleted.is_none()) {
        usage.add(&claim.capacity);
        nodes += 1;
    }
    usage.0.insert("nodes".into(), Quantity::whole(nodes));
    usage
}
