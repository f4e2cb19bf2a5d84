//! All stored policies and NodePools, indexed by label, so that a change is compared only with the objects it can affect.
//!
//! The index only narrows the search; [`govern`] decides who governs, as in the controller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::ProposedNodePool;
use crate::governance::{Governor, ParsedPolicy, Ungoverned, govern};
use crate::policy::PoolSelector;

/// The stored RotationPolicies and NodePools by name, and which policy selects which pool.
#[derive(Clone, Debug, Default)]
pub struct PolicyIndex {
    policies: BTreeMap<Arc<str>, Arc<ParsedPolicy>>,
    pools: BTreeMap<Arc<str>, IndexedNodePool>,
    by_label: HashMap<String, HashMap<String, BTreeSet<Arc<str>>>>,
}

/// A stored NodePool and the policies that select it.
#[derive(Clone, Debug)]
pub struct IndexedNodePool {
    /// The NodePool as it was read.
    pub proposed: Arc<ProposedNodePool>,
    selecting: Vec<Arc<ParsedPolicy>>,
}

impl IndexedNodePool {
    /// The policy that governs the pool (§4). `instead`, if given, replaces the stored policy of the same name.
    pub fn govern<'a>(&'a self, instead: Option<&'a ParsedPolicy>) -> Result<Governor<'a>, Ungoverned> {
        let others = self.selecting.iter().map(|p| &**p).filter(|p| instead.is_none_or(|i| i.name != p.name));
        govern(&self.proposed.labels, others.chain(instead))
    }

    /// The policy that governs the pool once the policy `name` is deleted (§4).
    pub fn govern_without(&self, name: &str) -> Result<Governor<'_>, Ungoverned> {
        govern(&self.proposed.labels, self.selecting.iter().map(|p| &**p).filter(|p| *p.name != *name))
    }
}

fn selects(policy: &ParsedPolicy, pool: &ProposedNodePool) -> bool {
    policy.selector.as_ref().is_some_and(|selector| selector.matches(&pool.labels))
}

impl PolicyIndex {
    /// Adds a policy, or replaces the one of the same name.
    pub fn apply_policy(&mut self, policy: Arc<ParsedPolicy>) {
        self.delete_policy(&policy.name);
        let selected: Vec<Arc<str>> =
            policy.selector.iter().flat_map(|selector| self.names_selected_by(selector)).collect();
        for name in selected {
            if let Some(entry) = self.pools.get_mut(&name) {
                entry.selecting.push(policy.clone());
            }
        }
        self.policies.insert(policy.name.clone(), policy);
    }

    /// Deletes the policy `name`, if there is one.
    pub fn delete_policy(&mut self, name: &str) {
        let Some(deleted) = self.policies.remove(name) else { return };
        let selected: Vec<Arc<str>> =
            deleted.selector.iter().flat_map(|selector| self.names_selected_by(selector)).collect();
        for pool in selected {
            if let Some(entry) = self.pools.get_mut(&pool) {
                entry.selecting.retain(|p| *p.name != *name);
            }
        }
    }

    /// Adds a NodePool, or replaces the one of the same name.
    pub fn apply_pool(&mut self, proposed: Arc<ProposedNodePool>) {
        self.delete_pool(&proposed.name);
        let name: Arc<str> = proposed.name.as_str().into();
        for (key, value) in &proposed.labels {
            let values = self.by_label.entry(key.clone()).or_default();
            values.entry(value.clone()).or_default().insert(name.clone());
        }
        let selecting = self.policies.values().filter(|policy| selects(policy, &proposed)).cloned().collect();
        self.pools.insert(name, IndexedNodePool { proposed, selecting });
    }

    /// Deletes the NodePool `name`, if there is one.
    pub fn delete_pool(&mut self, name: &str) {
        let Some(deleted) = self.pools.remove(name) else { return };
        for (key, value) in &deleted.proposed.labels {
            let Some(values) = self.by_label.get_mut(key) else { continue };
            if let Some(names) = values.get_mut(value) {
                names.remove(name);
                if names.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.by_label.remove(key);
            }
        }
    }

    /// All policies, in the order of their names.
    pub fn policies(&self) -> impl Iterator<Item = &ParsedPolicy> + Clone {
        self.policies.values().map(|policy| &**policy)
    }

    /// The policy `name`; `None` if there is none.
    pub fn policy(&self, name: &str) -> Option<&Arc<ParsedPolicy>> {
        self.policies.get(name)
    }

    /// The NodePool `name`; `None` if there is none.
    pub fn pool(&self, name: &str) -> Option<&IndexedNodePool> {
        self.pools.get(name)
    }

    /// The number of policies and the number of NodePools.
    pub fn sizes(&self) -> (usize, usize) {
        (self.policies.len(), self.pools.len())
    }

    /// The names of the NodePools that bear what `selector` selects in their template only.
    pub fn meant_by<'a>(&'a self, selector: &'a PoolSelector) -> impl Iterator<Item = &'a str> {
        let is_meant = |pool: &&IndexedNodePool| {
            !selector.matches(&pool.proposed.labels) && selector.matches(&pool.proposed.template_labels)
        };
        self.pools.values().filter(is_meant).map(|pool| pool.proposed.name.as_str())
    }

