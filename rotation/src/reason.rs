//! Why a road was not taken: the same words in the log and in Events.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::blocked::Blocked;
use noderotation_shared::duration::human;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::instant;
use noderotation_shared::kind::Kind;
use noderotation_shared::selection::Ineligible;
use strum::{IntoStaticStr, VariantNames};

use crate::announcement::{ClaimId, NodeId};
use crate::drainable::HoldCode;

/// One reason. Its name is the variant's, by which it is told once; [`fmt::Display`] says it in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub enum Reason {
    /// No policy governs the NodePool.
    Ungoverned(Ungoverned),
    /// The NodePool is being deleted.
    PoolDeleting,
    /// Some watch has been silent for too long.
    StaleView,
    /// Something keeps the NodePool from being rotated until somebody acts (§6.1).
    Blocked(Blocked),
    /// The maintenance window is closed.
    WindowClosed {
        /// When it opens next; `None`: never.
        opens: Option<Timestamp>,
    },
    /// The pause after a success.
    Cooldown {
        /// When it ends.
        until: Timestamp,
    },
    /// The pause after a failure.
    FailurePause {
        /// When it ends.
        until: Timestamp,
    },
    /// This claim of the NodePool still drains though no anchor names it.
    DrainUnanchored(String),
    /// All gates are open and no claim is eligible.
    NoCandidate,
    /// The NodePool's limits leave no room for the replacement (§9.4).
    InsufficientHeadroom {
        /// The candidate.
        claim: ClaimId,
        /// The limited resource.
        resource: String,
        /// What the placeholder would request.
        wanted: String,
        /// What is left under the limit.
        remaining: String,
        /// The limit.
        limit: String,
    },
    /// There is room for the placeholder, but not for another node of the candidate's size.
    HeadroomTight {
        /// The candidate.
        claim: ClaimId,
        /// The limited resource.
        resource: String,
        /// The candidate's own capacity.
        capacity: String,
        /// What is left under the limit.
        remaining: String,
    },
    /// The candidate's volumes contradict each other or its zone (§9.1).
    SurgeZoneConflict {
        /// The candidate.
        claim: ClaimId,
        /// Which volumes and zones.
        message: String,
    },
    /// The candidate's drain would never end (§9.7).
    Undrainable {
        /// The candidate.
        claim: ClaimId,
        /// The namespace and name of the Pod that would hold it.
        pod: String,
        /// What keeps that Pod.
        why: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Whether the candidate's drain would end cannot be judged: the right to list PodDisruptionBudgets is missing (§9.7).
    BudgetsUnreadable {
        /// The candidate.
        claim: ClaimId,
        /// What the API server said.
        why: String,
    },
    /// The placeholder is still unschedulable though a Node should have come by now.
    SurgeUnschedulable {
        /// The candidate.
        claim: ClaimId,
        /// The scheduler's message.
        message: String,
    },
    /// The operator's `rotate` request cannot be met now.
    RequestNotMet {
        /// The claim that it is on.
        claim: ClaimId,
        /// What is in the way.
        why: String,
    },
    /// The rotation cannot be called off.
    NotCalledOff {
        /// The claim.
        claim: ClaimId,
        /// Why.
        why: String,
    },
    /// The replacement is not ready yet (§9.5).
    AwaitingSurge {
        /// The candidate.
        claim: String,
        /// What is missing.
        why: String,
        /// When the attempt is rolled back.
        until: Timestamp,
    },
    /// Nothing on the old Node has to move.
    NothingToMove {
        /// The candidate.
        claim: String,
        /// When it drains without a replacement.
        until: Timestamp,
    },
    /// The old Node drains.
    Draining {
        /// The claim.
        claim: String,
        /// When it was deleted.
        since: Timestamp,
    },
    /// The drain takes longer than its bound.
    DrainStuck {
        /// The claim.
        claim: String,
        /// When it was deleted.
        since: Timestamp,
        /// How long it may take (§8).
        bound: SignedDuration,
    },
    /// A Pod holds the drain (§13).
    DrainBlocked {
        /// The claim.
        claim: ClaimId,
        /// Its Node.
        node: NodeId,
        /// The namespace and name of the Pod, the first of those that hold it.
        pod: String,
        /// What keeps it: the word of §13.
        code: HoldCode,
        /// The same as a clause about the Pod.
        why: String,
        /// What to do about it.
        remedy: &'static str,
        /// How many other Pods hold the drain as well.
        others: usize,
        /// When Karpenter deletes the Pod all the same; `None`: never.
        forced_at: Option<Timestamp>,
    },
    /// A surge claim is not taken back.
    NotReaped {
        /// The surge claim.
        claim: String,
        /// Why.
        why: String,
    },
    /// The anchor names a claim of another NodePool.
    ForeignAnchor {
        /// The claim.
        claim: String,
        /// Its NodePool.
        pool: String,
    },
    /// An annotation of ours holds a value that cannot be used.
    MalformedAnnotation {
        /// Kind and name of the object.
        object: String,
        /// The annotation's key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
        /// What is done instead, as a clause.
        instead: &'static str,
    },
}

