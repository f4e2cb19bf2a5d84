//! The Kubernetes objects that a rotation reads, reduced to the fields that it needs.
//!
//! The controller caches many of them: a complete Node or NodeClaim takes tens of kilobytes, one of these a few hundred
//! bytes. `noderotation_cluster::objects` parses them from the API server's JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::governance::ParsedPolicy;
use crate::quantity::Resources;
use crate::selection::{CANCEL, Candidate, NodeFacts, RotateRequest, RotationState};
use crate::store::Stored;
use crate::{instant, keys};

/// The metadata of an object: its identity, its version for conditional writes, and its annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`.
    pub version: Box<str>,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// `metadata.deletionTimestamp`; `None` unless the object is being deleted.
    pub deleted: Option<Timestamp>,
    /// The annotations whose keys are in the registry (§15).
    pub annotations: Annotations,
}

/// Annotations by key; only those whose keys are in the registry (§15).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(Box<[(&'static str, Box<str>)]>);

impl Annotations {
    /// Collects the annotations whose keys are in the registry and drops all others.
    pub fn of<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        annotations
            .into_iter()
            .filter_map(|(key, value)| Some((keys::find(key)?.name, value.into())))
            .collect::<Vec<_>>()
            .into()
    }

    /// The annotations after a merge patch with these changes, by key: what the API server makes of it. `None` removes one.
    pub fn patched<'a>(&'a self, changes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let mut all: BTreeMap<&str, &str> = self.0.iter().map(|(key, value)| (*key, &**value)).collect();
        for (key, value) in changes {
            match value {
                Some(value) => all.insert(key, value),
                None => all.remove(key),
            };
        }
        Self::of(all)
    }

    /// The value of an annotation; `None` if it is not set.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, value)| &**value)
    }

    /// Whether the annotation is set.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The value of an annotation as an instant of the past; `None` if it is not set, cannot be parsed, or lies more than
    /// five minutes after `now` (§8, *Unreadable*): nothing that has happened can lie further ahead than clocks differ.
    pub fn instant(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);
        self.get(key).and_then(instant::parse).filter(|at| *at <= instant::plus(now, TOLERANCE))
    }

    /// The value of an annotation as the name of an object; `None` if it is not set or no object can have this name.
    pub fn name(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|name| keys::is_object_name(name))
    }
}

impl From<Vec<(&'static str, Box<str>)>> for Annotations {
    fn from(pairs: Vec<(&'static str, Box<str>)>) -> Self {
        Self(pairs.into_boxed_slice())
    }
}

/// A Karpenter NodePool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePool {
    /// Identity, version and annotations.
    pub meta: Meta,
    /// `metadata.labels`, by which policies select the pool.
    pub labels: BTreeMap<String, String>,
    /// Whether `spec.replicas` is set: a static pool, which cannot be rotated.
    pub is_static: bool,
    /// `spec.limits`; a resource without a limit is absent.
    pub limits: Resources,
    /// The template's `metadata.labels`, which new nodes bear. Policies do not select by them.
    pub template_labels: BTreeMap<String, String>,
    /// The template's `expireAfter`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// The template's `terminationGracePeriod`; `None` if it is not set.
    pub termination_grace_period: Option<SignedDuration>,
    /// Whether it is a pool of EKS Auto Mode.
    pub is_auto_mode: bool,
    /// The template's taints, without the startup taints.
    pub taints: Vec<Taint>,
    /// The template's requirements.
    pub requirements: Vec<Requirement>,
}

/// How long a NodePool's nodes live, and their drains last, where its template does not say so.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// The default of `expireAfter`.
    pub expire_after: SignedDuration,
    /// The default of `terminationGracePeriod`; `None`: drains are not limited.
    pub termination_grace_period: Option<SignedDuration>,
    /// Whether the pool is one of EKS Auto Mode.
    pub is_auto_mode: bool,
}

impl Lifetimes {
    /// The defaults of the Karpenter that serves this `nodeClassRef.group`: 720h and none; in EKS Auto Mode 336h and 24h.
    pub fn defaults(node_class_group: Option<&str>) -> Self {
        let is_auto_mode = node_class_group == Some("eks.amazonaws.com");
        let hours = SignedDuration::from_hours;
        if is_auto_mode {
            Self { expire_after: hours(336), termination_grace_period: Some(hours(24)), is_auto_mode }
        } else {
            Self { expire_after: hours(720), termination_grace_period: None, is_auto_mode }
        }
    }
}

