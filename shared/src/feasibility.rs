//! Can a policy keep its promise for a pool? Derived values and findings (§2, §6).

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::duration::{ceil_div, floor_div, format, human, times};
use crate::keys;
use crate::policy::{Policy, Threshold};
use crate::schedule::Measures;
use crate::selection;

/// What the findings need to know of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// The template's `E`; `None` means `Never`.
    pub expire_after: Option<SignedDuration>,
    /// The template's `tGP`.
    pub termination_grace_period: Option<SignedDuration>,
    /// `N`, the pool's NodeClaims.
    pub claims: i64,
}

/// Stands in for an unset `tGP`, for arithmetic only.
pub const TGP_STAND_IN: SignedDuration = SignedDuration::from_hours(1);

/// Covers Pods that are stuck terminating, which are waited for until 60 s past their deletion.
pub const STUCK_POD_BUFFER: SignedDuration = SignedDuration::from_mins(2);

/// EKS Auto Mode's bound on `expireAfter + terminationGracePeriod`.
const HARD_CAP: SignedDuration = SignedDuration::from_hours(21 * 24);

/// What follows from a policy at one moment, whatever the pool: computed once per policy and week.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    /// `P`, `D`, `gap`.
    pub measures: Measures,
}

impl Cadence {
    /// As seen at `now`.
    pub fn of(policy: &Policy, now: Timestamp) -> Self {
        Self { measures: policy.schedule.measures(now) }
    }
}

/// The values of §2 for one pool under one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// `E`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// `tGP`, the stand-in where unset.
    pub termination_grace_period: SignedDuration,
    /// `K`.
    pub wanted_chances: i64,
    /// `P`; zero where the window never opens.
    pub window_period: SignedDuration,
    /// `D`; `None` where the window never opens or never closes.
    pub window_length: Option<SignedDuration>,
    /// The shortest closed interval.
    pub window_gap: Option<SignedDuration>,
    /// `t_rot`.
    pub rotation_bound: SignedDuration,
    /// `t_rot_est`.
    pub rotation_estimate: SignedDuration,
    /// Its drain part, clamped to `tGP`.
    pub drain_estimate: SignedDuration,
    /// Its provisioning part, clamped to `readyTimeout`.
    pub provisioning_estimate: SignedDuration,
    /// `leadTime`.
    pub lead_time: SignedDuration,
    /// `A`; `None` under `auto` with `E = Never`.
    pub age_threshold: Option<SignedDuration>,
    /// `G`.
    pub guaranteed_chances: i64,
    /// `C`; 1 when always open, 0 when never.
    pub starts_per_window: i64,
}

/// `t_rot` for a drain bound.
pub fn rotation_bound(policy: &Policy, tgp: Option<SignedDuration>) -> SignedDuration {
    policy.surge.ready_timeout.saturating_add(tgp.unwrap_or(TGP_STAND_IN)).saturating_add(STUCK_POD_BUFFER)
}

/// `leadTime` for a drain bound.
pub fn lead_time(policy: &Policy, cadence: &Cadence, tgp: Option<SignedDuration>) -> SignedDuration {
    times(cadence.measures.p(), policy.chances).saturating_add(rotation_bound(policy, tgp))
}

