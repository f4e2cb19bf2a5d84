//! Whether the CustomResourceDefinition that the API server has can store what a policy says.
//!
//! An older one, of an earlier release or of the Go controller, drops every field that it does not know, without a word: a
//! `suspend: true` would be gone.

use serde_json::Value;

use super::{VERSION, crd};

/// The fields of a policy's spec that this definition does not have, as `spec.suspend`; empty where it stores them all.
/// A definition that does not serve our version at all has none of them.
pub fn missing_fields(served: &Value) -> Vec<String> {
    let wanted = serde_json::to_value(crd()).unwrap_or_default();
    let mut missing = Vec::new();
    compare(spec_of(&wanted), spec_of(served), "spec", &mut missing);
    missing
}

fn spec_of(definition: &Value) -> &Value {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let mut ours = versions.filter(|version| version["name"] == VERSION && version["served"] == true);
    ours.find_map(|version| version.pointer("/schema/openAPIV3Schema/properties/spec")).unwrap_or(&Value::Null)
}

fn compare(wanted: &Value, served: &Value, path: &str, missing: &mut Vec<String>) {
    if served["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, wanted) in wanted["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match served["properties"].get(name) {
            None => missing.push(path),
            Some(served) => compare(wanted, served, &path, missing),
        }
    }
    if wanted.get("items").is_some() {
        compare(&wanted["items"], &served["items"], &format!("{path}[]"), missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours() -> Value {
        serde_json::to_value(crd()).unwrap()
    }

    fn spec(definition: &mut Value) -> &mut Value {
        definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap()
    }

    #[test]
    fn our_own_definition_lacks_nothing() {
        assert_eq!(missing_fields(&ours()), [""; 0]);
    }

    #[test]
    fn what_an_older_definition_lacks_is_named() {
        let mut old = ours();
        let properties = spec(&mut old)["properties"].as_object_mut().unwrap();
        properties.remove("suspend").unwrap();
        properties.remove("exclusions").unwrap();
        let surge = properties["surge"]["properties"].as_object_mut().unwrap();
        surge.remove("forcefulFallback").unwrap();
        let window = properties["maintenanceWindows"]["items"]["properties"].as_object_mut().unwrap();
        window.remove("timezone").unwrap();
        let expected =
            ["spec.exclusions", "spec.maintenanceWindows[].timezone", "spec.surge.forcefulFallback", "spec.suspend"];
        let mut found = missing_fields(&old);
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_definition_that_keeps_everything_lacks_nothing() {
        let mut lax = ours();
        *spec(&mut lax) = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(missing_fields(&lax), [""; 0]);
    }

    #[test]
    fn one_without_our_version_lacks_all() {
        let mut other = ours();
        other["spec"]["versions"][0]["name"] = json!("v1");
        let all = missing_fields(&other);
        assert!(
            all.contains(&"spec.nodePoolSelector".to_owned()) && all.contains(&"spec.suspend".to_owned()),
            "{all:?}"
        );
        let mut unserved = ours();
        unserved["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(missing_fields(&unserved), all);
    }
}
