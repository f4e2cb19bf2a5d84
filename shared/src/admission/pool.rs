//! Judges a NodePool under all policies: a change of one (§10), or one from a file (§14).

use jiff::Timestamp;

use super::policy::finding;
use super::policy_index::PolicyIndex;
use super::{ProposedNodePool, StaticPools, Verdict, messages};
use crate::blocked::{Blocked, BlockedReason};
use crate::feasibility::{self, Cadence, Derived, Finding, PoolFacts};
use crate::governance::{ParsedPolicy, Ungoverned, govern, govern_or_explain};
use crate::policy::Policy;

/// The result of [`judge_pool`].
#[derive(Clone, Debug, Default)]
pub struct PoolVerdict {
    /// The name of the policy that wins the pool, valid or not; `None` if no policy matches or several tie (§4).
    pub governed_by: Option<String>,
    /// Why admission would refuse the pool, one message per problem; empty if it would not.
    pub refusals: Vec<String>,
    /// The derived values of §2; `None` unless a valid policy governs the pool.
    pub derived: Option<Derived>,
    /// The findings of §6; empty unless a valid policy governs the pool.
    pub findings: Vec<Finding>,
    /// What keeps the pool from being rotated (§6.1).
    pub blocked: Vec<Blocked>,
}

/// Judges a NodePool as if these policies were all there are, and as if it had `claims` nodes. The calendar is evaluated
/// as of `now`.
pub fn judge_pool<'a>(
    pool: &ProposedNodePool,
    policies: impl IntoIterator<Item = &'a ParsedPolicy> + Clone,
    claims: i64,
    now: Timestamp,
) -> PoolVerdict {
    let mut verdict =
        PoolVerdict { refusals: pool.problems.iter().map(ToString::to_string).collect(), ..PoolVerdict::default() };
    let governance = govern_or_explain(&pool.labels, &pool.template_labels, policies);
    verdict.blocked = governance.as_ref().err().and_then(Blocked::ungoverned).into_iter().collect();
    match governance {
        Err(Ungoverned::NoMatch | Ungoverned::OnlyTemplate(_)) => {}
        Ok((winner, policy)) => {
            verdict.governed_by = Some(winner.name.to_string());
            if pool.is_static {
                verdict.refusals.push(static_pool(&winner.name));
            }
            let cadence = Cadence::of(policy, now);
            let facts = PoolFacts { claims, ..pool.facts };
            verdict.derived = Some(feasibility::derive(policy, &cadence, &facts));
            verdict.findings = feasibility::findings(policy, &cadence, &facts, []);
            verdict.blocked = Blocked::all(policy, &verdict.findings, &pool.situation(), now);
        }
        Err(Ungoverned::Conflict(names)) => verdict.refusals.push(tie(&names)),
        Err(Ungoverned::InvalidPolicy(winner)) => {
            verdict.refusals.push(invalid(&winner));
            verdict.governed_by = Some(winner);
        }
    }
    verdict
}

/// Judges the creation (`old` is `None`) or update of a NodePool. A problem is refused if this change introduces it, and
/// a warning otherwise.
pub fn judge_pool_change(
    index: &PolicyIndex,
    old: Option<&ProposedNodePool>,
    new: &ProposedNodePool,
    static_pools: StaticPools,
    now: Timestamp,
) -> Verdict {
    let mut verdict = Verdict::default();
    for problem in &new.problems {
        let is_new = old.is_none_or(|old| !old.problems.contains(problem));
        verdict.add_problem(is_new, problem.to_string());
    }
    let before = old.map(|old| govern(&old.labels, index.policies()));
    match govern_or_explain(&new.labels, &new.template_labels, index.policies()) {
        Err(Ungoverned::NoMatch) => {}
        Err(why @ Ungoverned::OnlyTemplate(_)) => {
            verdict.warnings.extend(Blocked::ungoverned(&why).map(|b| b.to_string()));
        }
        Err(Ungoverned::Conflict(names)) => {
            let is_new = !matches!(&before, Some(Err(Ungoverned::Conflict(earlier))) if *earlier == names);
            verdict.add_problem(is_new, tie(&names));
        }
        Err(Ungoverned::InvalidPolicy(winner)) => verdict.warnings.push(invalid(&winner)),
        Ok((winner, policy)) => {
            if new.is_static {
                let was = old.is_some_and(|old| old.is_static) && matches!(before, Some(Ok(_)));
                verdict.add_problem(!was && static_pools == StaticPools::Deny, static_pool(&winner.name));
                return verdict;
            }
            verdict.warnings.extend(drift(old, new));
            if old.is_none_or(|old| old.labels != new.labels || old.facts != new.facts || old.limits != new.limits) {
                let cadence = Cadence::of(policy, now);
                let findings = feasibility::findings(policy, &cadence, &new.facts, []);
                let by = &winner.name;
                let warnings = unfindable(policy, &findings, new, now).into_iter().chain(findings.iter().map(finding));
                verdict.warnings.extend(warnings.map(|warning| format!("RotationPolicy {by}: {warning}")));
            }
        }
    }
    verdict
}

/// What blocks the pool and is no finding, unless its operator has wanted it.
pub(super) fn unfindable(
    policy: &Policy,
    findings: &[Finding],
    pool: &ProposedNodePool,
    now: Timestamp,
) -> Vec<String> {
    Blocked::all(policy, findings, &pool.situation(), now)
        .iter()
        .filter(|blocked| {
            // a freeze that cannot be read and a static pool are refused
            matches!(
                blocked.reason(),
                BlockedReason::NeverDue | BlockedReason::NoWindowAhead | BlockedReason::LimitsExhausted
            )
        })
        .map(|blocked| format!("{}: {blocked}", blocked.word()))
        .collect()
}

/// A warning about a change of `expireAfter`: Karpenter counts it as drift and replaces every node.
fn drift(old: Option<&ProposedNodePool>, new: &ProposedNodePool) -> Option<String> {
    let old = old.filter(|old| old.facts.expire_after != new.facts.expire_after)?;
    let nodes = match old.facts.claims {
        0 => String::new(),
        1 => " (1)".into(),
        n => format!(" ({n})"),
    };
    Some(format!(
        "spec.template.spec.expireAfter: a change makes every node of this NodePool{nodes} drift, and Karpenter replaces drifted nodes at any hour, not only in the maintenance window; a disruption budget with nodes: \"0\" for reason Drifted prevents that"
    ))
}

fn static_pool(policy: &str) -> String {
    format!(
        "spec.replicas: a static NodePool cannot surge, so RotationPolicy {policy} must not govern it; remove the pool's label, or narrow the policy's selector"
    )
}

fn tie(names: &[String]) -> String {
    format!(
        "metadata.labels: {} are equally specific for this NodePool, so none of them would govern it and nothing would rotate; add a label to the selector of one of them",
        messages::policies(names)
    )
}

fn invalid(policy: &str) -> String {
    format!(
        "RotationPolicy {policy} would govern this NodePool but is invalid, so nothing would rotate; correct the policy first"
    )
}