/// A taint in a NodePool's template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// The key of the taint.
    pub key: String,
    /// The value of the taint; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// A scheduling requirement of a NodePool's template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`, `Gte`, `Lte`.
    pub operator: String,
    /// The values to compare with; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

impl std::fmt::Display for Taint {
    /// `key=value:effect`, as kubectl writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = if self.value.is_empty() { String::new() } else { format!("={}", self.value) };
        write!(f, "{}{value}:{}", self.key, self.effect)
    }
}

impl NodePool {
    /// The anchor: the name of the NodeClaim in rotation. A value that no object can have as its name counts as absent.
    pub fn anchor(&self) -> Option<&str> {
        self.meta.annotations.name(keys::ACTIVE_ROTATION)
    }

    /// Whether the rotation in flight has left `pending`.
    pub fn is_draining(&self) -> bool {
        self.meta.annotations.get(keys::ACTIVE_ROTATION_STATE) == Some(RotationState::Draining.word())
    }

    /// Whether it was told already that somebody else has taken the claim in rotation.
    pub fn is_expired(&self) -> bool {
        self.meta.annotations.get(keys::ACTIVE_ROTATION_STATE) == Some(RotationState::Expired.word())
    }

    /// How the rotation in flight replaces the node; a surge where the annotation is not set or cannot be parsed.
    pub fn mode(&self) -> RotationMode {
        self.meta.annotations.get(keys::ROTATION_MODE).and_then(RotationMode::from_word).unwrap_or_default()
    }

    /// Whether the rotation in flight runs without a surge (§9.6).
    pub fn is_fallback(&self) -> bool {
        self.mode() == RotationMode::ForcefulFallback
    }

    /// Where the placeholder of the rotation in flight ran; `None` if the annotation is not set or cannot be parsed.
    pub fn surge_path(&self) -> Option<SurgePath> {
        self.meta.annotations.get(keys::SURGE_PATH).and_then(SurgePath::from_word)
    }

    /// Whether its rotation goes without a replacement, because nothing has to move (§9.8).
    pub fn goes_empty(&self) -> bool {
        self.surge_path() == Some(SurgePath::Empty)
    }

    /// The operator's freeze of the pool.
    pub fn freeze(&self) -> Freeze {
        Freeze::read(self.meta.annotations.get(keys::FREEZE))
    }
}

/// How a rotation replaces its node, from the annotation `noderotation.io/rotation-mode` (§15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotationMode {
    /// The replacement is Ready before the old node drains: the annotation is not set.
    #[default]
    Surge,
    /// The old node drains at once, because its deadline leaves no time for a surge (§9.6).
    ForcefulFallback,
}

impl RotationMode {
    /// The word in annotations and log lines.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Surge => "surge",
            Self::ForcefulFallback => "forceful-fallback",
        }
    }

    /// The mode with this word; `None` if the word is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Surge, Self::ForcefulFallback].into_iter().find(|mode| mode.word() == word)
    }
}

/// What stands in for the old node, from the annotation `noderotation.io/surge-path` (§9.5, §9.8, §15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurgePath {
    /// One that Karpenter launched after the attempt had started.
    Provisioned,
    /// One that existed already and had room.
    Absorbed,
    /// Nothing: there was nothing to move.
    Empty,
}

impl SurgePath {
    /// Every word that the annotation may contain.
    pub const WORDS: [&'static str; 3] = [Self::Provisioned.word(), Self::Absorbed.word(), Self::Empty.word()];

    /// The word in annotations and log lines.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provisioned => "provisioned",
            Self::Absorbed => "absorbed",
            Self::Empty => "empty",
        }
    }

    /// The path with this word; `None` if the word is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Provisioned, Self::Absorbed, Self::Empty].into_iter().find(|path| path.word() == word)
    }
}

/// The operator's freeze of a NodePool (§5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// The annotation is not set.
    None,
    /// The pool is frozen until this instant, which may have passed.
    Until(Timestamp),
    /// The value cannot be parsed, and that freezes the pool.
    Unreadable(String),
}

