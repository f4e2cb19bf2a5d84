//! One file per kind of question; each reads the objects, asks `noderotation_shared::admission`, and answers.

mod claims;
mod guard;
mod policies;
mod pools;

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::admission::StaticPools;

use crate::answer::Answer;
use crate::review::Request;
use crate::view::View;

/// What is asked of; each has a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
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

impl Hook {
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
            Self::Guard => "/guard/marks",
        }
    }
}

/// What the flags say about verdicts.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The controller's account: `system:serviceaccount:NAMESPACE:NAME`.
    pub controller: String,
    /// Filled into windows that name no time zone.
    pub default_zone: Option<String>,
    /// Whether a static pool may be governed.
    pub static_pools: StaticPools,
}

/// Answers reviews.
pub struct Hooks {
    /// The policies and pools there are.
    pub view: Arc<View>,
    /// What the flags say.
    pub rules: Rules,
}

impl Hooks {
    /// The answer to one review at this instant.
    pub fn answer(&self, hook: Hook, request: &Request<'_>, now: Timestamp) -> Answer {
        let answer = match hook {
            Hook::MutatePolicy => policies::mutate(&self.rules, request),
            Hook::ValidatePolicy => policies::validate(&self.view, &self.rules, request, now),
            Hook::ValidatePool => pools::validate(&self.view, &self.rules, request, now),
            Hook::ValidateClaim => claims::validate(request),
            Hook::Guard => guard::guard(&self.view, &self.rules, request),
        };
        let mut answer = answer.unwrap_or_else(Answer::bad);
        if matches!(hook, Hook::ValidatePolicy | Hook::ValidatePool) {
            answer.warnings.extend(self.view.staleness());
        }
        answer
    }
}
