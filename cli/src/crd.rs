//! `crd`: prints the CustomResourceDefinition that the chart ships, or the part of its schema that is validated offline.

use crate::output::{OutputFormat, print};

/// Runs the command; always returns `true`.
pub fn run(format: OutputFormat, schema: bool) -> anyhow::Result<bool> {
    if schema {
        println!("{}", serde_json::to_string_pretty(&noderotation_shared::api::spec_schema())?);
        return Ok(true);
    }
    let crd = serde_json::to_value(noderotation_shared::api::crd())?;
    match format {
        OutputFormat::Table => print(OutputFormat::Yaml, &crd, String::new)?,
        other => print(other, &crd, String::new)?,
    }
    Ok(true)
}
