//! Which policy governs a NodePool (§4).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::policy::{Policy, PoolSelector};
use crate::problem::{Problem, Problems};

/// A RotationPolicy as it is stored, right or wrong.
#[derive(Clone, Debug)]
pub struct StoredPolicy {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The selector; `None` when it cannot be read, and then the policy selects nothing.
    pub selector: Option<PoolSelector>,
    /// The policy, or everything that is wrong with it.
    pub verdict: Result<Arc<Policy>, Problems>,
}

impl StoredPolicy {
    /// Reads an object's `spec`, of whatever shape it is.
    pub fn read(name: &str, generation: Option<i64>, spec: &Value) -> Self {
        let selector = spec
            .get("nodePoolSelector")
            .and_then(|value| serde_json::from_value::<LabelSelector>(value.clone()).ok())
            .and_then(|selector| PoolSelector::try_from(&selector).ok());
        let mut verdict = Policy::from_json(spec).map(Arc::new);
        if selector.is_none() && verdict.is_ok() {
            let problem = Problem::new("spec.nodePoolSelector", "", "cannot be read", "a standard label selector");
            verdict = Err(Problems(vec![problem]));
        }
        Self { name: name.to_owned(), generation, selector, verdict }
    }
}

/// Who governs a pool.
#[derive(Clone, Debug)]
pub enum Governance<'a> {
    /// This valid policy.
    Governed(&'a StoredPolicy, &'a Arc<Policy>),
    /// No policy matches: the pool is not rotated.
    Unmatched,
    /// Two or more at the highest specificity: none of them governs.
    Conflict(Vec<&'a StoredPolicy>),
    /// The winner is invalid: the pool is blocked, not handed to the runner-up.
    Invalid(&'a StoredPolicy, &'a Problems),
}

/// Resolves who governs a pool with these labels. Policies of a conflict come sorted by name.
pub fn govern<'a>(
    labels: &BTreeMap<String, String>,
    policies: impl IntoIterator<Item = &'a StoredPolicy>,
) -> Governance<'a> {
    let mut highest = 0;
    let mut winners: Vec<&StoredPolicy> = Vec::new();
    for policy in policies {
        let Some(selector) = policy.selector.as_ref().filter(|s| s.matches(labels)) else { continue };
        if winners.is_empty() || selector.specificity() > highest {
            highest = selector.specificity();
            winners.clear();
        }
        if selector.specificity() == highest {
            winners.push(policy);
        }
    }
    match winners.as_slice() {
        [] => Governance::Unmatched,
        [winner] => match &winner.verdict {
            Ok(policy) => Governance::Governed(winner, policy),
            Err(problems) => Governance::Invalid(winner, problems),
        },
        _ => {
            winners.sort_by(|a, b| a.name.cmp(&b.name));
            Governance::Conflict(winners)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn policy(name: &str, selector: Value) -> StoredPolicy {
        let spec = json!({
            "nodePoolSelector": selector,
            "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}],
        });
        StoredPolicy::read(name, Some(1), &spec)
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn winner(labels: &BTreeMap<String, String>, policies: &[StoredPolicy]) -> String {
        match govern(labels, policies) {
            Governance::Governed(p, _) => p.name.clone(),
            Governance::Unmatched => "-".into(),
            Governance::Conflict(ps) => ps.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join("="),
            Governance::Invalid(p, _) => format!("!{}", p.name),
        }
    }

    #[test]
    fn the_most_specific_wins_and_ties_block() {
        let policies = [
            policy("all", json!({})),
            policy("api", json!({"matchLabels": {"w": "api"}})),
            policy(
                "api-eu",
                json!({"matchLabels": {"w": "api"}, "matchExpressions": [{"key": "eu", "operator": "Exists"}]}),
            ),
            policy("eu", json!({"matchExpressions": [{"key": "eu", "operator": "Exists"}]})),
        ];
        assert_eq!(winner(&labels(&[]), &policies), "all");
        assert_eq!(winner(&labels(&[("w", "api")]), &policies), "api");
        assert_eq!(winner(&labels(&[("w", "api"), ("eu", "")]), &policies), "api-eu");
        assert_eq!(winner(&labels(&[("w", "web"), ("eu", "")]), &policies), "eu");
        assert_eq!(winner(&labels(&[("w", "api"), ("eu", "")]), &policies[1..2]), "api");
        assert_eq!(winner(&labels(&[("w", "api"), ("eu", "")]), &[policies[1].clone(), policies[3].clone()]), "api=eu");
        assert_eq!(winner(&labels(&[]), &policies[1..]), "-");
    }

    #[test]
    fn an_invalid_winner_blocks_and_never_hands_on() {
        let mut bad = policy("bad", json!({"matchLabels": {"w": "api"}}));
        let spec = json!({"nodePoolSelector": {"matchLabels": {"w": "api"}}, "maintenanceWindows": "Mon"});
        bad = StoredPolicy::read(&bad.name, None, &spec);
        let policies = [policy("all", json!({})), bad];
        assert_eq!(winner(&labels(&[("w", "api")]), &policies), "!bad");
        assert_eq!(winner(&labels(&[("w", "web")]), &policies), "all");
    }

    proptest! {
        #[test]
        fn order_of_policies_is_irrelevant(
            picks in prop::collection::vec((0usize..3, any::<bool>()), 1..6),
            seed in 0usize..6,
        ) {
            let policies: Vec<_> = picks.iter().enumerate().map(|(i, (n, wide))| {
                let mut keys = serde_json::Map::new();
                for k in 0..*n { keys.insert(format!("k{k}"), json!("v")); }
                policy(&format!("p{i}"), if *wide { json!({}) } else { json!({"matchLabels": keys}) })
            }).collect();
            let mut rotated = policies.clone();
            rotated.rotate_left(seed % policies.len());
            let pool = labels(&[("k0", "v"), ("k1", "v")]);
            prop_assert_eq!(winner(&pool, &policies), winner(&pool, &rotated));
        }
    }
}
