//! Whether the drain of a node whose NodeClaim has no `terminationGracePeriod` would end (§9.7).
//!
//! With that period Karpenter deletes in the end what it may not evict. Without it, Karpenter goes on asking for the
//! eviction of the Pods that it waits for: one that can never be granted holds the drain for ever. So what counts is what
//! a Pod and its PodDisruptionBudget say for good, and no budget that is merely used up at the moment.
//!
//! And what holds a drain that is under way, now (§13): the same, and what ends by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::{Selector, SelectorExt};
use noderotation_shared::instant::{self, earliest, plus};
use noderotation_shared::{duration, keys};

use strum::IntoStaticStr;

use crate::pod_role::Role;

/// A budget that was used up for no longer than this is as in every drain: the replacement of what left is not Ready yet.
const ORDINARY: SignedDuration = SignedDuration::from_secs(60);

/// What the API server fills in where a Pod's `terminationGracePeriodSeconds` is not set.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Why a drain is not known to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A Pod that Karpenter waits for would never leave.
    Pod {
        /// Its namespace and name, as `shop/db-0`.
        pod: String,
        /// What keeps it, as a clause about the Pod.
        why: String,
        /// What to do about it, as an imperative.
        remedy: &'static str,
    },
    /// The PodDisruptionBudgets may not be listed; this is what the API server said.
    BudgetsUnreadable(String),
}

/// What keeps a Pod on its Node (§13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub code: HoldCode,
    /// A clause about the Pod.
    pub why: String,
    /// What to do about it, as an imperative.
    pub remedy: &'static str,
}

/// The words of §13 for what keeps a Pod on its Node; first those that do not end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
pub enum HoldCode {
    /// The Pod bears do-not-disrupt without an end.
    DoNotDisruptUnbounded,
    /// Its PodDisruptionBudget never allows a disruption.
    PDBNeverAllows,
    /// Two PodDisruptionBudgets select it.
    PDBOverlap,
    /// Its PodDisruptionBudget is used up.
    PDBAllowsNone,
    /// It bears do-not-disrupt for some time.
    DoNotDisruptUntil,
}

/// A Pod that must leave before the drain ends: as much of it as decides whether it ever can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evictee {
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
    is_ready: bool,
    protection: Protection,
    /// It has an `activeDeadlineSeconds`, by which it ends.
    has_deadline: bool,
    /// Its grace period.
    grace: SignedDuration,
}

/// What `karpenter.sh/do-not-disrupt` on a Pod says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    /// It is absent, or has a value that protects nothing.
    None,
    /// `"true"`: for good.
    Unbounded,
    /// A duration, from the Pod's start on; `None` before that.
    Until(Option<Timestamp>),
}

/// A PodDisruptionBudget: as much of it as decides whether a Pod can ever be evicted.
#[derive(Clone, Debug)]
pub struct Budget {
    namespace: String,
    name: String,
    /// `None` selects no Pod.
    selector: Option<Selector>,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    lets_unready_go: bool,
    /// Why it never allows a disruption; `None` where it may allow one, if not now.
    refusal: Option<String>,
    /// Since when it has allowed none; `None` where it allows one, or that is unknown.
    used_up_since: Option<Timestamp>,
}

/// The first of these Pods that would never leave, in their order; `budgets` are those of the Pods' namespaces.
pub fn obstacle(pods: &[Evictee], budgets: &[Budget]) -> Option<Obstacle> {
    let lasting = |pod: &&Evictee| !pod.has_deadline;
    pods.iter().filter(lasting).find_map(|pod| {
        let Hold { why, remedy, .. } = pod.protected_for_good().or_else(|| pod.never_allowed(budgets))?;
        Some(Obstacle::Pod { pod: pod.to_string(), why, remedy })
    })
}

/// The namespaces whose PodDisruptionBudgets [`obstacle`] must be given.
pub fn namespaces(pods: &[Evictee]) -> BTreeSet<&str> {
    pods.iter().map(|pod| pod.namespace.as_str()).collect()
}

