//! Prints the CustomResourceDefinition that the chart ships.

use crate::output::{Format, print};

/// Always fine.
pub fn run(format: Format) -> anyhow::Result<bool> {
    let crd = serde_json::to_value(noderotation_shared::api::crd())?;
    match format {
        Format::Table => print(Format::Yaml, &crd, String::new)?,
        other => print(other, &crd, String::new)?,
    }
    Ok(true)
}
