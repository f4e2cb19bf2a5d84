//! Why a road was not taken: the same words in `explain`, metrics and logs.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use noderotation_shared::feasibility::Code;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::selection::Ineligible;

/// One reason of one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "Display says each in a sentence")]
pub enum Reason {
    Ungoverned(Ungoverned),
    PoolDeleting,
    StaleView,
    StaticNodePool,
    Fatal(Vec<Code>),
    Suspended,
    Frozen(Timestamp),
    FreezeUnreadable(String),
    WindowClosed { opens: Option<Timestamp> },
    Cooldown { until: Timestamp },
    FailurePause { until: Timestamp },
    DrainUnanchored(String),
    NoCandidate,
    InsufficientHeadroom { claim: String, resource: String, wanted: String, remaining: String, limit: String },
    HeadroomTight { claim: String, resource: String, capacity: String, remaining: String },
    SurgeZoneConflict { claim: String, message: String },
    SurgeUnschedulable { claim: String, message: String },
    AwaitingSurge { claim: String, why: String, until: Timestamp },
    Draining { claim: String, since: Timestamp },
    DrainStuck { claim: String, since: Timestamp },
    NotReaped { claim: String, why: String },
    ForeignAnchor { claim: String, pool: String },
    Unreadable { object: String, key: &'static str, value: String, used: &'static str },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ungoverned(why) => why.fmt(f),
            Self::PoolDeleting => write!(f, "the NodePool is being deleted"),
            Self::StaleView => write!(f, "the view of the cluster is too old to start anything on"),
            Self::StaticNodePool => {
                write!(f, "spec.replicas is set: a static NodePool cannot surge, so it is not rotated")
            }
            Self::Fatal(codes) => write!(f, "the policy cannot keep its promise for this NodePool: {}", join(codes)),
            Self::Suspended => write!(f, "the policy is suspended"),
            Self::Frozen(until) => write!(f, "frozen by its operator until {until}"),
            Self::FreezeUnreadable(text) => write!(
                f,
                "noderotation.io/freeze {text:?} is no RFC 3339 instant and therefore freezes: write one such as 2026-12-26T00:00:00Z, or remove the annotation"
            ),
            Self::WindowClosed { opens: Some(opens) } => {
                write!(f, "the maintenance window is closed and opens at {opens}")
            }
            Self::WindowClosed { opens: None } => write!(f, "the maintenance window is closed"),
            Self::Cooldown { until } => write!(f, "cooling down after the last rotation until {until}"),
            Self::FailurePause { until } => write!(f, "pausing after the last failure until {until}"),
            Self::DrainUnanchored(claim) => write!(f, "NodeClaim {claim} of this NodePool is still draining"),
            Self::NoCandidate => write!(f, "no NodeClaim is eligible"),
            Self::InsufficientHeadroom { claim, resource, wanted, remaining, limit } => write!(
                f,
                "replacing NodeClaim {claim} needs {wanted} {resource}, but {remaining} of the NodePool's limit {limit} remain"
            ),
            Self::HeadroomTight { claim, resource, capacity, remaining } => write!(
                f,
                "NodeClaim {claim} itself has {capacity} {resource} while {remaining} remain under the NodePool's limit: Karpenter may find no instance type that fits"
            ),
            Self::SurgeZoneConflict { claim, message } => write!(f, "NodeClaim {claim}: {message}"),
            Self::SurgeUnschedulable { claim, message } => {
                write!(f, "the placeholder of NodeClaim {claim} is not schedulable: {message}")
            }
            Self::AwaitingSurge { claim, why, until } => {
                write!(f, "NodeClaim {claim} waits for its replacement until {until}: {why}")
            }
            Self::Draining { claim, since } => write!(f, "NodeClaim {claim} is draining since {since}"),
            Self::DrainStuck { claim, since } => {
                write!(f, "NodeClaim {claim} is draining since {since}, longer than its terminationGracePeriod allows")
            }
            Self::NotReaped { claim, why } => write!(f, "surge NodeClaim {claim} is kept: {why}"),
            Self::ForeignAnchor { claim, pool } => {
                write!(f, "noderotation.io/active-rotation names NodeClaim {claim}, which belongs to NodePool {pool:?}")
            }
            Self::Unreadable { object, key, value, used } => {
                write!(f, "{object}: {key} {value:?} cannot be read; {used}")
            }
        }
    }
}

fn join(codes: &[Code]) -> String {
    codes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// How many claims fail which condition of §7; a claim counts once for each that it fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EligibilityCounts {
    /// Claims that meet every condition.
    pub eligible: usize,
    /// Due and held back by their backoff alone.
    pub in_backoff: usize,
    /// Claims born with less than their lead time (§6).
    pub short_lead: Vec<String>,
    /// Failing claims by reason.
    pub reasons: BTreeMap<Ineligible, usize>,
}

impl fmt::Display for EligibilityCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eligible={}", self.eligible)?;
        for (reason, count) in &self.reasons {
            write!(f, " {reason:?}={count}")?;
        }
        Ok(())
    }
}
