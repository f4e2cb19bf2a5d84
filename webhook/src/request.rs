//! `AdmissionReview`, version v1: what is asked.
//!
//! A body is read leniently: objects stay text until a hook reads the part it needs, and where only the UID can be read
//! there is still a proper answer.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The version that is spoken.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// The kind of body and answer.
pub const KIND: &str = "AdmissionReview";

/// No object of ours or of Karpenter's is near this size; beyond, it is not taken apart.
const LARGEST_OBJECT: usize = 768 * 1024;

/// What the API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    /// Echoed in the answer.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// The resource that the request is for.
    #[serde(default)]
    pub resource: Resource,
    /// `status`, `scale`, `binding`, or empty.
    #[serde(default)]
    pub sub_resource: String,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    #[serde(default)]
    pub operation: String,
    /// The object's name; empty where it is yet to be generated.
    #[serde(default)]
    pub name: String,
    /// Who asks.
    #[serde(default)]
    pub user_info: UserInfo,
    /// As it is to be.
    #[serde(default, borrow)]
    object: Option<&'a RawValue>,
    /// As it is.
    #[serde(default, borrow)]
    old_object: Option<&'a RawValue>,
    /// Nothing will be stored.
    #[serde(default)]
    dry_run: Option<bool>,
}

/// A resource by its plural.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// Its group.
    pub group: String,
    /// Its plural.
    pub resource: String,
}

/// Who asks.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// His name.
    pub username: String,
    /// Only tokens have one; an impersonated account has none.
    pub uid: String,
}

/// Why a body is not answered by a handler.
#[derive(Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The UID is known: a review that says why.
    Answerable {
        /// The UID.
        uid: String,
        /// Why.
        why: String,
    },
    /// Nothing can be read: 400.
    Unreadable(String),
}

impl<'a> AdmissionRequest<'a> {
    /// Reads a body.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Review<'a> {
            #[serde(default)]
            api_version: String,
            #[serde(default)]
            kind: String,
            #[serde(borrow)]
            request: AdmissionRequest<'a>,
        }
        let review: Review<'a> = match serde_json::from_slice(body) {
            Ok(review) => review,
            Err(error) => return Err(unreadable(body, &error.to_string())),
        };
        let uid = review.request.uid.clone().into_owned();
        if uid.is_empty() {
            return Err(Malformed::Unreadable("request.uid is empty".into()));
        }
        if review.api_version != API_VERSION || review.kind != KIND {
            let found = format!("{} {}", review.api_version, review.kind);
            let why = format!("found {found:?}, which is not answered here; send {API_VERSION} {KIND}");
            return Err(Malformed::Answerable { uid, why });
        }
        Ok(review.request)
    }

    /// Whether nothing will be stored.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or(false)
    }

    /// The object as it is to be; `None` where there is none, as in a deletion.
    pub fn object(&self) -> Result<Option<Object>, String> {
        Object::read(self.object, "object")
    }

    /// The object as it is; `None` in a creation.
    pub fn old_object(&self) -> Result<Option<Object>, String> {
        Object::read(self.old_object, "oldObject")
    }

    /// The metadata of both, which is read of objects of any size.
    pub fn metadata(&self) -> Result<(Value, Value), String> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            metadata: Value,
        }
        let read = |raw: Option<&RawValue>, field: &str| match raw {
            None => Ok(Value::Null),
            Some(raw) => serde_json::from_str::<Option<Raw>>(raw.get())
                .map(|object| object.map_or(Value::Null, |o| o.metadata))
                .map_err(|e| format!("request.{field}: cannot be read: {e}")),
        };
        Ok((read(self.object, "object")?, read(self.old_object, "oldObject")?))
    }
}

