//! The chart spells keys and hooks in CEL and YAML; they are those of the registry and of the program.
#![allow(clippy::unwrap_used, missing_docs)]

use noderotation_shared::admission::annotation_guard::{COPIED_TO_NODES, OPEN};
use noderotation_webhook::handlers::Endpoint;

const HELPERS: &str = include_str!("../../charts/noderotation/templates/_helpers.tpl");
const CONFIGURATIONS: &str = include_str!("../../charts/noderotation/templates/webhook-configurations.yaml");

/// The quoted words of a template that holds nothing else.
fn words(template: &str) -> Vec<String> {
    let begin = HELPERS.split(&format!("define \"{template}\" -}}}}")).nth(1).unwrap();
    let body = begin.split("{{-").next().unwrap();
    body.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

#[test]
fn the_charts_keys_are_the_registrys() {
    assert_eq!(words("noderotation.openKeys"), OPEN);
    assert_eq!(words("noderotation.copiedKeys"), COPIED_TO_NODES);
}

#[test]
fn every_hook_is_called_and_nothing_else() {
    let called: std::collections::BTreeSet<&str> =
        CONFIGURATIONS.split("\"path\" \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(called, Endpoint::ALL.iter().map(|endpoint| endpoint.path()).collect());
}
