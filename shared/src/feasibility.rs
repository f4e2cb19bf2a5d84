//! Whether a policy can rotate every node of a NodePool before it expires: derived values (§2) and findings (§6).

use jiff::{SignedDuration, Timestamp};

use crate::duration::{ceil_div, floor_div, format, human, times};
use crate::keys;
use crate::policy::{Policy, Threshold};
use crate::schedule::Measures;
use crate::selection;

/// The facts about a NodePool that the findings depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// `E`, the template's `expireAfter`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// `tGP`, the template's `terminationGracePeriod`; `None` if it is not set.
    pub termination_grace_period: Option<SignedDuration>,
    /// `N`, the number of the pool's NodeClaims.
    pub claims: i64,
    /// Whether it is a pool of EKS Auto Mode, which limits the lifetime of its nodes.
    pub is_auto_mode: bool,
}

/// The value that replaces an unset `tGP` in calculations. It does not limit any drain.
pub const TGP_STAND_IN: SignedDuration = SignedDuration::from_hours(1);

/// The part of `t_rot` for Pods that are stuck terminating: Karpenter waits for them until 60 s after their deletion.
pub const STUCK_POD_BUFFER: SignedDuration = SignedDuration::from_mins(2);

/// What is left out by a window that people mean to be always open, such as one from 00:00 to 23:59.
const MOMENT: SignedDuration = SignedDuration::from_mins(1);

/// The limit of EKS Auto Mode on `expireAfter + terminationGracePeriod`.
const HARD_CAP: SignedDuration = SignedDuration::from_hours(21 * 24);

/// The values that depend on a policy's schedule but not on the NodePool. They are expensive and change once a week, so
/// callers compute them once per policy and week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// `P`, `D` and `gap` (§5.3).
    pub measures: Measures,
}

impl Cadence {
    /// Computes the values for the week of `now`.
    pub fn of(policy: &Policy, now: Timestamp) -> Self {
        Self { measures: policy.schedule.measures(now) }
    }
}

/// The values of §2 for one pool under one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// `E`, the lifetime of a node; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// `tGP`, the limit of a drain; [`TGP_STAND_IN`] if the template does not set it.
    pub termination_grace_period: SignedDuration,
    /// `K`, the number of windows that a node is to be offered; at least 1.
    pub wanted_chances: i64,
    /// `P`, the longest time from one opening to the next; zero if the window never opens.
    pub window_period: SignedDuration,
    /// `D`, the length of the shortest occurrence; `None` if the window never opens or never closes.
    pub window_length: Option<SignedDuration>,
    /// `gap`, the shortest time between two occurrences; `None` if the window never opens or never closes.
    pub window_gap: Option<SignedDuration>,
    /// `t_rot`, the upper bound of one rotation.
    pub rotation_bound: SignedDuration,
    /// `t_rot_est`, the expected length of one rotation.
    pub rotation_estimate: SignedDuration,
    /// The part of `t_rot_est` for the drain, clamped to `tGP`.
    pub drain_estimate: SignedDuration,
    /// The part of `t_rot_est` for provisioning, clamped to `readyTimeout`.
    pub provisioning_estimate: SignedDuration,
    /// `leadTime`: how long before its deadline a node becomes a candidate under `auto`.
    pub lead_time: SignedDuration,
    /// `A`, the age at which a node is due; `None` under `auto` with `E = Never`. May be negative (`ANonPositive`).
    pub age_threshold: Option<SignedDuration>,
    /// `G`, the number of windows that are guaranteed before a node expires. May be negative (`OverrideGBelowOne`).
    pub guaranteed_chances: i64,
    /// `C`, the number of rotations that can start in one window; 1 if it never closes, 0 if it never opens.
    pub starts_per_window: i64,
}

/// `t_rot`: `readyTimeout + tGP + 2m`. An unset `tgp` counts as [`TGP_STAND_IN`].
pub fn rotation_bound(policy: &Policy, tgp: Option<SignedDuration>) -> SignedDuration {
    policy.surge.ready_timeout.saturating_add(tgp.unwrap_or(TGP_STAND_IN)).saturating_add(STUCK_POD_BUFFER)
}

/// `leadTime`: `K·P + t_rot`. An unset `tgp` counts as [`TGP_STAND_IN`].
pub fn lead_time(policy: &Policy, cadence: &Cadence, tgp: Option<SignedDuration>) -> SignedDuration {
    times(cadence.measures.p(), policy.chances).saturating_add(rotation_bound(policy, tgp))
}

/// Computes the values of §2 for a NodePool under a policy. All arithmetic saturates.
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

/// How severe a finding is. Displayed as `warn` or `fatal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// The controller emits an Event on the NodePool and goes on.
    Warn,
    /// No rotation starts in the NodePool.
    Fatal,
}

