//! What keeps a NodePool from being rotated until somebody acts, or until an instant that an operator chose (§6.1).
//!
//! One closed list. The policy's condition and status, the metrics, the Events and `check` all show it, so that a pool that
//! does not rotate never looks healthy.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use strum::{Display, EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::admission::messages;
use crate::feasibility::{Code, Finding, Severity};
use crate::governance::Ungoverned;
use crate::instant::plus;
use crate::objects::Freeze;
use crate::policy::{Policy, Threshold};
use crate::quantity::{Quantity, Resources};

/// A window that opens later than this is as good as none: nodes do not live so long.
const AHEAD: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Resources of which every node has some: without any of one left, Karpenter launches no node at all.
const OF_EVERY_NODE: [&str; 3] = ["cpu", "memory", "nodes"];

/// One reason why nothing in a NodePool is rotated. Its word, [`Blocked::word`], is the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(
    name(BlockedReason),
    doc = "The words of [`Blocked`].",
    derive(PartialOrd, Ord, Hash, Display, IntoStaticStr, VariantArray)
)]
pub enum Blocked {
    /// The policy of this name wins the pool but is invalid.
    InvalidPolicy(String),
    /// These policies are equally specific for the pool.
    PolicyConflict(Vec<String>),
    /// The policy of this name selects labels that the pool bears in its template only; no policy selects the pool itself.
    Unselected(String),
    /// The CustomResourceDefinition in the cluster drops these fields of policies, so that nobody knows what they say.
    OldSchema(Vec<String>),
    /// `spec.replicas` is set, so the pool cannot surge.
    StaticNodePool,
    /// Fatal findings (§6), with the first one's message.
    FatalFinding(Vec<Code>, String),
    /// Nodes never expire, so under `ageThreshold: auto` none is ever due.
    NeverDue,
    /// Because of exclusions no window opens within a year; when the next one opens, `None` for never.
    NoWindowAhead(Option<Timestamp>),
    /// The policy is suspended.
    Suspended,
    /// The operator has frozen the pool until this instant.
    Frozen(Timestamp),
    /// The freeze holds this value, which cannot be read and therefore freezes the pool.
    FreezeUnreadable(String),
    /// Of this resource, whose limit is the second, nothing is left for another node.
    LimitsExhausted(String, Quantity),
}

/// What is known of a NodePool beside its policy.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Whether `spec.replicas` is set.
    pub is_static: bool,
    /// Whether any of its nodes, or any that it will launch, expires.
    pub expires: bool,
    /// The operator's freeze.
    pub freeze: &'a Freeze,
    /// `spec.limits`.
    pub limits: &'a Resources,
    /// What its nodes take of the limits. While a rotation is in flight this holds a node more than usual, and then is not
    /// to be judged: `None`.
    pub usage: Option<&'a Resources>,
}

