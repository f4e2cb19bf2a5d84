//! Validates the structure of a policy's `spec` with the CRD's own schema: types, required and unknown fields,
//! enumerations and bounds. So the offline check and the API server cannot disagree about them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::suggestion;
use crate::field_error::{FieldError, quoted};
use crate::policy::LABEL_KEY;
use crate::zone;

/// The part of an OpenAPI schema that is validated here. Descriptions and CEL rules are left to the API server.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Schema {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    required: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, Schema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    additional_properties: Option<Box<Schema>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Box<Schema>>,
    #[serde(rename = "enum", skip_serializing_if = "Vec::is_empty")]
    allowed: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_items: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_items: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_properties: Option<usize>,
    #[serde(rename = "x-kubernetes-list-type", skip_serializing_if = "Option::is_none")]
    list_type: Option<String>,
}

/// The schema of `spec`, extracted from the CRD by `make crd`. Generating the CRD at run time would take two megabytes of
/// memory for these six kilobytes.
static SPEC: LazyLock<Option<Schema>> = LazyLock::new(|| serde_json::from_str(include_str!("spec-schema.json")).ok());

/// The content of `spec-schema.json`: the validated part of the CRD's schema for `spec`. Written by `make crd`.
pub fn spec_schema() -> Value {
    let crd = serde_json::to_value(super::crd()).unwrap_or_default();
    let spec = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").cloned().unwrap_or_default();
    let validated: Result<Schema, _> = serde_json::from_value(spec);
    validated.and_then(serde_json::to_value).unwrap_or_default()
}

/// Every structural problem of a policy's `spec`, 256 at most. A missing field that has a default is not a problem.
pub fn structural_problems(spec: &Value) -> Vec<FieldError> {
    let mut problems = Vec::new();
    if let Some(schema) = SPEC.as_ref() {
        walk(schema, spec, "spec", true, &mut problems);
    }
    problems
}

/// The structurally valid parts of a `spec`, with stand-ins for invalid required fields. So the meaning of the valid
/// fields can be checked although other fields are wrong.
pub fn valid_parts(spec: &Value) -> Value {
    SPEC.as_ref().and_then(|schema| valid_part(schema, spec, "spec")).unwrap_or_default()
}

fn valid_part(schema: &Schema, value: &Value, name: &str) -> Option<Value> {
    let expected = schema.kind.as_deref().unwrap_or("string");
    let is_allowed = schema.allowed.is_empty() || schema.allowed.contains(value);
    if !has_type(value, expected) || !is_allowed || is_out_of_bounds(schema, value) {
        return stand_in(name);
    }
    match value {
        Value::Object(fields) => {
            let field_schema = |field: &str| schema.properties.get(field).or(schema.additional_properties.as_deref());
            let kept = fields
                .iter()
                .take(MOST)
                .filter_map(|(field, value)| Some((field.clone(), valid_part(field_schema(field)?, value, field)?)));
            let mut kept: serde_json::Map<String, Value> = kept.collect();
            for field in &schema.required {
                if let (false, Some(value)) = (kept.contains_key(field), stand_in(field)) {
                    kept.insert(field.clone(), value);
                }
            }
            Some(Value::Object(kept))
        }
        Value::Array(items) => match &schema.items {
            Some(item) => {
                let kept: Vec<Value> =
                    items.iter().take(most_items(schema)).filter_map(|value| valid_part(item, value, "")).collect();
                if kept.is_empty() && schema.min_items.is_some() { stand_in(name) } else { Some(Value::Array(kept)) }
            }
            _ => None,
        },
        other => Some(other.clone()),
    }
}

/// A valid value for a required field that is missing or invalid. It must not cause a problem together with the other
/// fields: `03:33` is hardly ever the other end of a window.
fn stand_in(name: &str) -> Option<Value> {
    let window = json!({"timezone": "UTC", "days": ["Mon"], "start": "03:33", "end": "03:34"});
    match name {
        "spec" => Some(json!({"nodePoolSelector": {}, "maintenanceWindows": [window]})),
        "maintenanceWindows" => Some(json!([window])),
        "nodePoolSelector" => Some(json!({})),
        "from" => Some("2000-01-01".into()),
        "until" => Some("2099-12-31".into()),
        "key" => Some("key".into()),
        "operator" => Some("Exists".into()),
        name => window.get(name).cloned(),
    }
}