/// The kinds of findings (§6). The name of a variant is also the reason of the Kubernetes Event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::IntoStaticStr, strum::VariantNames,
)]
pub enum Code {
    /// The maintenance window never opens within a year.
    NoWindows,
    /// `minRotationChances` is below 1.
    KBelowOne,
    /// `minRotationChances` is 1, so one failed attempt lets the node expire.
    KBelowTwo,
    /// The derived age threshold `A` is zero or negative: nodes would be due from the start.
    ANonPositive,
    /// The age threshold `A` is shorter than `P`: nearly every window rotates every node.
    AVeryAggressive,
    /// The explicit `ageThreshold` is zero or negative.
    OverrideNonPositive,
    /// With the explicit `ageThreshold`, no window is guaranteed before expiry.
    OverrideGBelowOne,
    /// With the explicit `ageThreshold`, fewer than `minRotationChances` windows are guaranteed.
    OverrideGBelowK,
    /// The template has no `terminationGracePeriod`, so the length of a drain is unlimited.
    TGPUnset,
    /// In EKS Auto Mode: `expireAfter + terminationGracePeriod` exceeds its 21 days.
    HardCapExceeded,
    /// `retryBackoff` is shorter than `readyTimeout`.
    RetryBackoffShort,
    /// `terminationGracePeriod` is longer than the shortest window.
    DrainMayOutlastWindow,
    /// `drainEstimate` exceeds `terminationGracePeriod` and is clamped to it.
    DrainEstimateAboveTGP,
    /// `provisioningEstimate` exceeds `readyTimeout` and is clamped to it.
    ProvisioningEstimateAboveReadyTimeout,
    /// The zone is not among `matchNodeRequirements.required`.
    ZoneNotRequired,
    /// In the long run, nodes come due faster than the windows can rotate them.
    ThroughputBelowArrival,
    /// If all nodes come due at once, they do not fit into the windows before they expire.
    ThroughputBurstShortfall,
    /// One rotation with its cooldown takes longer than the time between two windows.
    RotationSpansNextWindow,
    /// Because of exclusions, some NodeClaims have fewer than `minRotationChances` windows left.
    ExclusionStarvesClaims,
}

impl Code {
    /// The severity of findings of this kind.
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

    /// The name of the variant, such as `NoWindows`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One problem with how a policy and a NodePool fit together (§6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of problem.
    pub code: Code,
    /// A message with the numbers that led to the finding, and often what to change.
    pub message: String,
}

impl Finding {
    /// The severity, which depends on the code alone.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// When a NodeClaim was created and when it expires: the input of [`Code::ExclusionStarvesClaims`].
#[derive(Clone, Copy, Debug)]
pub struct Lifespan {
    /// The claim's `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// The claim's own `expireAfter`; `None` for `Never`.
    pub expire_after: Option<SignedDuration>,
    /// The claim's own `terminationGracePeriod`; `None` if it is not set.
    pub termination_grace_period: Option<SignedDuration>,
}

/// All findings for a NodePool under a policy, in the order of the table in §6. Without `lifespans` there is no
/// [`Code::ExclusionStarvesClaims`].
pub fn findings(
    policy: &Policy,
    cadence: &Cadence,
    pool: &PoolFacts,
    lifespans: impl IntoIterator<Item = Lifespan>,
) -> Vec<Finding> {
    let derived = derive(policy, cadence, pool);
    let mut findings = Vec::new();
    let mut add = |code, message: String| findings.push(Finding { code, message });
    if cadence.measures == Measures::Never {
        add(Code::NoWindows, "the maintenance windows do not open within a year; add a window".into());
    }
    age(policy, &derived, &mut add);
    settings(policy, pool, &derived, &mut add);
    throughput(policy, cadence, pool, &derived, &mut add);
    let starved = lifespans.into_iter().filter(|life| is_starved(policy, cadence, life)).count();
    if starved > 0 {
        add(
            Code::ExclusionStarvesClaims,
            format!(
                "because of exclusions, {starved} NodeClaims have fewer than {} windows left before they expire; shorten an exclusion or add a window",
                derived.wanted_chances
            ),
        );
    }
    findings
}

fn age(policy: &Policy, d: &Derived, add: &mut impl FnMut(Code, String)) {
    match d.wanted_chances {
        ..1 => add(Code::KBelowOne, format!("minRotationChances is {}, so no node would ever be due; write 2", d.wanted_chances)),
        1 => add(
            Code::KBelowTwo,
            "minRotationChances is 1, so a node whose only attempt fails expires outside the maintenance window; write 2".into(),
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
                        "{sum} = {}, so a node would be due before it is created; raise expireAfter, open the window more often, or lower minRotationChances",
                        human(a)
                    ),
                );
            } else if a < d.window_period {
                add(Code::AVeryAggressive, aggressive_message(&format!("{sum} = {}", human(a)), d));
            }
        }
        Threshold::Override(age) => {
            if !age.is_positive() {
                add(Code::OverrideNonPositive, format!("ageThreshold {} must be above zero; write auto", format(age)));
                return;
            }
            if age < d.window_period {
                add(Code::AVeryAggressive, aggressive_message(&format!("ageThreshold is {}", human(age)), d));
            }
            let Some(e) = d.expire_after else { return };
            let room = format!(
                "between ageThreshold {} and expireAfter {} minus {} for one rotation",
                human(age),
                human(e),
                human(d.rotation_bound)
            );
            if d.guaranteed_chances < 1 {
                add(
                    Code::OverrideGBelowOne,
                    format!("{room}, no window is guaranteed to open; lower ageThreshold, or write auto"),
                );
            } else if d.guaranteed_chances < d.wanted_chances {
                add(
                    Code::OverrideGBelowK,
                    format!(
                        "{room}, only {} of the {} wanted windows are guaranteed to open; lower ageThreshold, or write auto",
                        d.guaranteed_chances, d.wanted_chances
                    ),
                );
            }
        }
    }
}