impl Evictee {
    /// The Pod, if the drain of its Node has to evict it. DaemonSet Pods and Pods that demand this host are evicted and
    /// waited for like all others; only what tolerates Karpenter's own taint is not.
    pub fn of(pod: &Pod, role: Role) -> Option<Self> {
        let is_left_alone = matches!(role, Role::Finished | Role::Static | Role::Placeholder);
        // what is terminating is waited for no longer than a minute beyond its grace period
        if is_left_alone || pod.metadata.deletion_timestamp.is_some() || tolerates_disruption(pod) {
            return None;
        }
        let meta = &pod.metadata;
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let spec = pod.spec.as_ref();
        Some(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            is_ready: conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            protection: Protection::of(pod),
            has_deadline: spec.is_some_and(|spec| spec.active_deadline_seconds.is_some()),
            grace: SignedDuration::from_secs(
                spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE_SECONDS).max(0),
            ),
        })
    }

    /// Karpenter does not evict what is protected, and waits for it all the same.
    fn protected_for_good(&self) -> Option<Hold> {
        (self.protection == Protection::Unbounded).then(|| Hold {
            code: HoldCode::DoNotDisruptUnbounded,
            why: format!("it bears {}: \"true\", which has no end", keys::DO_NOT_DISRUPT),
            remedy: "remove that annotation or give it a duration such as 4h",
        })
    }

    /// What the API server would answer to every request for its eviction. A Pod that is not Ready counts as a Ready one,
    /// since it may be Ready when the drain comes; `AlwaysAllow` is its owner's word that it may go until then.
    fn never_allowed(&self, budgets: &[Budget]) -> Option<Hold> {
        match self.covering(budgets).as_slice() {
            [] => None,
            [budget] if budget.lets_go(self) => None,
            [budget] => {
                let refusal = budget.refusal.as_ref()?;
                Some(Hold {
                    code: HoldCode::PDBNeverAllows,
                    why: format!("PodDisruptionBudget {budget} allows no disruption ({refusal})"),
                    remedy: "let the PodDisruptionBudget allow a disruption",
                })
            }
            [first, second, others @ ..] => {
                let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
                Some(Hold {
                    code: HoldCode::PDBOverlap,
                    why: format!(
                        "it is under the PodDisruptionBudgets {first} and {second}{more}, and the API server evicts no Pod that is under several"
                    ),
                    remedy: "leave it under one PodDisruptionBudget",
                })
            }
        }
    }

    fn covering<'a>(&self, budgets: &'a [Budget]) -> Vec<&'a Budget> {
        budgets.iter().filter(|budget| budget.covers(self)).collect()
    }

    /// What keeps it from being evicted at this instant, for good or for now.
    fn held_at(&self, budgets: &[Budget], now: Timestamp) -> Held {
        if let Some(hold) = self.protected_for_good().or_else(|| self.never_allowed(budgets)) {
            return Held::Yes(hold);
        }
        if let Protection::Until(until) = self.protection
            && until.is_none_or(|until| until > now)
        {
            let end = until
                .map_or_else(|| "for some time after its start".into(), |at| format!("until {}", instant::format(at)));
            let why = format!("it bears {} {end}", keys::DO_NOT_DISRUPT);
            return Held::Yes(Hold {
                code: HoldCode::DoNotDisruptUntil,
                why,
                remedy: "wait, or remove that annotation",
            });
        }
        let mut used_up = self.covering(budgets).into_iter().filter(|budget| !budget.lets_go(self));
        match used_up.find_map(|budget| Some((budget, budget.used_up_since?))) {
            None => Held::No,
            Some((_, since)) if plus(since, ORDINARY) > now => Held::NotBefore(plus(since, ORDINARY)),
            Some((budget, since)) => Held::Yes(Hold {
                code: HoldCode::PDBAllowsNone,
                why: format!("PodDisruptionBudget {budget} has allowed no disruption since {}", instant::format(since)),
                remedy: "see why Pods that it covers are not Ready",
            }),
        }
    }

    /// Its grace period, by which Karpenter deletes it before the drain's end.
    pub(crate) fn grace(&self) -> SignedDuration {
        self.grace
    }
}

impl fmt::Display for Evictee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The Pods that a drain under way still has to evict, and the PodDisruptionBudgets of their namespaces.
#[derive(Clone, Debug, Default)]
pub struct Remaining {
    /// The Pods.
    pub pods: Vec<Evictee>,
    /// The budgets; none where they may not be listed.
    pub budgets: Vec<Budget>,
}

