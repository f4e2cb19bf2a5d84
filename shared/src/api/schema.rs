//! The schema of single fields of the CRD, with their CEL rules (§3).
//!
//! Every rule has a `message` (used if the expression fails) and, where showing the value helps, a `messageExpression`.
//!
//! An API server keeps no object from changing elsewhere because of a value that was stored before a rule existed, as long
//! as the rule is *false*. An error in a rule, or one that is too expensive for the stored value, locks the object. So no
//! rule here errors: digits are limited so that no duration overflows, text that a rule reads may be a number, dates are
//! compared as text, and time zones are compared with a list of names. What a `pattern` can say, a `pattern` says.
//!
//! Kubernetes 1.30 to 1.33 estimate the cost of an int-or-string value as if it had three megabytes, whatever `maxLength`
//! says. Inside lists, rules therefore call only what is not charged by length: `in` of a list, `isSorted`, `format`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSON, JSONSchemaProps, ValidationRule};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use crate::zone;

use super::{DayName, ExclusionSpec, MaintenanceWindow, defaults};

const DURATION: &str =
    r"^([0-9]{1,5}(\\.[0-9]{1,9})?h|[0-9]{1,7}(\\.[0-9]{1,9})?m|[0-9]{1,9}(\\.[0-9]{1,9})?(s|ms|us|ns))+$";

fn schema(value: Value) -> Schema {
    Schema::try_from(value).unwrap_or_default()
}

/// The schema `value` with these CEL rules.
fn with_rules(mut value: Value, rules: Value) -> Schema {
    if let Some(object) = value.as_object_mut() {
        object.insert("x-kubernetes-validations".into(), rules);
    }
    schema(value)
}

fn with_description(schema: Schema, description: &str) -> Schema {
    let mut schema = schema;
    schema.insert("description".into(), description.into());
    schema
}

fn duration(condition: &str, text: &str, example: &str) -> Schema {
    let rule = condition.replace("{go}", &format!("self.matches(\"{DURATION}\")"));
    with_rules(
        json!({"x-kubernetes-int-or-string": true, "maxLength": 32}),
        json!([{
            "rule": format!("type(self) == string && ({rule})"),
            "message": format!("must be {text} such as {example} (there is no unit for days)"),
            "messageExpression": format!("'found \"' + string(self) + '\": write {text} such as {example} (there is no unit for days)'"),
        }]),
    )
}

fn with_default(schema: Schema, default: impl Into<Value>) -> Schema {
    let mut schema = schema;
    schema.insert("default".into(), default.into());
    schema
}

pub fn positive_duration(_: &mut SchemaGenerator) -> Schema {
    duration("{go} && duration(self) > duration('0s')", "a Go duration above zero", "15m")
}

pub fn ready_timeout(g: &mut SchemaGenerator) -> Schema {
    with_default(positive_duration(g), defaults::ready_timeout())
}

pub fn retry_backoff(g: &mut SchemaGenerator) -> Schema {
    with_default(positive_duration(g), defaults::retry_backoff())
}

pub fn cooldown_after(_: &mut SchemaGenerator) -> Schema {
    with_default(duration("self == '0' || {go}", "a Go duration, or 0s,", "10m"), defaults::cooldown_after())
}

pub fn age_threshold(_: &mut SchemaGenerator) -> Schema {
    with_default(
        duration(
            "self == 'auto' || ({go} && duration(self) > duration('0s'))",
            "auto, or a Go duration above zero",
            "240h",
        ),
        defaults::auto(),
    )
}

/// The maximum says what `format` means: older API servers do not enforce `int32`.
pub fn chances(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": i32::MAX, "default": defaults::two()}))
}

pub fn max_unavailable(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 1, "default": defaults::one()}))
}

pub fn pre_pull_enabled(_: &mut SchemaGenerator) -> Schema {
    with_rules(
        json!({"type": "boolean", "default": false}),
        json!([{"rule": "self == false", "message": "only false is accepted in v1alpha1"}]),
    )
}

