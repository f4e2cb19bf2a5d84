//! What happened, as a story for people.

use std::fmt;

use jiff::Timestamp;

/// One line of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Timestamp,
    /// Who did what.
    pub text: String,
}

/// The last lines of a history. Most histories end well and nobody reads them, so that only those that are played again
/// are written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    is_told: bool,
    lines: Vec<Line>,
}

/// So many lines are kept: a rotation has about thirty.
const KEPT: usize = 400;

impl Story {
    /// A story that is written down.
    pub fn told() -> Self {
        Self { is_told: true, lines: Vec::new() }
    }

    /// Adds a line.
    pub fn tell(&mut self, at: Timestamp, text: impl FnOnce() -> String) {
        if !self.is_told {
            return;
        }
        if self.lines.len() >= 2 * KEPT {
            self.lines.drain(..KEPT);
        }
        self.lines.push(Line { at, text: text() });
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{:.3}  {}", line.at, line.text))
    }
}
