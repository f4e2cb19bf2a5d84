//! One file per kind of question; each reads the objects, asks `noderotation_shared::admission`, and answers.

mod claims;
mod guard;
mod policies;
mod pools;

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::admission::StaticPools;

use crate::caches::Caches;
use crate::request::AdmissionRequest;
use crate::response::AdmissionResponse;

/// What is asked of; each has a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Fills what is absent, and refuses with every problem before schema and CEL do so curtly.
    MutatePolicy,
    /// Ties, static pools, findings.
    ValidatePolicy,
    /// Ties, static pools, freeze, template, findings.
    ValidatePool,
    /// The operator's keys on NodeClaims.
    ValidateClaim,
    /// Who may change keys of ours.
    Guard,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::MutatePolicy, Self::ValidatePolicy, Self::ValidatePool, Self::ValidateClaim, Self::Guard];

    /// Its path.
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

/// What the flags say about verdicts.
#[derive(Clone, Debug, Default)]
pub struct VerdictOptions {
    /// The controller's account: `system:serviceaccount:NAMESPACE:NAME`.
    pub controller: String,
    /// Filled into windows that name no time zone.
    pub default_zone: Option<String>,
    /// Whether a static pool may be governed.
    pub static_pools: StaticPools,
}

/// Answers reviews.
pub struct Handlers {
    /// The policies and pools there are.
    pub caches: Arc<Caches>,
    /// What the flags say.
    pub options: VerdictOptions,
}

impl Handlers {
    /// The response to one review at this instant.
    pub fn handle(&self, endpoint: Endpoint, request: &AdmissionRequest<'_>, now: Timestamp) -> AdmissionResponse {
        let response = match endpoint {
            Endpoint::MutatePolicy => policies::mutate(&self.options, request),
            Endpoint::ValidatePolicy => policies::validate(&self.caches, &self.options, request, now),
            Endpoint::ValidatePool => pools::validate(&self.caches, &self.options, request, now),
            Endpoint::ValidateClaim => claims::validate(request),
            Endpoint::Guard => guard::guard(&self.caches, &self.options, request),
        };
        let mut response = response.unwrap_or_else(AdmissionResponse::bad);
        if matches!(endpoint, Endpoint::ValidatePolicy | Endpoint::ValidatePool) {
            response.warnings.extend(self.caches.staleness());
        }
        response
    }
}
