//! The files that are generated from the API types are up to date.
#![allow(clippy::unwrap_used, missing_docs)]

#[test]
fn the_chart_ships_the_generated_crd() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/noderotation/files/rotationpolicies.noderotation.io.yaml");
    let shipped: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let generated = serde_json::to_value(noderotation_shared::api::crd()).unwrap();
    assert!(shipped == generated, "{path} differs from what the types generate; run `make crd`");
}

#[test]
fn the_validated_schema_is_that_of_the_crd() {
    let kept: serde_json::Value = serde_json::from_str(include_str!("../src/api/spec-schema.json")).unwrap();
    assert!(
        kept == noderotation_shared::api::spec_schema(),
        "src/api/spec-schema.json differs from the CRD; run `make crd`"
    );
}
