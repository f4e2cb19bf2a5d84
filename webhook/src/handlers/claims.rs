//! The operator's annotations on NodeClaims (§10): everyone who may write the object may set them; their values are checked.

use noderotation_shared::admission::messages;
use noderotation_shared::field_error::{FieldError, quoted};
use noderotation_shared::keys::{self, Format};

use crate::Error;
use crate::request::{AdmissionRequest, Object};
use crate::response::AdmissionResponse;

/// Refuses an unknown value of `rotate`, and warns of a `freeze`, which belongs on the NodePool. Only annotations that this
/// write adds or changes are judged.
pub fn validate(request: &AdmissionRequest<'_>) -> Result<AdmissionResponse, Error> {
    let Some(new) = request.object()?.filter(|object| !object.is_being_deleted()) else {
        return Ok(AdmissionResponse::allowed());
    };
    let old = request.old_object()?;
    let changed = |key: &str| {
        let value = new.annotation(key)?;
        (old.as_ref().and_then(|old: &Object| old.annotation(key)) != Some(value)).then_some(value)
    };
    if let Some(problem) = changed(keys::ROTATE).and_then(rotate_problem) {
        return Ok(AdmissionResponse::invalid(problem.to_string()));
    }
    let misplaced = changed(keys::FREEZE).map(|_| {
        format!("metadata.annotations[{}]: has no effect on a NodeClaim; set it on its NodePool", keys::FREEZE)
    });
    Ok(AdmissionResponse { warnings: misplaced.into_iter().collect(), ..AdmissionResponse::allowed() })
}

fn rotate_problem(value: &str) -> Option<FieldError> {
    let format = keys::find(keys::ROTATE)?.format;
    let Format::OneOf(words) = format else { return None };
    (!format.reads(value)).then(|| {
        FieldError::new(
            format!("metadata.annotations[{}]", keys::ROTATE),
            quoted(value),
            "is not a kind of rotation request",
            messages::alternatives(words),
        )
    })
}
