//! A NodePool that is to change (§10), and one of a file (§14).

use jiff::Timestamp;

use super::policy::finding;
use super::policy_index::PolicyIndex;
use super::{ProposedNodePool, StaticPools, Verdict, messages};
use crate::feasibility::{self, Cadence, Derived, Finding, PoolFacts};
use crate::governance::{StoredPolicy, Ungoverned, govern};

/// What is to be said of a NodePool under these policies.
#[derive(Clone, Debug, Default)]
pub struct PoolVerdict {
    /// The winning policy, valid or not.
    pub governed_by: Option<String>,
    /// Why it must be refused; empty: it need not.
    pub refusals: Vec<String>,
    /// The values of §2, where a valid policy governs.
    pub derived: Option<Derived>,
    /// The findings of §6.
    pub findings: Vec<Finding>,
}

/// Judges a NodePool that has `claims` nodes under all policies there are.
pub fn judge_pool<'a>(
    pool: &ProposedNodePool,
    policies: impl IntoIterator<Item = &'a StoredPolicy>,
    claims: i64,
    now: Timestamp,
) -> PoolVerdict {
    let mut verdict =
        PoolVerdict { refusals: pool.problems.iter().map(ToString::to_string).collect(), ..PoolVerdict::default() };
    match govern(&pool.labels, policies) {
        Err(Ungoverned::NoMatch) => {}
        Ok((winner, policy)) => {
            verdict.governed_by = Some(winner.name.clone());
            if pool.is_static {
                verdict.refusals.push(static_pool(&winner.name));
            }
            let cadence = Cadence::of(policy, now);
            let facts = PoolFacts { claims, ..pool.facts };
            verdict.derived = Some(feasibility::derive(policy, &cadence, &facts));
            verdict.findings = feasibility::findings(policy, &cadence, &facts, []);
        }
        Err(Ungoverned::Conflict(names)) => verdict.refusals.push(tie(&names)),
        Err(Ungoverned::InvalidPolicy(winner)) => {
            verdict.refusals.push(invalid(&winner));
            verdict.governed_by = Some(winner);
        }
    }
    verdict
}

/// Judges a creation (`old` is `None`) or an update: a fault is refused if this change brings it about.
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
        verdict.fault(is_new, problem.to_string());
    }
    let before = old.map(|old| govern(&old.labels, index.policies()));
    match govern(&new.labels, index.policies()) {
        Err(Ungoverned::NoMatch) => {}
        Err(Ungoverned::Conflict(names)) => {
            let is_new = !matches!(&before, Some(Err(Ungoverned::Conflict(earlier))) if *earlier == names);
            verdict.fault(is_new, tie(&names));
        }
        Err(Ungoverned::InvalidPolicy(winner)) => verdict.warnings.push(invalid(&winner)),
        Ok((winner, policy)) => {
            if new.is_static {
                let was = old.is_some_and(|old| old.is_static) && matches!(before, Some(Ok(_)));
                verdict.fault(!was && static_pools == StaticPools::Deny, static_pool(&winner.name));
                return verdict;
            }
            verdict.warnings.extend(drift(old, new));
            if old.is_none_or(|old| old.labels != new.labels || old.facts != new.facts) {
                let cadence = Cadence::of(policy, now);
                let found = feasibility::findings(policy, &cadence, &new.facts, []);
                let by = &winner.name;
                verdict.warnings.extend(found.iter().map(|f| format!("RotationPolicy {by}: {}", finding(f))));
            }
        }
    }
    verdict
}

/// `expireAfter` is part of what Karpenter compares: changing it replaces every node.
fn drift(old: Option<&ProposedNodePool>, new: &ProposedNodePool) -> Option<String> {
    let old = old.filter(|old| old.facts.expire_after != new.facts.expire_after)?;
    let nodes = match old.facts.claims {
        0 => String::new(),
        1 => " (1)".into(),
        n => format!(" ({n})"),
    };
    Some(format!(
        "spec.template.spec.expireAfter: changing it makes every node of this NodePool{nodes} drift: Karpenter replaces them within its disruption budgets, at any hour, not in the maintenance window; a budget of nodes: \"0\" for reason Drifted holds that back"
    ))
}

fn static_pool(policy: &str) -> String {
    format!(
        "spec.replicas: a static NodePool cannot surge, so RotationPolicy {policy} must not govern it; remove its label, or narrow the selector"
    )
}

fn tie(names: &[String]) -> String {
    format!(
        "metadata.labels: {} are equally specific for this NodePool, so none of them would govern it and nothing would rotate; add a label to the selector of one",
        messages::policies(names)
    )
}

fn invalid(policy: &str) -> String {
    format!(
        "RotationPolicy {policy} would govern this NodePool and is invalid: nothing would rotate; put it right first"
    )
}
