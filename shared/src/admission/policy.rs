//! Judges a change of a RotationPolicy against all other policies and NodePools (§10).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::policy_index::{IndexedNodePool, PolicyIndex};
use super::pool::unfindable;
use super::{Verdict, messages};
use crate::feasibility::{self, Cadence, Finding};
use crate::governance::{ParsedPolicy, Ungoverned};
use crate::policy::{Policy, PoolSelector};

/// What happens to a policy that would govern a static NodePool, which cannot be rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StaticPools {
    /// The policy is refused.
    #[default]
    Deny,
    /// The policy is allowed, with a warning.
    Warn,
}

/// A creation or an update of a RotationPolicy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyChange<'a> {
    /// The stored policy; `None` for a creation.
    pub old: Option<&'a ParsedPolicy>,
    /// The proposed policy.
    pub new: &'a ParsedPolicy,
}

/// The result of [`judge_policy`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyVerdict {
    /// Why admission would refuse the policy, one message per problem; empty if it would not.
    pub refusals: Vec<String>,
    /// What its author should know although it does not block the policy, findings aside.
    pub warnings: Vec<String>,
    /// The findings of §6 for the NodePools that the policy would govern, each naming its pools.
    pub findings: Vec<String>,
}

impl From<PolicyVerdict> for Verdict {
    /// Admission warns of findings (§10).
    fn from(PolicyVerdict { refusals, mut warnings, findings }: PolicyVerdict) -> Self {
        warnings.extend(findings);
        Self { refusals, warnings }
    }
}

/// Judges the creation or update of a policy (§10) against the other policies and the NodePools of the index; a policy of
/// the same name in the index does not count. Invalid fields, new ties and static NodePools are refused; problems that were
/// there before and possible future ties are warnings. The calendar is evaluated as of `now`.
pub fn judge_policy(
    index: &PolicyIndex,
    change: PolicyChange<'_>,
    static_pools: StaticPools,
    now: Timestamp,
) -> PolicyVerdict {
    let mut verdict = Verdict::default();
    let policy = match &change.new.verdict {
        Ok(policy) => policy,
        Err(problems) => {
            let refusals = problems.0.iter().map(ToString::to_string).collect();
            return PolicyVerdict { refusals, ..PolicyVerdict::default() };
        }
    };
    verdict.warnings.extend(policy.warnings.iter().map(ToString::to_string));
    let effect = Effect::of(index, change);
    for ((is_new, names), pools) in &effect.ties {
        verdict.add_problem(*is_new, tie(names, pools, &change.new.name, *is_new));
    }
    for (is_new, pools) in &effect.static_pools {
        verdict.add_problem(*is_new && static_pools == StaticPools::Deny, static_text(pools));
    }
    verdict.warnings.extend(possible_ties(index, change.new, &effect));
    verdict.warnings.extend(only_template(index, change.new));
    let Verdict { refusals, warnings } = verdict;
    PolicyVerdict { refusals, warnings, findings: findings(policy, &effect.governed, now) }
}

/// Judges the deletion of a policy. It is never refused; ties between the remaining policies are warnings.
pub fn judge_deletion(index: &PolicyIndex, name: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let selector = index.policy(name).and_then(|policy| policy.selector.clone());
    let mut ties: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for entry in selector.iter().flat_map(|selector| index.selected_by(selector)) {
        if matches!(entry.govern(None), Err(Ungoverned::Conflict(_))) {
            continue;
        }
        if let Err(Ungoverned::Conflict(names)) = entry.govern_without(name) {
            ties.entry(names).or_default().push(&entry.proposed.name);
        }
    }
    for (names, pools) in ties {
        let (policies, pools) = (messages::policies(&names), messages::pools(&pools));
        verdict.warnings.push(format!(
            "without RotationPolicy {name}, {policies} are equally specific for {pools}, so none of them governs there and nothing rotates; add a label to the selector of one of them"
        ));
    }
    verdict
}

