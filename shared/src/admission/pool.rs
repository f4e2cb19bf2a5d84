//! A NodePool that is to change (§10), and one of a file (§14).

use jiff::Timestamp;

use super::ledger::Ledger;
use super::policy::{finding, names_of};
use super::{PoolDraft, StaticPools, Verdict, words};
use crate::feasibility::{self, Cadence, Derived, Finding, PoolFacts};
use crate::governance::{Governance, StoredPolicy, govern};

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
    pool: &PoolDraft,
    policies: impl IntoIterator<Item = &'a StoredPolicy>,
    claims: i64,
    now: Timestamp,
) -> PoolVerdict {
    let mut verdict =
        PoolVerdict { refusals: pool.problems.iter().map(ToString::to_string).collect(), ..PoolVerdict::default() };
    match govern(&pool.labels, policies) {
        Governance::Unmatched => {}
        Governance::Governed(winner, policy) => {
            verdict.governed_by = Some(winner.name.clone());
            if pool.is_static {
                verdict.refusals.push(static_pool(&winner.name));
            }
            let cadence = Cadence::of(policy, now);
            let facts = PoolFacts { claims, ..pool.facts };
            verdict.derived = Some(feasibility::derive(policy, &cadence, &facts));
            verdict.findings = feasibility::findings(policy, &cadence, &facts, []);
        }
        Governance::Conflict(tied) => verdict.refusals.push(tie(&names_of(&tied))),
        Governance::Invalid(winner, _) => {
            verdict.governed_by = Some(winner.name.clone());
            verdict.refusals.push(invalid(&winner.name));
        }
    }
    verdict
}

/// Judges a creation (`old` is `None`) or an update: a fault is refused if this change brings it about.
pub fn judge_pool_change(
    ledger: &Ledger,
    old: Option<&PoolDraft>,
    new: &PoolDraft,
    static_pools: StaticPools,
    now: Timestamp,
) -> Verdict {
    let mut verdict = Verdict::default();
    for problem in &new.problems {
        let is_new = old.is_none_or(|old| !old.problems.contains(problem));
        verdict.fault(is_new, problem.to_string());
    }
    let before = old.map(|old| govern(&old.labels, ledger.policies()));
    match govern(&new.labels, ledger.policies()) {
        Governance::Unmatched => {}
        Governance::Conflict(tied) => {
            let names = names_of(&tied);
            let is_new = !matches!(&before, Some(Governance::Conflict(earlier)) if names_of(earlier) == names);
            verdict.fault(is_new, tie(&names));
        }
        Governance::Invalid(winner, _) => verdict.warnings.push(invalid(&winner.name)),
        Governance::Governed(winner, policy) => {
            if new.is_static {
                let was = old.is_some_and(|old| old.is_static) && matches!(before, Some(Governance::Governed(..)));
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
fn drift(old: Option<&PoolDraft>, new: &PoolDraft) -> Option<String> {
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

fn tie(names: &[&str]) -> String {
    format!(
        "metadata.labels: {} are equally specific for this NodePool, so none of them would govern it and nothing would rotate; add a label to the selector of one",
        words::policies(names)
    )
}

fn invalid(policy: &str) -> String {
    format!(
        "RotationPolicy {policy} would govern this NodePool and is invalid: nothing would rotate; put it right first"
    )
}
