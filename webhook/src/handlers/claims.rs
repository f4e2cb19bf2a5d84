//! The operator's keys on NodeClaims (§10): open to everyone who may write the object, their values checked.

use noderotation_shared::field_error::{FieldError, quoted};
use noderotation_shared::keys::{self, Format};

use crate::request::{AdmissionRequest, Object};
use crate::response::AdmissionResponse;

/// Judges the value of `rotate`, if this write sets or changes it.
pub fn validate(request: &AdmissionRequest<'_>) -> Result<AdmissionResponse, String> {
    let Some(new) = request.object()?.filter(|object| !object.is_being_deleted()) else {
        return Ok(AdmissionResponse::allowed());
    };
    let old = request.old_object()?;
    let changed = |key: &str| {
        let value = new.annotation(key)?;
        (old.as_ref().and_then(|old: &Object| old.annotation(key)) != Some(value)).then_some(value)
    };
    if let Some(problem) = changed(keys::ROTATE).and_then(unreadable) {
        return Ok(AdmissionResponse::invalid(problem.to_string()));
    }
    let misplaced = changed(keys::FREEZE).map(|_| {
        format!("metadata.annotations[{}]: has no effect on a NodeClaim; set it on its NodePool", keys::FREEZE)
    });
    Ok(AdmissionResponse { warnings: misplaced.into_iter().collect(), ..AdmissionResponse::allowed() })
}

fn unreadable(value: &str) -> Option<FieldError> {
    let format = keys::find(keys::ROTATE)?.format;
    let Format::OneOf(words) = format else { return None };
    (!format.reads(value)).then(|| {
        FieldError::new(
            format!("metadata.annotations[{}]", keys::ROTATE),
            quoted(value),
            "is not a known request",
            words.join(" or "),
        )
    })
}
