//! The admission rules (§10), which the webhook applies to requests and `kubectl noderotation check` to files (§14).
//!
//! ```text
//!   proposed_pool     parses a NodePool as a user submits it
//!   policy_index      all stored policies and NodePools, indexed by label
//!   policy            judges a change of a RotationPolicy  ──▶ PolicyVerdict: refusals, warnings and findings
//!   pool              judges a change of a NodePool        ──▶ Verdict: refusals and warnings
//!   guarded_metadata  parses what the guard judges of an object
//!   annotation_guard  judges a change of our own keys      ──▶ GuardVerdict: allowed, let through or refused
//!   messages          lists of names; the API server's limits on warnings and messages
//! ```
//!
//! A problem is refused only if the change introduces it. A problem that was there before is a warning, so that nobody
//! is kept from changing something else.

pub mod annotation_guard;
pub mod guarded_metadata;
pub mod messages;
pub mod policy;
pub mod policy_index;
pub mod pool;
pub mod proposed_pool;

pub use annotation_guard::{GuardVerdict, Requester, Target, judge_guarded};
pub use guarded_metadata::GuardedMetadata;
pub use policy::{PolicyChange, PolicyVerdict, StaticPools, judge_deletion, judge_policy, with_default_zone};
pub use policy_index::PolicyIndex;
pub use pool::{PoolVerdict, judge_pool, judge_pool_change};
pub use proposed_pool::ProposedNodePool;

/// The answer to a proposed change (§10). The change is refused if there is at least one refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the change is refused, one message per problem; empty if it is allowed.
    pub refusals: Vec<String>,
    /// What the author should know although it does not block the change.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Allowed without a warning.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// Adds a refusal if this change introduces the problem, a warning if the problem was there before.
    fn add_problem(&mut self, is_new: bool, text: String) {
        if is_new {
            self.refusals.push(text);
        } else {
            self.warnings.push(text);
        }
    }
}
