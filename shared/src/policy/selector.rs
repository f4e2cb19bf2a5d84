//! `nodePoolSelector`, a standard Kubernetes label selector, and the syntax of label keys and values.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{Selector, SelectorExt};

use crate::field_error::{FieldError, FieldErrors, quoted};

/// A valid `nodePoolSelector`, parsed (§4).
#[derive(Clone, Debug)]
pub struct PoolSelector {
    selector: Selector,
    specificity: usize,
    rules: Vec<(String, LabelRequirement)>,
}

/// Everything that a selector requires of one label key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LabelRequirement {
    /// The allowed values; `None` allows any value.
    one_of: Option<BTreeSet<String>>,
    none_of: BTreeSet<String>,
    present: bool,
    absent: bool,
}

impl LabelRequirement {
    fn add(&mut self, operator: &str, values: BTreeSet<String>) {
        match operator {
            "In" => {
                self.present = true;
                self.one_of = Some(match self.one_of.take() {
                    Some(earlier) => earlier.intersection(&values).cloned().collect(),
                    None => values,
                });
            }
            "NotIn" => self.none_of.extend(values),
            "Exists" => self.present = true,
            _ => self.absent = true,
        }
    }

    /// Whether the label can satisfy both requirements at the same time.
    fn is_compatible_with(&self, other: &Self) -> bool {
        let (absent, present) = (self.absent || other.absent, self.present || other.present);
        if absent {
            return !present;
        }
        let allowed = |value: &String| !self.none_of.contains(value) && !other.none_of.contains(value);
        match (&self.one_of, &other.one_of) {
            // only finitely many values are forbidden, so some value is always allowed
            (None, None) => true,
            (Some(values), None) | (None, Some(values)) => values.iter().any(allowed),
            (Some(a), Some(b)) => a.iter().any(|value| b.contains(value) && allowed(value)),
        }
    }
}

impl PartialEq for PoolSelector {
    /// Whether both select the same NodePools with the same specificity.
    fn eq(&self, other: &Self) -> bool {
        self.specificity == other.specificity && self.rules == other.rules
    }
}

impl PoolSelector {
    /// Whether the selector selects a NodePool with these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// The bytes of all its keys and values.
    pub fn bytes(&self) -> usize {
        let of_values = |values: &BTreeSet<String>| values.iter().map(String::len).sum::<usize>();
        let of_rule = |rule: &LabelRequirement| rule.one_of.as_ref().map_or(0, of_values) + of_values(&rule.none_of);
        self.rules.iter().map(|(key, rule)| key.len() + of_rule(rule)).sum()
    }

    /// The number of entries in `matchLabels` and `matchExpressions`; 0 for `{}` (§4).
    pub fn specificity(&self) -> usize {
        self.specificity
    }

    /// A key and value that every selected NodePool has as a label; `None` if the selector does not require a single
    /// value of any key.
    pub fn required_pair(&self) -> Option<(&str, &str)> {
        self.rules.iter().find_map(|(key, rule)| {
            let values = rule.one_of.as_ref().filter(|values| values.len() == 1)?;
            Some((key.as_str(), values.first()?.as_str()))
        })
    }

    /// Whether both selectors could select the same NodePool, given suitable labels (§10).
    pub fn could_share_a_pool_with(&self, other: &Self) -> bool {
        let none = LabelRequirement::default();
        let of_other = |key: &String| {
            let at = other.rules.binary_search_by(|(k, _)| k.cmp(key)).ok();
            at.and_then(|at| other.rules.get(at)).map_or(&none, |(_, rule)| rule)
        };
        self.rules.iter().all(|(key, rule)| rule.is_compatible_with(of_other(key)))
            && other.rules.iter().all(|(_, rule)| rule.is_compatible_with(&none))
    }
}

impl TryFrom<&LabelSelector> for PoolSelector {
    type Error = FieldErrors;

    fn try_from(given: &LabelSelector) -> Result<Self, FieldErrors> {
        let mut problems = Vec::new();
        selector_problems(given, &mut problems);
        if !problems.is_empty() {
            return Err(FieldErrors(problems));
        }
        let specificity =
            given.match_labels.as_ref().map_or(0, BTreeMap::len) + given.match_expressions.as_ref().map_or(0, Vec::len);
        let selector = Selector::try_from(given.clone()).map_err(|e| {
            FieldErrors(vec![FieldError::new("spec.nodePoolSelector", "", e.to_string(), "a standard label selector")])
        })?;
        Ok(Self { selector, specificity, rules: rules(given) })
    }
}

/// The requirements of a selector, sorted by label key.
fn rules(given: &LabelSelector) -> Vec<(String, LabelRequirement)> {
    let mut rules: BTreeMap<&str, LabelRequirement> = BTreeMap::new();
    for (key, value) in given.match_labels.iter().flatten() {
        rules.entry(key).or_default().add("In", BTreeSet::from([value.clone()]));
    }
    for expression in given.match_expressions.iter().flatten() {
        let values = expression.values.iter().flatten().cloned().collect();
        rules.entry(&expression.key).or_default().add(&expression.operator, values);
    }
    rules.into_iter().map(|(key, rule)| (key.to_owned(), rule)).collect()
}

/// Whether `key` is a valid label key: an optional DNS subdomain and `/`, and a name of at most 63 characters.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label_name(name),
        None => is_label_name(key),
    }
}

