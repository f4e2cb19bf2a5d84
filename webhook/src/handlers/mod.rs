//! One module per kind of object. Each reads the objects of a review, lets `noderotation_shared::admission` judge them, and
//! turns the verdict into a response.

mod claims;
mod guard;
mod policies;
mod pools;

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::admission::StaticPools;

use crate::Error;
use crate::admitted::Concern;
use crate::caches::Caches;
use crate::request::{AdmissionRequest, Object};
use crate::response::AdmissionResponse;

/// The endpoints of the webhook; each entry of the chart's webhook configurations calls one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum Endpoint {
    /// Fills in the default time zone, and refuses a RotationPolicy with all its problems at once, before schema and CEL
    /// refuse it with fewer words.
    MutatePolicy,
    /// Judges a RotationPolicy against the others and against NodePools: ties, static pools, findings (§6).
    ValidatePolicy,
    /// Judges a NodePool against RotationPolicies: ties, static pools, findings; also its `freeze` and its template.
    ValidatePool,
    /// Judges the operator's annotations on a NodeClaim.
    ValidateClaim,
    /// Lets only the controller change its own annotations and labels.
    Guard,
}

impl Endpoint {
    /// The path of its URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::MutatePolicy => "/mutate/rotationpolicies",
            Self::ValidatePolicy => "/validate/rotationpolicies",
            Self::ValidatePool => "/validate/nodepools",
            Self::ValidateClaim => "/validate/nodeclaims",
            Self::Guard => "/guard/annotations",
        }
    }
}

/// What the webhook's flags say about verdicts.
#[derive(Clone, Debug, Default)]
pub struct VerdictOptions {
    /// The user name of the controller: `system:serviceaccount:NAMESPACE:NAME`. Only this user may change guarded keys.
    pub controller: String,
    /// The time zone for windows that name none; `None` where such windows are refused.
    pub default_zone: Option<String>,
    /// Whether a policy that would govern a static NodePool is refused or only warned of.
    pub static_pools: StaticPools,
}

/// Judges reviews.
pub struct Handlers {
    /// The RotationPolicies and NodePools of the cluster.
    pub caches: Arc<Caches>,
    /// What the flags say.
    pub options: VerdictOptions,
}

impl Handlers {
    /// What has to be known before a review is judged, because something was admitted a moment ago that matters to it; `None`
    /// where everything is known.
    pub fn unsettled(&self, endpoint: Endpoint, request: &AdmissionRequest<'_>, now: Timestamp) -> Option<Concern> {
        if self.caches.is_settled() {
            return None;
        }
        let concern = match endpoint {
            Endpoint::MutatePolicy | Endpoint::ValidateClaim => return None,
            Endpoint::ValidatePolicy => policies::concern(&self.caches, request),
            Endpoint::ValidatePool => pools::concern(request, now),
            Endpoint::Guard => guard::concern(request),
        };
        // a review that cannot be read is refused without a look at anything else
        concern.ok().flatten().filter(|concern| !self.caches.unsettled(concern).is_empty())
    }

    /// The response to a review. Findings and freezes are judged at the instant `now`.
    pub fn handle(&self, endpoint: Endpoint, request: &AdmissionRequest<'_>, now: Timestamp) -> AdmissionResponse {
        let response = match endpoint {
            Endpoint::MutatePolicy => policies::mutate(&self.options, request),
            Endpoint::ValidatePolicy => policies::validate(&self.caches, &self.options, request, now),
            Endpoint::ValidatePool => pools::validate(&self.caches, &self.options, request, now),
            Endpoint::ValidateClaim => claims::validate(request),
            Endpoint::Guard => guard::guard(&self.caches, &self.options, request),
        };
        let mut response = response.unwrap_or_else(|error| AdmissionResponse::bad(&error));
        if matches!(endpoint, Endpoint::ValidatePolicy | Endpoint::ValidatePool) {
            response.warnings.extend(self.caches.staleness());
        }
        response
    }
}

/// The old object, if there is one, and the new object of a creation or update. `None` where there is nothing to judge: other
/// operations, subresources, and objects that are being deleted (§10).
fn written(request: &AdmissionRequest<'_>) -> Result<Option<(Option<Object>, Object)>, Error> {
    if !request.sub_resource.is_empty() || !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Ok(None);
    }
    let new = request.required_object()?;
    let old = request.old_object()?;
    Ok((!new.is_being_deleted()).then_some((old, new)))
}
