//! Validation errors that name the field, the value found, why it is wrong and what to write instead (§10).

use std::fmt;

/// One invalid field. Displayed as `<path>: found <found>: <why>; write <instead>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {}{why}; write {instead}", found_clause(found))]
pub struct FieldError {
    /// The field's path, for example `spec.maintenanceWindows[0].timezone`.
    pub path: String,
    /// The value that was found, as JSON or described (`3 entries`); empty if the field is missing.
    pub found: String,
    /// Why the value is wrong.
    pub why: String,
    /// What to write instead.
    pub instead: String,
}

impl FieldError {
    /// An error at `path`; `found` is empty if the field is missing.
    pub fn new(
        path: impl Into<String>,
        found: impl fmt::Display,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), found: found.to_string(), why: why.into(), instead: instead.into() }
    }
}

fn found_clause(found: &str) -> String {
    if found.is_empty() { String::new() } else { format!("found {found}: ") }
}

/// Every invalid field of one object; never empty. Displayed as one line per field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct FieldErrors(pub Vec<FieldError>);

fn lines(problems: &[FieldError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// `text` as a JSON string: in double quotes, with special characters escaped.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