/// What a change of a policy means for the existing NodePools.
#[derive(Default)]
struct Effect<'a> {
    /// The pools of each tie, by whether the change introduces the tie and by the names of the tied policies.
    ties: BTreeMap<(bool, Vec<String>), Vec<&'a str>>,
    static_pools: BTreeMap<bool, Vec<&'a str>>,
    governed: Vec<&'a IndexedNodePool>,
}

impl<'a> Effect<'a> {
    fn of(index: &'a PolicyIndex, change: PolicyChange<'a>) -> Self {
        let mut effect = Self::default();
        let selector = |policy: Option<&'a ParsedPolicy>| policy.and_then(|p| p.selector.as_ref());
        let (before, after) = (selector(change.old), selector(Some(change.new)));
        let was_selected = |entry: &IndexedNodePool| before.is_some_and(|s| s.matches(&entry.proposed.labels));
        for entry in after.into_iter().flat_map(|s| index.selected_by(s)) {
            effect.add_pool(entry, was_selected(entry).then_some(change.old).flatten(), change);
        }
        // pools that it no longer selects may be left to other policies that tie
        let is_selected =
            |entry: &IndexedNodePool| after.is_some_and(|s: &PoolSelector| s.matches(&entry.proposed.labels));
        for entry in before.into_iter().flat_map(|s| index.selected_by(s)).filter(|e| !is_selected(e)) {
            effect.add_pool(entry, change.old, change);
        }
        effect
    }

    fn add_pool(&mut self, entry: &'a IndexedNodePool, old: Option<&'a ParsedPolicy>, change: PolicyChange<'a>) {
        let name = &*change.new.name;
        let before = match old {
            Some(old) => entry.govern(Some(old)),
            None => entry.govern_without(name),
        };
        let pool = entry.proposed.name.as_str();
        match entry.govern(Some(change.new)) {
            Err(Ungoverned::Conflict(names)) => {
                let is_new = !matches!(&before, Err(Ungoverned::Conflict(earlier)) if *earlier == names);
                self.ties.entry((is_new, names)).or_default().push(pool);
            }
            Ok((winner, _)) if *winner.name == *name => {
                if entry.proposed.is_static {
                    let is_new = !matches!(&before, Ok((earlier, _)) if *earlier.name == *name);
                    self.static_pools.entry(is_new).or_default().push(pool);
                } else {
                    self.governed.push(entry);
                }
            }
            _ => {}
        }
    }
}

fn tie(names: &[String], pools: &[&str], name: &str, is_new: bool) -> String {
    let (policies, pools) = (messages::policies(names), messages::pools(pools));
    let advice = if names.iter().any(|tied| tied == name) {
        "add a label to this selector or to the other's, so that one of them is more specific"
    } else if is_new {
        "they tie once this policy no longer selects it; first add a label to the selector of one of them"
    } else {
        "they tie with and without this policy; add a label to the selector of one of them"
    };
    format!(
        "spec.nodePoolSelector: {policies} would be equally specific for {pools}, so none of them would govern there and nothing would rotate; {advice}"
    )
}

fn static_text(pools: &[&str]) -> String {
    let one = pools.len() == 1;
    format!(
        "spec.nodePoolSelector: would govern {}, which {} static (spec.replicas is set) and cannot be rotated, because it cannot surge; exclude {} by a label, for example with matchExpressions",
        messages::pools(pools),
        if one { "is" } else { "are" },
        if one { "it" } else { "them" },
    )
}

/// A warning about a policy that selects nothing but what templates bear.
fn only_template(index: &PolicyIndex, new: &ParsedPolicy) -> Option<String> {
    let selector = new.selector.as_ref().filter(|selector| index.selected_by(selector).next().is_none())?;
    let meant: Vec<&str> = index.meant_by(selector).collect();
    (!meant.is_empty()).then(|| {
        format!(
            "spec.nodePoolSelector: selects no NodePool; {} {} these labels in spec.template.metadata.labels, by which no policy selects: add them to metadata.labels",
            messages::pools(&meant),
            if meant.len() == 1 { "has" } else { "have" },
        )
    })
}

