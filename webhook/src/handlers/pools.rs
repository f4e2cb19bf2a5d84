//! NodePools (§10 *NodePool*).

use jiff::Timestamp;
use noderotation_shared::admission::{ProposedNodePool, judge_pool_change};
use noderotation_shared::{instant, keys};

use super::{VerdictOptions, written};
use crate::Error;
use crate::admitted::Concern;
use crate::caches::Caches;
use crate::request::{AdmissionRequest, Object};
use crate::response::AdmissionResponse;

/// What the verdict of [`validate`] depends on; `None` where there is nothing to judge.
pub fn concern(request: &AdmissionRequest<'_>, now: Timestamp) -> Result<Option<Concern>, Error> {
    let Some((old, new)) = written(request)? else { return Ok(None) };
    let labels = old.iter().chain([&new]).map(|object| ProposedNodePool::read(&object.0, now).labels).collect();
    Ok(Some(Concern { labels, ..Concern::default() }))
}

/// Judges a creation, or an update of the spec, the labels or the operator's annotations; everything else is allowed. An
/// admitted NodePool is remembered at once, so that the next review sees it.
pub fn validate(
    caches: &Caches,
    options: &VerdictOptions,
    request: &AdmissionRequest<'_>,
    now: Timestamp,
) -> Result<AdmissionResponse, Error> {
    let Some((old, new)) = written(request)? else { return Ok(AdmissionResponse::allowed()) };
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
        caches.remember_pool(&after);
    }
    Ok(verdict.into())
}

/// A warning of a `freeze` that this write sets and that ends in the past: its author likely meant another instant.
fn past_freeze(old: Option<&Object>, new: &Object, now: Timestamp) -> Option<String> {
    let text = new.annotation(keys::FREEZE)?;
    let is_new = old.is_none_or(|old| old.annotation(keys::FREEZE) != Some(text));
    let until = instant::parse(text).filter(|until| is_new && *until <= now)?;
    let until = instant::format(until);
    Some(format!("metadata.annotations[{}]: {until} has passed, so nothing is frozen", keys::FREEZE))
}

/// A warning of a `rotate`, which belongs on a NodeClaim.
fn misplaced(object: Option<&Object>) -> Option<String> {
    object?.annotation(keys::ROTATE)?;
    Some(format!(
        "metadata.annotations[{}]: has no effect on a NodePool; set it on the NodeClaim to be rotated",
        keys::ROTATE
    ))
}