/// The limit on reported problems, and on the entries that are checked of a list without a limit of its own.
const MOST: usize = 256;

fn most_items(schema: &Schema) -> usize {
    schema.max_items.unwrap_or(MOST).min(MOST)
}

fn walk(schema: &Schema, value: &Value, path: &str, is_required: bool, problems: &mut Vec<FieldError>) {
    if problems.len() >= MOST {
        return;
    }
    if value.is_null() && (schema.default.is_some() || !is_required) {
        return; // the API server replaces null with the default, or drops it
    }
    // a field without a type is int-or-string, whose CEL rule accepts only strings
    let expected = schema.kind.as_deref().unwrap_or("string");
    let field = field_of(path);
    if value.is_null() && stand_in(field).is_some() {
        problems.push(FieldError::new(path, "", "is required", suggestion::required(field)));
        return;
    }
    if !schema.allowed.is_empty() {
        if !schema.allowed.contains(value) {
            let (found, instead) = (shortened(value), allowed_instead(schema, value, path));
            problems.push(FieldError::new(path, found, "is not an allowed value", instead));
        }
        return;
    }
    if !has_type(value, expected) {
        problems.push(wrong_type(schema, value, path, expected));
        return;
    }
    match value {
        Value::Object(fields) => object(schema, fields, path, problems),
        Value::Array(items) => array(schema, items, path, problems),
        Value::Number(number) => bounds(schema, number.as_f64().unwrap_or_default(), value, path, problems),
        Value::String(text) => length(schema, text, path, problems),
        _ => {}
    }
}

/// What to write instead of a value that is none of the allowed ones.
fn allowed_instead(schema: &Schema, value: &Value, path: &str) -> String {
    let words = schema.allowed.iter().filter_map(Value::as_str);
    let text = value.as_str().unwrap_or_default();
    if let Some(word) = suggestion::word(text, words) {
        return word.to_owned();
    }
    match suggestion::days(text).filter(|_| is_day(path)) {
        Some(days) if days.len() == 1 => days.concat(),
        Some(days) => format!("{}, each as an entry of its own", days.join(", ")),
        None => {
            let names: Vec<String> = schema.allowed.iter().map(ToString::to_string).collect();
            format!("one of {}", names.join(", "))
        }
    }
}

/// A value of another type. `200` and `6` are what a YAML parser, or a person, may have made of a time of day.
fn wrong_type(schema: &Schema, value: &Value, path: &str, expected: &str) -> FieldError {
    let field = field_of(path);
    if is_clock(path) {
        let why = "must be HH:MM on the 24-hour clock, in quotes";
        return FieldError::new(path, shortened(value), why, suggestion::required(field));
    }
    let instead = match (field, value) {
        ("days", Value::String(text)) => suggestion::days(text)
            .map_or_else(|| suggestion::required("days").to_owned(), |days| format!("[{}]", days.join(", "))),
        // `{}` would select every NodePool, which its author has hardly meant
        ("nodePoolSelector", _) => suggestion::required(field).to_owned(),
        (_, Value::Bool(switch)) if schema.properties.contains_key("enabled") => format!("{{enabled: {switch}}}"),
        (_, Value::Number(_)) if expected == "string" => match &schema.default {
            Some(default) => format!("a value in quotes, such as {default}"),
            None => example(schema, expected),
        },
        _ => example(schema, expected),
    };
    FieldError::new(path, shortened(value), format!("must be {}", type_name(expected)), instead)
}

fn object(schema: &Schema, fields: &serde_json::Map<String, Value>, path: &str, problems: &mut Vec<FieldError>) {
    for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
        problems.push(FieldError::new(format!("{path}.{name}"), "", "is required", suggestion::required(name)));
    }
    if let Some(most) = schema.max_properties.filter(|most| fields.len() > *most) {
        let count = fields.len();
        problems.push(FieldError::new(
            path,
            format!("{count} entries"),
            format!("at most {most} are allowed"),
            "fewer",
        ));
    }
    for (name, value) in fields {
        if problems.len() >= MOST {
            return;
        }
        match (schema.properties.get(name), &schema.additional_properties) {
            (Some(field), _) => {
                walk(field, value, &format!("{path}.{name}"), schema.required.contains(name), problems);
            }
            (None, Some(field)) => walk(field, value, &format!("{path}.{name}"), true, problems),
            (None, _) => problems.push(unknown_field(schema, name, path)),
        }
    }
}

