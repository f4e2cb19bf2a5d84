//! One NodePool's world as plain values: what a decision may look at.
//!
//! The objects keep only what a rotation reads, so that thousands of them cost little.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::policy::Policy;
use noderotation_shared::quantity::Resources;
use noderotation_shared::selection::{Host, Request, State, Subject};
use noderotation_shared::{instant, keys};

use crate::size::Load;

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
    pub marks: Marks,
}

/// The annotations that the registry of §15 knows, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(Box<[(&'static str, Box<str>)]>);

impl Marks {
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

impl From<Vec<(&'static str, Box<str>)>> for Marks {
    fn from(pairs: Vec<(&'static str, Box<str>)>) -> Self {
        Self(pairs.into_boxed_slice())
    }
}

/// A NodePool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Identity and marks.
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

impl Pool {
    /// The anchor: the claim in rotation. An empty value counts as absent.
    pub fn anchor(&self) -> Option<&str> {
        self.meta.marks.get(keys::ACTIVE_ROTATION).filter(|name| !name.is_empty())
    }

    /// Whether the rotation left `pending`.
    pub fn is_draining(&self) -> bool {
        self.meta.marks.get(keys::ACTIVE_ROTATION_STATE) == Some("draining")
    }

    /// Whether this rotation is a surge-less fallback.
    pub fn is_fallback(&self) -> bool {
        self.meta.marks.get(keys::ROTATION_MODE) == Some("forceful-fallback")
    }

    /// A `last-*-at` value; unreadable, or over five minutes in the future, counts as absent (§8).
    pub fn last(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);
        self.meta.marks.instant(key).filter(|at| *at <= instant::plus(now, TOLERANCE))
    }

    /// Until when the operator holds the pool.
    pub fn freeze(&self) -> Freeze {
        match self.meta.marks.get(keys::FREEZE) {
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
pub struct Claim {
    /// Identity and marks.
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

impl Claim {
    /// Our state on the claim. An unknown word counts as `pending` where the claim is anchored, else as none (§8).
    pub fn state(&self, anchored: bool) -> State {
        match self.meta.marks.get(keys::STATE) {
            None => State::Empty,
            Some("pending") => State::Pending,
            Some("draining") => State::Draining,
            Some("failed") => State::Failed,
            Some("expired") => State::Expired,
            Some(_) if anchored => State::Pending,
            Some(_) => State::Empty,
        }
    }

    /// When the attempt began; `None` when absent or unreadable.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.meta.marks.instant(keys::STARTED_AT)
    }

    /// How often it failed; an unreadable count is 1.
    pub fn retry_count(&self) -> i64 {
        match self.meta.marks.get(keys::RETRY_COUNT) {
            None => 0,
            Some(text) => text.parse().ok().filter(|n| *n >= 1).unwrap_or(1),
        }
    }

    /// The operator's request; an unknown word is none.
    pub fn request(&self) -> Option<Request> {
        match self.meta.marks.get(keys::ROTATE)? {
            "now" => Some(Request::Now),
            "next-window" => Some(Request::NextWindow),
            _ => None,
        }
    }

    /// Its deadline; `None` for a claim that never expires.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expire_after.map(|e| instant::plus(self.meta.created, e))
    }

    /// The claim and its Node as selection looks at them.
    pub fn subject(&self, node: Option<&Node>) -> Subject<'_> {
        Subject {
            name: &self.meta.name,
            created: self.meta.created,
            expire_after: self.expire_after,
            termination_grace_period: self.termination_grace_period,
            ready: self.ready,
            disrupting: self.disrupting,
            deleting: self.meta.deleted.is_some(),
            state: self.state(false),
            failed_at: self.meta.marks.instant(keys::FAILED_AT),
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
    /// Identity and marks.
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
        self.meta.marks.get(keys::DO_NOT_DISRUPT) == Some("true") && !self.meta.marks.has(keys::DO_NOT_DISRUPT_OWNED)
    }
}

/// The placeholder Pod of a rotation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placeholder {
    /// Identity and marks.
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
        self.meta.marks.get(keys::SURGE_FOR).unwrap_or_default()
    }
}

/// Who governs the pool.
#[derive(Clone, Debug)]
pub enum Ruling {
    /// This policy.
    Governed(Rule),
    /// Nobody.
    Lost(Loss),
}

/// A governing policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Itself.
    pub policy: Arc<Policy>,
    /// Its cadence this week.
    pub cadence: Cadence,
}

