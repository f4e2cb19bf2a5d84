//! What a decision may ask for: one live read, or one conditional write with what to announce once it has landed.

use noderotation_shared::kind::Kind;
use noderotation_shared::objects::NodeClaim;
use serde_json::Value;

pub use crate::announcement::Announcement;
pub use crate::patch::Patch;

/// The next step of a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read this live, take the answer into the world, and decide again.
    Read(LiveRead),
    /// Send this, and announce what it carries if it has landed.
    Write(Box<Act>),
}

/// One conditional write, and what it means.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// The step's name, in metrics and logs.
    pub name: &'static str,
    /// The request.
    pub write: Write,
    /// What to announce, in this order, once the write has landed; nothing otherwise.
    pub announce: Vec<Announcement>,
}

/// A read that a decision needs before it can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveRead {
    /// The NodePool itself.
    NodePool(String),
    /// A NodeClaim.
    NodeClaim(String),
    /// A Node.
    Node(String),
    /// A placeholder, by its Pod name.
    Placeholder(String),
    /// What runs on a candidate's Node, and what its claim can hold.
    NodeLoad {
        /// The candidate's name.
        claim: String,
        /// The candidate's UID.
        uid: String,
        /// Its Node.
        node: String,
        /// It has no `terminationGracePeriod`: whether its drain would end is to be judged, too (§9.7).
        is_drain_unbounded: bool,
    },
    /// The Pods that a drain under way still has to evict, with their PodDisruptionBudgets.
    Drain {
        /// The name of the claim whose Node drains.
        claim: String,
        /// The claim's UID.
        uid: String,
        /// Its Node.
        node: String,
    },
    /// The placeholder and its host, before the point of no return.
    Surge {
        /// The placeholder's Pod name.
        placeholder: String,
        /// The host's Node.
        node: String,
    },
    /// The NodeClaim that Karpenter's event names for a placeholder.
    Nomination {
        /// The placeholder's Pod name.
        placeholder: String,
    },
    /// A surge claim and the Pods of its Node, before it is taken back.
    SurgeClaim(String),
}

impl LiveRead {
    /// What runs on this candidate's Node.
    pub(crate) fn load_of(candidate: &NodeClaim) -> Self {
        let meta = &candidate.meta;
        Self::NodeLoad {
            claim: meta.name.to_string(),
            uid: meta.uid.to_string(),
            node: candidate.node.to_string(),
            is_drain_unbounded: candidate.termination_grace_period.is_none(),
        }
    }
}

/// One write. Updates and deletes carry what the decision saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A merge patch of a NodePool, a NodeClaim or a Node, with the observed `resourceVersion`.
    Patch(Patch),
    /// Creates a placeholder. Its name follows from its claim's, so that a second one is a conflict.
    CreatePlaceholder(Box<Value>),
    /// Deletes a placeholder with this UID.
    DeletePlaceholder {
        /// Its Pod name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Deletes a NodeClaim with this UID and, where given, this version.
    DeleteClaim {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// The observed `resourceVersion`; `None` where only the UID matters.
        version: Option<String>,
    },
}

impl Write {
    /// The kind and name of the object that is written.
    pub fn target(&self) -> (Kind, &str) {
        match self {
            Self::Patch(patch) => (patch.kind, &patch.name),
            Self::CreatePlaceholder(pod) => {
                (Kind::Pod, pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default())
            }
            Self::DeletePlaceholder { name, .. } => (Kind::Pod, name),
            Self::DeleteClaim { name, .. } => (Kind::NodeClaim, name),
        }
    }

    /// The live read that shows what became of the object when the write did not land, or may have.
    pub(crate) fn read_back(&self) -> LiveRead {
        let (kind, name) = self.target();
        let name = name.to_owned();
        match kind {
            Kind::NodePool => LiveRead::NodePool(name),
            Kind::Node => LiveRead::Node(name),
            Kind::Pod => LiveRead::Placeholder(name),
            _ => LiveRead::NodeClaim(name),
        }
    }
}