impl Remaining {
    /// The Pods that something keeps on the Node at this instant, those first that nothing lets go by itself; and when a
    /// budget that is used up no longer is so in the ordinary way, if nothing changes until then.
    pub(crate) fn held_at(&self, now: Timestamp) -> (Vec<(&Evictee, Hold)>, Option<Timestamp>) {
        let (mut held, mut look_again) = (Vec::new(), None);
        for pod in &self.pods {
            match pod.held_at(&self.budgets, now) {
                Held::Yes(hold) => held.push((pod, hold)),
                Held::NotBefore(at) => look_again = earliest(look_again, Some(at)),
                Held::No => {}
            }
        }
        held.sort_by_cached_key(|(pod, hold)| (hold.code, pod.to_string()));
        (held, look_again)
    }
}

/// Whether something keeps a Pod on its Node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    No,
    /// Not yet: its budget is used up, as it is in every drain for a while. This is when it is no longer ordinary.
    NotBefore(Timestamp),
    Yes(Hold),
}

impl Protection {
    fn of(pod: &Pod) -> Self {
        let value = pod.metadata.annotations.as_ref().and_then(|a| a.get(keys::DO_NOT_DISRUPT));
        let started = || pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|at| at.0);
        match value.map(String::as_str) {
            None => Self::None,
            Some("true") => Self::Unbounded,
            Some(text) => duration::parse(text)
                .filter(SignedDuration::is_positive)
                .map_or(Self::None, |length| Self::Until(started().map(|at| plus(at, length)))),
        }
    }
}

/// Whether it tolerates the taint `karpenter.sh/disrupted:NoSchedule`, which has no value.
fn tolerates_disruption(pod: &Pod) -> bool {
    let tolerates = |toleration: &Toleration| {
        let is_of = |given: &Option<String>, wanted| given.as_deref().is_none_or(|g| g.is_empty() || g == wanted);
        let is_for_its_value = match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => true,
            "" | "Equal" => toleration.value.as_deref().unwrap_or_default().is_empty(),
            _ => false,
        };
        is_of(&toleration.effect, "NoSchedule") && is_of(&toleration.key, keys::KARPENTER_DISRUPTED) && is_for_its_value
    };
    pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()).any(tolerates)
}

impl Budget {
    /// What decides of a PodDisruptionBudget.
    pub fn of(pdb: &PodDisruptionBudget) -> Self {
        let spec = pdb.spec.clone().unwrap_or_default();
        Self {
            namespace: pdb.metadata.namespace.clone().unwrap_or_default(),
            name: pdb.metadata.name.clone().unwrap_or_default(),
            refusal: refusal_of_spec(&spec).or_else(|| refusal_of_status(pdb, &spec)),
            used_up_since: used_up_since(pdb),
            lets_unready_go: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            // one that cannot be read selects nothing, as for the API server
            selector: spec.selector.and_then(|selector| Selector::try_from(selector).ok()),
        }
    }

    /// It does not count this Pod, which is not Ready.
    fn lets_go(&self, pod: &Evictee) -> bool {
        self.lets_unready_go && !pod.is_ready
    }

    fn covers(&self, pod: &Evictee) -> bool {
        self.namespace == pod.namespace && self.selector.as_ref().is_some_and(|s| s.matches(&pod.labels))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is written there and allows none, however many Pods there are.
fn refusal_of_spec(spec: &PodDisruptionBudgetSpec) -> Option<String> {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(IntOrString::Int(0)), _) => Some(as_written(spec)),
        (Some(max), _) if percent(max) == Some(0) => Some(as_written(spec)),
        (None, Some(min)) if percent(min) == Some(100) => Some(as_written(spec)),
        (None, None) => Some("neither maxUnavailable nor minAvailable is set".into()),
        _ => None,
    }
}

/// What follows from how many Pods there are to be. `disruptionsAllowed` does not count: it is 0 in every rollout.
fn refusal_of_status(pdb: &PodDisruptionBudget, spec: &PodDisruptionBudgetSpec) -> Option<String> {
    let status = pdb.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    // its numbers mean nothing then, and evictions are refused; a Pod whose controller has no scale is the usual cause
    if let Some(failed) = conditions.find(|c| c.type_ == "DisruptionAllowed" && c.reason == "SyncFailed") {
        return Some(format!("its status cannot be computed: {}", failed.message));
    }
    let is_current = status.observed_generation.unwrap_or_default() >= pdb.metadata.generation.unwrap_or_default();
    let expected = status.expected_pods.unwrap_or_default();
    let desired = status.desired_healthy.unwrap_or_default();
    (is_current && expected > 0 && desired >= expected)
        .then(|| format!("{}: {desired} of {expected} Pods must stay healthy", as_written(spec)))
}