fn unknown_field(schema: &Schema, name: &str, path: &str) -> FieldError {
    let fields: Vec<&str> = schema.properties.keys().map(String::as_str).collect();
    let similar = fields.iter().find(|field| {
        let (a, b) = (field.to_ascii_lowercase(), name.to_ascii_lowercase());
        a == b || a.trim_end_matches('s') == b.trim_end_matches('s') || a.replace('_', "") == b.replace(['_', '-'], "")
    });
    let instead = similar.map_or_else(|| format!("one of {}", fields.join(", ")), |field| (*field).to_owned());
    FieldError::new(format!("{path}.{name}"), "", "is not a known field", instead)
}

fn array(schema: &Schema, items: &[Value], path: &str, problems: &mut Vec<FieldError>) {
    let count = items.len();
    if schema.min_items.is_some_and(|least| count < least) {
        let field = field_of(path);
        let instead = if stand_in(field).is_some() { suggestion::required(field) } else { "at least one entry" };
        problems.push(FieldError::new(path, "[]", "must not be empty", instead));
    }
    if let Some(most) = schema.max_items.filter(|most| count > *most) {
        problems.push(FieldError::new(
            path,
            format!("{count} entries"),
            format!("at most {most} are allowed"),
            "fewer",
        ));
    }
    if schema.list_type.as_deref() == Some("set") {
        for (i, item) in items.iter().take(most_items(schema)).enumerate() {
            if items.iter().take(i).any(|earlier| earlier == item) {
                problems.push(FieldError::new(
                    format!("{path}[{i}]"),
                    item,
                    "is listed more than once",
                    "each entry once",
                ));
            }
        }
    }
    let Some(item_schema) = &schema.items else { return };
    for (i, item) in items.iter().take(most_items(schema)).enumerate() {
        walk(item_schema, item, &format!("{path}[{i}]"), true, problems);
    }
}

fn limits(schema: &Schema) -> (f64, f64) {
    let most = if schema.format.as_deref() == Some("int32") { f64::from(i32::MAX) } else { f64::MAX };
    (schema.minimum.unwrap_or(f64::MIN), schema.maximum.unwrap_or(most))
}

fn is_out_of_bounds(schema: &Schema, value: &Value) -> bool {
    let (least, most) = limits(schema);
    value.as_f64().is_some_and(|number| number < least || number > most)
}

fn bounds(schema: &Schema, number: f64, value: &Value, path: &str, problems: &mut Vec<FieldError>) {
    let (least, most) = limits(schema);
    if number < least || number > most {
        let instead = if least.total_cmp(&most).is_eq() {
            format!("{least}")
        } else {
            format!("a number from {least} to {most}")
        };
        problems.push(FieldError::new(path, value, "is out of range", instead));
    }
}

