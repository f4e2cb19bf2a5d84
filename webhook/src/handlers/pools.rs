//! NodePools (§10).

use std::sync::Arc;

use jiff::Timestamp;
use noderotation_shared::admission::{ProposedNodePool, judge_pool_change};
use noderotation_shared::{instant, keys};

use super::VerdictOptions;
use crate::caches::Caches;
use crate::request::{AdmissionRequest, Object};
use crate::response::AdmissionResponse;

/// Judges a creation, or an update of spec, labels or the operator's keys.
pub fn validate(
    caches: &Caches,
    options: &VerdictOptions,
    request: &AdmissionRequest<'_>,
    now: Timestamp,
) -> Result<AdmissionResponse, String> {
    if !request.sub_resource.is_empty() || !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Ok(AdmissionResponse::allowed());
    }
    let new =
        request.object()?.ok_or_else(|| format!("request.object: is missing in a {} request", request.operation))?;
    let old = request.old_object()?;
    if new.is_being_deleted() {
        return Ok(AdmissionResponse::allowed());
    }
    let proposed = |object: &Object| {
        let mut proposed = ProposedNodePool::read(&object.0, now);
        proposed.name = object.name();
        proposed
    };
    let (before, after) = (old.as_ref().map(proposed), proposed(&new));
    let operators = |object: &Object| [keys::FREEZE, keys::ROTATE].map(|key| object.annotation(key).map(str::to_owned));
    let is_same = old.as_ref().is_some_and(|old| old.spec() == new.spec() && operators(old) == operators(&new))
        && before.as_ref().is_some_and(|before| before.labels == after.labels);
    if is_same {
        return Ok(AdmissionResponse::allowed());
    }
    let mut verdict =
        caches.with_index(|index| judge_pool_change(index, before.as_ref(), &after, options.static_pools, now));
    verdict.warnings.extend(past_freeze(old.as_ref(), &new, now));
    verdict.warnings.extend(misplaced(Some(&new)));
    if verdict.refusals.is_empty() && !request.is_dry_run() {
        caches.admit_pool(Arc::new(after));
    }
    Ok(verdict.into())
}

/// A freeze that is over before it begins was likely meant otherwise.
fn past_freeze(old: Option<&Object>, new: &Object, now: Timestamp) -> Option<String> {
    let text = new.annotation(keys::FREEZE)?;
    let is_new = old.is_none_or(|old| old.annotation(keys::FREEZE) != Some(text));
    let until = instant::parse(text).filter(|until| is_new && *until <= now)?;
    let until = instant::format(until);
    Some(format!("metadata.annotations[{}]: {until} has passed, so the freeze has no effect", keys::FREEZE))
}

fn misplaced(object: Option<&Object>) -> Option<String> {
    object?.annotation(keys::ROTATE)?;
    Some(format!(
        "metadata.annotations[{}]: has no effect on a NodePool; set it on the NodeClaim to be rotated",
        keys::ROTATE
    ))
}