fn aggressive_message(age: &str, d: &Derived) -> String {
    format!(
        "{age}, which is less than the {} between windows, so nearly every window rotates every node",
        human(d.window_period)
    )
}

fn settings(policy: &Policy, pool: &PoolFacts, d: &Derived, add: &mut impl FnMut(Code, String)) {
    let surge = &policy.surge;
    if pool.termination_grace_period.is_none() {
        add(Code::TGPUnset, "the NodePool's template has no terminationGracePeriod, so a drain may take any time; these figures assume 1h".into());
    }
    let exceeds = |e: &SignedDuration| e.saturating_add(d.termination_grace_period) > HARD_CAP;
    if let Some(e) = pool.expire_after.filter(|e| pool.is_auto_mode && exceeds(e)) {
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
                "retryBackoff {} is shorter than readyTimeout {}; write at least readyTimeout",
                human(surge.retry_backoff),
                human(surge.ready_timeout)
            ),
        );
    }
    let outlasted = d.window_length.zip(pool.termination_grace_period).filter(|(length, tgp)| tgp > length);
    if let Some((length, tgp)) = outlasted {
        add(
            Code::DrainMayOutlastWindow,
            format!(
                "terminationGracePeriod {} is longer than the window of {}: a Pod that may not be evicted keeps its node draining that long, whatever the window; shorten terminationGracePeriod, or lengthen the window",
                human(tgp),
                human(length)
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
                "{} is not in matchNodeRequirements.required, so a replacement may be in a zone where volumes cannot be attached",
                keys::ZONE
            ),
        );
    }
}

fn throughput(policy: &Policy, cadence: &Cadence, pool: &PoolFacts, d: &Derived, add: &mut impl FnMut(Code, String)) {
    let slot = d.rotation_estimate.saturating_add(policy.surge.cooldown_after);
    let n = pool.claims;
    // nodes come due at a steady rate only if they expire and are not due from the start
    let coming_due = d.age_threshold.filter(|a| a.is_positive() && d.expire_after.is_some());
    match cadence.measures {
        Measures::Never => {}
        Measures::Always => {
            let need = times(slot, n);
            if let Some(a) = coming_due.filter(|a| *a < need) {
                add(
                    Code::ThroughputBelowArrival,
                    format!(
                        "{n} rotations of {} each take longer than the {} in which {n} nodes come due",
                        human(slot),
                        human(a)
                    ),
                );
            }
            if d.expire_after.is_some() && need > d.lead_time {
                add(
                    Code::ThroughputBurstShortfall,
                    format!(
                        "{n} nodes that come due at once need {}, more than the {} left before they expire",
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
                        "{} rotations fit into a window and windows open every {}, but {n} nodes come due every {}; lengthen the windows or open them more often",
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
                        "{n} nodes that come due at once do not fit into {} windows of {} rotations each",
                        d.wanted_chances, d.starts_per_window
                    ),
                );
            }
            // a window that closes for a moment is as good as one that stays open
            if slot > period.gap && period.gap > MOMENT {
                add(
                    Code::RotationSpansNextWindow,
                    format!(
                        "one rotation with its cooldown takes {}, which is longer than the {} between two windows",
                        human(slot),
                        human(period.gap)
                    ),
                );
            }
        }
    }
}

/// Whether the claim has `K` completable occurrences without the exclusions but not with them.
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