/// The last field of a path.
fn field_of(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// Whether this is one of the days of a window.
fn is_day(path: &str) -> bool {
    field_of(path).starts_with("days[")
}

/// Whether this is a field for a time of day.
fn is_clock(path: &str) -> bool {
    path.starts_with("spec.maintenanceWindows[") && matches!(field_of(path), "start" | "end")
}

fn length(schema: &Schema, text: &str, path: &str, problems: &mut Vec<FieldError>) {
    let count = text.chars().count();
    let is_moment = path.starts_with("spec.exclusions[") && matches!(field_of(path), "from" | "until");
    if let (Some(meant), true) =
        (suggestion::moment(text), is_moment && schema.max_length.is_some_and(|most| count > most))
    {
        let why = "must be a local time, without an offset: its zone stands in timezone";
        problems.push(FieldError::new(path, quoted(text), why, quoted(&meant)));
    } else if is_clock(path) && schema.max_length.is_some_and(|most| count > most) {
        let instead =
            suggestion::clock(text).map_or_else(|| suggestion::required("start").to_owned(), |clock| quoted(&clock));
        problems.push(FieldError::new(path, quoted(text), "must be HH:MM on the 24-hour clock", instead));
    } else if let Some(most) = schema.max_length.filter(|most| count > *most) {
        problems.push(FieldError::new(
            path,
            format!("{count} characters"),
            format!("at most {most} are allowed"),
            "a shorter string",
        ));
    }
    if schema.min_length.is_some_and(|least| count < least) {
        // of all texts, only time zones and label keys must not be empty
        let instead = if path.ends_with(".timezone") { zone::EXAMPLE } else { LABEL_KEY };
        problems.push(FieldError::new(path, "\"\"", "must not be empty", instead));
    }
}

fn has_type(value: &Value, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn type_name(expected: &str) -> String {
    match expected {
        "object" => "a map of fields".into(),
        "array" => "a list".into(),
        "integer" => "a whole number".into(),
        "boolean" => "true or false".into(),
        "string" => "a string".into(),
        _ => format!("a {expected}"),
    }
}

fn example(schema: &Schema, expected: &str) -> String {
    if let Some(default) = &schema.default {
        return default.to_string();
    }
    match expected {
        "object" => "{}".into(),
        "array" => "a list, each entry on a line that begins with \"- \"".into(),
        "integer" => "a whole number without quotes".into(),
        "boolean" => "true or false, without quotes".into(),
        _ => "a string in quotes".into(),
    }
}

/// The value as JSON, cut to 60 characters.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instead_of_an_empty_text_an_example_is_suggested() {
        let spec = json!({
            "nodePoolSelector": {"matchExpressions": [{"key": "", "operator": "Exists"}]},
            "maintenanceWindows": [{"timezone": "", "days": ["Mon"], "start": "01:00", "end": "02:00"}],
        });
        let problems: Vec<String> = structural_problems(&spec).iter().map(ToString::to_string).collect();
        let zone =
            "spec.maintenanceWindows[0].timezone: found \"\": must not be empty; write an IANA name such as Asia/Tokyo";
        let key = "spec.nodePoolSelector.matchExpressions[0].key: found \"\": must not be empty; write a label key such as workload or example.com/workload";
        assert_eq!(problems, [zone, key]);
    }

    /// Whoever writes what is suggested must not get something else than was meant.
    #[test]
    fn what_is_suggested_does_no_harm() {
        let window = json!({"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"});
        let message = |change: &dyn Fn(&mut Value)| {
            let mut spec = json!({"nodePoolSelector": {}, "maintenanceWindows": [window.clone()]});
            change(&mut spec);
            structural_problems(&spec).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        type Change = (&'static str, fn(&mut Value));
        let cases: [Change; 9] = [
            (
                r#"days[0]: found "Mon-Fri": is not an allowed value; write Mon, Tue, Wed, Thu, Fri, each as an entry of its own"#,
                |s| {
                    s["maintenanceWindows"][0]["days"] = json!(["Mon-Fri"]);
                },
            ),
            (r#"days: found "weekends": must be a list; write [Sat, Sun]"#, |s| {
                s["maintenanceWindows"][0]["days"] = json!("weekends");
            }),
            (r#"days[0]: found 6: is not an allowed value; write one of "Mon", "Tue""#, |s| {
                s["maintenanceWindows"][0]["days"] = json!([6]);
            }),
            (
                r#"start: found 1320: must be HH:MM on the 24-hour clock, in quotes; write when the window opens, such as "02:00""#,
                |s| {
                    s["maintenanceWindows"][0]["start"] = json!(1320);
                },
            ),
            (r"end: found 2.3: must be HH:MM on the 24-hour clock, in quotes; write when the window closes", |s| {
                s["maintenanceWindows"][0]["end"] = json!(2.3);
            }),
            (
                "nodePoolSelector: found \"workload=api\": must be a map of fields; write {matchLabels: {workload: api}} for",
                |s| {
                    s["nodePoolSelector"] = json!("workload=api");
                },
            ),
            ("forcefulFallback: found true: must be a map of fields; write {enabled: true}", |s| {
                s["surge"] = json!({"forcefulFallback": true});
            }),
            (r#"cooldownAfter: found 0: must be a string; write a value in quotes, such as "10m""#, |s| {
                s["surge"] = json!({"cooldownAfter": 0});
            }),
            (r#"ageThreshold: found 240: must be a string; write a value in quotes, such as "auto""#, |s| {
                s["ageThreshold"] = json!(240);
            }),
        ];
        for (expected, change) in cases {
            let found = message(&change);
            assert!(found.contains(expected), "{found}");
        }
    }
}
