//! What a decision may ask for: one read, or one conditional request with what to announce once it landed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The next step of a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read something first, put it into the world, decide again.
    Read(LiveRead),
    /// Do this, and if it landed announce that.
    Do(Box<Act>),
}

/// One conditional request.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// Its name, in metrics and logs.
    pub name: &'static str,
    /// The request.
    pub request: Write,
    /// Only for an applied write, in this order.
    pub announce: Vec<Announcement>,
}

/// A read that a decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveRead {
    /// The anchored claim, live.
    NodeClaim(String),
    /// What runs on a candidate's node.
    NodeLoad {
        /// The candidate.
        claim: String,
        /// Its node.
        node: String,
    },
    /// Placeholder and host, live.
    Surge {
        /// The placeholder.
        placeholder: String,
        /// The host's Node.
        node: String,
    },
    /// Karpenter's event about the placeholder.
    Nomination {
        /// The placeholder.
        placeholder: String,
    },
    /// The surge claim and the Pods of its node.
    SurgeClaim(String),
}

/// One request. Updates and deletes carry what the decision saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A merge patch of annotations with the observed resourceVersion.
    Patch(Patch),
    /// Creates the placeholder; its name is deterministic, so that a second one is a conflict.
    Create(Box<Value>),
    /// Deletes the placeholder with its UID.
    DeletePlaceholder {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Deletes a claim with its UID and, where given, its version.
    DeleteClaim {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// The observed resourceVersion.
        version: Option<String>,
    },
}

/// The kind of a patched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A NodePool.
    NodePool,
    /// A NodeClaim.
    NodeClaim,
    /// A Node.
    Node,
}

/// A merge patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// What is patched.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// The observed resourceVersion; a 409 tells that it is another by now.
    pub version: String,
    /// Annotations to set (`Some`) or remove (`None`).
    pub annotations: BTreeMap<&'static str, Option<String>>,
    /// `spec.unschedulable`, where it is to change.
    pub unschedulable: Option<bool>,
}

impl Patch {
    /// The request's body.
    pub fn body(&self) -> Value {
        let mut body = serde_json::json!({
            "metadata": {"resourceVersion": self.version, "annotations": self.annotations},
        });
        if let (Some(unschedulable), Some(object)) = (self.unschedulable, body.as_object_mut()) {
            object.insert("spec".into(), serde_json::json!({"unschedulable": unschedulable}));
        }
        body
    }
}

/// What happened, told after the write that made it happen, with the values which that write stored.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields carry the names of §11")]
pub enum Announcement {
    /// Log `rotation candidate selected`, event `RotationStarted`.
    CandidateSelected { claim: String, node: String, deadline: Option<Timestamp>, age: SignedDuration, policy: String },
    /// Log `surge placeholder created`.
    PlaceholderCreated { claim: String, placeholder: String, size: String },
    /// Events `SurgeClamped`, `SurgeClampBandExceeded`, `SurgeClampRefused`.
    Clamped { claim: String, reason: &'static str, message: String },
    /// Log `surge node ready`.
    SurgeReady { claim: String, host: String, path: Option<&'static str>, surge_wait: SignedDuration },
    /// Log `drain started`.
    DrainStarted { claim: String, node: String, bound: Option<SignedDuration> },
    /// Log `rotation attempt failed`, event `RotationFailed`, counter.
    AttemptFailed { claim: String, reason: String, retry_count: i64, next_attempt_at: Option<Timestamp> },
    /// Log `rotation expired`, event `RotationExpired`, counter.
    Expired { claim: String, phase: &'static str },
    /// Log `rotation complete`, event `RotationCompleted`, counter and histograms.
    Completed {
        claim: String,
        mode: &'static str,
        surge_path: Option<String>,
        surge_wait: Option<SignedDuration>,
        drain: Option<SignedDuration>,
    },
    /// Event, counter: surge-less.
    ForcefulFallback { claim: String, deadline: Timestamp },
    /// Log `maintenance window closed with candidates unrotated`, event `WindowMissed`, counter.
    WindowMissed { opened_at: Timestamp, eligible: usize, in_backoff: usize },
    /// Event `GovernanceLost`.
    GovernanceLost { claim: String, why: String },
    /// Log `unfroze`.
    Unfroze { node: String },
}
