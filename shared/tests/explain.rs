//! What `kubectl explain` says of the fields that people write.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use noderotation_shared::api::crd;
use serde_json::Value;

/// The fields below this schema that we describe ourselves: a label selector's are Kubernetes' own.
fn fields<'a>(schema: &'a Value, path: &str, all: &mut Vec<(String, &'a Value, bool)>) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        all.push((path.clone(), field, required.contains(&name.as_str())));
        if name != "nodePoolSelector" {
            fields(field, &path, all);
            fields(&field["items"], &path, all);
        }
    }
}

#[test]
fn every_field_of_a_policy_has_an_example_and_its_default() {
    let crd = serde_json::to_value(crd()).unwrap();
    let mut all = Vec::new();
    fields(crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap(), "spec", &mut all);
    assert!(all.len() > 25, "{}", all.len());
    for (path, field, is_required) in all {
        let text = field["description"].as_str().unwrap_or_default().replace('\n', " ");
        assert!(text.contains("Example: "), "{path}: {text}");
        assert!(is_required || text.contains("Default: "), "{path}: {text}");
        // the default that the API server fills in is the one that is told
        if let Some(default) = field["default"].as_str() {
            assert!(text.contains(&format!("Default: {default}")), "{path}: {default}: {text}");
        }
    }
}
