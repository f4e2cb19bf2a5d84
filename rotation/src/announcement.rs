//! What happened, told after the write that made it happen, with the values that this write stored (§11).

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::objects::{Node, NodeClaim, RotationMode, SurgePath};

use crate::event_reason::EventReason;

/// A NodeClaim by name and UID, so that an Event is about this claim and not about a later one of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimId {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; empty where the claim is gone already.
    pub uid: String,
}

impl ClaimId {
    /// The identity of a claim.
    pub fn of(claim: &NodeClaim) -> Self {
        Self { name: claim.meta.name.to_string(), uid: claim.meta.uid.to_string() }
    }

    /// A claim that is gone.
    pub fn gone(name: &str) -> Self {
        Self { name: name.to_owned(), uid: String::new() }
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A Node by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeId {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}

impl NodeId {
    /// The identity of a Node.
    pub fn of(node: &Node) -> Self {
        Self { name: node.meta.name.to_string(), uid: node.meta.uid.to_string() }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// One announcement. Whoever performs the step turns it into its log line, event and metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Announcement {
    /// A rotation was anchored: log `rotation candidate selected`, event `RotationStarted`.
    CandidateSelected {
        /// The candidate.
        claim: ClaimId,
        /// Its Node.
        node: String,
        /// When Karpenter would expire it; `None` for `expireAfter: Never`.
        deadline: Option<Timestamp>,
        /// Its age.
        age: SignedDuration,
        /// The governing policy.
        policy: String,
    },
    /// The Node of a pending rotation was cordoned: log, event `Cordoned` on it, or `CordonRestored`.
    Cordoned {
        /// The Node.
        node: NodeId,
        /// The candidate.
        claim: ClaimId,
        /// The governing policy.
        policy: String,
        /// When the attempt is rolled back, and the cordon with it, unless the Node drains by then.
        until: Timestamp,
        /// Somebody has taken our cordon away.
        is_again: bool,
    },
    /// A request to call off a rotation came where none is pending, and was removed: event `RequestNotMet`.
    NothingToCallOff {
        /// The claim that bore it.
        claim: ClaimId,
    },
    /// Log `surge placeholder created`.
    PlaceholderCreated {
        /// The candidate.
        claim: ClaimId,
        /// The placeholder's Pod name.
        placeholder: String,
        /// Its requests, as `cpu=2,memory=4Gi`.
        size: String,
    },
    /// The placeholder was clamped (§9.2): an event of this reason.
    Clamped {
        /// The candidate.
        claim: ClaimId,
        /// `SurgeClamped`, `SurgeClampBandExceeded` or `SurgeClampRefused`.
        reason: EventReason,
        /// Which resource, and by how much.
        message: String,
    },
    /// The point of no return: log `surge node ready`.
    SurgeReady {
        /// The candidate.
        claim: ClaimId,
        /// The Node that stands in for it.
        host: String,
        /// Which node that is; `None` where that is unknown.
        path: Option<SurgePath>,
        /// From `started-at` until now.
        surge_wait: SignedDuration,
    },
    /// The point of no return of a Node on which nothing has to move (§9.8): log `nothing has to move`.
    NothingToMove {
        /// The candidate.
        claim: ClaimId,
        /// Its Node.
        node: String,
    },
    /// The old claim was deleted: log `drain started`.
    DrainStarted {
        /// The candidate.
        claim: ClaimId,
        /// Its Node.
        node: String,
        /// Its own `terminationGracePeriod`; `None`: nothing bounds the drain.
        bound: Option<SignedDuration>,
    },
    /// An attempt was rolled back: log `rotation attempt failed`, event `RotationFailed`, counter.
    AttemptFailed {
        /// The candidate.
        claim: ClaimId,
        /// Why.
        reason: String,
        /// Failed attempts so far, this one included.
        retry_count: i64,
        /// The first instant at which it may be retried, as it looks now; `None`: the window never opens again.
        next_attempt_at: Option<Timestamp>,
    },
    /// Karpenter, or somebody, was first: log `rotation expired`, event `RotationExpired`, counter.
    Expired {
        /// The claim.
        claim: ClaimId,
        /// The state in which its rotation was: `pending` or `failed`.
        phase: &'static str,
    },
    /// The old claim is gone and the anchor released: log `rotation complete`, event `RotationCompleted`, counter and
    /// histograms.
    Completed {
        /// The claim that is gone.
        claim: ClaimId,
        /// How its node was replaced.
        mode: RotationMode,
        /// What stood in for it; `None` in the fallback, or where that is unknown.
        surge_path: Option<SurgePath>,
        /// How long the surge took; `None` in the fallback, or where it cannot be read.
        surge_wait: Option<SignedDuration>,
        /// How long the drain took; `None` where its start cannot be read.
        drain: Option<SignedDuration>,
    },
    /// A rotation without a surge was anchored (§9.6): event, counter.
    ForcefulFallback {
        /// The candidate.
        claim: ClaimId,
        /// When Karpenter would expire it.
        deadline: Timestamp,
    },
    /// A window closed with work undone: log, event `WindowMissed`, counter.
    WindowMissed {
        /// When that window was first seen open.
        opened_at: Timestamp,
        /// Claims that were eligible.
        eligible: usize,
        /// Claims that were due and held back by their backoff alone.
        in_backoff: usize,
    },
    /// No policy governs any more and the rotation was rolled back: event `GovernanceLost`.
    GovernanceLost {
        /// The claim.
        claim: ClaimId,
        /// Why nobody governs.
        why: String,
    },
    /// Log `unfroze`.
    Unprotected {
        /// The Node.
        node: String,
    },
    /// A cordon of ours without a rotation was removed: log `uncordoned`.
    Uncordoned {
        /// The Node.
        node: String,
    },
    /// Log `orphaned placeholder deleted`.
    OrphanedPlaceholderDeleted {
        /// The claim whose replacement it reserved.
        claim: String,
        /// The placeholder's Pod name.
        placeholder: String,
    },
}