/// The rule itself lists the names of the bundled database: the API server's own look-up (`getHours`) uses its host's
/// database, accepts file names and offsets, and errors on an unknown zone.
pub fn zone(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<String> = zone::names().map(|name| format!("'{name}'")).collect();
    with_rules(
        json!({"x-kubernetes-int-or-string": true, "minLength": 1, "maxLength": 64}),
        json!([{
            "rule": format!("self in [{}]", names.join(",")),
            "message": "must be an IANA time zone name such as Asia/Tokyo",
            "messageExpression": "'found \"%s\": write an IANA time zone name such as Asia/Tokyo'.format([self])",
        }]),
    )
}

pub fn days(g: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array", "minItems": 1, "maxItems": 7, "x-kubernetes-list-type": "set",
        "items": g.subschema_for::<DayName>(),
    }))
}

/// Text of a certain form that a rule of the object around it compares. The type accepts a number and the rule refuses it:
/// with type `string`, that comparison would error on a number that was stored before.
fn compared_text(pattern: &str, max_length: usize, message: &str) -> Schema {
    with_rules(
        json!({"x-kubernetes-int-or-string": true, "maxLength": max_length, "pattern": pattern}),
        json!([{"rule": "type(self) in [string]", "message": message}]),
    )
}

fn clock(pattern: &str, example: &str) -> Schema {
    compared_text(pattern, 5, &format!("must be HH:MM in quotes, such as {example}"))
}

pub fn start(_: &mut SchemaGenerator) -> Schema {
    with_description(
        clock("^([01][0-9]|2[0-3]):[0-5][0-9]$", "\"02:00\""),
        "The time at which the window opens: `HH:MM`, 24-hour clock.",
    )
}

pub fn end(_: &mut SchemaGenerator) -> Schema {
    let description = "The time at which the window closes: `HH:MM`, 24-hour clock, or `24:00`. If it is earlier than start, the window closes on the next day.";
    with_description(clock("^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$", "\"06:00\""), description)
}

pub fn windows(g: &mut SchemaGenerator) -> Schema {
    let mut item = MaintenanceWindow::json_schema(g);
    item.insert(
        "x-kubernetes-validations".into(),
        json!([{
            "rule": "!has(self.start) || !has(self.end) || !(self.start in [self.end])",
            "message": "start and end must differ; for the whole day write \"00:00\" and \"24:00\"",
            "fieldPath": ".end",
        }]),
    );
    schema(json!({"type": "array", "minItems": 1, "maxItems": 64, "x-kubernetes-list-type": "atomic", "items": item}))
}

pub fn exclusion_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 253}))
}

/// Dates from 2000 to 2099: 31 days, 30 days, February, and its 29th in a leap year; a time of day may follow.
pub fn moment(_: &mut SchemaGenerator) -> Schema {
    let days = [
        "20[0-9]{2}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])",
        "20[0-9]{2}-(0[469]|11)-(0[1-9]|[12][0-9]|30)",
        "20[0-9]{2}-02-(0[1-9]|1[0-9]|2[0-8])",
        "20([02468][048]|[13579][26])-02-29",
    ];
    let pattern = format!("^({})(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?)?$", days.join("|"));
    compared_text(&pattern, 19, "must be a date (2026-12-26) or a local date-time (2026-12-26T22:00), as text")
}

/// Dates are completed to date-times of one length, whose order as text is their order in time.
pub fn exclusions(g: &mut SchemaGenerator) -> Schema {
    let completed = |field: &str, midnight: &str| {
        format!(
            "(self.{field}.size() == 10 ? '%sT{midnight}:00'.format([self.{field}]) : self.{field}.size() == 16 ? '%s:00'.format([self.{field}]) : self.{field})"
        )
    };
    let (from, until) = (completed("from", "00:00"), completed("until", "24:00"));
    let mut item = ExclusionSpec::json_schema(g);
    item.insert(
        "x-kubernetes-validations".into(),
        json!([{
            "rule": format!(
                "!has(self.from) || !has(self.until) || !(type(self.from) in [string]) || !(type(self.until) in [string]) || ([{from}, {until}].isSorted() && !({from} in [{until}]))"
            ),
            "message": "until must be later than from (a date includes the whole day)",
            "fieldPath": ".until",
        }]),
    );
    schema(json!({"type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic", "items": item}))
}

/// The name in a label key, and a label value that is not empty.
const LABEL_NAME: &str = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";
/// The prefix of a label key: a DNS subdomain. At most 253 characters, which this does not say.
const LABEL_PREFIX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
/// The lengths of the two parts of a label key.
const LABEL_LENGTHS: &str = "^([^/]{1,253}/)?[^/]{1,63}$";

