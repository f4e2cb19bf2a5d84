//! `AdmissionReview`, version v1: what is answered.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noderotation_shared::admission::{Verdict, messages};
use serde::Serialize;
use serde_json::{Value, json};

use crate::request::{API_VERSION, KIND};

/// What a hook has to say.
#[derive(Debug, Default, PartialEq)]
pub struct AdmissionResponse {
    /// Why not; `None`: it is allowed.
    pub rejection: Option<Rejection>,
    /// For the author; fitted to what the API server passes on.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub audit: BTreeMap<String, String>,
    /// Operations of a JSON patch.
    pub patch: Vec<Value>,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    /// HTTP status that the author's client shows.
    pub code: u16,
    /// Its reason in Kubernetes' words.
    pub reason: &'static str,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl AdmissionResponse {
    /// Allowed, with nothing to say.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// The object is wrong: 422.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::rejected(422, "Invalid", message)
    }

    /// The author may not: 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::rejected(403, "Forbidden", message)
    }

    /// The request is no request: 400.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::rejected(400, "BadRequest", message)
    }

    fn rejected(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { rejection: Some(Rejection { code, reason, message: message.into() }), ..Self::default() }
    }

    /// For metrics: a bounded set of words.
    pub fn word(&self) -> &'static str {
        match (&self.rejection, self.warnings.is_empty()) {
            (Some(_), _) => "refused",
            (None, false) => "warned",
            (None, true) => "allowed",
        }
    }

    /// The body of the answer.
    pub fn body(self, uid: &str) -> Vec<u8> {
        let review = Review { api_version: API_VERSION, kind: KIND, response: self.response(uid) };
        // plain strings and maps of strings: nothing here can fail to be written
        serde_json::to_vec(&review).unwrap_or_default()
    }

    fn response(self, uid: &str) -> Response<'_> {
        // a patch travels as base64; as the array that a byte vector becomes by itself, the API server refuses it
        let patch = (!self.patch.is_empty()).then(|| STANDARD.encode(json!(self.patch).to_string()));
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
