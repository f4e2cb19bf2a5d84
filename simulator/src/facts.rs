//! What the controller wrote, beside the story: for comparisons with a real cluster.

use jiff::Timestamp;
use noderotation_rotation::step::{Act, Write};

/// A write of the controller that has landed.
#[derive(Clone, Debug, PartialEq)]
pub struct Landed {
    /// When.
    pub at: Timestamp,
    /// The step's name, as in metrics and logs.
    pub step: &'static str,
    /// The request.
    pub write: Write,
}

/// The controller's writes. Most histories are compared with nothing, so that only those of a [`crate::Scenario`] are kept.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    is_kept: bool,
    writes: Vec<Landed>,
}

impl Facts {
    /// Facts that are kept.
    pub fn kept() -> Self {
        Self { is_kept: true, writes: Vec::new() }
    }

    /// A write has landed.
    pub fn landed(&mut self, at: Timestamp, act: &Act) {
        if self.is_kept {
            self.writes.push(Landed { at, step: act.name, write: act.write.clone() });
        }
    }

    /// The writes that have landed, oldest first.
    pub fn writes(self) -> Vec<Landed> {
        self.writes
    }
}