impl Blocked {
    /// Everything that blocks a governed pool, whose findings under `policy` are these.
    pub fn all(policy: &Policy, findings: &[Finding], pool: &Situation<'_>, now: Timestamp) -> Vec<Self> {
        [
            pool.is_static.then_some(Self::StaticNodePool),
            Self::fatal(findings),
            (policy.threshold == Threshold::Auto && !pool.expires).then_some(Self::NeverDue),
            no_window_ahead(policy, findings, now),
            policy.suspend.then_some(Self::Suspended),
            Self::frozen(pool.freeze, now),
            // a static pool fills its limits by design, and is not rotated whatever is left
            pool.usage.filter(|_| !pool.is_static).and_then(|usage| exhausted(pool.limits, usage)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The fatal ones among these findings.
    pub fn fatal(findings: &[Finding]) -> Option<Self> {
        let fatal = || findings.iter().filter(|finding| finding.severity() == Severity::Fatal);
        let first = fatal().next()?;
        Some(Self::FatalFinding(fatal().map(|finding| finding.code).collect(), first.message.clone()))
    }

    /// A freeze that has not passed, or cannot be read (§5.4).
    pub fn frozen(freeze: &Freeze, now: Timestamp) -> Option<Self> {
        match freeze {
            Freeze::Until(until) => (*until > now).then_some(Self::Frozen(*until)),
            Freeze::Unreadable(text) => Some(Self::FreezeUnreadable(text.clone())),
            Freeze::None => None,
        }
    }

    /// What blocks a pool that no policy governs; `None` where no policy means to govern it.
    pub fn ungoverned(why: &Ungoverned) -> Option<Self> {
        match why {
            Ungoverned::NoMatch => None,
            Ungoverned::OnlyTemplate(policy) => Some(Self::Unselected(policy.clone())),
            Ungoverned::Conflict(policies) => Some(Self::PolicyConflict(policies.clone())),
            Ungoverned::InvalidPolicy(policy) => Some(Self::InvalidPolicy(policy.clone())),
        }
    }

    /// The reason without its details.
    pub fn reason(&self) -> BlockedReason {
        self.into()
    }

    /// The word of the reason, such as `NeverDue`.
    pub fn word(&self) -> &'static str {
        self.reason().word()
    }
}

impl BlockedReason {
    /// The word of the reason, such as `NeverDue`: the variant's name.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Every reason, in the order of the list.
    pub fn all() -> &'static [Self] {
        Self::VARIANTS
    }

    /// Whether an operator has wanted it, so that it is no mistake.
    pub fn is_wanted(self) -> bool {
        matches!(self, Self::Suspended | Self::Frozen)
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPolicy(policy) => Ungoverned::InvalidPolicy(policy.clone()).fmt(f),
            Self::PolicyConflict(policies) => Ungoverned::Conflict(policies.clone()).fmt(f),
            Self::Unselected(policy) => write!(
                f,
                "RotationPolicy {policy} selects labels that stand in spec.template.metadata.labels; a policy selects by the NodePool's own metadata.labels: add them there"
            ),
            Self::OldSchema(fields) => write!(
                f,
                "the CustomResourceDefinition in the cluster is older than the controller and drops {}, so that what policies say there is unknown; install the one of the controller's chart",
                messages::list(fields)
            ),
            Self::StaticNodePool => {
                write!(
                    f,
                    "spec.replicas is set: a static NodePool cannot surge, so it is not rotated; exclude it by a label, or let its Pods move to a NodePool without replicas (Karpenter lets nobody remove the field)"
                )
            }
            Self::FatalFinding(codes, message) => {
                let names = codes.iter().map(|code| code.name()).collect::<Vec<_>>().join(", ");
                write!(f, "{names}: {message}")
            }
            Self::NeverDue => write!(
                f,
                "spec.template.spec.expireAfter is Never, so under ageThreshold: auto no node is ever due; set expireAfter, or write an ageThreshold such as 336h"
            ),
            Self::NoWindowAhead(Some(opens)) => write!(
                f,
                "because of exclusions no window opens before {opens}, in more than a year; shorten the exclusion"
            ),
            Self::NoWindowAhead(None) => {
                write!(f, "because of exclusions no window ever opens again; shorten the exclusion")
            }
            Self::Suspended => write!(f, "the policy is suspended; to rotate again, remove spec.suspend"),
            Self::Frozen(until) => write!(
                f,
                "frozen by its operator until {until}; to rotate before, remove the annotation noderotation.io/freeze"
            ),
            Self::FreezeUnreadable(text) => write!(
                f,
                "noderotation.io/freeze {text:?} is not an RFC 3339 instant and therefore freezes the NodePool: write one such as 2026-12-26T00:00:00Z, or remove the annotation"
            ),
            Self::LimitsExhausted(resource, limit) => write!(
                f,
                "spec.limits.{resource} is {limit} and nothing of it is left, so no replacement can be launched before an old node drains; raise the limit by one node"
            ),
        }
    }
}

/// Windows that never open at all are a finding of their own.
fn no_window_ahead(policy: &Policy, findings: &[Finding], now: Timestamp) -> Option<Blocked> {
    if findings.iter().any(|finding| finding.code == Code::NoWindows) {
        return None;
    }
    // of a window that is open now, the opening has passed
    let opens = policy.schedule.occurrences(now).next().map(|occurrence| occurrence.open);
    opens.is_none_or(|at| at > plus(now, AHEAD)).then_some(Blocked::NoWindowAhead(opens))
}