/// Why nobody governs the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No policy matches.
    Unmatched,
    /// These tie at the highest specificity.
    Conflict(Vec<String>),
    /// This winner is invalid.
    Invalid(String),
}

/// What a pass has read live or learnt from its own writes, on top of the caches.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The anchored claim was read live, or a conditional write to it landed, in this pass.
    pub claim_confirmed: bool,
    /// The API server answered 404 for the anchored claim in this pass.
    pub claim_gone: bool,
    /// Placeholder and host were read live in this pass.
    pub surge_confirmed: bool,
    /// Load of candidates' nodes, by claim name.
    pub loads: BTreeMap<String, Load>,
    /// Whether Karpenter's event was looked for, and the claim it named.
    pub nominated: Option<Option<String>>,
    /// The surge claim, looked at for the reap.
    pub surge_claim: Option<Reapable>,
}

/// Whether a surge claim may be reaped.
#[derive(Clone, Debug)]
pub enum Reapable {
    /// It is gone or deleting already.
    Gone,
    /// It exists; `strangers` are Pods on its node besides placeholder and DaemonSets.
    Exists {
        /// Its UID, for the precondition.
        uid: String,
        /// Its `creationTimestamp`.
        created: Timestamp,
        /// Names of Pods that are neither placeholder nor DaemonSet's.
        strangers: Vec<String>,
    },
}

/// What the controller's settings say about placeholders.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace they live in.
    pub namespace: String,
    /// Their PriorityClass.
    pub priority_class: String,
    /// Their image.
    pub image: String,
}

/// One NodePool's world.
#[derive(Clone, Debug)]
pub struct World {
    /// The pool.
    pub pool: Pool,
    /// Who governs it.
    pub ruling: Ruling,
    /// The pool's claims.
    pub claims: Vec<Arc<Claim>>,
    /// The claim that the anchor names, whatever its pool; `None` when the cache has none.
    pub anchored: Option<Arc<Claim>>,
    /// The nodes of the pool's claims, and every node marked `surge-for` the anchored claim.
    pub nodes: BTreeMap<Box<str>, Arc<Node>>,
    /// The placeholder of the anchored claim.
    pub placeholder: Option<Arc<Placeholder>>,
    /// The view is too old to start anything on.
    pub stale: bool,
    /// What this pass knows beyond the caches.
    pub evidence: Evidence,
    /// For building placeholders.
    pub settings: Arc<Settings>,
}

impl World {
    /// The Node of a claim.
    pub fn node_of(&self, claim: &Claim) -> Option<&Arc<Node>> {
        if claim.node.is_empty() { None } else { self.nodes.get(&claim.node) }
    }

    /// The claim of a Node of this pool.
    pub fn claim_on(&self, node: &str) -> Option<&Arc<Claim>> {
        self.claims.iter().find(|claim| !node.is_empty() && &*claim.node == node)
    }

    /// The nodes marked `surge-for` this claim.
    pub fn frozen_for<'a>(&'a self, claim: &'a str) -> impl Iterator<Item = &'a Arc<Node>> {
        self.nodes.values().filter(move |node| node.meta.marks.get(keys::SURGE_FOR) == Some(claim))
    }

    /// Puts a newer copy of a claim into place.
    pub fn set_claim(&mut self, claim: Claim) {
        let claim = Arc::new(claim);
        if self.anchored.as_ref().is_some_and(|a| a.meta.name == claim.meta.name)
            || self.pool.anchor() == Some(&claim.meta.name)
        {
            self.anchored = Some(claim.clone());
        }
        if claim.pool != self.pool.meta.name {
            return;
        }
        match self.claims.iter_mut().find(|c| c.meta.name == claim.meta.name) {
            Some(slot) => *slot = claim,
            None => self.claims.push(claim),
        }
    }

    /// Takes a claim away.
    pub fn remove_claim(&mut self, name: &str) {
        self.claims.retain(|c| &*c.meta.name != name);
        if self.anchored.as_ref().is_some_and(|a| &*a.meta.name == name) {
            self.anchored = None;
        }
    }
}
