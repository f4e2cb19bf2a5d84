//! The guard of our keys (§10).

use noderotation_shared::admission::{GuardVerdict, GuardedMetadata, Requester, Target, judge_guarded};
use noderotation_shared::keys::Carrier;

use super::VerdictOptions;
use crate::caches::Caches;
use crate::request::AdmissionRequest;
use crate::response::AdmissionResponse;

/// Judges a change of keys of ours on a NodePool, NodeClaim, Node or Pod; a Binding writes to its Pod.
pub fn guard(
    caches: &Caches,
    options: &VerdictOptions,
    request: &AdmissionRequest<'_>,
) -> Result<AdmissionResponse, String> {
    let carrier = match request.resource.resource.as_str() {
        "nodepools" => Carrier::NodePool,
        "nodeclaims" => Carrier::NodeClaim,
        "nodes" => Carrier::Node,
        "pods" | "bindings" => Carrier::Placeholder,
        other => return Err(format!("request.resource: found {other:?}, which the guard does not handle")),
    };
    if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Ok(AdmissionResponse::allowed());
    }
    let (new, old) = request.metadata()?;
    if new.get("deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return Ok(AdmissionResponse::allowed());
    }
    let (new, old) = (GuardedMetadata::read(&new), GuardedMetadata::read(&old));
    let is_new = request.operation == "CREATE";
    let may_have_template = matches!(carrier, Carrier::NodeClaim | Carrier::Node);
    let pool = new.pool.as_deref().filter(|_| may_have_template).and_then(|name| caches.pool(name));
    let target = Target { carrier, is_new, template: pool.as_ref().map(|pool| &pool.template) };
    let requester =
        Requester { name: &request.user_info.username, uid: &request.user_info.uid, controller: &options.controller };
    Ok(match judge_guarded(target, &old, &new, requester) {
        GuardVerdict::Allowed => AdmissionResponse::allowed(),
        GuardVerdict::Refused(message) => AdmissionResponse::forbidden(message),
        GuardVerdict::LetThrough { warning, audit } => AdmissionResponse {
            warnings: vec![warning],
            audit: audit.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            ..AdmissionResponse::allowed()
        },
    })
}
