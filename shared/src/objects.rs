//! The Kubernetes objects that a rotation reads, each reduced to the fields that are read.
//!
//! Slim on purpose: a typed Node or NodeClaim costs tens of kilobytes, one of these a few hundred bytes. How they are
//! parsed from the API server's JSON is `noderotation_cluster::objects`' business; this module knows no JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::quantity::Resources;
use crate::selection::{Candidate, Host, RotateRequest, RotationState};
use crate::{instant, keys};

/// Identity and version of an object, as every conditional write needs them.
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
    /// `metadata.deletionTimestamp`.
    pub deleted: Option<Timestamp>,
    /// The annotations of ours, and `karpenter.sh/do-not-disrupt`.
    pub annotations: Annotations,
}

/// The annotations that the registry of §15 knows, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(Box<[(&'static str, Box<str>)]>);

impl Annotations {
    /// Keeps those pairs whose key the registry knows.
    pub fn of<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        annotations
            .into_iter()
            .filter_map(|(key, value)| Some((keys::find(key)?.name, value.into())))
            .collect::<Vec<_>>()
            .into()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, value)| &**value)
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// A readable instant under this key.
    pub fn instant(&self, key: &str) -> Option<Timestamp> {
        self.get(key).and_then(instant::parse)
    }
}

impl From<Vec<(&'static str, Box<str>)>> for Annotations {
    fn from(pairs: Vec<(&'static str, Box<str>)>) -> Self {
        Self(pairs.into_boxed_slice())
    }
}

/// A NodePool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePool {
    /// Identity and annotations.
    pub meta: Meta,
    /// Its labels, by which policies select it.
    pub labels: BTreeMap<String, String>,
    /// `spec.replicas` is set: a static pool.
    pub is_static: bool,
    /// `spec.limits`.
    pub limits: Resources,
    /// The template's `expireAfter`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// The template's `terminationGracePeriod`.
    pub termination_grace_period: Option<SignedDuration>,
    /// The template's taints (not the startup taints).
    pub taints: Vec<Taint>,
    /// The template's requirements.
    pub requirements: Vec<Requirement>,
}

/// A taint of the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, may be empty.
    pub value: String,
    /// Its effect.
    pub effect: String,
}

/// A requirement of a NodePool or NodeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`, `Gte`, `Lte`.
    pub operator: String,
    /// The values.
    pub values: Vec<String>,
}

impl NodePool {
    /// The anchor: the claim in rotation. An empty value counts as absent.
    pub fn anchor(&self) -> Option<&str> {
        self.meta.annotations.get(keys::ACTIVE_ROTATION).filter(|name| !name.is_empty())
    }

    /// Whether the rotation left `pending`.
    pub fn is_draining(&self) -> bool {
        self.meta.annotations.get(keys::ACTIVE_ROTATION_STATE) == Some("draining")
    }

    /// Whether this rotation is a surge-less fallback.
    pub fn is_fallback(&self) -> bool {
        self.meta.annotations.get(keys::ROTATION_MODE) == Some("forceful-fallback")
    }

    /// A `last-*-at` value; unreadable, or over five minutes in the future, counts as absent (§8).
    pub fn last(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);
        self.meta.annotations.instant(key).filter(|at| *at <= instant::plus(now, TOLERANCE))
    }

    /// Until when the operator holds the pool.
    pub fn freeze(&self) -> Freeze {
        match self.meta.annotations.get(keys::FREEZE) {
            None => Freeze::None,
            Some(text) => instant::parse(text).map_or_else(|| Freeze::Unreadable(text.into()), Freeze::Until),
        }
    }
}

/// The operator's hold on a pool (§5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// None.
    None,
    /// Until this instant.
    Until(Timestamp),
    /// Cannot be read, which freezes the pool.
    Unreadable(String),
}

