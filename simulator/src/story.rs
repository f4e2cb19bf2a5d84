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

/// The last lines of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story(Vec<Line>);

/// So many lines are kept: a rotation has about thirty.
const KEPT: usize = 400;

impl Story {
    /// Adds a line.
    pub fn tell(&mut self, at: Timestamp, text: impl Into<String>) {
        if self.0.len() >= 2 * KEPT {
            self.0.drain(..KEPT);
        }
        self.0.push(Line { at, text: text.into() });
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> &[Line] {
        &self.0
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{:.3}  {}", line.at, line.text))
    }
}