/// Whether `value` is a valid label value: empty, or at most 63 letters, digits, `-`, `_` and `.`, beginning and ending
/// with a letter or digit.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_name(value)
}

fn is_label_name(name: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&name.len())
        && name.starts_with(ends)
        && name.ends_with(ends)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=253).contains(&text.len())
        && text.split('.').all(|part| {
            part.starts_with(ends)
                && part.ends_with(ends)
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

/// What to write instead of something that is no label key.
pub const LABEL_KEY: &str = "a label key such as workload or example.com/workload";

/// Adds every problem of a selector to `problems`.
pub(super) fn selector_problems(selector: &LabelSelector, problems: &mut Vec<FieldError>) {
    let labels = "spec.nodePoolSelector.matchLabels";
    let value_why =
        "must be a label value: at most 63 letters, digits, '-', '_', '.', beginning and ending with a letter or digit";
    if let Some(count) = selector.match_labels.as_ref().map(BTreeMap::len).filter(|count| *count > 64) {
        problems.push(FieldError::new(labels, format!("{count} labels"), "at most 64 are allowed", "fewer"));
    }
    for (key, value) in selector.match_labels.iter().flatten() {
        if !is_label_key(key) {
            problems.push(FieldError::new(labels, format!("key {}", quoted(key)), "must be a label key", LABEL_KEY));
        }
        if !is_label_value(value) {
            problems.push(FieldError::new(
                format!("{labels}.{key}"),
                quoted(value),
                value_why,
                "a label value such as api",
            ));
        }
    }
    let path = "spec.nodePoolSelector.matchExpressions";
    if let Some(count) = selector.match_expressions.as_ref().map(Vec::len).filter(|count| *count > 64) {
        problems.push(FieldError::new(path, format!("{count} expressions"), "at most 64 are allowed", "fewer"));
    }
    for (i, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}[{i}]");
        if !is_label_key(&expression.key) {
            problems.push(FieldError::new(
                format!("{path}.key"),
                quoted(&expression.key),
                "must be a label key",
                LABEL_KEY,
            ));
        }
        let values = expression.values.as_deref().unwrap_or_default();
        match (expression.operator.as_str(), values.is_empty()) {
            ("In" | "NotIn", true) => {
                problems.push(FieldError::new(
                    format!("{path}.values"),
                    "[]",
                    "must not be empty for In and NotIn",
                    "at least one value",
                ));
            }
            ("Exists" | "DoesNotExist", false) => {
                problems.push(FieldError::new(
                    format!("{path}.values"),
                    format!("{} values", values.len()),
                    "must be empty for Exists and DoesNotExist",
                    "no values",
                ));
            }
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            (operator, _) => {
                problems.push(FieldError::new(
                    format!("{path}.operator"),
                    quoted(operator),
                    "is not a known operator",
                    "one of In, NotIn, Exists, DoesNotExist",
                ));
            }
        }
        if values.len() > 64 {
            problems.push(FieldError::new(
                format!("{path}.values"),
                format!("{} values", values.len()),
                "at most 64 are allowed",
                "fewer",
            ));
        }
        for (j, value) in values.iter().enumerate().filter(|(_, value)| !is_label_value(value)) {
            problems.push(FieldError::new(
                format!("{path}.values[{j}]"),
                quoted(value),
                value_why,
                "a label value such as api",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const KEYS: [&str; 2] = ["a", "b"];
    const VALUES: [&str; 3] = ["", "x", "y"];

    fn selector(expressions: &[(usize, usize, Vec<usize>)]) -> PoolSelector {
        let expressions: Vec<_> = expressions
            .iter()
            .map(|(key, operator, values)| {
                let operator = ["In", "NotIn", "Exists", "DoesNotExist"][*operator];
                let mut one = json!({"key": KEYS[*key], "operator": operator});
                if operator.ends_with("In") {
                    one["values"] = values.iter().map(|v| VALUES[*v]).collect();
                }
                one
            })
            .collect();
        let given: LabelSelector = serde_json::from_value(json!({"matchExpressions": expressions})).unwrap();
        PoolSelector::try_from(&given).unwrap()
    }

    /// Every combination of labels: each key absent, with each value, and with a value that no selector names.
    fn labellings() -> Vec<BTreeMap<String, String>> {
        let states = [None, Some(""), Some("x"), Some("y"), Some("other")];
        let mut all = Vec::new();
        for a in states {
            for b in states {
                let pairs = [("a", a), ("b", b)].into_iter();
                all.push(pairs.filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect());
            }
        }
        all
    }

    proptest! {
        #[test]
        fn selectors_share_a_pool_if_some_labels_satisfy_both(
            a in prop::collection::vec((0usize..2, 0usize..4, prop::collection::vec(0usize..3, 1..3)), 0..4),
            b in prop::collection::vec((0usize..2, 0usize..4, prop::collection::vec(0usize..3, 1..3)), 0..4),
        ) {
            let (a, b) = (selector(&a), selector(&b));
            let expected = labellings().iter().any(|labels| a.matches(labels) && b.matches(labels));
            prop_assert_eq!(a.could_share_a_pool_with(&b), expected);
            prop_assert_eq!(b.could_share_a_pool_with(&a), expected);
            if let Some((key, value)) = a.required_pair() {
                for labels in labellings().iter().filter(|labels| a.matches(labels)) {
                    prop_assert_eq!(labels.get(key).map(String::as_str), Some(value));
                }
            }
        }
    }
}
