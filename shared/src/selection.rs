//! Which NodeClaims may be rotated, in which order, and when each comes due (§7).
//!
//! Every condition is one row of `CONDITIONS`.

use std::cmp::Ordering;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::duration::{floor_div, times};
use crate::feasibility::{Cadence, lead_time, rotation_bound};
use crate::instant::{earliest, minus, plus};
use crate::policy::{Policy, Threshold};
use crate::schedule::{Occurrence, Schedule};

/// The facts about a NodeClaim and its Node that selection depends on.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The claim's `metadata.name`.
    pub name: &'a str,
    /// The claim's `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// `E`, the claim's own `expireAfter`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// `tGP`, the claim's own `terminationGracePeriod`; `None` if it is not set.
    pub termination_grace_period: Option<SignedDuration>,
    /// Whether the claim's condition `Ready` is `True`.
    pub ready: bool,
    /// Whether the claim's condition `DisruptionReason` is `True`: Karpenter is already replacing it.
    pub disrupting: bool,
    /// Whether the claim has a `deletionTimestamp`.
    pub deleting: bool,
    /// The state of the claim's rotation.
    pub state: RotationState,
    /// When the last attempt failed; `None` if `failed-at` is not set or cannot be parsed.
    pub failed_at: Option<Timestamp>,
    /// The number of failed attempts, from `retry-count`; at least 1 after a failure.
    pub retry_count: i64,
    /// The operator's request to rotate the claim; `None` if there is none.
    pub request: Option<RotateRequest>,
    /// The claim's Node; `None` if it has none yet or no longer.
    pub node: Option<NodeFacts>,
}

/// The facts about a Node that selection depends on.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts {
    /// Whether the Node's condition `Ready` is `True`.
    pub ready: bool,
    /// Whether the Node has the taint `karpenter.sh/disrupted`.
    pub disrupted: bool,
    /// Whether somebody other than the controller has set `karpenter.sh/do-not-disrupt: "true"`.
    pub opted_out: bool,
}

/// The state of a claim's rotation, stored in the annotation `noderotation.io/state` (§15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotationState {
    /// No rotation: the annotation is not set.
    #[default]
    Empty,
    /// The surge is in progress: the replacement is not Ready yet.
    Pending,
    /// The claim has been deleted and its node is draining.
    Draining,
    /// The last attempt failed and was rolled back.
    Failed,
    /// Karpenter deleted the claim before the rotation could. This state is final.
    Expired,
}

impl RotationState {
    /// Every word that the annotation may contain.
    pub const WORDS: [&'static str; 4] =
        [Self::Pending.word(), Self::Draining.word(), Self::Failed.word(), Self::Expired.word()];

    /// The value of the annotation; the empty string for [`RotationState::Empty`].
    pub const fn word(self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Pending => "pending",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }

    /// The state with this word; `None` if the word is unknown or empty.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pending, Self::Draining, Self::Failed, Self::Expired].into_iter().find(|state| state.word() == word)
    }
}

/// The operator's request to rotate a claim, from the annotation `noderotation.io/rotate` (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotateRequest {
    /// Rotate the claim now, even outside the window and during pauses.
    Now,
    /// Rotate the claim in the next window, whatever its age.
    NextWindow,
}

/// The word in the same annotation that calls a rotation off (§7).
pub const CANCEL: &str = "cancel";

impl RotateRequest {
    /// Every word that the annotation may contain, [`CANCEL`] included.
    pub const WORDS: [&'static str; 3] = [Self::Now.word(), Self::NextWindow.word(), CANCEL];

    /// The value of the annotation.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::NextWindow => "next-window",
        }
    }

    /// The request with this word; `None` if the word is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Now, Self::NextWindow].into_iter().find(|request| request.word() == word)
    }
}

/// Why a claim is not eligible for rotation (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ineligible {
    /// The claim is not old enough and the operator has not requested its rotation.
    NotDue,
    /// The claim or its Node is not Ready.
    NotReady,
    /// Karpenter is already replacing the node.
    Disrupting,
    /// The claim is being deleted.
    Deleting,
    /// A rotation of the claim is in progress (`pending` or `draining`).
    InFlight,
    /// Karpenter deleted the claim before a rotation could (`expired`).
    Expired,
    /// The last attempt failed and the backoff is not over.
    InBackoff,
    /// The Node has `karpenter.sh/do-not-disrupt: "true"`, set by somebody other than the controller.
    OptedOut,
    /// The claim has no Node.
    NoNode,
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDue => "it is not due",
            Self::NotReady => "the NodeClaim or its Node is not Ready",
            Self::Disrupting => "Karpenter is already replacing it",
            Self::Deleting => "it is being deleted",
            Self::InFlight => "its rotation is in progress",
            Self::Expired => "Karpenter has already expired it",
            Self::InBackoff => "its backoff after a failed attempt is not over",
            Self::OptedOut => "its Node has karpenter.sh/do-not-disrupt: \"true\", which somebody has set; remove it to let it be rotated",
            Self::NoNode => "it has no Node",
        })
    }
}

