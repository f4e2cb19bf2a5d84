//! Which NodeClaims may be rotated, in which order, and when each comes due (§7).
//!
//! Each condition is one function in `CONDITIONS`; a new one is one function and one line.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};

use crate::duration::{floor_div, times};
use crate::feasibility::{Cadence, lead_time, rotation_bound};
use crate::instant::{earliest, minus, plus};
use crate::policy::{Policy, Threshold};
use crate::schedule::{Occurrence, Schedule};

/// What selection needs to know of a NodeClaim and its Node.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The claim's name.
    pub name: &'a str,
    /// Its `creationTimestamp`.
    pub created: Timestamp,
    /// Own `E`; `None` means `Never`.
    pub expire_after: Option<SignedDuration>,
    /// Own `tGP`.
    pub termination_grace_period: Option<SignedDuration>,
    /// Its condition `Ready`.
    pub ready: bool,
    /// Its condition `DisruptionReason`: Karpenter is replacing it.
    pub disrupting: bool,
    /// It has a `deletionTimestamp`.
    pub deleting: bool,
    /// Our state on it.
    pub state: RotationState,
    /// Readable `failed-at`.
    pub failed_at: Option<Timestamp>,
    /// `retry-count`, at least 1 once it failed.
    pub retry_count: i64,
    /// The operator's request.
    pub request: Option<RotateRequest>,
    /// Its Node.
    pub node: Option<Host>,
}

/// What selection needs to know of a Node.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its condition `Ready`.
    pub ready: bool,
    /// It bears Karpenter's `disrupted` taint.
    pub disrupted: bool,
    /// `karpenter.sh/do-not-disrupt: "true"` without our marker.
    pub opted_out: bool,
}

/// `noderotation.io/state` (§15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotationState {
    /// Absent.
    #[default]
    Empty,
    /// Surge under way.
    Pending,
    /// Deleted, draining.
    Draining,
    /// Rolled back.
    Failed,
    /// Karpenter took it first; terminal.
    Expired,
}

impl RotationState {
    /// The word that is stored; empty for none.
    pub fn word(self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Pending => "pending",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }
}

/// `noderotation.io/rotate`: the operator's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotateRequest {
    /// Also outside the window and the pauses.
    Now,
    /// Due whatever its age.
    NextWindow,
}

/// Why a claim is not eligible; the name is what the census counts and `explain` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "§7 defines each")]
pub enum Ineligible {
    NotDue,
    NotReady,
    Disrupting,
    Deleting,
    InFlight,
    Expired,
    InBackoff,
    OptedOut,
    NoNode,
}

/// One condition with the reason that its failure has.
type Condition = (Ineligible, fn(&Candidate<'_>, &Eligibility) -> bool);

/// The table of §7: each row holds, or names why not.
const CONDITIONS: [Condition; 9] = [
    (Ineligible::NotDue, |_, j| j.due),
    (Ineligible::NotReady, |s, _| s.ready && s.node.is_none_or(|n| n.ready)),
    (Ineligible::Disrupting, |s, _| !s.disrupting && s.node.is_none_or(|n| !n.disrupted)),
    (Ineligible::Deleting, |s, _| !s.deleting),
    (Ineligible::InFlight, |s, _| !matches!(s.state, RotationState::Pending | RotationState::Draining)),
    (Ineligible::Expired, |s, _| s.state != RotationState::Expired),
    (Ineligible::InBackoff, |_, j| !j.in_backoff),
    (Ineligible::OptedOut, |s, _| s.node.is_none_or(|n| !n.opted_out)),
    (Ineligible::NoNode, |s, _| s.node.is_some()),
];

/// What time decides about a claim.
#[derive(Clone, Copy, Debug)]
pub struct Eligibility {
    /// The claim's deadline; `None` for `E = Never`.
    pub deadline: Option<Timestamp>,
    /// When it comes (or came) due without a request; `None` for never.
    pub due_at: Option<Timestamp>,
    /// Whether it is due, a request included.
    pub due: bool,
    /// When its backoff ends, if it failed.
    pub backoff_until: Option<Timestamp>,
    /// Whether that is still to come.
    pub in_backoff: bool,
    /// `E ≤ K·P + t_rot`: rotated as best effort (§6, `ShortLead`).
    pub short_lead: bool,
}

/// Judges a claim by the clock.
pub fn assess(policy: &Policy, cadence: &Cadence, candidate: &Candidate<'_>, now: Timestamp) -> Eligibility {
    let deadline = candidate.expire_after.map(|e| plus(candidate.created, e));
    let due_at = due_at(policy, cadence, candidate);
    let backoff_until = backoff_until(policy, candidate);
    // An age of exactly A is not yet beyond it; likewise `now > deadline − leadTime`.
    let due_by_time = due_at.is_some_and(|at| at <= now);
    let lead = lead_time(policy, cadence, candidate.termination_grace_period);
    Eligibility {
        deadline,
        due_at,
        due: due_by_time || candidate.request.is_some(),
        backoff_until,
        in_backoff: backoff_until.is_some_and(|until| now < until),
        short_lead: policy.threshold == Threshold::Auto && candidate.expire_after.is_some_and(|e| e <= lead),
    }
}

/// Every reason why the claim is not eligible; empty means eligible.
pub fn ineligible(candidate: &Candidate<'_>, eligibility: &Eligibility) -> Vec<Ineligible> {
    CONDITIONS.iter().filter(|(_, holds)| !holds(candidate, eligibility)).map(|(reason, _)| *reason).collect()
}

/// The first instant at which the claim is due by itself. The formula asks for `now > deadline − leadTime`, which at
/// the resolution of a clock is the next nanosecond.
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
            // no such instant after creation: due at once
            let l = l.unwrap_or(candidate.created);
            earliest(Some(plus(formula, INSTANT_AFTER)), Some(l))
        }
    }
}