/// Since when it has allowed no disruption, by its status.
fn used_up_since(pdb: &PodDisruptionBudget) -> Option<Timestamp> {
    let status = pdb.status.as_ref()?;
    let is_current = status.observed_generation.unwrap_or_default() >= pdb.metadata.generation.unwrap_or_default();
    let mut conditions = status.conditions.iter().flatten();
    let refusing = conditions.find(|c| c.type_ == "DisruptionAllowed" && c.status == "False")?;
    (is_current && status.disruptions_allowed == Some(0)).then_some(refusing.last_transition_time.0)
}

/// The one field that bounds the budget, as `minAvailable: 100%`.
fn as_written(spec: &PodDisruptionBudgetSpec) -> String {
    let (field, value) = match (&spec.max_unavailable, &spec.min_available) {
        (Some(max), _) => ("maxUnavailable", Some(max)),
        (None, min) => ("minAvailable", min.as_ref()),
    };
    match value {
        Some(IntOrString::Int(number)) => format!("{field}: {number}"),
        Some(IntOrString::String(text)) => format!("{field}: {text}"),
        None => field.to_owned(),
    }
}

/// The percentage, where it is one; the API server admits 0% to 100%.
fn percent(value: &IntOrString) -> Option<u32> {
    match value {
        IntOrString::Int(_) => None,
        IntOrString::String(text) => text.strip_suffix('%')?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_role::role;
    use serde_json::{Value, json};

    /// A running, ready Pod `shop/db-0` with the label `app: db`, changed by a merge of these fields.
    fn pod(change: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"namespace": "shop", "name": "db-0", "labels": {"app": "db"}},
            "spec": {"containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (part, fields) in change.as_object().unwrap() {
            pod[part].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        serde_json::from_value(pod).unwrap()
    }

    fn evictee(pod: &Pod) -> Option<Evictee> {
        Evictee::of(pod, role(pod, "noderotation"))
    }

    /// A PodDisruptionBudget `shop/db` that selects `app: db`, of generation 3, with this spec and status.
    fn budget_named(name: &str, spec: Value, status: Value) -> Budget {
        let mut full = json!({"selector": {"matchLabels": {"app": "db"}}});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let pdb =
            json!({"metadata": {"namespace": "shop", "name": name, "generation": 3}, "spec": full, "status": status});
        Budget::of(&serde_json::from_value(pdb).unwrap())
    }

    fn budget(spec: Value, status: Value) -> Budget {
        budget_named("db", spec, status)
    }

    fn counted(expected: i32, desired: i32) -> Value {
        json!({"observedGeneration": 3, "expectedPods": expected, "desiredHealthy": desired, "currentHealthy": expected, "disruptionsAllowed": 0})
    }

    fn why(pods: &[Pod], budgets: &[Budget]) -> Option<String> {
        let evictees: Vec<_> = pods.iter().filter_map(evictee).collect();
        obstacle(&evictees, budgets).map(|obstacle| match obstacle {
            Obstacle::Pod { pod, why, .. } => format!("{pod}: {why}"),
            Obstacle::BudgetsUnreadable(_) => panic!("nothing was read"),
        })
    }

    // Karpenter 1.14.1 waits for every Pod that is not finished, no mirror, and does not tolerate its taint
    // (`pkg/utils/pod/scheduling.go`, `IsWaitingEviction`); placeholders are our own.
    #[test]
    fn whom_a_drain_must_evict() {
        let daemon = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true}]});
        let statics = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}]});
        let tolerating = |toleration: Value| json!({"spec": {"tolerations": [toleration]}});
        for (what, change, waited_for) in [
            ("an ordinary one", json!({}), true),
            ("pending", json!({"status": {"phase": "Pending"}}), true),
            ("of a DaemonSet", json!({"metadata": daemon}), true),
            ("pinned to its host", json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "h"}}}), true),
            ("succeeded", json!({"status": {"phase": "Succeeded"}}), false),
            ("failed", json!({"status": {"phase": "Failed"}}), false),
            ("static", json!({"metadata": statics}), false),
            ("labelled as ours", json!({"metadata": {"labels": {"noderotation.io/surge-for": "x"}}}), true),
            ("terminating", json!({"metadata": {"deletionTimestamp": "2026-12-04T18:00:00Z"}}), false),
            ("with a deadline", json!({"spec": {"activeDeadlineSeconds": 600}}), true),
            ("tolerating all", tolerating(json!({"operator": "Exists"})), false),
            ("tolerating all that schedules", tolerating(json!({"operator": "Exists", "effect": "NoSchedule"})), false),
            ("tolerating the key", tolerating(json!({"key": "karpenter.sh/disrupted", "operator": "Exists"})), false),
            (
                "tolerating no value",
                tolerating(json!({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"})),
                false,
            ),
            ("another value", tolerating(json!({"key": "karpenter.sh/disrupted", "value": "x"})), true),
            ("another effect", tolerating(json!({"operator": "Exists", "effect": "NoExecute"})), true),
            ("another key", tolerating(json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"})), true),
        ] {
            assert_eq!(evictee(&pod(change)).is_some(), waited_for, "{what}");
        }
    }

    // The values by hand after the disruption controller's formula (`pkg/controller/disruption`, percentages round up);
    // an eviction is granted where `currentHealthy` can exceed `desiredHealthy`.
    #[test]
    fn which_budget_never_allows_a_disruption() {
        let none = json!({});
        let failed = json!({
            "observedGeneration": 3, "expectedPods": 3, "desiredHealthy": 2, "disruptionsAllowed": 0,
            "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "found no controllers for pod \"db-0\"", "lastTransitionTime": "2026-12-04T18:00:00Z"}],
        });
        let rollout = json!({
            "observedGeneration": 3, "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 2, "disruptionsAllowed": 0,
            "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "", "lastTransitionTime": "2026-12-04T18:00:00Z"}],
        });
        let stale = json!({"observedGeneration": 2, "expectedPods": 3, "desiredHealthy": 3});
        for (spec, status, refusal) in [
            (json!({"maxUnavailable": 0}), none.clone(), Some("maxUnavailable: 0")),
            (json!({"maxUnavailable": 0}), counted(3, 3), Some("maxUnavailable: 0")),
            (json!({"maxUnavailable": "0%"}), none.clone(), Some("maxUnavailable: 0%")),
            (json!({"minAvailable": "100%"}), none.clone(), Some("minAvailable: 100%")),
            (json!({}), counted(0, 0), Some("neither maxUnavailable nor minAvailable is set")),
            (json!({"minAvailable": 3}), counted(3, 3), Some("minAvailable: 3: 3 of 3 Pods must stay healthy")),
            (json!({"minAvailable": 5}), counted(3, 5), Some("minAvailable: 5: 5 of 3 Pods must stay healthy")),
            (json!({"minAvailable": "50%"}), counted(1, 1), Some("minAvailable: 50%: 1 of 1 Pods must stay healthy")),
            (
                json!({"maxUnavailable": 1}),
                failed,
                Some("its status cannot be computed: found no controllers for pod \"db-0\""),
            ),
            (json!({"maxUnavailable": 1}), rollout, None),
            (json!({"minAvailable": 2}), counted(3, 2), None),
            (json!({"minAvailable": 3}), stale, None),
            (json!({"minAvailable": 3}), none.clone(), None),
            (json!({"minAvailable": 0}), counted(3, 0), None),
            (json!({"minAvailable": "100%"}), counted(0, 0), Some("minAvailable: 100%")),
            (json!({"minAvailable": 1}), counted(0, 1), None),
            (json!({"maxUnavailable": "1%"}), counted(3, 2), None),
            (json!({"maxUnavailable": 1}), counted(1, 0), None),
            (json!({"maxUnavailable": "100%"}), counted(3, 0), None),
        ] {
            let case = format!("{spec} {status}");
            let expected =
                refusal.map(|r| format!("shop/db-0: PodDisruptionBudget shop/db allows no disruption ({r})"));
            assert_eq!(why(&[pod(json!({}))], &[budget(spec, status)]), expected, "{case}");
        }
    }

    #[test]
    fn whom_a_budget_covers() {
        let expressions = |operator: &str, values: Value| {
            let mut one = json!({"key": "app", "operator": operator});
            if !values.is_null() {
                one["values"] = values;
            }
            json!({"matchExpressions": [one]})
        };
        for (selector, covers) in [
            (json!({}), true),
            (Value::Null, false),
            (json!({"matchLabels": {"app": "db"}}), true),
            (json!({"matchLabels": {"app": "web"}}), false),
            (json!({"matchLabels": {"app": "db", "tier": "x"}}), false),
            (expressions("In", json!(["web", "db"])), true),
            (expressions("NotIn", json!(["db"])), false),
            (expressions("NotIn", json!(["web"])), true),
            (expressions("Exists", Value::Null), true),
            (expressions("DoesNotExist", Value::Null), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}), true),
            (expressions("Near", json!(["db"])), false),
        ] {
            let held = why(&[pod(json!({}))], &[budget(json!({"maxUnavailable": 0, "selector": selector}), json!({}))]);
            assert_eq!(held.is_some(), covers, "{selector}");
        }
        let elsewhere = pod(json!({"metadata": {"namespace": "other"}}));
        assert_eq!(why(&[elsewhere], &[budget(json!({"maxUnavailable": 0}), json!({}))]), None);
    }

    #[test]
    fn an_unready_pod_may_go_only_if_its_owner_says_so() {
        let unready = || pod(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
        let always = || json!({"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
        let healthy_budget = json!({"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "IfHealthyBudget"});
        assert_eq!(why(&[unready()], &[budget(always(), json!({}))]), None);
        let silent = pod(json!({"status": {"phase": "Pending", "conditions": []}}));
        assert_eq!(why(&[silent], &[budget(always(), json!({}))]), None);
        assert!(why(&[pod(json!({}))], &[budget(always(), json!({}))]).is_some(), "it is ready");
        assert!(why(&[unready()], &[budget(healthy_budget, json!({}))]).is_some());
        assert!(why(&[unready()], &[budget(json!({"maxUnavailable": 0}), json!({}))]).is_some());
    }

    #[test]
    fn several_budgets_are_never_granted_whatever_they_allow() {
        let generous = |name: &str| budget_named(name, json!({"maxUnavailable": 1}), counted(3, 2));
        let held = |budgets: &[Budget]| why(&[pod(json!({}))], budgets);
        assert_eq!(held(&[generous("a")]), None);
        assert_eq!(
            held(&[generous("a"), generous("b")]).as_deref(),
            Some(
                "shop/db-0: it is under the PodDisruptionBudgets shop/a and shop/b, and the API server evicts no Pod that is under several"
            )
        );
        let third = held(&[generous("a"), generous("b"), generous("c")]).unwrap();
        assert!(third.contains("shop/a and shop/b and 1 more"), "{third}");
    }

    #[test]
    fn a_protection_without_an_end_holds_and_one_with_an_end_does_not() {
        for (value, holds) in
            [("true", true), ("4h", false), ("876000h", false), ("false", false), ("True", false), ("", false)]
        {
            let protected = pod(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}}));
            assert_eq!(why(&[protected], &[]).is_some(), holds, "{value}");
        }
    }

    #[test]
    fn the_first_pod_that_would_stay_is_named() {
        let named = |name: &str, labels: Value| pod(json!({"metadata": {"name": name, "labels": labels}}));
        let pods = [
            named("web-0", json!({"app": "web"})),
            named("db-1", json!({"app": "db"})),
            named("db-2", json!({"app": "db"})),
        ];
        let found = why(&pods, &[budget(json!({"maxUnavailable": 0}), json!({}))]).unwrap();
        assert!(found.starts_with("shop/db-1: "), "{found}");
        let evictees: Vec<_> = pods.iter().filter_map(evictee).collect();
        assert_eq!(namespaces(&evictees).into_iter().collect::<Vec<_>>(), ["shop"]);
        assert_eq!(obstacle(&[], &[]), None);
    }

    /// It ends by itself, so no drain is held by it for ever.
    #[test]
    fn a_pod_with_a_deadline_is_no_obstacle() {
        let never = budget(json!({"maxUnavailable": 0}), json!({}));
        let job = pod(json!({"spec": {"activeDeadlineSeconds": 600}}));
        assert_eq!(why(&[job], &[never]), None);
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// What holds these Pods at 18:30, as `POD CODE`, and when to look again.
    fn held(pods: &[Pod], budgets: Vec<Budget>) -> (Vec<String>, Option<Timestamp>) {
        let remaining = Remaining { pods: pods.iter().filter_map(evictee).collect(), budgets };
        let (held, again) = remaining.held_at(at("2026-12-04T18:30:00Z"));
        (held.iter().map(|(pod, hold)| format!("{pod} {:?}", hold.code)).collect(), again)
    }

    /// A budget of `maxUnavailable: 1` that has allowed none since this instant.
    fn used_up(since: &str, generation: i64) -> Budget {
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "", "lastTransitionTime": since});
        let status = json!({"observedGeneration": generation, "expectedPods": 3, "desiredHealthy": 2, "disruptionsAllowed": 0, "conditions": [condition]});
        budget(json!({"maxUnavailable": 1}), status)
    }

    #[test]
    fn what_holds_a_drain_now() {
        let plain = || pod(json!({}));
        let marked = |value: &str, started: &str| {
            pod(
                json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}, "status": {"startTime": started}}),
            )
        };
        let early = "2026-12-04T15:00:00Z";
        let cases = vec![
            ("nothing", plain(), vec![], None),
            ("an ordinary budget", plain(), vec![budget(json!({"maxUnavailable": 1}), counted(3, 2))], None),
            ("a budget of 0", plain(), vec![budget(json!({"maxUnavailable": 0}), json!({}))], Some("PDBNeverAllows")),
            (
                "two budgets",
                plain(),
                vec![used_up(early, 3), budget_named("b", json!({"maxUnavailable": 1}), json!({}))],
                Some("PDBOverlap"),
            ),
            ("for good", marked("true", early), vec![], Some("DoNotDisruptUnbounded")),
            ("for four hours", marked("4h", early), vec![], Some("DoNotDisruptUntil")),
            ("until now", marked("3h30m", early), vec![], None),
            ("for no time", marked("0s", early), vec![], None),
            ("a word", marked("yes", early), vec![], None),
            ("used up for an hour", plain(), vec![used_up("2026-12-04T17:30:00Z", 3)], Some("PDBAllowsNone")),
            ("used up for a minute", plain(), vec![used_up("2026-12-04T18:29:00Z", 3)], Some("PDBAllowsNone")),
            ("by a status of an older budget", plain(), vec![used_up("2026-12-04T17:30:00Z", 2)], None),
        ];
        for (what, pod, budgets, code) in cases {
            let expected: Vec<String> = code.map(|code| format!("shop/db-0 {code}")).into_iter().collect();
            assert_eq!(held(&[pod], budgets), (expected, None), "{what}");
        }
        // not started yet: it holds
        let unstarted = pod(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "4h"}}}));
        assert_eq!(held(&[unstarted], vec![]).0, ["shop/db-0 DoNotDisruptUntil"]);
        // a deadline ends it some day, but it holds now
        let job = pod(json!({"spec": {"activeDeadlineSeconds": 600}}));
        assert_eq!(held(&[job], vec![budget(json!({"maxUnavailable": 0}), json!({}))]).0, ["shop/db-0 PDBNeverAllows"]);
    }

    /// Every drain uses its budgets up for as long as a replacement takes to become Ready.
    #[test]
    fn a_budget_used_up_for_less_than_a_minute_is_ordinary() {
        let (none, again) = held(&[pod(json!({}))], vec![used_up("2026-12-04T18:29:01Z", 3)]);
        assert_eq!((none.len(), again), (0, Some(at("2026-12-04T18:30:01Z"))));
        let always = json!({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
        let lets_go = Budget { used_up_since: Some(at("2026-12-04T15:00:00Z")), ..budget(always, json!({})) };
        let unready = pod(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
        assert_eq!(held(&[unready], vec![lets_go.clone()]), (Vec::new(), None), "its owner lets it go");
        assert_eq!(held(&[pod(json!({}))], vec![lets_go]).0, ["shop/db-0 PDBAllowsNone"]);
    }

    #[test]
    fn what_nothing_ends_comes_first() {
        let named = |name: &str, protection: &str| {
            let annotations = json!({"karpenter.sh/do-not-disrupt": protection});
            pod(
                json!({"metadata": {"name": name, "annotations": annotations}, "status": {"startTime": "2026-12-04T18:00:00Z"}}),
            )
        };
        let pods = [named("a", "4h"), named("c", "true"), named("b", "true")];
        let (found, _) = held(&pods, vec![]);
        assert_eq!(found, ["shop/b DoNotDisruptUnbounded", "shop/c DoNotDisruptUnbounded", "shop/a DoNotDisruptUntil"]);
    }

    #[test]
    fn the_grace_period_is_the_pods_own_or_half_a_minute() {
        let grace = |spec: Value| evictee(&pod(json!({"spec": spec}))).unwrap().grace().as_secs();
        assert_eq!((grace(json!({})), grace(json!({"terminationGracePeriodSeconds": 600}))), (30, 600));
    }
}
