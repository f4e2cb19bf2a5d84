//! Which policy governs a NodePool (§4).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::admission::messages;
use crate::field_error::{FieldError, FieldErrors};
use crate::policy::{Policy, PoolSelector};

/// A RotationPolicy by its name and its parsed spec, valid or not: all that governance (§4) and admission (§10) ask of one.
/// It comes from a watch, an admission request or a file; the object that a watch reports is a
/// [`PolicyObject`](crate::objects::PolicyObject).
#[derive(Clone, Debug)]
pub struct ParsedPolicy {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The parsed `nodePoolSelector`; `None` if it is invalid, and then the policy selects nothing.
    pub selector: Option<PoolSelector>,
    /// The parsed policy, or every invalid field.
    pub verdict: Result<Arc<Policy>, FieldErrors>,
}

impl ParsedPolicy {
    /// Parses the `spec` of a policy from any JSON. Always succeeds; the errors are in [`ParsedPolicy::verdict`].
    pub fn read(name: &str, spec: &Value) -> Self {
        let selector = Self::selector_of(spec);
        let mut verdict = Policy::from_json(spec).map(Arc::new);
        if selector.is_none() && verdict.is_ok() {
            let problem = FieldError::new("spec.nodePoolSelector", "", "cannot be read", "a standard label selector");
            verdict = Err(FieldErrors(vec![problem]));
        }
        Self { name: name.into(), selector, verdict }
    }

    /// Parses the `nodePoolSelector` of a `spec` alone; `None` if it is invalid.
    pub fn selector_of(spec: &Value) -> Option<PoolSelector> {
        let selector: LabelSelector = serde_json::from_value(spec.get("nodePoolSelector")?.clone()).ok()?;
        PoolSelector::try_from(&selector).ok()
    }
}

/// Why no policy governs a NodePool (§4). Nothing rotates there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ungoverned {
    /// No policy's selector matches the NodePool's labels. There is no implicit default.
    #[error("no RotationPolicy selects this NodePool")]
    NoMatch,
    /// Nor does any; but the policy of this name selects labels that new nodes of the NodePool bear. Policies select by the
    /// labels of the NodePool itself.
    #[error(
        "no RotationPolicy selects this NodePool; RotationPolicy {0} selects labels that stand in its template only"
    )]
    OnlyTemplate(String),
    /// Two or more policies match at the highest specificity; their names, sorted.
    #[error("{} are equally specific, so none of them governs this NodePool; add a label to the selector of one of them", messages::policies(.0))]
    Conflict(Vec<String>),
    /// The policy of this name wins but is invalid. The next most specific policy does not take its place.
    #[error("RotationPolicy {0} governs this NodePool but is invalid; its Ready condition says why")]
    InvalidPolicy(String),
}

/// The policy that governs a NodePool, and its spec, which is valid.
pub type Governor<'a> = (&'a ParsedPolicy, &'a Arc<Policy>);

/// Resolves which of `policies` governs a NodePool with these labels (§4): the valid winner, or why there is none.
pub fn govern<'a>(
    labels: &BTreeMap<String, String>,
    policies: impl IntoIterator<Item = &'a ParsedPolicy>,
) -> Result<Governor<'a>, Ungoverned> {
    let mut highest = 0;
    let mut winners: Vec<&ParsedPolicy> = Vec::new();
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
        [] => Err(Ungoverned::NoMatch),
        [winner] => match &winner.verdict {
            Ok(policy) => Ok((winner, policy)),
            Err(_) => Err(Ungoverned::InvalidPolicy(winner.name.to_string())),
        },
        _ => {
            let mut names: Vec<String> = winners.iter().map(|policy| policy.name.to_string()).collect();
            names.sort();
            Err(Ungoverned::Conflict(names))
        }
    }
}

/// As [`govern`], for a NodePool whose template has these labels: of one that no policy selects it says whether a policy selects
/// those.
pub fn govern_or_explain<'a>(
    labels: &BTreeMap<String, String>,
    template: &BTreeMap<String, String>,
    policies: impl IntoIterator<Item = &'a ParsedPolicy> + Clone,
) -> Result<Governor<'a>, Ungoverned> {
    let means = |policy: &&ParsedPolicy| policy.selector.as_ref().is_some_and(|s| s.matches(template));
    match govern(labels, policies.clone()) {
        Err(Ungoverned::NoMatch) => Err(policies
            .into_iter()
            .find(means)
            .map_or(Ungoverned::NoMatch, |policy| Ungoverned::OnlyTemplate(policy.name.to_string()))),
        governance => governance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn policy(name: &str, selector: Value) -> ParsedPolicy {
        let spec = json!({
            "nodePoolSelector": selector,
            "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}],
        });
        ParsedPolicy::read(name, &spec)
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn winner(labels: &BTreeMap<String, String>, policies: &[ParsedPolicy]) -> String {
        match govern(labels, policies) {
            Ok((p, _)) => p.name.to_string(),
            Err(Ungoverned::NoMatch | Ungoverned::OnlyTemplate(_)) => "-".into(),
            Err(Ungoverned::Conflict(names)) => names.join("="),
            Err(Ungoverned::InvalidPolicy(name)) => format!("!{name}"),
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
    fn an_invalid_winner_blocks_the_runner_up() {
        let mut bad = policy("bad", json!({"matchLabels": {"w": "api"}}));
        let spec = json!({"nodePoolSelector": {"matchLabels": {"w": "api"}}, "maintenanceWindows": "Mon"});
        bad = ParsedPolicy::read(&bad.name, &spec);
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
