//! The status of RotationPolicies (§3): observational, written only when its content changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use noderotation_rotation::report::PoolReport;
use noderotation_shared::admission::messages;
use noderotation_shared::governance::{Ungoverned, govern};
use noderotation_shared::instant;
use noderotation_shared::objects::{NodePool, PolicyObject};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::events::shortened;
use crate::leader::Term;
use crate::reports::PoolReports;
use crate::watch::Caches;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;

/// Changes come in clusters; one computation serves them all.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// The API server takes no longer message in a condition.
const MESSAGE_BYTES: usize = 32_768;

/// Keeps every policy's status up to date. Never returns.
pub async fn keep(api: Api, caches: Arc<Caches>, reports: PoolReports, term: Term) {
    let mut wait = DEBOUNCE;
    loop {
        tokio::select! { () = caches.changed.notified() => {}, () = tokio::time::sleep(wait) => {} }
        tokio::time::sleep(DEBOUNCE).await;
        let reports = reports.all();
        // when a leader starts, the counts are complete only once every pool had its pass
        if caches.lock().pool_names().iter().any(|name| !reports.contains_key(&**name)) {
            wait = DEBOUNCE;
            continue;
        }
        let now = Timestamp::now();
        let mut next = Instant::now() + Duration::from_secs(300);
        let (policies, pools) = {
            let caches = caches.lock();
            (caches.policies(), caches.pools())
        };
        let standing = standing(&policies, &pools);
        for policy in &policies {
            if term.check().is_err() {
                return std::future::pending().await; // the process is about to end
            }
            let status = status(policy, standing.get(&*policy.meta.name), &pools, &reports, now);
            if let Some(edge) = policy.parsed.verdict.as_ref().ok().and_then(|p| p.schedule.next_edge(now)) {
                let until = Duration::try_from(edge.duration_since(now)).unwrap_or_default();
                next = next.min(Instant::now() + until + Duration::from_millis(10));
            }
            if let Some(status) = status {
                write(&api, &caches, policy, &status).await;
            }
        }
        wait = next.saturating_duration_since(Instant::now());
    }
}

/// Which NodePools a policy wins, and on which it ties.
#[derive(Default)]
struct Standing {
    wins: Vec<String>,
    /// Pools on which it ties, with the others.
    ties: Vec<(String, Vec<String>)>,
}

fn standing(policies: &[Arc<PolicyObject>], pools: &[Arc<NodePool>]) -> BTreeMap<String, Standing> {
    let mut standing: BTreeMap<String, Standing> = BTreeMap::new();
    for pool in pools {
        let name = pool.meta.name.to_string();
        match govern(&pool.labels, policies.iter().filter(|p| p.meta.deleted.is_none()).map(|p| &*p.parsed)) {
            Ok((winner, _)) => standing.entry(winner.name.to_string()).or_default().wins.push(name),
            Err(Ungoverned::InvalidPolicy(winner)) => standing.entry(winner).or_default().wins.push(name),
            Err(Ungoverned::Conflict(tied)) => {
                for policy in &tied {
                    let others = tied.iter().filter(|other| *other != policy).cloned().collect();
                    standing.entry(policy.clone()).or_default().ties.push((name.clone(), others));
                }
            }
            Err(Ungoverned::NoMatch | Ungoverned::OnlyTemplate(_)) => {}
        }
    }
    standing
}

/// The status that the policy should have; `None` where it has that already.
fn status(
    policy: &PolicyObject,
    standing: Option<&Standing>,
    pools: &[Arc<NodePool>],
    reports: &BTreeMap<String, Arc<PoolReport>>,
    now: Timestamp,
) -> Option<Value> {
    let none = Standing::default();
    let standing = standing.unwrap_or(&none);
    let rotating: Vec<&String> = standing
        .wins
        .iter()
        .filter(|name| pools.iter().any(|p| *p.meta.name == ***name && p.anchor().is_some()))
        .collect();
    let candidates: usize = standing.wins.iter().filter_map(|name| reports.get(name)).map(|r| r.counts.eligible).sum();
    let next = policy.parsed.verdict.as_ref().ok().and_then(|p| p.schedule.occurrences(now).next());
    let mut wanted = json!({
        "observedGeneration": policy.generation,
        "matchedNodePools": standing.wins,
        "rotatingNodePools": rotating,
        "candidates": candidates,
        "nextWindow": next.map(|o| json!({"opens": o.opening().map(instant::format), "closes": o.closing().map(instant::format)})),
        "conditions": [condition(policy, standing)],
    });
    keep_transition_time(&policy.status, &mut wanted, now);
    (without_empty(&policy.status) != without_empty(&wanted)).then_some(wanted)
}