/// Warnings about equally specific policies that do not tie today: no pool has labels that both select, or a more specific
/// policy governs each that has.
fn possible_ties(index: &PolicyIndex, new: &ParsedPolicy, effect: &Effect<'_>) -> Vec<String> {
    let Some(selector) = &new.selector else { return Vec::new() };
    let is_reported = |name: &str| effect.ties.keys().any(|(_, names)| names.iter().any(|tied| tied == name));
    let (mut apart, mut sharing) = (Vec::new(), BTreeMap::new());
    for other in index.policies().filter(|other| other.name != new.name && !is_reported(&other.name)) {
        let Some(theirs) = &other.selector else { continue };
        if theirs.specificity() != selector.specificity() || !selector.could_share_a_pool_with(theirs) {
            continue;
        }
        let shared: Vec<&str> = index
            .selected_by(theirs)
            .filter(|pool| selector.matches(&pool.proposed.labels))
            .map(|pool| pool.proposed.name.as_str())
            .collect();
        if shared.is_empty() {
            apart.push(&*other.name);
        } else {
            sharing.entry(shared).or_insert_with(Vec::new).push(&*other.name);
        }
    }
    let as_specific =
        |others: &[&str]| format!("spec.nodePoolSelector: is as specific as that of {}", messages::policies(others));
    let apart = (!apart.is_empty()).then(|| {
        format!("{}; no known NodePool matches both, but one that does would not be rotated", as_specific(&apart))
    });
    let sharing = sharing.into_iter().map(|(pools, others)| {
        let (pools, matches) = (messages::pools(&pools), if pools.len() == 1 { "matches" } else { "match" });
        format!(
            "{}; {pools} {matches} both, and would not be rotated without the more specific policy that governs there",
            as_specific(&others)
        )
    });
    apart.into_iter().chain(sharing).collect()
}

/// The findings (§6) for all governed pools; equal findings are merged into one line that lists their pools.
fn findings(policy: &Policy, governed: &[&IndexedNodePool], now: Timestamp) -> Vec<String> {
    if governed.is_empty() {
        return Vec::new();
    }
    let cadence = Cadence::of(policy, now);
    let mut pools: BTreeMap<(usize, String), Vec<&str>> = BTreeMap::new();
    for entry in governed {
        let found = feasibility::findings(policy, &cadence, &entry.proposed.facts, []);
        let blocked = unfindable(policy, &found, &entry.proposed, now);
        for (i, text) in blocked.into_iter().chain(found.iter().map(finding)).enumerate() {
            pools.entry((i, text)).or_default().push(&entry.proposed.name);
        }
    }
    pools.into_iter().map(|((_, text), names)| format!("{}: {text}", messages::pools(&names))).collect()
}

pub(super) fn finding(found: &Finding) -> String {
    format!("{}: {}", found.code, found.message)
}