/// A NodeClaim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeClaim {
    /// Identity and annotations.
    pub meta: Meta,
    /// Its NodePool, by label.
    pub pool: Box<str>,
    /// Own `expireAfter`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// Own `terminationGracePeriod`.
    pub termination_grace_period: Option<SignedDuration>,
    /// `status.nodeName`; empty before registration.
    pub node: Box<str>,
    /// Condition `Ready` is True.
    pub ready: bool,
    /// Condition `DisruptionReason` is True.
    pub disrupting: bool,
    /// `status.capacity`.
    pub capacity: Arc<Resources>,
}

impl NodeClaim {
    /// Our state on the claim. An unknown word counts as `pending` where the claim is anchored, else as none (§8).
    pub fn state(&self, anchored: bool) -> RotationState {
        match self.meta.annotations.get(keys::STATE) {
            None => RotationState::Empty,
            Some("pending") => RotationState::Pending,
            Some("draining") => RotationState::Draining,
            Some("failed") => RotationState::Failed,
            Some("expired") => RotationState::Expired,
            Some(_) if anchored => RotationState::Pending,
            Some(_) => RotationState::Empty,
        }
    }

    /// When the attempt began; `None` when absent or unreadable.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.meta.annotations.instant(keys::STARTED_AT)
    }

    /// How often it failed; an unreadable count is 1.
    pub fn retry_count(&self) -> i64 {
        match self.meta.annotations.get(keys::RETRY_COUNT) {
            None => 0,
            Some(text) => text.parse().ok().filter(|n| *n >= 1).unwrap_or(1),
        }
    }

    /// The operator's request; an unknown word is none.
    pub fn request(&self) -> Option<RotateRequest> {
        match self.meta.annotations.get(keys::ROTATE)? {
            "now" => Some(RotateRequest::Now),
            "next-window" => Some(RotateRequest::NextWindow),
            _ => None,
        }
    }

    /// Its deadline; `None` for a claim that never expires.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expire_after.map(|e| instant::plus(self.meta.created, e))
    }

    /// The claim and its Node as selection looks at them.
    pub fn candidate(&self, node: Option<&Node>) -> Candidate<'_> {
        Candidate {
            name: &self.meta.name,
            created: self.meta.created,
            expire_after: self.expire_after,
            termination_grace_period: self.termination_grace_period,
            ready: self.ready,
            disrupting: self.disrupting,
            deleting: self.meta.deleted.is_some(),
            state: self.state(false),
            failed_at: self.meta.annotations.instant(keys::FAILED_AT),
            retry_count: self.retry_count(),
            request: self.request(),
            node: node.map(|n| Host { ready: n.ready, disrupted: n.disrupted, opted_out: n.is_opted_out() }),
        }
    }
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the Node")]
pub struct Node {
    /// Identity and annotations.
    pub meta: Meta,
    /// Its NodePool, by label.
    pub pool: Box<str>,
    /// Its `kubernetes.io/hostname`, which need not be its name.
    pub hostname: Box<str>,
    /// Condition `Ready` is True.
    pub ready: bool,
    /// Karpenter says it is initialized.
    pub initialized: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// It bears Karpenter's `disrupted` taint.
    pub disrupted: bool,
}

impl Node {
    /// Whether an operator protects it: exactly `"true"`, without our marker.
    pub fn is_opted_out(&self) -> bool {
        self.meta.annotations.get(keys::DO_NOT_DISRUPT) == Some("true")
            && !self.meta.annotations.has(keys::DO_NOT_DISRUPT_OWNED)
    }
}

/// The placeholder Pod of a rotation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placeholder {
    /// Identity and annotations.
    pub meta: Meta,
    /// Its NodePool, by label.
    pub pool: Box<str>,
    /// `spec.nodeName`; empty before it is bound.
    pub node: Box<str>,
    /// `status.phase`.
    pub phase: Box<str>,
    /// Why the scheduler could not place it, if it could not.
    pub unschedulable: Option<Box<str>>,
}

impl Placeholder {
    /// The claim whose replacement it reserves.
    pub fn claim(&self) -> &str {
        self.meta.annotations.get(keys::SURGE_FOR).unwrap_or_default()
    }
}