/// A condition, and the reason to report if it does not hold.
type Condition = (Ineligible, fn(&Candidate<'_>, &Eligibility) -> bool);

/// The conditions of §7.
const CONDITIONS: &[Condition] = &[
    (Ineligible::NotDue, |_, e| e.due),
    (Ineligible::NotReady, |c, _| c.ready && c.node.is_none_or(|n| n.ready)),
    (Ineligible::Disrupting, |c, _| !c.disrupting && c.node.is_none_or(|n| !n.disrupted)),
    (Ineligible::Deleting, |c, _| !c.deleting),
    (Ineligible::InFlight, |c, _| !matches!(c.state, RotationState::Pending | RotationState::Draining)),
    (Ineligible::Expired, |c, _| c.state != RotationState::Expired),
    (Ineligible::InBackoff, |_, e| !e.in_backoff),
    (Ineligible::OptedOut, |c, _| c.node.is_none_or(|n| !n.opted_out)),
    (Ineligible::NoNode, |c, _| c.node.is_some()),
];

/// The part of a claim's eligibility that depends on time.
#[derive(Clone, Copy, Debug)]
pub struct Eligibility {
    /// When Karpenter expires the claim; `None` for `E = Never`.
    pub deadline: Option<Timestamp>,
    /// When the claim comes (or came) due by itself, without a request; `None` for never.
    pub due_at: Option<Timestamp>,
    /// Whether the claim is due now, by itself or by request.
    pub due: bool,
    /// When the effective backoff ends; `None` unless the last attempt failed.
    pub backoff_until: Option<Timestamp>,
    /// Whether the effective backoff is not over.
    pub in_backoff: bool,
    /// `E ≤ K·P + t_rot`: the lifetime is too short for `K` windows, so the rotation is best effort (§6, `ShortLead`).
    pub short_lead: bool,
}

/// Computes the part of a claim's eligibility that depends on time, as of `now`.
pub fn assess(policy: &Policy, cadence: &Cadence, candidate: &Candidate<'_>, now: Timestamp) -> Eligibility {
    let deadline = candidate.expire_after.map(|e| plus(candidate.created, e));
    let due_at = due_at(policy, cadence, candidate);
    let backoff_until = backoff_until(policy, candidate);
    // `due_at` is already the first instant after the threshold, so this comparison is not strict
    let due_by_time = due_at.is_some_and(|at| at <= now);
    let lead = lead_time(policy, cadence, candidate.termination_grace_period);
    Eligibility {
        deadline,
        due_at,
        due: due_by_time || candidate.request.is_some(),
        backoff_until,
        // an operator who asks for it now does not want to wait for the backoff either
        in_backoff: candidate.request != Some(RotateRequest::Now) && backoff_until.is_some_and(|until| now < until),
        short_lead: policy.threshold == Threshold::Auto && candidate.expire_after.is_some_and(|e| e <= lead),
    }
}

/// Every reason why the claim is not eligible, in the order of §7; empty if it is eligible.
pub fn ineligible(candidate: &Candidate<'_>, eligibility: &Eligibility) -> Vec<Ineligible> {
    CONDITIONS.iter().filter(|(_, holds)| !holds(candidate, eligibility)).map(|(reason, _)| *reason).collect()
}

/// The first instant at which the claim is due by itself. The formula requires `now > deadline − leadTime`, and the first
/// such instant is one nanosecond later.
fn due_at(policy: &Policy, cadence: &Cadence, candidate: &Candidate<'_>) -> Option<Timestamp> {
    const INSTANT_AFTER: SignedDuration = SignedDuration::from_nanos(1);
    match policy.threshold {
        Threshold::Override(age) => Some(plus(plus(candidate.created, age), INSTANT_AFTER)),
        Threshold::Auto => {
            let deadline = plus(candidate.created, candidate.expire_after?);
            let formula = minus(deadline, lead_time(policy, cadence, candidate.termination_grace_period));
            if formula < candidate.created {
                return Some(plus(formula, INSTANT_AFTER)); // due at once; the calendar cannot make it earlier
            }
            let end = minus(deadline, rotation_bound(policy, candidate.termination_grace_period));
            let l = latest_chance(&policy.schedule, cadence.measures.p(), policy.chances, candidate.created, end);
            // without such an instant after creation, the claim is due from the start
            let l = l.unwrap_or(candidate.created);
            earliest(Some(plus(formula, INSTANT_AFTER)), Some(l))
        }
    }
}

/// `L` (§7): the latest instant, not before `created`, from which the real calendar still offers `k` chances before
/// `end`. `None` if even `created` is too late. `p` is the schedule's `P`.
pub fn latest_chance(
    schedule: &Schedule,
    p: SignedDuration,
    k: i64,
    created: Timestamp,
    end: Timestamp,
) -> Option<Timestamp> {
    // The result depends only on the occurrences after it, so a short period before `end` usually suffices.
    let mut span = times(p, k.saturating_add(2)).max(SignedDuration::from_hours(24));
    loop {
        let begin = minus(end, span).max(created);
        let found = latest_start(schedule.occurrences(begin), p, k, begin, end);
        if found.is_some() || begin <= created {
            return found;
        }
        span = span.saturating_add(span);
    }
}

/// The latest instant in `[begin, end)` from which these occurrences offer `k` chances before `end`; `None` if there is
/// none. An occurrence that opens at or after the instant offers `max(1, floor(length / P))` chances, one that is already
/// open `floor(remaining / P)`, both clipped at `end`.
pub fn latest_start(
    occurrences: impl Iterator<Item = Occurrence>,
    p: SignedDuration,
    k: i64,
    begin: Timestamp,
    end: Timestamp,
) -> Option<Timestamp> {
    let within: Vec<Occurrence> = occurrences
        .take_while(|o| o.open < end)
        .map(|o| Occurrence { open: o.open, close: o.close.min(end) })
        .collect();
    let mut wanted = k;
    for o in within.iter().rev() {
        let whole = floor_div(o.length(), p).unwrap_or(0);
        // the latest instant inside the occurrence that leaves `wanted` periods of it
        let inside = minus(o.close, times(p, wanted));
        let found = if whole >= wanted { Some(inside) } else { (wanted <= 1).then_some(o.open) };
        if let Some(found) = found {
            return (found >= begin).then_some(found);
        }
        if o.open < begin {
            return None;
        }
        wanted -= whole.max(1);
    }
    None
}

/// When a failed claim's effective backoff ends; `None` if the claim has not failed.
fn backoff_until(policy: &Policy, candidate: &Candidate<'_>) -> Option<Timestamp> {
    if candidate.state != RotationState::Failed {
        return None;
    }
    // a claim without a readable failed-at counts as past its backoff
    Some(effective_backoff_end(policy, candidate.failed_at?, candidate.retry_count))
}

/// When the effective backoff ends: `retryBackoff · 2^(retry-count − 1)`, at most eightfold, after the failure, clamped to
/// the occurrence in which the failure happened (§7).
pub fn effective_backoff_end(policy: &Policy, failed_at: Timestamp, retry_count: i64) -> Timestamp {
    let step = |j: i64| plus(failed_at, times(policy.surge.retry_backoff, 1 << j.clamp(0, 3)));
    let doubled = retry_count.saturating_sub(1).clamp(0, 3);
    let until = step(doubled);
    match policy.schedule.open_at(failed_at) {
        Some(o) if until >= o.close => (0..doubled).rev().map(step).find(|at| *at < o.close).unwrap_or(o.close),
        _ => until,
    }
}

/// The first instant at or after the end of the effective backoff at which the window is open; `None` if it never is.
pub fn next_attempt_at(policy: &Policy, failed_at: Timestamp, retry_count: i64) -> Option<Timestamp> {
    let end = effective_backoff_end(policy, failed_at, retry_count);
    policy.schedule.occurrences(end).next().map(|o| o.open.max(end))
}

/// The order in which eligible claims are rotated: requested ones first (`now` before `next-window`), then by deadline
/// (not with an explicit `ageThreshold`), then by age, oldest first, then by name.
pub fn order(policy: &Policy, a: (&Candidate<'_>, &Eligibility), b: (&Candidate<'_>, &Eligibility)) -> Ordering {
    let deadline = |e: &Eligibility| match policy.threshold {
        Threshold::Auto => e.deadline.unwrap_or(Timestamp::MAX),
        Threshold::Override(_) => Timestamp::MAX,
    };
    let rank = |c: &Candidate<'_>| match c.request {
        Some(RotateRequest::Now) => 0,
        Some(RotateRequest::NextWindow) => 1,
        None => 2,
    };
    rank(a.0)
        .cmp(&rank(b.0))
        .then_with(|| deadline(a.1).cmp(&deadline(b.1)))
        .then_with(|| a.0.created.cmp(&b.0.created))
        .then_with(|| a.0.name.cmp(b.0.name))
}