/// `L`: the latest instant from `created` on from which the real calendar still offers `k` chances before `end`.
pub fn latest_chance(
    schedule: &Schedule,
    p: SignedDuration,
    k: i64,
    created: Timestamp,
    end: Timestamp,
) -> Option<Timestamp> {
    // The answer depends only on what lies after it, so look at a short stretch first.
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

/// The latest instant in `[begin, end)` from which these occurrences offer `k` chances before `end`: one that opens at
/// or after the instant offers `max(1, floor(length / P))`, one already open `floor(remaining / P)`, both clipped at
/// `end`.
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
        // Inside the occurrence: the latest instant that leaves `wanted` periods of it.
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

/// When a failed claim's effective backoff ends; `None` where nothing holds it.
fn backoff_until(policy: &Policy, candidate: &Candidate<'_>) -> Option<Timestamp> {
    if candidate.state != RotationState::Failed {
        return None;
    }
    // without a readable failed-at it counts as past its backoff
    Some(effective_backoff_end(policy, candidate.failed_at?, candidate.retry_count))
}

/// `retryBackoff · 2^(retry-count − 1)`, at most eightfold, clamped to the occurrence in which the failure happened.
pub fn effective_backoff_end(policy: &Policy, failed_at: Timestamp, retry_count: i64) -> Timestamp {
    let step = |j: i64| plus(failed_at, times(policy.surge.retry_backoff, 1 << j.clamp(0, 3)));
    let doubled = retry_count.saturating_sub(1).clamp(0, 3);
    let until = step(doubled);
    match policy.schedule.open_at(failed_at) {
        Some(o) if until >= o.close => (0..doubled).rev().map(step).find(|at| *at < o.close).unwrap_or(o.close),
        _ => until,
    }
}

/// The first instant inside today's effective window at or after the end of the effective backoff.
pub fn next_attempt_at(policy: &Policy, failed_at: Timestamp, retry_count: i64) -> Option<Timestamp> {
    let end = effective_backoff_end(policy, failed_at, retry_count);
    policy.schedule.occurrences(end).next().map(|o| o.open.max(end))
}

/// The order in which eligible claims go: requested ones first; then the earliest deadline (with an override: the
/// oldest), then the oldest, then by name.
pub fn order(policy: &Policy, a: (&Candidate<'_>, &Eligibility), b: (&Candidate<'_>, &Eligibility)) -> Ordering {
    let deadline = |j: &Eligibility| match policy.threshold {
        Threshold::Auto => j.deadline.unwrap_or(Timestamp::MAX),
        Threshold::Override(_) => Timestamp::MAX,
    };
    let rank = |s: &Candidate<'_>| match s.request {
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
