//! The `AdmissionReview` (`admission.k8s.io/v1`) that the API server sends.
//!
//! A body is read leniently. Objects stay text until an endpoint parses the part that it needs; and where only the UID can be
//! read, the API server still gets a proper review back instead of an HTTP error, which it would treat as a webhook that is
//! down.

use std::borrow::Cow;

use noderotation_shared::admission::GuardedMetadata;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Error;

/// The `apiVersion` of requests and responses.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// The `kind` of requests and responses.
pub const KIND: &str = "AdmissionReview";

/// The largest object that is parsed, in bytes. RotationPolicies, NodePools and NodeClaims are far smaller.
const LARGEST_OBJECT: usize = 768 * 1024;

/// The most values of which an object may consist, with those inside others. The largest RotationPolicy has about two thousand;
/// as values in memory these take forty times the room of their text.
const MOST_VALUES: usize = 16_384;

/// The `request` of a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    /// The UID of the review, to be echoed in the response.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// The resource of the object.
    #[serde(default)]
    pub resource: Resource,
    /// The subresource, such as `status`; empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`; empty where the review names none.
    #[serde(default)]
    pub operation: String,
    /// The name of the object; empty where the API server is yet to generate it.
    #[serde(default)]
    pub name: String,
    /// The user who makes the request.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object after the request; absent in a deletion.
    #[serde(default, borrow)]
    object: Option<&'a RawValue>,
    /// The object before the request; absent in a creation.
    #[serde(default, borrow)]
    old_object: Option<&'a RawValue>,
    /// The request is a dry run, so nothing will be stored.
    #[serde(default)]
    dry_run: Option<bool>,
}

/// The resource of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural, such as `nodepools`.
    pub resource: String,
}

/// The user who makes a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The user name, such as `jane@example.com` or `system:serviceaccount:NAMESPACE:NAME`.
    pub username: String,
    /// The UID of the account. Empty for an impersonated service account, which is how it is told from the real one (§10).
    pub uid: String,
}

/// Why a body does not reach an endpoint.
#[derive(Debug)]
pub enum Malformed {
    /// The UID could be read: answer HTTP 200 with a review that refuses the request.
    Answerable {
        /// The UID to be echoed.
        uid: String,
        /// What is wrong with the rest.
        error: Error,
    },
    /// Not even the UID could be read: answer HTTP 400.
    Unreadable(Error),
}

impl<'a> AdmissionRequest<'a> {
    /// Reads the body of an HTTP request.
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
            Err(error) => return Err(unreadable(body, error)),
        };
        let uid = review.request.uid.clone().into_owned();
        if uid.is_empty() {
            return Err(Malformed::Unreadable(Error::EmptyUid));
        }
        if review.api_version != API_VERSION || review.kind != KIND {
            let found = format!("{} {}", review.api_version, review.kind);
            return Err(Malformed::Answerable { uid, error: Error::Version { found } });
        }
        Ok(review.request)
    }

    /// Whether this is a dry run, so that nothing will be stored.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or(false)
    }

    /// The object after the request; `None` where there is none, as in a deletion.
    pub fn object(&self) -> Result<Option<Object>, Error> {
        Object::read(self.object, "object")
    }

    /// The object after a creation or update; an error where the review lacks it.
    pub fn required_object(&self) -> Result<Object, Error> {
        self.object()?.ok_or_else(|| Error::ObjectMissing { operation: self.operation.clone() })
    }

    /// The object before the request; `None` in a creation.
    pub fn old_object(&self) -> Result<Option<Object>, Error> {
        Object::read(self.old_object, "oldObject")
    }

    /// What the guard judges of the object after and before the request; empty where there is no object. Unlike
    /// [`AdmissionRequest::object`] it accepts objects of any size, since Nodes can be large, and keeps only what is ours.
    pub fn metadata(&self) -> Result<(GuardedMetadata, GuardedMetadata), Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            metadata: Option<GuardedMetadata>,
        }
        let read = |raw: Option<&RawValue>, field: &'static str| match raw {
            None => Ok(GuardedMetadata::default()),
            Some(raw) => serde_json::from_str::<Option<Raw>>(raw.get())
                .map(|object| object.and_then(|object| object.metadata).unwrap_or_default())
                .map_err(|source| Error::Object { field, source }),
        };
        Ok((read(self.object, "object")?, read(self.old_object, "oldObject")?))
    }
}