/// The first limited resource of every node of which nothing is left.
fn exhausted(limits: &Resources, usage: &Resources) -> Option<Blocked> {
    let limited = limits.0.iter().filter(|(name, _)| OF_EVERY_NODE.contains(&name.as_str()));
    let mut exhausted = limited.filter(|(name, limit)| !limit.minus(usage.get(name)).is_positive());
    exhausted.next().map(|(name, limit)| Blocked::LimitsExhausted(name.clone(), *limit))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::feasibility::{Cadence, PoolFacts, findings};
    use crate::instant;

    const NOW: &str = "2026-12-01T00:00:00Z";

    fn spec() -> Value {
        json!({
            "nodePoolSelector": {},
            "maintenanceWindows": [{"timezone": "UTC", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
        })
    }

    struct Pool {
        is_static: bool,
        expires: bool,
        freeze: Freeze,
        limits: Resources,
        usage: Option<Resources>,
    }

    /// What blocks a pool whose nodes live for 14 days, after this change of its policy and its situation.
    fn blocked(change: impl FnOnce(&mut Value), situate: impl FnOnce(&mut Pool)) -> Vec<String> {
        let mut spec = spec();
        change(&mut spec);
        let policy = Policy::from_json(&spec).unwrap();
        let now = instant::parse(NOW).unwrap();
        let mut pool = Pool {
            is_static: false,
            expires: true,
            freeze: Freeze::None,
            limits: Resources::default(),
            usage: Some(Resources::default()),
        };
        situate(&mut pool);
        let Pool { is_static, expires, freeze, limits, usage } = &pool;
        let situation = Situation { is_static: *is_static, expires: *expires, freeze, limits, usage: usage.as_ref() };
        let hours = |hours| Some(SignedDuration::from_hours(hours));
        let facts = PoolFacts {
            expire_after: hours(14 * 24),
            termination_grace_period: hours(1),
            claims: 1,
            is_auto_mode: false,
        };
        let found = findings(&policy, &Cadence::of(&policy, now), &facts, []);
        Blocked::all(&policy, &found, &situation, now).iter().map(|b| format!("{}: {b}", b.word())).collect()
    }

    fn excluded(until: &str) -> impl FnOnce(&mut Value) {
        let exclusion = json!([{"timezone": "UTC", "from": "2026-11-01", "until": until}]);
        |spec| spec["exclusions"] = exclusion
    }

    fn amounts(name: &str, amount: &str) -> Resources {
        [(name.to_owned(), Quantity::parse(amount).unwrap())].into_iter().collect()
    }

    #[test]
    fn an_ordinary_pool_is_not_blocked() {
        assert_eq!(blocked(|_| (), |_| ()), [""; 0]);
    }

    #[test]
    fn whatever_keeps_a_pool_from_rotating_is_named() {
        let first = |found: Vec<String>, word: &str| {
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("{word}: ")), "{found:?}");
        };
        first(blocked(|_| (), |pool| pool.is_static = true), "StaticNodePool");
        first(blocked(|spec| spec["minRotationChances"] = json!(4), |_| ()), "FatalFinding: ANonPositive");
        first(blocked(|_| (), |pool| pool.expires = false), "NeverDue");
        first(blocked(|spec| spec["suspend"] = json!(true), |_| ()), "Suspended");
        let until = Freeze::Until(instant::parse("2026-12-02T00:00:00Z").unwrap());
        first(blocked(|_| (), |pool| pool.freeze = until), "Frozen");
        let over = Freeze::Until(instant::parse(NOW).unwrap());
        assert_eq!(blocked(|_| (), |pool| pool.freeze = over), [""; 0]);
        let unreadable = Freeze::Unreadable("72h".into());
        first(blocked(|_| (), |pool| pool.freeze = unreadable), "FreezeUnreadable");
        let both = blocked(|spec| spec["suspend"] = json!(true), |pool| pool.is_static = true);
        assert_eq!(both.len(), 2, "each is told: {both:?}");
    }

    /// By an age of its own a node is due though it never expires.
    #[test]
    fn an_age_threshold_makes_nodes_due_that_never_expire() {
        assert_eq!(blocked(|spec| spec["ageThreshold"] = json!("168h"), |pool| pool.expires = false), [""; 0]);
    }

    /// The first Wednesday or Saturday after the exclusion decides, and a year is 365 days.
    #[test]
    fn an_exclusion_of_more_than_a_year_leaves_no_window() {
        let found = blocked(excluded("2099-12-31"), |_| ());
        assert!(
            found[0].starts_with("NoWindowAhead: because of exclusions no window opens before 2100-01-0"),
            "{found:?}"
        );
        assert_eq!(blocked(excluded("2027-11-20"), |_| ()), [""; 0]);
        // 2027-12-01 is a Wednesday, 365 days after now; its window opens two hours later
        assert_eq!(blocked(excluded("2027-11-30"), |_| ()).len(), 1);
    }

    #[test]
    fn limits_block_where_every_node_needs_what_they_limit() {
        let judged = |limits: Resources, usage: Resources| {
            blocked(|_| (), |pool| (pool.limits, pool.usage) = (limits, Some(usage))).len()
        };
        let judge = |name: &str, limit: &str, usage: &str| judged(amounts(name, limit), amounts(name, usage));
        assert_eq!((judge("cpu", "0", "0"), judge("cpu", "8", "8"), judge("cpu", "8", "7")), (1, 1, 0));
        assert_eq!((judge("memory", "1Gi", "2Gi"), judge("nodes", "3", "3"), judge("nodes", "3", "2")), (1, 1, 0));
        assert_eq!(judge("nvidia.com/gpu", "0", "0"), 0, "nodes without one can be launched");
        let filled = blocked(
            |_| (),
            |pool| {
                (pool.is_static, pool.limits, pool.usage) = (true, amounts("nodes", "1"), Some(amounts("nodes", "1")));
            },
        );
        assert_eq!(filled.len(), 1, "a static pool fills its limits: {filled:?}");
        let limits = amounts("cpu", "0");
        let unknown = blocked(|_| (), |pool| (pool.limits, pool.usage) = (limits, None));
        assert_eq!(unknown, [""; 0], "a rotation is in flight");
    }

    #[test]
    fn pools_without_governance_are_blocked_where_a_policy_means_them() {
        let word = |why: Ungoverned| Blocked::ungoverned(&why).map(|blocked| blocked.word());
        assert_eq!(word(Ungoverned::NoMatch), None);
        assert_eq!(word(Ungoverned::OnlyTemplate("p".into())), Some("Unselected"));
        assert_eq!(word(Ungoverned::Conflict(vec!["a".into(), "b".into()])), Some("PolicyConflict"));
        assert_eq!(word(Ungoverned::InvalidPolicy("p".into())), Some("InvalidPolicy"));
        let wanted: Vec<_> = BlockedReason::all().iter().filter(|r| r.is_wanted()).map(|r| r.word()).collect();
        assert_eq!(wanted, ["Suspended", "Frozen"]);
    }
}
