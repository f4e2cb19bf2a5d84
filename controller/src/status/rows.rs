//! The rows of a policy's status: one for each NodePool that it governs, or is meant to (§3).

use std::collections::BTreeMap;

use jiff::Timestamp;
use noderotation_rotation::report::{Outlook, PoolReport};
use noderotation_shared::blocked::{Blocked, BlockedReason};
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::instant;
use noderotation_shared::policy::Policy;
use noderotation_shared::schedule::Schedule;
use serde_json::{Value, json};

/// The CRD's schema admits so many.
const ROWS: usize = 100;
const UPCOMING: usize = 10;

/// The reports of the NodePools that a policy governs, or ties for, or whose templates it selects: the blocked ones first, then
/// by name.
pub fn concerning<'a>(policy: &str, reports: impl IntoIterator<Item = &'a PoolReport>) -> Vec<&'a PoolReport> {
    let concerns = |report: &&PoolReport| match &report.governance {
        Ok(governing) => governing == policy,
        Err(Ungoverned::InvalidPolicy(other) | Ungoverned::OnlyTemplate(other)) => other == policy,
        Err(Ungoverned::Conflict(tied)) => tied.iter().any(|other| other == policy),
        Err(Ungoverned::NoMatch) => false,
    };
    let mut concerned: Vec<&PoolReport> = reports.into_iter().filter(concerns).collect();
    concerned.sort_by_key(|report| (report.blocked.is_empty(), report.pool.clone()));
    concerned
}

/// One row for each of these NodePools, a hundred at most. `before` is the status so far.
pub fn rows(policy: Option<&Policy>, reports: &[&PoolReport], before: &Value, now: Timestamp) -> Vec<Value> {
    let since = blocked_since(before);
    reports.iter().take(ROWS).map(|report| row(policy, report, since.get(report.pool.as_str()).copied(), now)).collect()
}

/// Since when each NodePool has been blocked, by this status.
pub fn blocked_since(status: &Value) -> BTreeMap<&str, Timestamp> {
    let since = |row: &Value| row.get("blockedSince").and_then(Value::as_str).and_then(instant::parse);
    items(status, "nodePools").filter_map(|row| Some((row.get("name")?.as_str()?, since(row)?))).collect()
}

fn row(policy: Option<&Policy>, report: &PoolReport, blocked_since: Option<Timestamp>, now: Timestamp) -> Value {
    let is_blocked = !report.blocked.is_empty();
    let state = if report.in_progress {
        "Rotating"
    } else if is_blocked {
        "Blocked"
    } else {
        "Waiting"
    };
    let schedule = policy.map(|policy| &policy.schedule);
    let time = |at: Option<Timestamp>| at.map(instant::format);
    let due = report.outlook.iter().filter(|claim| claim.due_at.is_some_and(|at| at <= now)).count();
    let next_start = schedule.filter(|_| !is_blocked).and_then(|schedule| next_start(schedule, report, now));
    let upcoming = report.outlook.iter().filter(|claim| claim.due_at.is_some()).take(UPCOMING);
    json!({
        "name": report.pool,
        "state": state,
        "blockedBy": report.blocked.iter().map(Blocked::word).collect::<Vec<_>>(),
        "blockedSince": time(is_blocked.then(|| blocked_since.unwrap_or(now))),
        "findings": report.findings.iter().map(|finding| finding.code.name()).collect::<Vec<_>>(),
        "due": due,
        "nextStart": time(next_start),
        "nextDeadline": time(report.outlook.iter().filter_map(|claim| claim.deadline).min()),
        "upcoming": upcoming.map(|claim| upcoming_rotation(schedule, claim, now)).collect::<Vec<_>>(),
    })
}

/// The first instant at which a claim is due, no pause holds it and a window is open. It may have passed: then a rotation can
/// start at once.
fn next_start(schedule: &Schedule, report: &PoolReport, now: Timestamp) -> Option<Timestamp> {
    let due_at = report.outlook.first()?.due_at?;
    let ready_at = report.paused_until.map_or(due_at, |until| until.max(due_at));
    let occurrence = schedule.occurrences(ready_at.max(now)).next()?;
    Some(occurrence.open.max(ready_at))
}

fn upcoming_rotation(schedule: Option<&Schedule>, claim: &Outlook, now: Timestamp) -> Value {
    let window = claim
        .due_at
        .zip(schedule)
        .and_then(|(due_at, schedule)| schedule.occurrences(due_at.max(now)).next()?.opening());
    json!({
        "nodeClaim": claim.claim,
        "node": Some(&claim.node).filter(|node| !node.is_empty()),
        "due": claim.due_at.map(instant::format),
        "window": window.map(instant::format),
        "deadline": claim.deadline.map(instant::format),
    })
}

/// What was told of each NodePool, by these statuses: the words of what blocks it, and the codes of its findings.
pub fn told<'a>(statuses: impl IntoIterator<Item = &'a Value>) -> Vec<(String, String)> {
    let mut told = Vec::new();
    for row in statuses.into_iter().flat_map(|status| items(status, "nodePools")) {
        let Some(pool) = row.get("name").and_then(Value::as_str) else { continue };
        let words = ["blockedBy", "findings"].into_iter().flat_map(|list| items(row, list));
        told.extend(words.filter_map(Value::as_str).map(|word| (pool.to_owned(), word.to_owned())));
    }
    told
}

/// The items of a list; none where there is no such list.
fn items<'a>(object: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// The word of a reason in a policy's condition: two are as the Go controller has them.
pub fn condition_word(reason: BlockedReason) -> &'static str {
    match reason {
        BlockedReason::InvalidPolicy => "Invalid",
        BlockedReason::PolicyConflict => "Conflict",
        other => other.word(),
    }
}
