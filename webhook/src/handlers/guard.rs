//! The guard of the controller's annotations and labels (§10 *Annotation guard*).

use noderotation_shared::admission::{GuardVerdict, Requester, Target, judge_guarded};
use noderotation_shared::keys::Carrier;
use noderotation_shared::kind::Kind;

use super::VerdictOptions;
use crate::Error;
use crate::admitted::Concern;
use crate::caches::Caches;
use crate::request::AdmissionRequest;
use crate::response::AdmissionResponse;

/// What the verdict of [`guard`] depends on: the NodePool from whose template keys may come. `None` where there is none.
pub fn concern(request: &AdmissionRequest<'_>) -> Result<Option<Concern>, Error> {
    let (new, _) = request.metadata()?;
    Ok(new.pool.map(|pool| Concern { pool: Some(pool), ..Concern::default() }))
}

/// Refuses a change of guarded keys on a NodePool, NodeClaim, Node or Pod by anyone but the controller. A Binding counts as
/// a write to its Pod, since the API server copies its annotations and labels there.
pub fn guard(
    caches: &Caches,
    options: &VerdictOptions,
    request: &AdmissionRequest<'_>,
) -> Result<AdmissionResponse, Error> {
    const NODEPOOLS: &str = Kind::NodePool.plural();
    const NODECLAIMS: &str = Kind::NodeClaim.plural();
    const NODES: &str = Kind::Node.plural();
    const PODS: &str = Kind::Pod.plural();
    let carrier = match request.resource.resource.as_str() {
        NODEPOOLS => Carrier::NodePool,
        NODECLAIMS => Carrier::NodeClaim,
        NODES => Carrier::Node,
        PODS | "bindings" => Carrier::Placeholder,
        other => return Err(Error::UnknownResource(other.to_owned())),
    };
    if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Ok(AdmissionResponse::allowed());
    }
    let (new, old) = request.metadata()?;
    // as it is stored: whoever creates a Binding can write a deletionTimestamp into it
    if old.is_being_deleted {
        return Ok(AdmissionResponse::allowed());
    }
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
