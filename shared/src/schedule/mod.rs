//! Maintenance windows as instants (§5).
//!
//! ```text
//!   entry (days, start, end, zone) ─┐
//!   entry …                         ├─▶ union: merged occurrences ─▶ minus exclusions ─▶ the effective window
//!   entry …                         ┘         │
//!                                             └─▶ measure: P, D, gap (recurring schedule, without exclusions)
//! ```
//!
//! The occurrence of an entry on a date is computed directly, and the union merges the streams of all entries; nothing
//! steps through minutes.

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

/// One contiguous opening of the maintenance window: the half-open interval `[open, close)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// The first instant of the occurrence; [`Timestamp::MIN`] if the window has always been open.
    pub open: Timestamp,
    /// The first instant after the occurrence; [`Timestamp::MAX`] if the window never closes.
    pub close: Timestamp,
}

impl Occurrence {
    /// Whether `instant` lies in the occurrence; `open` does, `close` does not.
    pub fn contains(&self, instant: Timestamp) -> bool {
        self.open <= instant && instant < self.close
    }

    /// When the occurrence opens; `None` if the window has always been open.
    pub fn opening(&self) -> Option<Timestamp> {
        (self.open > Timestamp::MIN).then_some(self.open)
    }

    /// When the occurrence closes; `None` if the window never closes.
    pub fn closing(&self) -> Option<Timestamp> {
        (self.close < Timestamp::MAX).then_some(self.close)
    }

    /// How long the window stays open: `close - open`.
    pub fn length(&self) -> SignedDuration {
        self.close.duration_since(self.open)
    }
}

/// When rotations may start: the union of a policy's maintenance windows minus its exclusions (§5).
#[derive(Clone, Debug)]
pub struct Schedule {
    entries: Vec<Entry>,
    /// The exclusions, sorted and disjoint.
    excluded: Vec<Occurrence>,
    always: bool,
}

impl Schedule {
    /// The schedule of these windows, minus these exclusions.
    pub fn new(entries: Vec<Entry>, exclusions: &[Exclusion]) -> Self {
        let always = entry::cover_every_minute(&entries);
        Self { entries, excluded: exclusion::merged(exclusions), always }
    }

    /// The entries of `maintenanceWindows`, in the order of the policy.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the policy has exclusions.
    pub fn has_exclusions(&self) -> bool {
        !self.excluded.is_empty()
    }

    /// The occurrences of the effective window that close after `from`, in order. One that is open at `from` keeps its
    /// true opening. The iterator may be endless.
    pub fn occurrences(&self, from: Timestamp) -> Occurrences<'_> {
        Occurrences::new(self.recurring(from), &self.excluded, from)
    }

    /// Like [`Schedule::occurrences`], but without the exclusions.
    pub fn recurring(&self, from: Timestamp) -> Union<'_> {
        Union::new(&self.entries, self.always, from)
    }

    /// The occurrence that is open at `now`; `None` if the window is closed.
    pub fn open_at(&self, now: Timestamp) -> Option<Occurrence> {
        self.occurrences(now).next().filter(|o| o.contains(now))
    }

    /// The first occurrence that opens after `now`; `None` if the window never opens again or never closes.
    pub fn next_opening(&self, now: Timestamp) -> Option<Occurrence> {
        self.occurrences(now).take(2).find(|o| o.open > now)
    }

    /// The next instant after `now` at which the window opens or closes; `None` if there is none.
    pub fn next_edge(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.occurrences(now).next()?;
        if next.contains(now) { next.closing() } else { next.opening() }
    }

    /// `P`, `D` and `gap` of the year that begins with the week of `now` (§5.3).
    pub fn measures(&self, now: Timestamp) -> Measures {
        measure::measures(self, now)
    }
}
