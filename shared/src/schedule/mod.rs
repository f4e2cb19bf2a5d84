//! Maintenance windows as instants (§5).
//!
//! ```text
//!   entry (days, start, end, zone) ─┐
//!   entry …                         ├─▶ union: merged occurrences ─▶ minus exclusions ─▶ the effective window
//!   entry …                         ┘         │
//!                                             └─▶ measure: P, D, gap (recurring schedule, without exclusions)
//! ```
//!
//! Nothing scans minutes: an entry's occurrence on a date is computed directly, and the union merges the entries'
//! streams of occurrences.

mod effective;
mod entry;
mod exclusion;
mod measure;
mod union;

pub use effective::Occurrences;
pub use entry::{Clock, Day, Entry, Shift};
pub use exclusion::{Exclusion, Moment};
pub use measure::{Measures, Period};
pub use union::Union;

use jiff::SignedDuration;
use jiff::Timestamp;

/// One contiguous opening, `[open, close)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// The first instant inside.
    pub open: Timestamp,
    /// The first instant outside again.
    pub close: Timestamp,
}

impl Occurrence {
    /// Whether `instant` lies inside.
    pub fn contains(&self, instant: Timestamp) -> bool {
        self.open <= instant && instant < self.close
    }

    /// When it opened; `None` where the window was open as long as there is time.
    pub fn opening(&self) -> Option<Timestamp> {
        (self.open > Timestamp::MIN).then_some(self.open)
    }

    /// When it closes; `None` where it never does.
    pub fn closing(&self) -> Option<Timestamp> {
        (self.close < Timestamp::MAX).then_some(self.close)
    }

    /// `close - open`.
    pub fn length(&self) -> SignedDuration {
        self.close.duration_since(self.open)
    }
}

/// A policy's windows: entries, united, minus exclusions.
#[derive(Clone, Debug)]
pub struct Schedule {
    entries: Vec<Entry>,
    /// Sorted, disjoint.
    excluded: Vec<Occurrence>,
    always: bool,
}

impl Schedule {
    /// A schedule of these entries and exclusions.
    pub fn new(entries: Vec<Entry>, exclusions: &[Exclusion]) -> Self {
        let always = entry::cover_every_minute(&entries);
        Self { entries, excluded: exclusion::merged(exclusions), always }
    }

    /// The entries, in the order of the policy.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether anything is excluded.
    pub fn has_exclusions(&self) -> bool {
        !self.excluded.is_empty()
    }

    /// The effective window's occurrences that close after `from`, in order, each with its true opening.
    pub fn occurrences(&self, from: Timestamp) -> Occurrences<'_> {
        Occurrences::new(self.recurring(from), &self.excluded, from)
    }

    /// The same without exclusions.
    pub fn recurring(&self, from: Timestamp) -> Union<'_> {
        Union::new(&self.entries, self.always, from)
    }

    /// The occurrence that contains `now`.
    pub fn open_at(&self, now: Timestamp) -> Option<Occurrence> {
        self.occurrences(now).next().filter(|o| o.contains(now))
    }

    /// The first occurrence that opens after `now`; `None` where the schedule never closes or has no entries.
    pub fn next_opening(&self, now: Timestamp) -> Option<Occurrence> {
        self.occurrences(now).take(2).find(|o| o.open > now)
    }

    /// The next instant after `now` at which the window opens or closes.
    pub fn next_edge(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.occurrences(now).next()?;
        if next.contains(now) { next.closing() } else { next.opening() }
    }

    /// `P`, `D` and `gap` as seen at `now` (§5.3).
    pub fn measures(&self, now: Timestamp) -> Measures {
        measure::measures(self, now)
    }
}
