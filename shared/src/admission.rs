//! What admission says of NodePools and policies together (§10); `check` says the same of files (§14).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::feasibility::{self, Cadence, Derived, Finding, PoolFacts};
use crate::governance::{Governance, StoredPolicy, govern};
use crate::problem::{Problem, quoted};
use crate::{duration, instant, keys};

/// Karpenter's own default for `expireAfter`.
const DEFAULT_EXPIRE_AFTER: SignedDuration = SignedDuration::from_hours(720);

/// A NodePool as somebody wrote it: what concerns us, and what is wrong with that.
#[derive(Clone, Debug)]
pub struct PoolDraft {
    /// Its name; empty where it has none yet.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.replicas` is set.
    pub is_static: bool,
    /// What the findings need; no claims.
    pub facts: PoolFacts,
    /// An unreadable `freeze`, keys of ours in the template, lifetimes that cannot be read.
    pub problems: Vec<Problem>,
}

impl PoolDraft {
    /// Reads a NodePool of whatever shape.
    pub fn read(object: &Value) -> Self {
        let mut problems = Vec::new();
        let expire_after = match object.pointer("/spec/template/spec/expireAfter") {
            None => Some(DEFAULT_EXPIRE_AFTER),
            Some(_) => lifetime(object, "expireAfter", true, &mut problems),
        };
        let termination_grace_period = lifetime(object, "terminationGracePeriod", false, &mut problems);
        problems.extend(freeze_problem(object));
        problems.extend(template_problems(object));
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        Self {
            name: object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            labels: labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
            is_static: object.pointer("/spec/replicas").is_some_and(|r| !r.is_null()),
            facts: PoolFacts { expire_after, termination_grace_period, claims: 0 },
            problems,
        }
    }
}

fn lifetime(object: &Value, field: &str, may_be_never: bool, problems: &mut Vec<Problem>) -> Option<SignedDuration> {
    let value = object.pointer(&format!("/spec/template/spec/{field}"))?;
    let text = value.as_str().unwrap_or_default();
    if may_be_never && text == "Never" {
        return None;
    }
    let read = duration::parse(text);
    if read.is_none() {
        let instead = if may_be_never { "720h or Never" } else { "1h" };
        problems.push(Problem::new(format!("spec.template.spec.{field}"), value, "must be a Go duration", instead));
    }
    read
}

/// An unreadable freeze holds the pool for ever, so it is refused in the first place.
fn freeze_problem(object: &Value) -> Option<Problem> {
    let value = object.pointer("/metadata/annotations")?.get(keys::FREEZE)?;
    let text = value.as_str().unwrap_or_default();
    instant::parse(text).is_none().then(|| {
        Problem::new(
            format!("metadata.annotations[{}]", keys::FREEZE),
            quoted(text),
            "must be an RFC 3339 instant; a relative time would be renewed by every sync",
            "an instant such as 2026-12-26T00:00:00Z",
        )
    })
}

/// Our keys in a template would land on every new NodeClaim.
fn template_problems(object: &Value) -> Vec<Problem> {
    let found = |map: &'static str| {
        let fields = object.pointer(&format!("/spec/template/metadata/{map}")).and_then(Value::as_object);
        let ours = fields.into_iter().flatten().filter(|(key, _)| key.starts_with(keys::PREFIX));
        ours.map(move |(key, value)| {
            Problem::new(
                format!("spec.template.metadata.{map}[{key}]"),
                value,
                "would be copied to every new NodeClaim and Node, whose rotation it would falsify",
                "nothing; put it on the NodePool or NodeClaim that it is meant for",
            )
        })
    };
    found("labels").chain(found("annotations")).collect()
}

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
        Governance::Conflict(tied) => {
            let names: Vec<&str> = tied.iter().map(|p| p.name.as_str()).collect();
            verdict.refusals.push(tie(&names));
        }
        Governance::Invalid(winner, _) => {
            verdict.governed_by = Some(winner.name.clone());
            let name = &winner.name;
            verdict.refusals.push(format!("RotationPolicy {name} would govern and is invalid: nothing would rotate"));
        }
    }
    verdict
}

fn static_pool(policy: &str) -> String {
    format!(
        "spec.replicas: a static NodePool cannot surge, so RotationPolicy {policy} must not govern it; remove its label, or narrow the selector"
    )
}

fn tie(names: &[&str]) -> String {
    let names = names.join(", ");
    format!(
        "metadata.labels: RotationPolicies {names} are equally specific, so none of them would govern; add a label to one's selector"
    )
}