impl Freeze {
    /// The freeze that this value of the annotation means.
    pub fn read(value: Option<&str>) -> Self {
        match value {
            None => Self::None,
            Some(text) => instant::parse(text).map_or_else(|| Self::Unreadable(text.into()), Self::Until),
        }
    }
}

/// A Karpenter NodeClaim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeClaim {
    /// Identity, version and annotations.
    pub meta: Meta,
    /// The name of its NodePool, from the label `karpenter.sh/nodepool`; empty if the label is missing.
    pub pool: Box<str>,
    /// The claim's own `expireAfter`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// The claim's own `terminationGracePeriod`; `None` if it is not set.
    pub termination_grace_period: Option<SignedDuration>,
    /// `status.nodeName`; empty until the Node has registered.
    pub node: Box<str>,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
    /// Whether the condition `DisruptionReason` is `True`: Karpenter is already replacing the node.
    pub disrupting: bool,
    /// `status.capacity`.
    pub capacity: Arc<Resources>,
}

impl NodeClaim {
    /// The state of the claim's rotation. An unknown word counts as `pending` if the claim is anchored, otherwise as
    /// absent (§8).
    pub fn state(&self, anchored: bool) -> RotationState {
        let Some(word) = self.meta.annotations.get(keys::STATE) else { return RotationState::Empty };
        let if_unknown = if anchored { RotationState::Pending } else { RotationState::Empty };
        RotationState::from_word(word).unwrap_or(if_unknown)
    }

    /// When the attempt started; `None` if the annotation is not set or cannot be used at `now`.
    pub fn started_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.meta.annotations.instant(keys::STARTED_AT, now)
    }

    /// How many attempts have failed; 0 if the annotation is not set, 1 if it cannot be parsed.
    pub fn retry_count(&self) -> i64 {
        match self.meta.annotations.get(keys::RETRY_COUNT) {
            None => 0,
            Some(text) => text.parse().ok().filter(|n| *n >= 1).unwrap_or(1),
        }
    }

    /// The operator's request to rotate the claim; `None` if there is none or its word is unknown.
    pub fn request(&self) -> Option<RotateRequest> {
        self.meta.annotations.get(keys::ROTATE).and_then(RotateRequest::from_word)
    }

    /// Whether the operator has called its rotation off.
    pub fn is_called_off(&self) -> bool {
        self.meta.annotations.get(keys::ROTATE) == Some(CANCEL)
    }

    /// When Karpenter expires the claim; `None` if it never expires.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expire_after.map(|e| instant::plus(self.meta.created, e))
    }

    /// The facts about the claim and its Node that selection depends on (§7), as they are at `now`.
    pub fn candidate(&self, node: Option<&Node>, now: Timestamp) -> Candidate<'_> {
        Candidate {
            name: &self.meta.name,
            created: self.meta.created,
            expire_after: self.expire_after,
            termination_grace_period: self.termination_grace_period,
            ready: self.ready,
            disrupting: self.disrupting,
            deleting: self.meta.deleted.is_some(),
            state: self.state(false),
            failed_at: self.meta.annotations.instant(keys::FAILED_AT, now),
            retry_count: self.retry_count(),
            request: self.request(),
            node: node.map(|n| NodeFacts { ready: n.ready, disrupted: n.disrupted, opted_out: n.is_opted_out() }),
        }
    }
}

/// A core Node.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the Node")]
pub struct Node {
    /// Identity, version and annotations.
    pub meta: Meta,
    /// The name of its NodePool, from the label `karpenter.sh/nodepool`; empty if the label is missing.
    pub pool: Box<str>,
    /// The label `kubernetes.io/hostname`, which need not be the Node's name.
    pub hostname: Box<str>,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
    /// Whether Karpenter has labelled the Node as initialized.
    pub initialized: bool,
    /// `spec.unschedulable`: whether the Node is cordoned.
    pub unschedulable: bool,
    /// Whether the Node has the taint `karpenter.sh/disrupted`.
    pub disrupted: bool,
    /// Its taints that keep Pods away (`NoSchedule`, `NoExecute`), but for those that the fields above tell.
    pub taints: Box<[Taint]>,
}