/// Computes the values of §2.
pub fn derive(policy: &Policy, cadence: &Cadence, pool: &PoolFacts) -> Derived {
    let tgp = pool.termination_grace_period.unwrap_or(TGP_STAND_IN);
    let surge = &policy.surge;
    let drain_estimate = surge.drain_estimate.unwrap_or(SignedDuration::from_mins(10)).min(tgp);
    let provisioning_estimate =
        surge.provisioning_estimate.unwrap_or(SignedDuration::from_mins(5)).min(surge.ready_timeout);
    let t_rot = rotation_bound(policy, pool.termination_grace_period);
    let t_rot_est = provisioning_estimate.saturating_add(drain_estimate);
    let lead_time = lead_time(policy, cadence, pool.termination_grace_period);
    let p = cadence.measures.p();
    let a = match policy.threshold {
        Threshold::Override(age) => Some(age),
        Threshold::Auto => pool.expire_after.map(|e| e.saturating_sub(lead_time)),
    };
    let g = match (policy.threshold, pool.expire_after) {
        (Threshold::Override(age), Some(e)) => floor_div(e.saturating_sub(t_rot).saturating_sub(age), p).unwrap_or(0),
        (Threshold::Override(_), None) => 0,
        (Threshold::Auto, _) => policy.chances,
    };
    let (d, gap, c) = match cadence.measures {
        Measures::Never => (None, None, 0),
        Measures::Always => (None, None, 1),
        Measures::Recurring(period) => {
            let c = ceil_div(period.d, t_rot_est.saturating_add(surge.cooldown_after)).unwrap_or(1);
            (Some(period.d), Some(period.gap), c)
        }
    };
    Derived {
        expire_after: pool.expire_after,
        termination_grace_period: tgp,
        wanted_chances: policy.chances,
        window_period: p,
        window_length: d,
        window_gap: gap,
        rotation_bound: t_rot,
        rotation_estimate: t_rot_est,
        drain_estimate,
        provisioning_estimate,
        lead_time,
        age_threshold: a,
        guaranteed_chances: g,
        starts_per_window: c,
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// An event on the NodePool; nothing stops.
    Warn,
    /// No start in that pool.
    Fatal,
}

/// The codes of §6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "§6 defines each")]
pub enum Code {
    NoWindows,
    KBelowOne,
    KBelowTwo,
    ANonPositive,
    AVeryAggressive,
    OverrideNonPositive,
    OverrideGBelowOne,
    OverrideGBelowK,
    TGPUnset,
    HardCapExceeded,
    RetryBackoffShort,
    DrainEstimateAboveTGP,
    ProvisioningEstimateAboveReadyTimeout,
    ZoneNotRequired,
    ThroughputBelowArrival,
    ThroughputBurstShortfall,
    RotationSpansNextWindow,
    ExclusionStarvesClaims,
}

impl Code {
    /// Its severity.
    pub fn severity(self) -> Severity {
        match self {
            Self::NoWindows
            | Self::KBelowOne
            | Self::ANonPositive
            | Self::OverrideNonPositive
            | Self::OverrideGBelowOne => Severity::Fatal,
            _ => Severity::Warn,
        }
    }
}

impl Code {
    /// Its name, also an Event's reason.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoWindows => "NoWindows",
            Self::KBelowOne => "KBelowOne",
            Self::KBelowTwo => "KBelowTwo",
            Self::ANonPositive => "ANonPositive",
            Self::AVeryAggressive => "AVeryAggressive",
            Self::OverrideNonPositive => "OverrideNonPositive",
            Self::OverrideGBelowOne => "OverrideGBelowOne",
            Self::OverrideGBelowK => "OverrideGBelowK",
            Self::TGPUnset => "TGPUnset",
            Self::HardCapExceeded => "HardCapExceeded",
            Self::RetryBackoffShort => "RetryBackoffShort",
            Self::DrainEstimateAboveTGP => "DrainEstimateAboveTGP",
            Self::ProvisioningEstimateAboveReadyTimeout => "ProvisioningEstimateAboveReadyTimeout",
            Self::ZoneNotRequired => "ZoneNotRequired",
            Self::ThroughputBelowArrival => "ThroughputBelowArrival",
            Self::ThroughputBurstShortfall => "ThroughputBurstShortfall",
            Self::RotationSpansNextWindow => "RotationSpansNextWindow",
            Self::ExclusionStarvesClaims => "ExclusionStarvesClaims",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One finding, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub code: Code,
    /// With the numbers that led to it, and what to change.
    pub message: String,
}

impl Finding {
    /// Its severity.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// A claim's life as far as `ExclusionStarvesClaims` is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Lifespan {
    /// `creationTimestamp`.
    pub created: Timestamp,
    /// Own `E`.
    pub expire_after: Option<SignedDuration>,
    /// Own `tGP`.
    pub termination_grace_period: Option<SignedDuration>,
}

/// All findings for a pool, in the order of §6's table.
pub fn findings(
    policy: &Policy,
    cadence: &Cadence,
    pool: &PoolFacts,
    lifespans: impl IntoIterator<Item = Lifespan>,
) -> Vec<Finding> {
    let derived = derive(policy, cadence, pool);
    let mut found = Vec::new();
    let mut add = |code, message: String| found.push(Finding { code, message });
    if cadence.measures == Measures::Never {
        add(Code::NoWindows, "the maintenance windows never open within a year".into());
    }
    age(policy, &derived, &mut add);
    settings(policy, pool, &derived, &mut add);
    throughput(policy, cadence, pool, &derived, &mut add);
    let starved = lifespans.into_iter().filter(|life| is_starved(policy, cadence, life)).count();
    if starved > 0 {
        add(
            Code::ExclusionStarvesClaims,
            format!(
                "because of exclusions {starved} NodeClaims have fewer than {} windows left before they expire: shorten an exclusion or add a window",
                derived.wanted_chances
            ),
        );
    }
    found
}

fn age(policy: &Policy, d: &Derived, add: &mut impl FnMut(Code, String)) {
    match d.wanted_chances {
        ..1 => add(Code::KBelowOne, format!("minRotationChances is {}: no node would ever be due", d.wanted_chances)),
        1 => add(
            Code::KBelowTwo,
            "minRotationChances is 1: a node whose only window fails expires at Karpenter's hour; write 2".into(),
        ),
        _ => {}
    }
    match policy.threshold {
        Threshold::Auto => {
            let (Some(a), Some(e)) = (d.age_threshold, d.expire_after) else { return };
            let sum = format!(
                "expireAfter {} − ({} × {} between windows + {} for one rotation)",
                human(e),
                d.wanted_chances,
                human(d.window_period),
                human(d.rotation_bound)
            );
            if !a.is_positive() {
                add(
                    Code::ANonPositive,
                    format!(
                        "{sum} = {}: a node would be due before it is born; raise expireAfter, open the window more often, or lower minRotationChances",
                        human(a)
                    ),
                );
            } else if a < d.window_period {
                add(Code::AVeryAggressive, aggressive(&format!("{sum} = {}", human(a)), d));
            }
        }
        Threshold::Override(age) => {
            if !age.is_positive() {
                add(Code::OverrideNonPositive, format!("ageThreshold {} is not above zero", format(age)));
                return;
            }
            if age < d.window_period {
                add(Code::AVeryAggressive, aggressive(&format!("ageThreshold is {}", human(age)), d));
            }
            let Some(e) = d.expire_after else { return };
            let room = format!(
                "between ageThreshold {} and expireAfter {} less {} for one rotation",
                human(age),
                human(e),
                human(d.rotation_bound)
            );
            if d.guaranteed_chances < 1 {
                add(
                    Code::OverrideGBelowOne,
                    format!("{room} no window is sure to open: lower ageThreshold, or write auto"),
                );
            } else if d.guaranteed_chances < d.wanted_chances {
                add(
                    Code::OverrideGBelowK,
                    format!(
                        "{room} only {} windows are sure to open, fewer than the {} wanted",
                        d.guaranteed_chances, d.wanted_chances
                    ),
                );
            }
        }
    }
}

fn aggressive(age: &str, d: &Derived) -> String {
    format!("{age}, less than the {} between windows: nearly every window rotates every node", human(d.window_period))
}

fn settings(policy: &Policy, pool: &PoolFacts, d: &Derived, add: &mut impl FnMut(Code, String)) {
    let surge = &policy.surge;
    if pool.termination_grace_period.is_none() {
        add(Code::TGPUnset, "the NodePool's template has no terminationGracePeriod: nothing bounds a drain; 1h stands in for it in these figures".into());
    }
    if let Some(e) = pool.expire_after.filter(|e| e.saturating_add(d.termination_grace_period) > HARD_CAP) {
        add(
            Code::HardCapExceeded,
            format!(
                "expireAfter {} + terminationGracePeriod {} exceeds the 21d that EKS Auto Mode allows",
                human(e),
                human(d.termination_grace_period)
            ),
        );
    }
    if surge.retry_backoff < surge.ready_timeout {
        add(
            Code::RetryBackoffShort,
            format!(
                "retryBackoff {} is shorter than readyTimeout {}",
                human(surge.retry_backoff),
                human(surge.ready_timeout)
            ),
        );
    }
    if let Some(given) = surge.drain_estimate.filter(|given| *given > d.termination_grace_period) {
        add(
            Code::DrainEstimateAboveTGP,
            format!(
                "drainEstimate {} exceeds terminationGracePeriod {}, which is used instead",
                human(given),
                human(d.termination_grace_period)
            ),
        );
    }
    if let Some(given) = surge.provisioning_estimate.filter(|given| *given > surge.ready_timeout) {
        add(
            Code::ProvisioningEstimateAboveReadyTimeout,
            format!(
                "provisioningEstimate {} exceeds readyTimeout {}, which is used instead",
                human(given),
                human(surge.ready_timeout)
            ),
        );
    }
    if !surge.required.iter().any(|key| key == keys::ZONE) {
        add(
            Code::ZoneNotRequired,
            format!(
                "{} is not among matchNodeRequirements.required: replacements may land in a zone where volumes cannot follow",
                keys::ZONE
            ),
        );
    }
}

fn throughput(policy: &Policy, cadence: &Cadence, pool: &PoolFacts, d: &Derived, add: &mut impl FnMut(Code, String)) {
    let slot = d.rotation_estimate.saturating_add(policy.surge.cooldown_after);
    let n = pool.claims;
    // without a deadline, or due from birth, there is no rate at which nodes come due
    let coming_due = d.age_threshold.filter(|a| a.is_positive() && d.expire_after.is_some());
    match cadence.measures {
        Measures::Never => {}
        Measures::Always => {
            let need = times(slot, n);
            if let Some(a) = coming_due.filter(|a| *a < need) {
                add(
                    Code::ThroughputBelowArrival,
                    format!(
                        "{n} nodes at {} each take longer than the {} in which they come due",
                        human(slot),
                        human(a)
                    ),
                );
            }
            if d.expire_after.is_some() && need > d.lead_time {
                add(
                    Code::ThroughputBurstShortfall,
                    format!(
                        "{n} nodes due at once need {}, more than the {} before they expire",
                        human(need),
                        human(d.lead_time)
                    ),
                );
            }
        }
        Measures::Recurring(period) => {
            if let Some(a) = coming_due.filter(|a| times(*a, d.starts_per_window) < times(d.window_period, n)) {
                add(
                    Code::ThroughputBelowArrival,
                    format!(
                        "{} rotations fit into a window, windows are {} apart, and {n} nodes come due every {}: lengthen the windows or open them more often",
                        d.starts_per_window,
                        human(d.window_period),
                        human(a)
                    ),
                );
            }
            if d.expire_after.is_some() && n > d.wanted_chances.saturating_mul(d.starts_per_window) {
                add(
                    Code::ThroughputBurstShortfall,
                    format!(
                        "{n} nodes due at once do not fit into {} windows of {} rotations",
                        d.wanted_chances, d.starts_per_window
                    ),
                );
            }
            if slot > period.gap {
                add(
                    Code::RotationSpansNextWindow,
                    format!(
                        "one rotation with its cooldown takes {}, longer than the {} between two windows",
                        human(slot),
                        human(period.gap)
                    ),
                );
            }
        }
    }
}

/// Whether exclusions alone take the claim below `K` completable occurrences.
fn is_starved(policy: &Policy, cadence: &Cadence, life: &Lifespan) -> bool {
    let Some(e) = life.expire_after else { return false };
    if !policy.schedule.has_exclusions() || policy.threshold != Threshold::Auto {
        return false;
    }
    let end =
        crate::instant::plus(life.created, e.saturating_sub(rotation_bound(policy, life.termination_grace_period)));
    let p = cadence.measures.p();
    let with = selection::latest_start(policy.schedule.occurrences(life.created), p, policy.chances, life.created, end);
    let without =
        selection::latest_start(policy.schedule.recurring(life.created), p, policy.chances, life.created, end);
    with.is_none() && without.is_some()
}