/// The body is no review; perhaps its UID can still be read.
fn unreadable(body: &[u8], why: &str) -> Malformed {
    #[derive(Deserialize)]
    struct Review {
        request: Identified,
    }
    #[derive(Deserialize)]
    struct Identified {
        uid: String,
    }
    match serde_json::from_slice::<Review>(body) {
        Ok(Review { request: Identified { uid } }) if !uid.is_empty() => {
            Malformed::Answerable { uid, why: format!("the request cannot be read: {why}") }
        }
        _ => Malformed::Unreadable(format!("not an {KIND}: {why}")),
    }
}

/// An object of whatever shape.
#[derive(Debug)]
pub struct Object(pub Value);

impl Object {
    fn read(raw: Option<&RawValue>, field: &str) -> Result<Option<Self>, String> {
        let Some(raw) = raw else { return Ok(None) };
        let text = raw.get();
        if text.len() > LARGEST_OBJECT {
            let (is, most) = (text.len() / 1024, LARGEST_OBJECT / 1024);
            return Err(format!(
                "request.{field}: the object is {is} KiB; at most {most} KiB are accepted; make it smaller"
            ));
        }
        let value: Value = serde_json::from_str(text).map_err(|e| format!("request.{field}: cannot be read: {e}"))?;
        Ok((!value.is_null()).then_some(Self(value)))
    }

    fn meta(&self, field: &str) -> Option<&Value> {
        self.0.pointer("/metadata")?.get(field).filter(|value| !value.is_null())
    }

    /// Its name; where it is yet to be generated, the beginning of it.
    pub fn name(&self) -> String {
        let text = |field: &str| self.meta(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        match (text("name"), text("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => format!("{prefix}…"),
            (None, None) => "without a name".into(),
        }
    }

    /// Somebody has deleted it; it only waits for its finalizers.
    pub fn is_being_deleted(&self) -> bool {
        self.meta("deletionTimestamp").is_some()
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta("annotations")?.get(key)?.as_str()
    }

    /// Its spec; null where there is none.
    pub fn spec(&self) -> &Value {
        self.0.get("spec").unwrap_or(&Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn malformed(body: &str) -> String {
        match AdmissionRequest::read(body.as_bytes()) {
            Ok(request) => format!("fine: {}", request.uid),
            Err(Malformed::Answerable { uid, .. }) => format!("answerable: {uid}"),
            Err(Malformed::Unreadable(_)) => "unreadable".into(),
        }
    }

    #[test]
    fn a_uid_is_found_wherever_it_can_be() {
        let head = r#""apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview""#;
        for (body, expected) in [
            (format!(r#"{{{head},"request":{{"uid":"u"}}}}"#), "fine: u"),
            (format!(r#"{{{head},"request":{{"uid":"\u0075"}}}}"#), "fine: u"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}"#.into(),
                "answerable: u",
            ),
            (r#"{"request":{"uid":"u"}}"#.into(), "answerable: u"),
            (format!(r#"{{{head},"request":{{"uid":"u","userInfo":7}}}}"#), "answerable: u"),
            (format!(r#"{{{head},"request":{{"uid":"u","operation":null}}}}"#), "answerable: u"),
            (format!(r#"{{{head},"request":{{"uid":""}}}}"#), "unreadable"),
            (format!(r#"{{{head},"request":{{"uid":7}}}}"#), "unreadable"),
            (format!(r#"{{{head},"request":{{"uid":"u"}}"#), "unreadable"),
            (format!("{{{head}}}"), "unreadable"),
            ("[]".into(), "unreadable"),
            (String::new(), "unreadable"),
        ] {
            assert_eq!(malformed(&body), expected, "{body}");
        }
    }

    #[test]
    fn names_are_shown_even_where_they_are_yet_to_be_made() {
        let name = |text: &str| Object(serde_json::from_str(text).unwrap()).name();
        assert_eq!(name(r#"{"metadata":{"name":"a","generateName":"b-"}}"#), "a");
        assert_eq!(name(r#"{"metadata":{"generateName":"b-"}}"#), "b-…");
        assert_eq!(name(r#"{"metadata":7}"#), "without a name");
    }
}
