//! The `AdmissionReview` (`admission.k8s.io/v1`) that the API server gets back.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use noderotation_shared::admission::{Verdict, messages};
use serde::Serialize;

use crate::Error;
use crate::request::{API_VERSION, KIND};

/// What the webhook answers to one review.
#[derive(Debug, Default, PartialEq)]
pub struct AdmissionResponse {
    /// Why the request is refused; `None` where it is allowed.
    pub rejection: Option<Rejection>,
    /// Warnings for the author of the request. [`AdmissionResponse::body`] shortens them to what an API server passes on.
    pub warnings: Vec<String>,
    /// Annotations for the audit log; the API server puts the name of the webhook before each key.
    pub audit: BTreeMap<String, String>,
    /// The defaults to fill in; empty except from [`Endpoint::MutatePolicy`](crate::handlers::Endpoint::MutatePolicy).
    pub patch: Patch,
}

/// Why a request is refused, as the author's client shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status that the API server answers with.
    pub code: u16,
    /// The machine-readable reason of the Kubernetes `Status`, such as `Invalid`.
    pub reason: &'static str,
    /// The field path, what was found there, why it is wrong, and what to write instead; one problem per line.
    pub message: String,
}

/// The verdict of a response, as the label of the metric `admission_requests_total` (§11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum VerdictLabel {
    /// Allowed without a warning.
    Allowed,
    /// Allowed with a warning.
    Warned,
    /// Refused, whatever the reason.
    Refused,
}

impl AdmissionResponse {
    /// Allows the request, without warnings.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// Refuses the object as invalid: 422.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::rejected(422, "Invalid", message)
    }

    /// Refuses the request because its author may not make it: 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::rejected(403, "Forbidden", message)
    }

    /// Refuses a review that cannot be judged: 400. The message shows the error with its causes.
    pub fn bad(error: &Error) -> Self {
        Self::rejected(400, "BadRequest", error.told())
    }

    fn rejected(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { rejection: Some(Rejection { code, reason, message: message.into() }), ..Self::default() }
    }

    /// The verdict, for metrics.
    pub fn verdict(&self) -> VerdictLabel {
        match (&self.rejection, self.warnings.is_empty()) {
            (Some(_), _) => VerdictLabel::Refused,
            (None, false) => VerdictLabel::Warned,
            (None, true) => VerdictLabel::Allowed,
        }
    }

    /// The JSON body of the HTTP response to the review with this UID.
    pub fn body(self, uid: &str) -> Vec<u8> {
        let review = Review { api_version: API_VERSION, kind: KIND, response: self.response(uid) };
        // strings and maps of strings, which serialize without fail
        serde_json::to_vec(&review).unwrap_or_default()
    }

    fn response(self, uid: &str) -> Response<'_> {
        // base64 by hand: a byte vector would become an array of numbers, which the API server refuses
        let patch =
            (!self.patch.0.is_empty()).then(|| STANDARD.encode(serde_json::to_vec(&self.patch).unwrap_or_default()));
        Response {
            uid,
            allowed: self.rejection.is_none(),
            status: self.rejection.map(|r| Status { code: r.code, reason: r.reason, message: r.message }),
            warnings: messages::fit_warnings(self.warnings),
            audit_annotations: self.audit,
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
        }
    }
}

impl From<Verdict> for AdmissionResponse {
    fn from(verdict: Verdict) -> Self {
        let warnings = verdict.warnings;
        if verdict.refusals.is_empty() {
            return Self { warnings, ..Self::default() };
        }
        Self { warnings, ..Self::invalid(messages::message(&verdict.refusals)) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}