/// Classifies a body that is not a review, by whether its UID can be read all the same.
fn unreadable(body: &[u8], error: serde_json::Error) -> Malformed {
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
            Malformed::Answerable { uid, error: Error::Review(error) }
        }
        _ => Malformed::Unreadable(Error::Review(error)),
    }
}

/// An object, of whatever shape the API server lets through.
#[derive(Debug)]
pub struct Object(pub Value);

impl Object {
    fn read(raw: Option<&RawValue>, field: &'static str) -> Result<Option<Self>, Error> {
        let Some(raw) = raw else { return Ok(None) };
        let text = raw.get();
        if text.len() > LARGEST_OBJECT {
            return Err(Error::ObjectTooLarge { field, kib: text.len() / 1024, most_kib: LARGEST_OBJECT / 1024 });
        }
        if has_more_values_than(MOST_VALUES, text) {
            return Err(Error::ObjectTooComplex { field, most: MOST_VALUES });
        }
        let value: Value = serde_json::from_str(text).map_err(|source| Error::Object { field, source })?;
        Ok((!value.is_null()).then_some(Self(value)))
    }

    fn meta(&self, field: &str) -> Option<&Value> {
        self.0.pointer("/metadata")?.get(field).filter(|value| !value.is_null())
    }

    /// The name for messages. Where the API server is yet to generate it: its prefix, or `without a name`.
    pub fn name(&self) -> String {
        let text = |field: &str| self.meta(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        match (text("name"), text("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => format!("{prefix}…"),
            (None, None) => "without a name".into(),
        }
    }

    /// Whether the object is being deleted, and only waits for its finalizers.
    pub fn is_being_deleted(&self) -> bool {
        self.meta("deletionTimestamp").is_some()
    }

    /// The value of an annotation; `None` where there is none, or its value is not a string.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta("annotations")?.get(key)?.as_str()
    }

    /// `spec`; null where there is none.
    pub fn spec(&self) -> &Value {
        self.0.get("spec").unwrap_or(&Value::Null)
    }
}

/// Whether a JSON text consists of more values than this: all but the first follow a comma or an opening bracket.
fn has_more_values_than(most: usize, text: &str) -> bool {
    let (mut values, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values > most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        // an object, three fields, four values within: 1 + 3 + 4
        let text = r#"{"a":[1,[],{}],"b":"x,{[\",[\\","c":{"d":null}}"#;
        assert!(has_more_values_than(7, text) && !has_more_values_than(10, text));
        assert!(!has_more_values_than(2, &format!("[\"{}\"]", ",".repeat(1_000))));
        assert!(has_more_values_than(1_000, &format!("[{}0]", "0,".repeat(1_000))));
        // exactly: itself, and one after each comma and bracket outside of strings; a quote that is escaped ends no string
        for (values, text) in [
            (1, "7"),
            (2, "[7]"),
            (3, "[7,8]"),
            (2, r#"["a,b"]"#),
            (2, r#"["a\",b,c"]"#),
            (3, r#"["a\\","b,c"]"#),
            (2, r#"["\\,"]"#),
        ] {
            assert!(!has_more_values_than(values, text) && has_more_values_than(values - 1, text), "{text}");
        }
    }

    #[test]
    fn the_largest_object_is_still_read() {
        let read = |bytes: usize| {
            let text = format!("\"{}\"", "x".repeat(bytes - 2));
            Object::read(Some(&RawValue::from_string(text).unwrap()), "object").is_ok()
        };
        assert_eq!((read(768 * 1024), read(768 * 1024 + 1)), (true, false));
    }

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
            (format!(r#"{{{head},"request":{{"uid":"","userInfo":7}}}}"#), "unreadable"),
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
