//! What the API server refuses of a manifest outside the fields that rotation depends on, wherever the object alone decides.

use noderotation_shared::field_error::{FieldError, quoted};
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::policy::{is_label_key, is_label_value};
use noderotation_shared::quantity::Quantity;
use serde_json::Value;

/// Of a policy or a NodePool: a version that is not served, a name that no object can have, labels that are none.
pub fn of_any(object: &Value, kind: Kind) -> Vec<FieldError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (version, served) = (text("/apiVersion"), kind.api_version());
    let mut problems = Vec::new();
    if version != served {
        problems.push(FieldError::new("apiVersion", quoted(version), "is a version that is not served", served));
    }
    let name = text("/metadata/name");
    if !keys::is_object_name(name) {
        let why = "must consist of lower-case letters, digits, - and ., and begin and end with a letter or digit";
        let meant = name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        let meant = meant.trim_matches(['-', '.']);
        let instead = if keys::is_object_name(meant) { meant } else { "a name such as api" };
        problems.push(FieldError::new("metadata.name", quoted(name), why, instead));
    }
    problems.extend(labels(object));
    problems
}

/// Karpenter's v1beta1 had `expireAfter` elsewhere; there, v1 drops it, and the default holds.
fn moved_field(object: &Value) -> Option<FieldError> {
    let found = object.pointer("/spec/disruption/expireAfter")?;
    let why = "is no field of karpenter.sh/v1, which would drop it, so that nodes live for 720h";
    Some(FieldError::new("spec.disruption.expireAfter", found, why, "spec.template.spec.expireAfter"))
}

fn labels(object: &Value) -> Vec<FieldError> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let problem = |(key, value): (&String, &Value)| {
        let path = format!("metadata.labels[{key}]");
        let text = value.as_str();
        if !is_label_key(key) {
            let why =
                "is no label key: a name of letters, digits, -, _ and ., with an optional prefix such as example.com/";
            Some(FieldError::new(path, quoted(key), why, "a key such as team"))
        } else if !text.is_some_and(is_label_value) {
            let why = "is no label value: a text of at most 63 letters, digits, -, _ and .";
            let found = text.map_or_else(|| value.to_string(), quoted);
            Some(FieldError::new(path, found, why, "a value such as \"api\""))
        } else {
            None
        }
    };
    labels.filter_map(problem).collect()
}

/// Of a NodePool, also what Karpenter's own rules say of replicas and limits, and our keys of a rotation in flight.
pub fn of_pool(object: &Value) -> Vec<FieldError> {
    let mut problems = of_any(object, Kind::NodePool);
    problems.extend(moved_field(object));
    problems.extend(replicas(object));
    problems.extend(limits(object));
    problems.extend(rotation_in_flight(object));
    problems
}

/// A null is as good as absent.
fn given<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

fn replicas(object: &Value) -> Option<FieldError> {
    let found = given(object, "/spec/replicas")?;
    (found.as_u64().is_none())
        .then(|| FieldError::new("spec.replicas", found, "must be a whole number of at least 0", "a number such as 3"))
}

fn limits(object: &Value) -> Vec<FieldError> {
    let Some(found) = given(object, "/spec/limits") else { return Vec::new() };
    let Some(limits) = found.as_object() else {
        return vec![FieldError::new("spec.limits", found, "must be a map of resources", "cpu: \"100\" below limits")];
    };
    let mut problems = Vec::new();
    for (resource, amount) in limits {
        let is_amount = amount.is_number() || amount.as_str().is_some_and(|text| Quantity::parse(text).is_some());
        if !is_amount {
            let found = amount.as_str().map_or_else(|| amount.to_string(), quoted);
            let why = "is no quantity";
            problems.push(FieldError::new(
                format!("spec.limits.{resource}"),
                found,
                why,
                "one such as \"100\" or 400Gi",
            ));
        }
    }
    let other = given(object, "/spec/replicas").and_then(|_| limits.iter().find(|(resource, _)| *resource != "nodes"));
    problems.extend(other.map(|(resource, amount)| {
        let why = "is not supported in a static NodePool, one with spec.replicas";
        FieldError::new(format!("spec.limits.{resource}"), amount, why, "spec.limits.nodes, and nothing else")
    }));
    problems
}

/// The guard lets nobody create them: they would name a rotation that does not exist.
fn rotation_in_flight(object: &Value) -> Vec<FieldError> {
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let value = |key: &str| annotations.and_then(|annotations| annotations.get(key)?.as_str());
    if value(keys::BREAK_GLASS).is_some_and(|reason| !reason.is_empty()) {
        return Vec::new();
    }
    let problem = |key: &str| {
        let why = "holds the state of a rotation in flight, which only the controller may write";
        let path = format!("metadata.annotations[{key}]");
        value(key).map(|found| FieldError::new(path, quoted(found), why, "the manifest without this annotation"))
    };
    keys::ANCHOR_SET.into_iter().filter_map(problem).collect()
}