impl Reason {
    /// The variant's name.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ungoverned(why) => why.fmt(f),
            Self::PoolDeleting => write!(f, "the NodePool is being deleted"),
            Self::StaleView => {
                write!(f, "a watch has been silent for so long that nothing is started on what it last said")
            }
            Self::Blocked(blocked) => blocked.fmt(f),
            Self::WindowClosed { opens: Some(opens) } => {
                write!(f, "the maintenance window is closed and opens at {opens}")
            }
            Self::WindowClosed { opens: None } => write!(f, "the maintenance window is closed and never opens again"),
            Self::Cooldown { until } => write!(f, "the cooldown after the last rotation lasts until {until}"),
            Self::FailurePause { until } => write!(f, "the pause after the last failure lasts until {until}"),
            Self::DrainUnanchored(claim) => write!(f, "NodeClaim {claim} of this NodePool is still draining"),
            Self::NoCandidate => write!(f, "no NodeClaim is eligible"),
            Self::InsufficientHeadroom { claim, resource, wanted, remaining, limit } => write!(
                f,
                "replacing NodeClaim {claim} needs {wanted} {resource}, but of the NodePool's limit {limit} only {remaining} is left"
            ),
            Self::HeadroomTight { claim, resource, capacity, remaining } => write!(
                f,
                "NodeClaim {claim} itself has {capacity} {resource}, but only {remaining} is left under the NodePool's limit: Karpenter may find no instance type that fits"
            ),
            Self::SurgeZoneConflict { claim, message } => write!(f, "NodeClaim {claim}: {message}"),
            Self::Undrainable { claim, pod, why, remedy } => write!(
                f,
                "NodeClaim {claim} has no terminationGracePeriod, and Pod {pod} would hold its drain for ever: {why}; {remedy}, or set spec.template.spec.terminationGracePeriod on the NodePool for new nodes"
            ),
            Self::BudgetsUnreadable { claim, why } => write!(
                f,
                "NodeClaim {claim} has no terminationGracePeriod, and whether its drain would end cannot be judged: {why}; grant the controller's service account list on {}, as the chart's ClusterRole does",
                Kind::PodDisruptionBudget.resource()
            ),
            Self::SurgeUnschedulable { claim, message } => {
                write!(f, "the placeholder of NodeClaim {claim} is not schedulable: {message}")
            }
            Self::RequestNotMet { claim, why } => {
                write!(f, "NodeClaim {claim} is not rotated although noderotation.io/rotate asks for it: {why}")
            }
            Self::NotCalledOff { claim, why } => {
                write!(f, "the rotation of NodeClaim {claim} cannot be called off: {why}")
            }
            Self::AwaitingSurge { claim, why, until } => {
                write!(f, "NodeClaim {claim} waits for its replacement until {until}: {why}")
            }
            Self::NothingToMove { claim, until } => {
                write!(
                    f,
                    "nothing on the Node of NodeClaim {claim} has to move: it drains without a replacement at {until}, unless a Pod comes before that"
                )
            }
            Self::Draining { claim, since } => write!(f, "NodeClaim {claim} has been draining since {since}"),
            Self::DrainStuck { claim, since, bound } => write!(
                f,
                "NodeClaim {claim} has been draining since {since}, longer than {}: its terminationGracePeriod (1h where it has none) and 2m",
                human(*bound)
            ),
            Self::DrainBlocked { claim, node, pod, why, remedy, others, forced_at, .. } => {
                write!(f, "the drain of Node {node} (NodeClaim {claim}) is held by Pod {pod}")?;
                if *others > 0 {
                    write!(f, " and {others} more")?;
                }
                write!(f, ": {why}; {remedy}. ")?;
                match forced_at {
                    Some(at) => write!(f, "Karpenter deletes the Pod at {} all the same", instant::format(*at)),
                    None => write!(f, "The NodeClaim has no terminationGracePeriod, so that nothing else ends this"),
                }
            }
            Self::NotReaped { claim, why } => write!(f, "surge NodeClaim {claim} is kept: {why}"),
            Self::ForeignAnchor { claim, pool } => {
                write!(f, "noderotation.io/active-rotation names NodeClaim {claim}, which belongs to NodePool {pool:?}")
            }
            Self::MalformedAnnotation { object, key, value, why, instead } => {
                write!(f, "{object}: {key} holds {value:?}, which {why}; {instead}")
            }
        }
    }
}

/// How many claims are eligible, and how many fail which condition of §7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EligibilityCounts {
    /// Claims that meet every condition.
    pub eligible: usize,
    /// Claims that are due and held back by their backoff alone.
    pub in_backoff: usize,
    /// Names of claims that were born with less than their lead time (§6, `ShortLead`).
    pub short_lead: Vec<String>,
    /// Claims by the condition that they fail; a claim counts once for each.
    pub ineligible: BTreeMap<Ineligible, usize>,
}

impl fmt::Display for EligibilityCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eligible={}", self.eligible)?;
        for (reason, count) in &self.ineligible {
            write!(f, " {reason:?}={count}")?;
        }
        Ok(())
    }
}
