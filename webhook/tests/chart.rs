//! The chart repeats keys in CEL and endpoints in YAML; both must be those of the code.
#![allow(clippy::unwrap_used, missing_docs)]

use noderotation_shared::admission::annotation_guard::{COPIED_TO_NODES, OPEN, REMEMBERED};
use noderotation_webhook::handlers::Endpoint;
use strum::VariantArray;

const HELPERS: &str = include_str!("../../charts/noderotation/templates/_helpers.tpl");
const CONFIGURATIONS: &str = include_str!("../../charts/noderotation/templates/webhook-configurations.yaml");

/// The strings of a named template that holds a list of quoted strings only.
fn words(template: &str) -> Vec<String> {
    let begin = HELPERS.split(&format!("define \"{template}\" -}}}}")).nth(1).unwrap();
    let body = begin.split("{{-").next().unwrap();
    body.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

#[test]
fn the_chart_lists_the_same_keys_as_the_code() {
    assert_eq!(words("noderotation.openKeys"), OPEN);
    assert_eq!(words("noderotation.copiedKeys"), COPIED_TO_NODES);
    assert_eq!(words("noderotation.rememberedKeys"), REMEMBERED);
}

#[test]
fn the_chart_calls_every_endpoint_and_nothing_else() {
    let called: std::collections::BTreeSet<&str> =
        CONFIGURATIONS.split("\"path\" \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(called, Endpoint::VARIANTS.iter().map(|endpoint| endpoint.path()).collect());
}
