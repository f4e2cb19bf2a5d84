//! RotationPolicies (§10).

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::admission::{PolicyChange, judge_deletion, judge_policy, with_default_zone};
use noderotation_shared::governance::StoredPolicy;
use noderotation_shared::policy::Policy;
use serde_json::json;

use super::VerdictOptions;
use crate::caches::Caches;
use crate::request::{AdmissionRequest, Object};
use crate::response::AdmissionResponse;

/// The objects of a creation or of an update that changes the spec; `None`: there is nothing to judge.
fn change(request: &AdmissionRequest<'_>) -> Result<Option<(Option<Object>, Object)>, String> {
    if !request.sub_resource.is_empty() || !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Ok(None);
    }
    let new =
        request.object()?.ok_or_else(|| format!("request.object: is missing in a {} request", request.operation))?;
    let old = request.old_object()?;
    let is_same = old.as_ref().is_some_and(|old| old.spec() == new.spec());
    Ok((!is_same && !new.is_being_deleted()).then_some((old, new)))
}

/// Before schema and CEL: fills what is absent, or says everything that is wrong.
pub fn mutate(options: &VerdictOptions, request: &AdmissionRequest<'_>) -> Result<AdmissionResponse, String> {
    let Some((_, new)) = change(request)? else { return Ok(AdmissionResponse::allowed()) };
    let mut spec = new.spec().clone();
    let filled = options.default_zone.as_ref().map(|zone| (zone, with_default_zone(&mut spec, zone)));
    if let Err(problems) = Policy::from_json(&spec) {
        let refusals: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        return Ok(AdmissionResponse::invalid(noderotation_shared::admission::messages::message(&refusals)));
    }
    let patch = filled
        .into_iter()
        .flat_map(|(zone, paths)| paths.into_iter().map(move |path| json!({"op": "add", "path": path, "value": zone})));
    Ok(AdmissionResponse { patch: patch.collect(), ..AdmissionResponse::allowed() })
}

/// After schema and CEL: what needs the other objects.
pub fn validate(
    caches: &Caches,
    options: &VerdictOptions,
    request: &AdmissionRequest<'_>,
    now: Timestamp,
) -> Result<AdmissionResponse, String> {
    if request.operation == "DELETE" && request.sub_resource.is_empty() {
        return Ok(caches.with_index(|index| judge_deletion(index, &request.name)).into());
    }
    let Some((old, new)) = change(request)? else { return Ok(AdmissionResponse::allowed()) };
    let name = new.name();
    let stored = |object: &Object| StoredPolicy::read(&name, None, object.spec());
    let (old, new) = (old.as_ref().map(stored), Arc::new(stored(&new)));
    let change = PolicyChange { old: old.as_ref(), new: &new };
    let verdict = caches.with_index(|index| judge_policy(index, change, options.static_pools, now));
    if verdict.refusals.is_empty() && !request.is_dry_run() {
        caches.admit_policy(new);
    }
    Ok(verdict.into())
}