impl Node {
    /// Whether somebody other than the controller has set `karpenter.sh/do-not-disrupt: "true"` on the Node.
    pub fn is_opted_out(&self) -> bool {
        self.meta.annotations.get(keys::DO_NOT_DISRUPT) == Some("true")
            && !self.meta.annotations.has(keys::DO_NOT_DISRUPT_OWNED)
    }
}

/// The placeholder Pod of a rotation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placeholder {
    /// Identity, version and annotations.
    pub meta: Meta,
    /// The name of its NodePool, from the label `karpenter.sh/nodepool`; empty if the label is missing.
    pub pool: Box<str>,
    /// `spec.nodeName`; empty until the Pod is bound.
    pub node: Box<str>,
    /// `status.phase`, such as `Pending` or `Running`.
    pub phase: Box<str>,
    /// The scheduler's message if it cannot place the Pod, otherwise `None`.
    pub unschedulable: Option<Box<str>>,
}

impl Placeholder {
    /// The name of the NodeClaim for whose replacement the Pod reserves capacity; empty if the annotation is missing.
    pub fn claim(&self) -> &str {
        self.meta.annotations.get(keys::SURGE_FOR).unwrap_or_default()
    }
}

/// A RotationPolicy as the API server stores it: what the watches of the controller and of the webhook cache. Its spec is
/// kept in parsed form only.
#[derive(Clone, Debug)]
pub struct PolicyObject {
    /// Identity, version and annotations.
    pub meta: Meta,
    /// `metadata.generation`, which the API server raises with every change of the spec, and only then.
    pub generation: Option<i64>,
    /// `status` as JSON; null where there is none, and in the webhook, which judges nothing by it.
    pub status: Value,
    /// Its name and spec, as governance and admission ask for them.
    pub parsed: Arc<ParsedPolicy>,
}

impl PolicyObject {
    /// Parses the `spec` of a policy with this metadata and `metadata.generation`.
    pub fn new(meta: Meta, generation: Option<i64>, spec: &Value, status: Value) -> Self {
        let parsed = Arc::new(ParsedPolicy::read(&meta.name, spec));
        Self { meta, generation, status, parsed }
    }
}

impl PartialEq for PolicyObject {
    /// Compares generations instead of specs.
    fn eq(&self, other: &Self) -> bool {
        self.meta == other.meta && self.generation == other.generation && self.status == other.status
    }
}

macro_rules! stored {
    ($($object:ty),+) => {
        $(impl Stored for $object {
            fn meta(&self) -> &Meta {
                &self.meta
            }

            fn meta_mut(&mut self) -> &mut Meta {
                &mut self.meta
            }
        })+
    };
}

stored!(NodePool, NodeClaim, Node, Placeholder);

impl Stored for PolicyObject {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }

    /// Our own status writes change nothing that anything is decided by.
    fn is_same(&self, other: &Self) -> bool {
        self.meta.uid == other.meta.uid
            && self.meta.deleted == other.meta.deleted
            && self.generation == other.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of §11 (`rotation complete`: mode, surgePath) and §15.
    #[test]
    fn modes_and_paths_have_the_words_of_the_specification() {
        for (mode, word) in [(RotationMode::Surge, "surge"), (RotationMode::ForcefulFallback, "forceful-fallback")] {
            assert_eq!((mode.word(), RotationMode::from_word(word)), (word, Some(mode)));
        }
        assert_eq!(SurgePath::WORDS, ["provisioned", "absorbed", "empty"]);
        assert_eq!(
            SurgePath::WORDS.map(SurgePath::from_word),
            [Some(SurgePath::Provisioned), Some(SurgePath::Absorbed), Some(SurgePath::Empty)]
        );
    }

    #[test]
    fn a_pool_says_how_its_rotation_runs() {
        let with = |key, value: &str| NodePool {
            meta: Meta { annotations: vec![(key, value.into())].into(), ..Meta::default() },
            ..NodePool::default()
        };
        assert!(with(keys::ROTATION_MODE, "forceful-fallback").is_fallback());
        assert_eq!(with(keys::ROTATION_MODE, "ForcefulFallback").mode(), RotationMode::Surge);
        assert_eq!(with(keys::SURGE_PATH, "absorbed").surge_path(), Some(SurgePath::Absorbed));
        assert_eq!(with(keys::SURGE_PATH, "").surge_path(), None);
    }
}