    /// Whether it holds any NodePool.
    pub fn has_pools(&self) -> bool {
        !self.pools.is_empty()
    }

    /// The NodePools that `selector` selects, in the order of their names.
    pub fn selected_by<'a>(&'a self, selector: &'a PoolSelector) -> impl Iterator<Item = &'a IndexedNodePool> {
        self.names_selected_by(selector).filter_map(|name| self.pools.get(&name))
    }

    fn names_selected_by<'a>(&'a self, selector: &'a PoolSelector) -> impl Iterator<Item = Arc<str>> + use<'a> {
        let narrowed = selector
            .required_pair()
            .map(|(key, value)| self.by_label.get(key).and_then(|values| values.get(value)).into_iter().flatten());
        let all = narrowed.is_none().then(|| self.pools.keys());
        let candidates = narrowed.into_iter().flatten().chain(all.into_iter().flatten());
        candidates
            .filter(|name| self.pools.get(*name).is_some_and(|entry| selector.matches(&entry.proposed.labels)))
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn pool(name: &str, labels: &[(u8, u8)]) -> Arc<ProposedNodePool> {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(k, v)| (format!("k{k}"), json!(format!("v{v}")))).collect();
        Arc::new(ProposedNodePool::read(
            &json!({"metadata": {"name": name, "labels": labels}}),
            jiff::Timestamp::UNIX_EPOCH,
        ))
    }

    fn policy(name: &str, labels: &[(u8, u8)], absent: Option<u8>) -> Arc<ParsedPolicy> {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(k, v)| (format!("k{k}"), json!(format!("v{v}")))).collect();
        let expressions: Vec<Value> =
            absent.iter().map(|k| json!({"key": format!("k{k}"), "operator": "DoesNotExist"})).collect();
        let spec = json!({
            "nodePoolSelector": {"matchLabels": labels, "matchExpressions": expressions},
            "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}],
        });
        Arc::new(ParsedPolicy::read(name, &spec))
    }

    fn verdict(governance: &Result<Governor<'_>, Ungoverned>) -> String {
        match governance {
            Ok((p, _)) => p.name.to_string(),
            Err(Ungoverned::NoMatch | Ungoverned::OnlyTemplate(_)) => "-".into(),
            Err(Ungoverned::Conflict(names)) => names.join("="),
            Err(Ungoverned::InvalidPolicy(name)) => format!("!{name}"),
        }
    }

    type Pairs = Vec<(u8, u8)>;

    #[derive(Clone, Debug)]
    enum Step {
        Policy(u8, Pairs, Option<u8>),
        Pool(u8, Pairs),
        DeletePolicy(u8),
        DeletePool(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let pairs = || prop::collection::btree_map(0u8..3, 0u8..2, 0..3).prop_map(|m| m.into_iter().collect::<Pairs>());
        let step = prop_oneof![
            3 => (0u8..5, pairs(), prop::option::of(0u8..3)).prop_map(|(n, l, a)| Step::Policy(n, l, a)),
            3 => (0u8..5, pairs()).prop_map(|(n, l)| Step::Pool(n, l)),
            1 => (0u8..5).prop_map(Step::DeletePolicy),
            1 => (0u8..5).prop_map(Step::DeletePool),
        ];
        prop::collection::vec(step, 1..40)
    }

    proptest! {
        /// After any sequence of changes, the index gives the same results as a search through all policies.
        #[test]
        fn the_index_agrees_with_a_full_search(steps in steps()) {
            let mut index = PolicyIndex::default();
            let mut policies: BTreeMap<String, Arc<ParsedPolicy>> = BTreeMap::new();
            let mut pools: BTreeMap<String, Arc<ProposedNodePool>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Policy(n, labels, absent) => {
                        let p = policy(&format!("p{n}"), &labels, absent);
                        index.apply_policy(p.clone());
                        policies.insert(p.name.to_string(), p);
                    }
                    Step::Pool(n, labels) => {
                        let p = pool(&format!("n{n}"), &labels);
                        index.apply_pool(p.clone());
                        pools.insert(p.name.clone(), p);
                    }
                    Step::DeletePolicy(n) => {
                        index.delete_policy(&format!("p{n}"));
                        policies.remove(&format!("p{n}"));
                    }
                    Step::DeletePool(n) => {
                        index.delete_pool(&format!("n{n}"));
                        pools.remove(&format!("n{n}"));
                    }
                }
            }
            prop_assert_eq!(index.sizes(), (policies.len(), pools.len()));
            for (name, proposed) in &pools {
                let expected = govern(&proposed.labels, policies.values().map(|p| &**p));
                prop_assert_eq!(verdict(&index.pool(name).unwrap().govern(None)), verdict(&expected));
            }
            for p in policies.values() {
                let selector = p.selector.as_ref().unwrap();
                let found: Vec<&str> = index.selected_by(selector).map(|e| e.proposed.name.as_str()).collect();
                let expected: Vec<&str> =
                    pools.values().filter(|d| selector.matches(&d.labels)).map(|d| d.name.as_str()).collect();
                prop_assert_eq!(found, expected);
            }
            for name in pools.keys() {
                index.delete_pool(name);
            }
            prop_assert!(index.by_label.is_empty());
        }
    }
}