fn condition(policy: &PolicyObject, standing: &Standing) -> Value {
    let (status, reason, message) = match (&policy.parsed.verdict, standing.ties.as_slice()) {
        (Err(problems), _) => ("False", "Invalid", problems.to_string()),
        (Ok(_), []) => ("True", "Accepted", String::new()),
        (Ok(_), ties) => {
            let mut others: Vec<&String> = ties.iter().flat_map(|(_, others)| others).collect();
            others.sort();
            others.dedup();
            let pools: Vec<&String> = ties.iter().map(|(pool, _)| pool).collect();
            let message = format!(
                "as specific as {} for {}, so none of them governs there and nothing rotates; add a label to the selector of one of them",
                messages::policies(&others),
                messages::pools(&pools)
            );
            ("False", "Conflict", message)
        }
    };
    json!({
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": shortened(&message, MESSAGE_BYTES),
        "observedGeneration": policy.generation,
    })
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
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, v)| !v.is_null() && !v.as_array().is_some_and(Vec::is_empty))
                .map(|(k, v)| (k.clone(), without_empty(v)))
                .collect(),
        ),
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
    use super::*;

    fn policy(name: &str, spec: &Value, status: Value) -> PolicyObject {
        let object = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 2}, "spec": spec, "status": status});
        PolicyObject::read(&object.to_string()).unwrap()
    }

    fn good() -> Value {
        json!({"nodePoolSelector": {}, "maintenanceWindows": [{"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}]})
    }

    #[test]
    fn a_second_look_writes_nothing() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let pool = Arc::new(NodePool {
            meta: noderotation_shared::objects::Meta { name: "api".into(), ..Default::default() },
            ..NodePool::default()
        });
        let look = |p: &PolicyObject| {
            let policies = [Arc::new(p.clone())];
            status(
                p,
                standing(&policies, std::slice::from_ref(&pool)).get("p"),
                std::slice::from_ref(&pool),
                &BTreeMap::new(),
                now,
            )
        };
        let written = look(&policy("p", &good(), Value::Null)).unwrap();
        assert_eq!(written["matchedNodePools"], json!(["api"]));
        assert_eq!(written["conditions"][0]["reason"], "Accepted");
        assert_eq!(written["nextWindow"]["opens"], "2026-11-30T01:00:00Z");
        // the API server prunes nulls
        let mut stored = written.clone();
        stored.as_object_mut().unwrap().retain(|_, v| !v.is_null());
        assert_eq!(look(&policy("p", &good(), stored)), None);
    }

    #[test]
    fn ties_and_mistakes_are_told() {
        let pool = Arc::new(NodePool {
            meta: noderotation_shared::objects::Meta { name: "api".into(), ..Default::default() },
            ..NodePool::default()
        });
        let policies = [Arc::new(policy("a", &good(), Value::Null)), Arc::new(policy("b", &good(), Value::Null))];
        let standing = standing(&policies, &[pool]);
        let told = condition(&policies[0], &standing["a"]);
        assert_eq!(told["reason"], "Conflict");
        assert!(told["message"].as_str().unwrap().contains("RotationPolicy b for NodePool api"), "{told}");
        let bad = policy("c", &json!({"nodePoolSelector": {}, "maintenanceWindows": []}), Value::Null);
        let told = condition(&bad, &Standing::default());
        assert_eq!(told["reason"], "Invalid");
        assert!(told["message"].as_str().unwrap().contains("spec.maintenanceWindows"), "{told}");
    }
}