fn label_key_pattern() -> String {
    format!("^({LABEL_PREFIX}/)?{LABEL_NAME}$")
}

fn label_key() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 317,
        "pattern": label_key_pattern(),
        "allOf": [{"pattern": LABEL_LENGTHS}],
    })
}

fn label_value() -> Value {
    json!({"type": "string", "maxLength": 63, "pattern": format!("^({LABEL_NAME})?$")})
}

fn key_set(default: &Value) -> Schema {
    schema(json!({
        "type": "array", "maxItems": 16, "x-kubernetes-list-type": "set", "items": label_key(), "default": default,
    }))
}

pub fn required_keys(_: &mut SchemaGenerator) -> Schema {
    with_description(key_set(&json!(defaults::required_keys())), "Label keys whose values must be the same.")
}

pub fn preferred_keys(_: &mut SchemaGenerator) -> Schema {
    with_description(key_set(&json!([])), "Label keys whose values should be the same if possible.")
}

pub fn selector(_: &mut SchemaGenerator) -> Schema {
    let is_key = format!("k.matches(r'{}') && k.matches(r'{LABEL_LENGTHS}')", label_key_pattern());
    schema(json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": label_value(),
                "x-kubernetes-validations": [{
                    "rule": format!("self.all(k, {is_key})"),
                    "message": "every key must be a label key such as workload or example.com/workload",
                    "messageExpression": format!("'found key \"%s\": write a label key such as workload or example.com/workload'.format([self.filter(k, !({is_key}))[0]])"),
                }],
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": label_key(),
                        "operator": {"x-kubernetes-int-or-string": true, "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {
                            "type": "array",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": label_value(),
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "!has(self.operator) || (self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 : !has(self.values) || self.values.size() == 0)",
                        "message": "In and NotIn need values; Exists and DoesNotExist take none",
                    }],
                },
            },
        },
    }))
}

pub fn name_set(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}))
}

/// The rows of the status, by name: a hundred say enough, and more might not fit into an object.
pub fn node_pools(g: &mut SchemaGenerator) -> Schema {
    let item = super::NodePoolStatus::json_schema(g);
    schema(json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "maxItems": 100, "items": item,
    }))
}

/// The next rotations of a row.
pub fn upcoming(g: &mut SchemaGenerator) -> Schema {
    let item = super::UpcomingRotation::json_schema(g);
    schema(json!({"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 10, "items": item}))
}

pub fn conditions(g: &mut SchemaGenerator) -> Schema {
    let item = k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition::json_schema(g);
    schema(json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": item,
    }))
}

/// The rule of the whole object: it is created with a `spec`. A `required` of the schema would refuse every later write,
/// even the removal of a finalizer, to an object that was stored without one: the root of an object is never unchanged, so
/// the API server excuses nothing there. For the same reason the rule does not look at `spec` in an update, where it may be
/// of any type; that an update removes `spec` is for the webhook to refuse.
pub fn require_spec(root: &mut JSONSchemaProps) {
    root.required = None;
    root.x_kubernetes_validations = Some(vec![ValidationRule {
        rule: "oldSelf.hasValue() || has(self.spec)".into(),
        optional_old_self: Some(true),
        message: Some("is required: when and how the nodes of which NodePools are rotated".into()),
        reason: Some("FieldValueRequired".into()),
        field_path: Some(".spec".into()),
        ..ValidationRule::default()
    }]);
}

/// Gives every optional map the default `{}`, because the API server applies nested defaults only if every parent has a
/// default, and removes `nullable`, because a CEL rule would then have to handle null.
pub fn finish(schema: &mut JSONSchemaProps) {
    if let Some(properties) = &mut schema.properties {
        for property in properties.values_mut() {
            finish(property);
        }
        let some_default = properties.values().any(|p| p.default.is_some());
        let required = schema.required.as_ref().is_some_and(|r| !r.is_empty());
        let is_defaulted = schema.default.as_ref().map_or(some_default && !required, |d| d.0.is_object());
        if schema.type_.as_deref() == Some("object") && is_defaulted {
            schema.default = Some(JSON(json!({})));
        }
    }
    schema.nullable = None;
}