/// Sets `timezone` to `zone` in every maintenance window of `spec` that has none, and returns the paths it set, as JSON
/// pointers from the object's root (§10, *Mutation*).
pub fn with_default_zone(spec: &mut Value, zone: &str) -> Vec<String> {
    let windows = spec.get_mut("maintenanceWindows").and_then(Value::as_array_mut);
    let mut filled = Vec::new();
    for (i, window) in windows.into_iter().flatten().enumerate() {
        if let Some(fields) = window.as_object_mut()
            && !fields.contains_key("timezone")
        {
            fields.insert("timezone".into(), zone.into());
            filled.push(format!("/spec/maintenanceWindows/{i}/timezone"));
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::admission::{ProposedNodePool, judge_pool_change};
    use crate::governance::govern;
    use proptest::prelude::*;
    use serde_json::json;

    type Labels = BTreeMap<String, String>;

    fn labels() -> impl Strategy<Value = Labels> {
        prop::collection::btree_map("k[0-2]", "v[0-1]", 0..3)
    }

    fn policy(name: &str, labels: &Labels) -> ParsedPolicy {
        let spec = json!({
            "nodePoolSelector": {"matchLabels": labels},
            "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}],
        });
        ParsedPolicy::read(name, &spec)
    }

    fn pool(name: &str, labels: &Labels, is_static: bool) -> ProposedNodePool {
        let replicas = if is_static { json!(1) } else { Value::Null };
        let object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"replicas": replicas}});
        ProposedNodePool::read(&object, Timestamp::UNIX_EPOCH)
    }

    /// The policies that tie for these labels; empty if there is no tie.
    fn tied(labels: &Labels, policies: &[ParsedPolicy]) -> Vec<String> {
        match govern(labels, policies) {
            Err(Ungoverned::Conflict(names)) => names,
            _ => Vec::new(),
        }
    }

    fn winner(labels: &Labels, policies: &[ParsedPolicy]) -> Option<String> {
        govern(labels, policies).ok().map(|(winner, _)| winner.name.to_string())
    }

    fn labelled(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_possible_tie_says_whether_a_pool_matches_both() {
        let mut index = PolicyIndex::default();
        index.apply_policy(Arc::new(policy("a", &labelled(&[("k", "1")]))));
        index.apply_policy(Arc::new(policy("top", &labelled(&[("k", "1"), ("l", "1"), ("m", "1")]))));
        let new = policy("b", &labelled(&[("l", "1")]));
        let warnings = |index: &PolicyIndex| {
            judge_policy(index, PolicyChange { old: None, new: &new }, StaticPools::Deny, Timestamp::UNIX_EPOCH)
                .warnings
        };
        let none = "spec.nodePoolSelector: is as specific as that of RotationPolicy a; no known NodePool matches both, but one that does would not be rotated";
        assert_eq!(warnings(&index), [none]);
        // a third policy governs the pool that both select
        index.apply_pool(Arc::new(pool("n", &labelled(&[("k", "1"), ("l", "1"), ("m", "1")]), false)));
        let one = "spec.nodePoolSelector: is as specific as that of RotationPolicy a; NodePool n matches both, and would not be rotated without the more specific policy that governs there";
        assert_eq!(warnings(&index), [one]);
    }

    /// §6.1: what blocks a pool and is no mistake of the policy's own fields.
    #[test]
    fn what_blocks_a_pool_is_warned_of() {
        let read = |object: Value| Arc::new(ProposedNodePool::read(&object, Timestamp::UNIX_EPOCH));
        let new = policy("p", &labelled(&[("w", "api")]));
        let warned = |metadata: Value, spec: Value| {
            let pool = read(json!({"metadata": metadata, "spec": spec}));
            let mut index = PolicyIndex::default();
            index.apply_pool(pool.clone());
            let change = PolicyChange { old: None, new: &new };
            let PolicyVerdict { refusals, warnings, findings } =
                judge_policy(&index, change, StaticPools::Deny, Timestamp::UNIX_EPOCH);
            assert_eq!(refusals, [""; 0]);
            let mut index = PolicyIndex::default();
            index.apply_policy(Arc::new(new.clone()));
            let by_pool = judge_pool_change(&index, None, &pool, StaticPools::Deny, Timestamp::UNIX_EPOCH);
            ([warnings, findings].concat(), by_pool.warnings)
        };
        let selected = json!({"name": "api", "labels": {"w": "api"}});
        let template = |metadata: Value, expire_after: &str| json!({"metadata": metadata, "spec": {"expireAfter": expire_after, "terminationGracePeriod": "1h"}});
        for (metadata, spec, of_policy, of_pool) in [
            (
                selected.clone(),
                json!({"template": template(json!({}), "Never")}),
                "NodePool api: NeverDue: spec.template.spec.expireAfter is Never",
                "RotationPolicy p: NeverDue: spec.template.spec.expireAfter is Never",
            ),
            (
                selected,
                json!({"limits": {"cpu": 0}, "template": template(json!({}), "720h")}),
                "NodePool api: LimitsExhausted: spec.limits.cpu is 0 and nothing of it is left",
                "RotationPolicy p: LimitsExhausted: spec.limits.cpu is 0 and nothing of it is left",
            ),
            (
                json!({"name": "api"}),
                json!({"template": template(json!({"labels": {"w": "api"}}), "720h")}),
                "spec.nodePoolSelector: selects no NodePool; NodePool api has these labels in spec.template.metadata.labels",
                "RotationPolicy p selects labels that stand in spec.template.metadata.labels",
            ),
        ] {
            let (by_policy, by_pool) = warned(metadata, spec);
            assert!(by_policy.iter().any(|warning| warning.starts_with(of_policy)), "{of_policy}: {by_policy:?}");
            assert!(by_pool.iter().any(|warning| warning.starts_with(of_pool)), "{of_pool}: {by_pool:?}");
        }
        // an operator has wanted it
        let (by_policy, by_pool) = warned(
            json!({"name": "api", "labels": {"w": "api"}, "annotations": {"noderotation.io/freeze": "2999-01-01T00:00:00Z"}}),
            json!({"template": template(json!({}), "720h")}),
        );
        let is_told = |warnings: &[String]| warnings.iter().any(|warning| warning.contains("Frozen"));
        assert!(!is_told(&by_policy) && !is_told(&by_pool));
    }

    proptest! {
        /// Comparing the state before and after the change for every pool gives the same verdict.
        #[test]
        fn a_policy_is_refused_exactly_for_problems_that_it_introduces(
            selectors in prop::collection::vec(labels(), 1..5),
            pools in prop::collection::vec((labels(), any::<bool>()), 0..5),
            new in labels(),
            is_update: bool,
        ) {
            let policies: Vec<ParsedPolicy> = selectors.iter().enumerate().map(|(i, l)| policy(&format!("p{i}"), l)).collect();
            let pools: Vec<ProposedNodePool> = pools.iter().enumerate().map(|(i, (l, s))| pool(&format!("n{i}"), l, *s)).collect();
            let mut index = PolicyIndex::default();
            for p in &policies {
                index.apply_policy(Arc::new(p.clone()));
            }
            for p in &pools {
                index.apply_pool(Arc::new(p.clone()));
            }
            let name = if is_update { "p0" } else { "new" };
            let new = policy(name, &new);
            let old = policies.iter().find(|p| *p.name == *name);
            let verdict = judge_policy(&index, PolicyChange { old, new: &new }, StaticPools::Deny, Timestamp::UNIX_EPOCH);

            let mut after: Vec<ParsedPolicy> = policies.iter().filter(|p| *p.name != *name).cloned().collect();
            after.push(new);
            let expected = pools.iter().any(|pool| {
                let (was, is) = (tied(&pool.labels, &policies), tied(&pool.labels, &after));
                let governs = |policies| winner(&pool.labels, policies).as_deref() == Some(name);
                (!is.is_empty() && is != was) || (pool.is_static && governs(&after) && !governs(&policies))
            });
            prop_assert_eq!(!verdict.refusals.is_empty(), expected, "{:?}", verdict.refusals);
        }

        #[test]
        fn a_pool_is_refused_exactly_for_problems_that_it_introduces(
            selectors in prop::collection::vec(labels(), 1..5),
            old in prop::option::of((labels(), any::<bool>())),
            new in (labels(), any::<bool>()),
        ) {
            let policies: Vec<ParsedPolicy> = selectors.iter().enumerate().map(|(i, l)| policy(&format!("p{i}"), l)).collect();
            let mut index = PolicyIndex::default();
            for p in &policies {
                index.apply_policy(Arc::new(p.clone()));
            }
            let old = old.map(|(l, s)| pool("n", &l, s));
            let new = pool("n", &new.0, new.1);
            let verdict = judge_pool_change(&index, old.as_ref(), &new, StaticPools::Deny, Timestamp::UNIX_EPOCH);
            let is = tied(&new.labels, &policies);
            let was = old.as_ref().map(|old| tied(&old.labels, &policies)).unwrap_or_default();
            let is_unrotatable = |pool: &ProposedNodePool| pool.is_static && winner(&pool.labels, &policies).is_some();
            let expected = (!is.is_empty() && is != was) || (is_unrotatable(&new) && !old.as_ref().is_some_and(is_unrotatable));
            prop_assert_eq!(!verdict.refusals.is_empty(), expected, "{:?}", verdict.refusals);
        }
    }
}
