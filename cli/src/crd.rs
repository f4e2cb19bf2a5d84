//! Prints the CustomResourceDefinition that the chart ships, or what this program keeps of its schema.

use crate::output::{Format, print};

/// Always fine.
pub fn run(format: Format, schema: bool) -> anyhow::Result<bool> {
    if schema {
        println!("{}", serde_json::to_string_pretty(&noderotation_shared::api::spec_schema())?);
        return Ok(true);
    }
    let crd = serde_json::to_value(noderotation_shared::api::crd())?;
    match format {
        Format::Table => print(Format::Yaml, &crd, String::new)?,
        other => print(other, &crd, String::new)?,
    }
    Ok(true)
}
