//! RotationPolicies (§10 *RotationPolicy*, *Mutation*).

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use noderotation_shared::admission::{PolicyChange, Verdict, judge_deletion, judge_policy, with_default_zone};
use noderotation_shared::governance::ParsedPolicy;
use noderotation_shared::policy::Policy;

use super::{VerdictOptions, written};
use crate::Error;
use crate::admitted::Concern;
use crate::caches::Caches;
use crate::request::{AdmissionRequest, Object};
use crate::response::AdmissionResponse;

/// The old and the new object of a creation, or of an update that changes the spec; `None` where there is nothing to judge.
fn change(request: &AdmissionRequest<'_>) -> Result<Option<(Option<Object>, Object)>, Error> {
    let changes_spec = |(old, new): &(Option<Object>, Object)| old.as_ref().is_none_or(|old| old.spec() != new.spec());
    Ok(written(request)?.filter(changes_spec))
}

/// Called before schema and CEL: fills in the default time zone, or refuses the policy with everything that is wrong.
pub fn mutate(options: &VerdictOptions, request: &AdmissionRequest<'_>) -> Result<AdmissionResponse, Error> {
    let Some((_, new)) = change(request)? else { return Ok(AdmissionResponse::allowed()) };
    let mut spec = new.spec().clone();
    let absent = options.default_zone.as_ref().map(|zone| (zone, with_default_zone(&mut spec, zone)));
    if let Err(problems) = Policy::from_json(&spec) {
        let refusals: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        return Ok(AdmissionResponse::invalid(noderotation_shared::admission::messages::message(&refusals)));
    }
    let operations = absent.into_iter().flat_map(|(zone, paths)| paths.into_iter().map(move |path| add(path, zone)));
    let patch = Patch(operations.collect::<Result<_, _>>()?);
    Ok(AdmissionResponse { patch, ..AdmissionResponse::allowed() })
}

fn add(path: String, value: &str) -> Result<PatchOperation, Error> {
    match PointerBuf::parse(path.as_str()) {
        Ok(pointer) => Ok(PatchOperation::Add(AddOperation { path: pointer, value: value.into() })),
        Err(error) => Err(Error::PatchPath { path, source: error.decompose().0 }),
    }
}

/// What the verdict of [`validate`] depends on; `None` where there is nothing to judge.
pub fn concern(caches: &Caches, request: &AdmissionRequest<'_>) -> Result<Option<Concern>, Error> {
    if request.operation == "DELETE" && request.sub_resource.is_empty() {
        let stored = caches.with_index(|index| index.policy(&request.name).and_then(|policy| policy.selector.clone()));
        return Ok(Some(Concern { selectors: stored.into_iter().collect(), ..Concern::default() }));
    }
    let Some((old, new)) = change(request)? else { return Ok(None) };
    let selectors = old.iter().chain([&new]).filter_map(|object| ParsedPolicy::selector_of(object.spec())).collect();
    Ok(Some(Concern { policy: Some(new.name()), selectors, ..Concern::default() }))
}

/// Called after schema and CEL: judges what depends on the other policies and on NodePools. An admitted policy is remembered
/// at once, so that the next review sees it.
pub fn validate(
    caches: &Caches,
    options: &VerdictOptions,
    request: &AdmissionRequest<'_>,
    now: Timestamp,
) -> Result<AdmissionResponse, Error> {
    if request.operation == "DELETE" && request.sub_resource.is_empty() {
        return Ok(caches.with_index(|index| judge_deletion(index, &request.name)).into());
    }
    let Some((old, new)) = change(request)? else { return Ok(AdmissionResponse::allowed()) };
    let name = new.name();
    let parsed = |object: &Object| ParsedPolicy::read(&name, object.spec());
    let (old, new) = (old.as_ref().map(parsed), parsed(&new));
    let change = PolicyChange { old: old.as_ref(), new: &new };
    let verdict = Verdict::from(caches.with_index(|index| judge_policy(index, change, options.static_pools, now)));
    if verdict.refusals.is_empty() && !request.is_dry_run() {
        caches.remember_policy(&new);
    }
    Ok(verdict.into())
}
