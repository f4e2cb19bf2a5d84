//! Table, JSON or YAML.

use clap::ValueEnum;
use serde::Serialize;

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// A contract for programs: fields are added, never changed.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Prints `value`, or for people what `table` makes of it.
pub fn print(format: Format, value: &impl Serialize, table: impl FnOnce() -> String) -> anyhow::Result<()> {
    use std::io::Write;
    let text = match format {
        Format::Table => table(),
        Format::Json => serde_json::to_string_pretty(value)?,
        Format::Yaml => serde_saphyr::to_string(value)?,
    };
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        // a reader that has seen enough, such as head, is no failure
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A plain table without frames, so that it can be cut and grepped.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header.to_vec());
    table
}
