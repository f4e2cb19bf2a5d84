//! `nodePoolSelector`: a standard label selector, and what label keys and values may be.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{Selector, SelectorExt};

use crate::problem::{Problem, Problems, quoted};

/// `nodePoolSelector`, read (§4).
#[derive(Clone, Debug)]
pub struct PoolSelector {
    selector: Selector,
    specificity: usize,
}

impl PoolSelector {
    /// Whether a pool with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// The number of label-key constraints; `{}` scores 0.
    pub fn specificity(&self) -> usize {
        self.specificity
    }
}

impl TryFrom<&LabelSelector> for PoolSelector {
    type Error = Problems;

    fn try_from(given: &LabelSelector) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        selector_problems(given, &mut problems);
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
        let specificity =
            given.match_labels.as_ref().map_or(0, BTreeMap::len) + given.match_expressions.as_ref().map_or(0, Vec::len);
        let selector = Selector::try_from(given.clone()).map_err(|e| {
            Problems(vec![Problem::new("spec.nodePoolSelector", "", e.to_string(), "a standard label selector")])
        })?;
        Ok(Self { selector, specificity })
    }
}

/// A qualified name: an optional DNS subdomain, `/`, and a name of at most 63 characters.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label_name(name),
        None => is_label_name(key),
    }
}

/// At most 63 letters, digits, `-`, `_`, `.`, beginning and ending with a letter or digit; may be empty.
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

/// Everything that is wrong with a selector.
pub(super) fn selector_problems(selector: &LabelSelector, problems: &mut Vec<Problem>) {
    let labels = "spec.nodePoolSelector.matchLabels";
    let key_rule = "a label key such as workload or example.com/workload";
    let value_why =
        "must be a label value: at most 63 letters, digits, '-', '_', '.', beginning and ending with a letter or digit";
    if let Some(count) = selector.match_labels.as_ref().map(BTreeMap::len).filter(|count| *count > 64) {
        problems.push(Problem::new(labels, format!("{count} labels"), "at most 64 are allowed", "fewer"));
    }
    for (key, value) in selector.match_labels.iter().flatten() {
        if !is_label_key(key) {
            problems.push(Problem::new(labels, format!("key {}", quoted(key)), "must be a label key", key_rule));
        }
        if !is_label_value(value) {
            problems.push(Problem::new(format!("{labels}.{key}"), quoted(value), value_why, "another value"));
        }
    }
    let path = "spec.nodePoolSelector.matchExpressions";
    if let Some(count) = selector.match_expressions.as_ref().map(Vec::len).filter(|count| *count > 64) {
        problems.push(Problem::new(path, format!("{count} expressions"), "at most 64 are allowed", "fewer"));
    }
    for (i, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}[{i}]");
        if !is_label_key(&expression.key) {
            problems.push(Problem::new(
                format!("{path}.key"),
                quoted(&expression.key),
                "must be a label key",
                key_rule,
            ));
        }
        let values = expression.values.as_deref().unwrap_or_default();
        match (expression.operator.as_str(), values.is_empty()) {
            ("In" | "NotIn", true) => {
                problems.push(Problem::new(
                    format!("{path}.values"),
                    "[]",
                    "In and NotIn compare with values",
                    "at least one value",
                ));
            }
            ("Exists" | "DoesNotExist", false) => {
                problems.push(Problem::new(
                    format!("{path}.values"),
                    format!("{} values", values.len()),
                    "Exists and DoesNotExist take no values",
                    "no values",
                ));
            }
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            (operator, _) => {
                problems.push(Problem::new(
                    format!("{path}.operator"),
                    quoted(operator),
                    "no such operator",
                    "one of In, NotIn, Exists, DoesNotExist",
                ));
            }
        }
        if values.len() > 64 {
            problems.push(Problem::new(
                format!("{path}.values"),
                format!("{} values", values.len()),
                "at most 64 are allowed",
                "fewer",
            ));
        }
        for (j, value) in values.iter().enumerate().filter(|(_, value)| !is_label_value(value)) {
            problems.push(Problem::new(format!("{path}.values[{j}]"), quoted(value), value_why, "another value"));
        }
    }
}
