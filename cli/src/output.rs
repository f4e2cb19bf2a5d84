//! Prints results as a table, JSON or YAML.

use clap::ValueEnum;
use serde::Serialize;

/// The value of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text for people; it may change.
    Table,
    /// JSON for programs; fields may be added but do not change.
    Json,
    /// The same fields as JSON, in YAML.
    Yaml,
}

/// Prints `value` in the given format; `table` formats it for [`OutputFormat::Table`].
pub fn print(format: OutputFormat, value: &impl Serialize, table: impl FnOnce() -> String) -> anyhow::Result<()> {
    use std::io::Write;
    let text = match format {
        OutputFormat::Table => table(),
        OutputFormat::Json => serde_json::to_string_pretty(value)?,
        OutputFormat::Yaml => serde_saphyr::to_string(value)?,
    };
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        // a reader that stops early, such as head, is not an error
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A table without borders, so that `cut` and `grep` work on it.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header.to_vec());
    table
}
