//! The status of RotationPolicies (§3): observational, written only when its content changes.

mod condition;
pub mod rows;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use noderotation_rotation::report::PoolReport;
use noderotation_shared::blocked::BlockedReason;
use noderotation_shared::governance::{Ungoverned, govern_or_explain};
use noderotation_shared::instant;
use noderotation_shared::objects::{NodePool, PolicyObject};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::leader::Term;
use crate::reports::PoolReports;
use crate::watch::Caches;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;

/// Changes come in clusters; one computation serves them all.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// Nothing but a change of the cluster's is looked at before.
const SAFETY_NET: Duration = Duration::from_secs(300);

/// Keeps every policy's status up to date. Never returns.
pub async fn keep(api: Api, caches: Arc<Caches>, reports: PoolReports, term: Term) {
    let mut wait = DEBOUNCE;
    loop {
        tokio::select! { () = caches.changed.notified() => {}, () = tokio::time::sleep(wait) => {} }
        tokio::time::sleep(DEBOUNCE).await;
        let (policies, pools) = {
            let caches = caches.lock();
            (caches.policies(), caches.pools())
        };
        let all = reports.all();
        if !are_current(&policies, &pools, &all) {
            wait = DEBOUNCE;
            continue;
        }
        let now = Timestamp::now();
        let mut next = Instant::now() + SAFETY_NET;
        let mut blocked_since = BTreeMap::new();
        for policy in &policies {
            if term.check().is_err() {
                return std::future::pending().await; // the process is about to end
            }
            let concerned = rows::concerning(&policy.parsed.name, all.values().map(|report| &**report));
            let status = status(policy, &pools, &concerned, now);
            for (pool, since) in rows::blocked_since(&status) {
                let earliest = blocked_since.entry(pool.to_owned()).or_insert(since);
                *earliest = since.min(*earliest);
            }
            if let Ok(parsed) = &policy.parsed.verdict {
                for at in [parsed.schedule.next_edge(now), window::text(&parsed.schedule, now).1].into_iter().flatten()
                {
                    let until = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    next = next.min(Instant::now() + until + Duration::from_millis(10));
                }
            }
            if !is_told(&policy.status, &status) {
                write(&api, &caches, policy, &status).await;
            }
        }
        reports.set_blocked_since(blocked_since);
        wait = next.saturating_duration_since(Instant::now());
    }
}

/// Whether every NodePool had its pass under the policies as they are: when a leader starts, or a policy has changed, the
/// reports come one after another.
fn are_current(
    policies: &[Arc<PolicyObject>],
    pools: &[Arc<NodePool>],
    reports: &BTreeMap<String, Arc<PoolReport>>,
) -> bool {
    let valid = || policies.iter().filter(|policy| policy.meta.deleted.is_none()).map(|policy| &*policy.parsed);
    pools.iter().all(|pool| {
        let governance =
            govern_or_explain(&pool.labels, &pool.template_labels, valid()).map(|(winner, _)| winner.name.to_string());
        reports.get(&*pool.meta.name).is_some_and(|report| report.governance == governance)
    })
}

/// The status that the policy should have, whose NodePools these reports are about.
fn status(policy: &PolicyObject, pools: &[Arc<NodePool>], concerned: &[&PoolReport], now: Timestamp) -> Value {
    let parsed = policy.parsed.verdict.as_deref().ok();
    let is_won = |report: &&&PoolReport| matches!(&report.governance, Ok(_) | Err(Ungoverned::InvalidPolicy(_)));
    let won: Vec<_> = concerned.iter().filter(is_won).collect();
    let next = parsed.and_then(|policy| policy.schedule.occurrences(now).next());
    let mut wanted = json!({
        "observedGeneration": policy.generation,
        "matchedNodePools": won.len(),
        "rotatingNodePools": won.iter().filter(|report| report.in_progress).count(),
        "blockedNodePools": concerned.iter().filter(|report| !report.blocked.is_empty()).count(),
        "candidates": won.iter().map(|report| report.counts.eligible).sum::<usize>(),
        "window": parsed.map(|policy| window::text(&policy.schedule, now).0),
        "nextWindow": next.map(|o| json!({"opens": o.opening().map(instant::format), "closes": o.closing().map(instant::format)})),
        "nodePools": rows::rows(parsed, concerned, &policy.status, now),
        "conditions": [condition::ready(policy, pools, concerned)],
    });
    keep_transition_time(&policy.status, &mut wanted, now);
    // an older CustomResourceDefinition may refuse other fields; these two every one has
    if concerned.iter().flat_map(|report| &report.blocked).any(|b| b.reason() == BlockedReason::OldSchema)
        && let Some(fields) = wanted.as_object_mut()
    {
        fields.retain(|field, _| ["observedGeneration", "conditions"].contains(&field.as_str()));
    }
    wanted
}

