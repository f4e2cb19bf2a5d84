//! The schema of single fields of the CRD, with their CEL rules (§3).
//!
//! Every rule has a `message` (used if the expression fails) and, where showing the value helps, a `messageExpression`.
//! No rule can error: digits are limited so that no duration overflows, dates are compared as text, and time zones are
//! compared with a list of names.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSON, JSONSchemaProps};
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

pub fn chances(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "integer", "format": "int32", "minimum": 1, "default": defaults::two()}))
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
            "messageExpression": "'found \"' + string(self) + '\": write an IANA time zone name such as Asia/Tokyo'",
        }]),
    )
}

pub fn days(g: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array", "minItems": 1, "maxItems": 7, "x-kubernetes-list-type": "set",
        "items": g.subschema_for::<DayName>(),
    }))
}

/// The type accepts a number and the rule refuses it. With type `string`, the comparison of start and end would error on
/// a number that was stored before the rule existed, and an error blocks every later write of the object.
fn clock(pattern: &str, example: &str) -> Schema {
    with_rules(
        json!({"x-kubernetes-int-or-string": true, "maxLength": 5, "pattern": pattern}),
        json!([{"rule": "type(self) == string", "message": format!("must be HH:MM in quotes, such as {example}")}]),
    )
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
            "rule": "!has(self.start) || !has(self.end) || self.start != self.end",
            "message": "start and end must differ; for the whole day write \"00:00\" and \"24:00\"",
            "fieldPath": ".end",
        }]),
    );
    schema(json!({"type": "array", "minItems": 1, "maxItems": 64, "x-kubernetes-list-type": "atomic", "items": item}))
}

pub fn exclusion_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 253}))
}

pub fn moment(_: &mut SchemaGenerator) -> Schema {
    let shape = "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?)?$";
    with_rules(
        json!({"type": "string", "maxLength": 19}),
        json!([{
            "rule": format!(
                "self.matches('{shape}') && !(self.substring(5, 10) in ['02-30', '02-31', '04-31', '06-31', '09-31', '11-31']) && (self.substring(5, 10) != '02-29' || int(self.substring(0, 4)) % 4 == 0)"
            ),
            "message": "must be a date (2026-12-26) or a local date-time (2026-12-26T22:00)",
            "messageExpression": "'found \"' + self + '\": write a date (2026-12-26) or a local date-time (2026-12-26T22:00)'",
        }]),
    )
}

pub fn exclusions(g: &mut SchemaGenerator) -> Schema {
    let padded = |field: &str, midnight: &str| {
        format!(
            "(self.{field}.size() == 10 ? self.{field} + 'T{midnight}:00' : self.{field}.size() == 16 ? self.{field} + ':00' : self.{field})"
        )
    };
    let mut item = ExclusionSpec::json_schema(g);
    item.insert(
        "x-kubernetes-validations".into(),
        json!([{
            "rule": format!("!has(self.from) || !has(self.until) || {} < {}", padded("from", "00:00"), padded("until", "24:00")),
            "message": "until must be later than from (a date includes the whole day)",
            "fieldPath": ".until",
        }]),
    );
    schema(json!({"type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic", "items": item}))
}

fn label_key() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 317,
        "x-kubernetes-validations": [{
            "rule": "!format.qualifiedName().validate(self).hasValue()",
            "message": "must be a label key such as workload or example.com/workload",
        }],
    })
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
    schema(json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63},
                "x-kubernetes-validations": [
                    {
                        "rule": "self.all(k, !format.qualifiedName().validate(k).hasValue())",
                        "message": "every key must be a label key such as workload or example.com/workload",
                        "messageExpression": "'found key \"' + self.filter(k, format.qualifiedName().validate(k).hasValue())[0] + '\": write a label key such as workload or example.com/workload'",
                    },
                    {
                        "rule": "self.all(k, !format.labelValue().validate(self[k]).hasValue())",
                        "message": "every value must be a label value: letters, digits, '-', '_', '.', beginning and ending with a letter or digit",
                    },
                ],
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
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {
                            "type": "array",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": {
                                "type": "string",
                                "maxLength": 63,
                                "x-kubernetes-validations": [{
                                    "rule": "!format.labelValue().validate(self).hasValue()",
                                    "message": "must be a label value: letters, digits, '-', '_', '.', beginning and ending with a letter or digit",
                                }],
                            },
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 : !has(self.values) || self.values.size() == 0",
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

pub fn conditions(g: &mut SchemaGenerator) -> Schema {
    let item = k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition::json_schema(g);
    schema(json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": item,
    }))
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
