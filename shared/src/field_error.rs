//! What is wrong with an object, in words a person can act on (§10: where, what was found, why, what to write).

use std::fmt;

/// One thing wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path, for example `spec.maintenanceWindows[0].timezone`.
    pub path: String,
    /// What stands there, as JSON; empty when nothing does.
    pub found: String,
    /// Why that is wrong.
    pub why: String,
    /// What to write instead.
    pub instead: String,
}

impl FieldError {
    /// A problem at `path`.
    pub fn new(
        path: impl Into<String>,
        found: impl fmt::Display,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), found: found.to_string(), why: why.into(), instead: instead.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        if !self.found.is_empty() {
            write!(f, "found {}: ", self.found)?;
        }
        write!(f, "{}; write {}", self.why, self.instead)
    }
}

/// Everything that is wrong with one object; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldErrors {}

/// `text` in double quotes, as JSON writes it.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