/// Whether a merge patch of `wanted` would change nothing.
fn is_told(old: &Value, wanted: &Value) -> bool {
    let same = |(field, value): (&String, &Value)| without_empty(&old[field.as_str()]) == without_empty(value);
    wanted.as_object().into_iter().flatten().all(same)
}

/// `lastTransitionTime` moves only when `status` does.
fn keep_transition_time(old: &Value, wanted: &mut Value, now: Timestamp) {
    let before = old.pointer("/conditions/0");
    let same = before.and_then(|c| c.get("status")) == wanted.pointer("/conditions/0/status");
    let at = before.and_then(|c| c.get("lastTransitionTime")).filter(|_| same).cloned();
    if let Some(condition) = wanted.pointer_mut("/conditions/0").and_then(Value::as_object_mut) {
        condition.insert("lastTransitionTime".into(), at.unwrap_or_else(|| instant::format(now).into()));
    }
}

/// Nulls and empty lists are as good as absent, and so the API server keeps them.
fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(fields) => {
            fields.iter().filter(|(_, v)| !is_empty(v)).map(|(k, v)| (k.clone(), without_empty(v))).collect()
        }
        Value::Array(items) => items.iter().map(without_empty).collect(),
        other => other.clone(),
    }
}

/// A conflict is put off silently: the newer version comes by the watch, and the loop looks again.
async fn write(api: &Api, caches: &Caches, policy: &PolicyObject, status: &Value) {
    let body = json!({"metadata": {"resourceVersion": &*policy.meta.version}, "status": status});
    match api.patch_policy_status(&policy.meta.name, &body).await {
        Outcome::Applied(text) => {
            if let Ok(written) = PolicyObject::read(&text) {
                caches.apply(written);
            }
        }
        Outcome::Conflict | Outcome::NotFound => caches.changed.notify_one(),
        other => tracing::warn!(rotationpolicy = &*policy.meta.name, outcome = %other, "status not written"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use noderotation_rotation::reason::EligibilityCounts;
    use noderotation_rotation::report::Outlook;
    use noderotation_shared::blocked::Blocked;
    use noderotation_shared::feasibility::{Code, Finding};
    use noderotation_shared::objects::Meta;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-29T12:00:00Z".parse().unwrap()
    }

    fn policy(name: &str, spec: &Value, status: Value) -> PolicyObject {
        let object = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 2}, "spec": spec, "status": status});
        PolicyObject::read(&object.to_string()).unwrap()
    }

    fn good() -> Value {
        json!({"nodePoolSelector": {"matchLabels": {"w": "api"}}, "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}]})
    }

    fn pool(name: &str, label: &str) -> Arc<NodePool> {
        let labels = [("w".to_owned(), label.to_owned())].into();
        Arc::new(NodePool { meta: Meta { name: name.into(), ..Meta::default() }, labels, ..NodePool::default() })
    }

    fn report(pool: &str, governance: Result<&str, Ungoverned>) -> PoolReport {
        PoolReport {
            pool: pool.into(),
            blocked: governance.as_ref().err().and_then(Blocked::ungoverned).into_iter().collect(),
            governance: governance.map(Into::into),
            reasons: Vec::new(),
            findings: Vec::new(),
            counts: EligibilityCounts { eligible: 1, ..EligibilityCounts::default() },
            outlook: Vec::new(),
            in_progress: false,
            window_active: false,
            next_open: None,
            paused_until: None,
            frozen_until: None,
            drain_stuck: false,
            retry_count: 0,
            derived: None,
        }
    }

    /// The status of `p`, whose NodePools these are.
    fn seen(policy: &PolicyObject, pools: &[Arc<NodePool>], reports: &[PoolReport]) -> Value {
        let concerned = rows::concerning("p", reports);
        status(policy, pools, &concerned, now())
    }

    fn ready(status: &Value) -> (&str, &str, &str) {
        let text = |field: &str| status["conditions"][0][field].as_str().unwrap();
        (text("status"), text("reason"), text("message"))
    }

    #[test]
    fn a_second_look_writes_nothing() {
        let pools = [pool("api", "api")];
        let reports = [report("api", Ok("p"))];
        let written = seen(&policy("p", &good(), Value::Null), &pools, &reports);
        assert_eq!(written["matchedNodePools"], 1);
        assert_eq!(written["nextWindow"]["opens"], "2026-11-30T01:00:00Z");
        assert_eq!(written["window"], "in 13h");
        assert_eq!(ready(&written), ("True", "Accepted", ""));
        // the API server prunes nulls
        let stored = without_empty(&written);
        let again = seen(&policy("p", &good(), stored.clone()), &pools, &reports);
        assert_eq!(without_empty(&again), stored);
    }

    /// Else each look would write, and each write be looked at.
    #[test]
    fn the_condition_keeps_the_instant_since_when_it_holds() {
        let pools = [pool("api", "api")];
        let before = seen(&policy("p", &good(), Value::Null), &pools, &[report("api", Ok("p"))]);
        let an_hour_later = |report: PoolReport| {
            let policy = policy("p", &good(), without_empty(&before));
            let found = status(&policy, &pools, &[&report], now() + SignedDuration::from_hours(1));
            found["conditions"][0]["lastTransitionTime"].clone()
        };
        assert_eq!(an_hour_later(report("api", Ok("p"))), "2026-11-29T12:00:00Z");
        let suspended = PoolReport { blocked: vec![Blocked::Suspended], ..report("api", Ok("p")) };
        assert_eq!(an_hour_later(suspended), "2026-11-29T13:00:00Z");
    }

    /// The schema admits no more: a status with another row would be refused in whole.
    #[test]
    fn a_hundred_rows_are_shown_and_the_blocked_ones_are_among_them() {
        let mut reports: Vec<PoolReport> = (0..101).map(|n| report(&format!("pool-{n:03}"), Ok("p"))).collect();
        reports[100].blocked = vec![Blocked::NeverDue];
        let found = seen(&policy("p", &good(), Value::Null), &[], &reports);
        let rows = found["nodePools"].as_array().unwrap();
        assert_eq!((rows.len(), &rows[0]["name"]), (100, &json!("pool-100")));
        assert_eq!((&found["matchedNodePools"], &found["blockedNodePools"]), (&json!(101), &json!(1)));
    }

    #[test]
    fn a_row_says_when_each_node_goes() {
        let at = |hours: i64| Some(now() + SignedDuration::from_hours(hours));
        let claim = |name: &str, due_at, deadline| Outlook {
            claim: name.into(),
            node: format!("n-{name}").into(),
            due_at,
            deadline,
        };
        let mut api = report("api", Ok("p"));
        api.outlook = vec![claim("a", at(-1), at(100)), claim("b", at(20), at(50)), claim("never", None, None)];
        api.findings = vec![Finding { code: Code::TGPUnset, message: String::new() }];
        let row = |report: PoolReport| {
            seen(&policy("p", &good(), Value::Null), &[pool("api", "api")], &[report])["nodePools"][0].clone()
        };
        let seen = row(api.clone());
        assert_eq!(
            (&seen["state"], &seen["due"], &seen["findings"]),
            (&json!("Waiting"), &json!(1), &json!(["TGPUnset"]))
        );
        assert_eq!(
            (&seen["nextStart"], &seen["nextDeadline"]),
            (&json!("2026-11-30T01:00:00Z"), &json!("2026-12-01T14:00:00Z"))
        );
        let upcoming = json!([
            {"nodeClaim": "a", "node": "n-a", "due": "2026-11-29T11:00:00Z", "window": "2026-11-30T01:00:00Z", "deadline": "2026-12-03T16:00:00Z"},
            // due behind the window's end: it goes a week later
            {"nodeClaim": "b", "node": "n-b", "due": "2026-11-30T08:00:00Z", "window": "2026-12-07T01:00:00Z", "deadline": "2026-12-01T14:00:00Z"},
        ]);
        assert_eq!(seen["upcoming"], upcoming);
        // a pause beyond the window's opening
        let paused = row(PoolReport { paused_until: Some("2026-11-30T01:30:00Z".parse().unwrap()), ..api.clone() });
        assert_eq!(paused["nextStart"], "2026-11-30T01:30:00Z");
        let rotating = row(PoolReport { in_progress: true, ..api.clone() });
        assert_eq!(rotating["state"], "Rotating");
        api.outlook = (0..30).map(|n| claim(&format!("c{n:02}"), at(n), None)).collect();
        let many = row(api);
        assert_eq!(
            (many["upcoming"].as_array().map(Vec::len), &many["upcoming"][0]["nodeClaim"]),
            (Some(10), &json!("c00"))
        );
    }

    /// Every reason of §6.1 is one of the condition and one of the row, with the instant since when it holds.
    #[test]
    fn whatever_blocks_a_pool_is_in_the_condition_and_in_the_row() {
        let all = [
            (Ok("p"), vec![Blocked::StaticNodePool]),
            (Ok("p"), vec![Blocked::FatalFinding(vec![Code::NoWindows], "x".into())]),
            (Ok("p"), vec![Blocked::NeverDue]),
            (Ok("p"), vec![Blocked::NoWindowAhead(None)]),
            (Ok("p"), vec![Blocked::Suspended]),
            (Ok("p"), vec![Blocked::Frozen(now())]),
            (Ok("p"), vec![Blocked::FreezeUnreadable("x".into())]),
            (Ok("p"), vec![Blocked::LimitsExhausted("cpu".into(), noderotation_shared::quantity::Quantity::whole(8))]),
            (Err(Ungoverned::OnlyTemplate("p".into())), Vec::new()),
            (Err(Ungoverned::Conflict(vec!["p".into(), "q".into()])), Vec::new()),
        ];
        for (governance, blocked) in all {
            let mut api = report("api", governance);
            if !blocked.is_empty() {
                api.blocked = blocked;
            }
            let word = api.blocked[0].word();
            let text = api.blocked[0].to_string();
            let found = seen(&policy("p", &good(), Value::Null), &[pool("api", "api")], &[api.clone()]);
            let expected = if word == "PolicyConflict" { "Conflict" } else { word };
            assert_eq!(ready(&found), ("False", expected, format!("NodePool api: {text}").as_str()));
            let row = &found["nodePools"][0];
            assert_eq!((&row["state"], &row["blockedBy"]), (&json!("Blocked"), &json!([word])));
            assert_eq!((&row["blockedSince"], &found["blockedNodePools"]), (&json!("2026-11-29T12:00:00Z"), &json!(1)));
            assert!(row["nextStart"].is_null());
            let before = json!({"nodePools": [{"name": "api", "blockedSince": "2026-11-01T00:00:00Z"}]});
            let later = seen(&policy("p", &good(), before), &[pool("api", "api")], &[api]);
            assert_eq!(later["nodePools"][0]["blockedSince"], "2026-11-01T00:00:00Z", "it goes on");
        }
        let bad = json!({"nodePoolSelector": {}, "maintenanceWindows": []});
        let reports = [report("api", Err(Ungoverned::InvalidPolicy("p".into())))];
        let found = seen(&policy("p", &bad, Value::Null), &[pool("api", "api")], &reports);
        let (status, reason, message) = ready(&found);
        assert!(message.contains("spec.maintenanceWindows"), "{message}");
        assert_eq!(
            (status, reason, &found["nodePools"][0]["blockedBy"]),
            ("False", "Invalid", &json!(["InvalidPolicy"]))
        );
    }

    /// Two of three NodePools are held, for different reasons: which goes on is said.
    #[test]
    fn what_goes_on_is_said() {
        let pools = [pool("a", "api"), pool("b", "api"), pool("c", "api")];
        let tied = report("b", Err(Ungoverned::Conflict(vec!["p".into(), "q".into()])));
        let frozen = PoolReport { blocked: vec![Blocked::Frozen(now())], ..report("c", Ok("p")) };
        let found = seen(&policy("p", &good(), Value::Null), &pools, &[report("a", Ok("p")), frozen, tied]);
        let (status, reason, message) = ready(&found);
        assert_eq!((status, reason), ("False", "Conflict"), "what an operator has wanted comes last");
        assert!(message.starts_with("NodePool b: RotationPolicies p and q are equally specific"), "{message}");
        assert!(message.ends_with("; NodePool a goes on"), "{message}");
        let counts = [&found["matchedNodePools"], &found["blockedNodePools"], &found["candidates"]];
        assert_eq!(counts, [&json!(2), &json!(2), &json!(2)]);
        let names: Vec<&Value> = found["nodePools"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
        assert_eq!(names, ["b", "c", "a"], "the blocked ones first");
    }

    #[test]
    fn a_policy_that_selects_nothing_is_not_ready_and_one_that_others_overrule_is() {
        let found =
            seen(&policy("p", &good(), Value::Null), &[pool("web", "web")], &[report("web", Err(Ungoverned::NoMatch))]);
        assert_eq!((ready(&found).0, ready(&found).1), ("False", "Unselected"));
        let found = seen(&policy("p", &good(), Value::Null), &[pool("api", "api")], &[report("api", Ok("special"))]);
        assert_eq!(ready(&found), ("True", "Accepted", "more specific policies govern NodePool api"));
        assert_eq!(found["matchedNodePools"], 0);
    }

    /// A report of before a policy came says nothing about it.
    #[test]
    fn reports_are_waited_for() {
        let policies = [Arc::new(policy("p", &good(), Value::Null))];
        let pools = [pool("api", "api"), pool("web", "web")];
        let of = |api: Result<&str, Ungoverned>| {
            let all = [report("api", api), report("web", Err(Ungoverned::NoMatch))];
            all.into_iter().map(|report| (report.pool.clone(), Arc::new(report))).collect::<BTreeMap<_, _>>()
        };
        assert!(are_current(&policies, &pools, &of(Ok("p"))));
        assert!(!are_current(&policies, &pools, &of(Err(Ungoverned::NoMatch))));
        assert!(!are_current(&policies, &pools, &BTreeMap::new()));
        // a finalizer of somebody else's may keep a deleted policy for ever, and it governs no more
        let mut deleted = policy("p", &good(), Value::Null);
        deleted.meta.deleted = Some(now());
        assert!(are_current(&[Arc::new(deleted)], &pools, &of(Err(Ungoverned::NoMatch))));
    }

    /// An older definition may refuse every other field, and a status that can never be complete is not written for ever.
    #[test]
    fn under_an_older_definition_the_condition_alone_is_written() {
        let mut api = report("api", Ok("p"));
        api.blocked = vec![Blocked::OldSchema(vec!["spec.suspend".into()])];
        let written = seen(&policy("p", &good(), Value::Null), &[pool("api", "api")], &[api]);
        let fields: Vec<&String> = written.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["conditions", "observedGeneration"]);
        assert_eq!(ready(&written).1, "OldSchema");
        let mut old = written.clone();
        old["matchedNodePools"] = json!(["api"]);
        assert!(is_told(&old, &written), "what somebody else wrote stays");
        old["observedGeneration"] = json!(1);
        assert!(!is_told(&old, &written));
        assert!(!is_told(&json!({}), &json!({"window": "open"})) && is_told(&json!({}), &json!({"window": null})));
    }

    /// What a status says was told is not told again by the next leader.
    #[test]
    fn what_was_told_is_read_from_the_status() {
        let status = json!({"nodePools": [{"name": "api", "blockedBy": ["NeverDue"], "findings": ["TGPUnset"]}, {"name": "web"}]});
        let pair = |topic: &str| ("api".to_owned(), topic.to_owned());
        assert_eq!(rows::told([&status, &Value::Null]), [pair("NeverDue"), pair("TGPUnset")]);
    }
}
