//! RotationPolicies (§10).

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::admission::{PolicyChange, judge_deletion, judge_policy, with_default_zone};
use noderotation_shared::governance::StoredPolicy;
use noderotation_shared::policy::Policy;
use serde_json::json;

use super::Rules;
use crate::answer::Answer;
use crate::review::{Object, Request};
use crate::view::View;

/// The objects of a creation or of an update that changes the spec; `None`: there is nothing to judge.
fn change(request: &Request<'_>) -> Result<Option<(Option<Object>, Object)>, String> {
    if !request.sub_resource.is_empty() || !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Ok(None);
    }
    let new = request.object()?.ok_or_else(|| format!("request.object: missing in {}", request.operation))?;
    let old = request.old_object()?;
    let is_same = old.as_ref().is_some_and(|old| old.spec() == new.spec());
    Ok((!is_same && !new.is_being_deleted()).then_some((old, new)))
}

/// Before schema and CEL: fills what is absent, or says everything that is wrong.
pub fn mutate(rules: &Rules, request: &Request<'_>) -> Result<Answer, String> {
    let Some((_, new)) = change(request)? else { return Ok(Answer::allowed()) };
    let mut spec = new.spec().clone();
    let filled = rules.default_zone.as_ref().map(|zone| (zone, with_default_zone(&mut spec, zone)));
    if let Err(problems) = Policy::from_json(&spec) {
        let refusals: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        return Ok(Answer::invalid(noderotation_shared::admission::words::message(&refusals)));
    }
    let patch = filled
        .into_iter()
        .flat_map(|(zone, paths)| paths.into_iter().map(move |path| json!({"op": "add", "path": path, "value": zone})));
    Ok(Answer { patch: patch.collect(), ..Answer::allowed() })
}

/// After schema and CEL: what needs the other objects.
pub fn validate(view: &View, rules: &Rules, request: &Request<'_>, now: Timestamp) -> Result<Answer, String> {
    if request.operation == "DELETE" && request.sub_resource.is_empty() {
        return Ok(view.with_ledger(|ledger| judge_deletion(ledger, &request.name)).into());
    }
    let Some((old, new)) = change(request)? else { return Ok(Answer::allowed()) };
    let name = new.name();
    let stored = |object: &Object| StoredPolicy::read(&name, None, object.spec());
    let (old, new) = (old.as_ref().map(stored), Arc::new(stored(&new)));
    let change = PolicyChange { old: old.as_ref(), new: &new };
    let verdict = view.with_ledger(|ledger| judge_policy(ledger, change, rules.static_pools, now));
    if verdict.refusals.is_empty() && !request.is_dry_run() {
        view.admit_policy(new);
    }
    Ok(verdict.into())
}
