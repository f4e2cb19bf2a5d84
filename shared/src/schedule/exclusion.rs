//! Exclusions: stretches of local time during which no rotation starts (§3).

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::Occurrence;
use super::entry::days_from;

/// `from` or `until` of an exclusion, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A whole date.
    Date(Date),
    /// A local date-time.
    DateTime(DateTime),
}

impl Moment {
    /// Reads `2026-12-26`, `2026-12-26T22:00` or `2026-12-26T22:00:30`; years 2000 to 2099, as in the schema.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.starts_with("20") || text.bytes().any(|b| !(b.is_ascii_digit() || matches!(b, b'-' | b':' | b'T'))) {
            return None;
        }
        match text.len() {
            10 => text.parse().ok().map(Self::Date),
            16 => format!("{text}:00").parse().ok().filter(whole_time(text)).map(Self::DateTime),
            19 => text.parse().ok().filter(whole_time(text)).map(Self::DateTime),
            _ => None,
        }
    }

    /// The local time at which an exclusion that begins here begins.
    pub fn beginning(self) -> DateTime {
        match self {
            Self::Date(date) => date.at(0, 0, 0, 0),
            Self::DateTime(at) => at,
        }
    }

    /// The local time at which an exclusion that lasts until here ends: a date counts in full.
    pub fn ending(self) -> DateTime {
        match self {
            Self::Date(date) => days_from(date, 1).at(0, 0, 0, 0),
            Self::DateTime(at) => at,
        }
    }
}

/// jiff also reads a leap second (`:60`) and compact forms, which the schema refuses.
fn whole_time(text: &str) -> impl Fn(&DateTime) -> bool + '_ {
    move |at| at.to_string().starts_with(text)
}

/// One exclusion as instants, with what the user called it.
#[derive(Clone, Debug)]
pub struct Exclusion {
    /// The user's name for it, may be empty.
    pub name: String,
    /// The excluded stretch.
    pub span: Occurrence,
}

impl Exclusion {
    /// An exclusion in `zone`. `None` when it would be empty.
    pub fn new(name: String, zone: &TimeZone, from: Moment, until: Moment) -> Option<Self> {
        let open = zone.to_ambiguous_timestamp(from.beginning()).compatible().ok()?;
        let close = zone.to_ambiguous_timestamp(until.ending()).compatible().unwrap_or(Timestamp::MAX);
        (from.beginning() < until.ending()).then_some(Self { name, span: Occurrence { open, close } })
    }
}

/// The exclusions sorted and merged.
pub(super) fn merged(exclusions: &[Exclusion]) -> Vec<Occurrence> {
    let mut spans: Vec<_> = exclusions.iter().map(|e| e.span).filter(|s| s.open < s.close).collect();
    spans.sort_unstable();
    let mut merged: Vec<Occurrence> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.open <= last.close => last.close = last.close.max(span.close),
            _ => merged.push(span),
        }
    }
    merged
}
