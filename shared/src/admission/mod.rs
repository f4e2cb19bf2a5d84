//! What admission says (§10); `check` says the same of files (§14).
//!
//! ```text
//!   proposed    a NodePool as somebody wrote it          index   the policies and pools there are, indexed
//!   policy   a RotationPolicy that is to change   ──▶
//!   pool     a NodePool that is to change         ──▶ a Verdict: refusals, warnings
//!   marks    keys of ours that are to change      ──▶ refused, let through, or nothing to say
//!   words    lists of names; what the API server lets through of warnings and messages
//! ```
//!
//! A refusal is for what a change would break; what was so before is only warned of, so that nobody is kept from
//! changing something else.

pub mod annotation_guard;
pub mod messages;
pub mod policy;
pub mod policy_index;
pub mod pool;
pub mod proposed_pool;

pub use annotation_guard::{GuardVerdict, GuardedMetadata, Requester, Target, judge_guarded};
pub use policy::{PolicyChange, StaticPools, judge_deletion, judge_policy, with_default_zone};
pub use policy_index::PolicyIndex;
pub use pool::{PoolVerdict, judge_pool, judge_pool_change};
pub use proposed_pool::ProposedNodePool;

/// What is to be said of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is refused; empty: it is not. Each stands on lines of its own.
    pub refusals: Vec<String>,
    /// What its author should know.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Nothing to say.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// A refusal where the change brings the fault about, a warning where it was so before.
    fn fault(&mut self, is_new: bool, text: String) {
        if is_new {
            self.refusals.push(text);
        } else {
            self.warnings.push(text);
        }
    }
}
