//! Before anything else: does the API server serve what we need, and may we read it? (§8, *Preflight*)

use std::time::Duration;

use noderotation_shared::objects::{Node, NodeClaim, NodePool};

use noderotation_cluster::api::{Api, ReadError};
use noderotation_cluster::backoff::backoff;
use noderotation_cluster::objects::{Cached, PolicyObject};

/// Lists each kind with `limit=1`. 404 and 401/403 end the process with a message; anything else is tried again.
pub async fn check(api: &Api) -> Result<(), String> {
    for (collection, resource, missing) in [
        (NodePool::COLLECTION, "nodepools.karpenter.sh", "install Karpenter 1.0 or newer"),
        (NodeClaim::COLLECTION, "nodeclaims.karpenter.sh", "install Karpenter 1.0 or newer"),
        (Node::COLLECTION, "nodes", "is this the address of a Kubernetes API server?"),
        (PolicyObject::COLLECTION, "rotationpolicies.noderotation.io", "install the chart's CustomResourceDefinition"),
    ] {
        kind(api, collection, resource, missing).await?;
    }
    Ok(())
}

async fn kind(api: &Api, collection: &str, resource: &str, missing: &str) -> Result<(), String> {
    let mut failures = 0;
    loop {
        match api.get(&format!("{collection}?limit=1")).await {
            Ok(_) => return Ok(()),
            Err(ReadError::NotFound) => {
                return Err(format!("the API server does not serve {collection}: {missing}"));
            }
            Err(ReadError::Forbidden(why)) => {
                return Err(format!(
                    "{resource} cannot be listed: {why}; grant this service account get, list and watch"
                ));
            }
            Err(ReadError::Other(why)) => {
                let wait = backoff(failures).min(Duration::from_secs(15));
                failures += 1;
                tracing::warn!(resource, why, retry_in = ?wait, "API server cannot be asked yet");
                tokio::time::sleep(wait).await;
            }
        }
    }
}
