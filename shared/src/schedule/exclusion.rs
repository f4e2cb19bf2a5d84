//! Exclusions: periods of local time in which no rotation starts (§3).

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::Occurrence;
use super::entry::days_from;

/// The `from` or `until` of an exclusion, as the user writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A whole date.
    Date(Date),
    /// A local date and time.
    DateTime(DateTime),
}

impl Moment {
    /// Parses `2026-12-26`, `2026-12-26T22:00` or `2026-12-26T22:00:30`, in the years 2000 to 2099, as the CRD's schema
    /// does. `None` if `text` is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.starts_with("20") || text.bytes().any(|b| !(b.is_ascii_digit() || matches!(b, b'-' | b':' | b'T'))) {
            return None;
        }
        match text.len() {
            10 => text.parse().ok().map(Self::Date),
            16 => format!("{text}:00").parse().ok().filter(is_written_as(text)).map(Self::DateTime),
            19 => text.parse().ok().filter(is_written_as(text)).map(Self::DateTime),
            _ => None,
        }
    }

    /// The local time at which an exclusion *from* this moment begins: midnight for a date.
    pub fn beginning(self) -> DateTime {
        match self {
            Self::Date(date) => date.at(0, 0, 0, 0),
            Self::DateTime(at) => at,
        }
    }

    /// The local time at which an exclusion *until* this moment ends: midnight after a date, which is included in full.
    pub fn ending(self) -> DateTime {
        match self {
            Self::Date(date) => days_from(date, 1).at(0, 0, 0, 0),
            Self::DateTime(at) => at,
        }
    }
}

/// Whether the date-time is formatted like `text`. jiff also parses leap seconds (`:60`), which the schema refuses.
fn is_written_as(text: &str) -> impl Fn(&DateTime) -> bool + '_ {
    move |at| at.to_string().starts_with(text)
}

/// One exclusion, converted to instants.
#[derive(Clone, Debug)]
pub struct Exclusion {
    /// The name in the policy; empty if there is none.
    pub name: String,
    /// The excluded period.
    pub span: Occurrence,
}

impl Exclusion {
    /// The exclusion between two local times in `zone`; `None` if `until` is not later than `from`.
    pub fn new(name: String, zone: &TimeZone, from: Moment, until: Moment) -> Option<Self> {
        let open = zone.to_ambiguous_timestamp(from.beginning()).compatible().ok()?;
        let close = zone.to_ambiguous_timestamp(until.ending()).compatible().unwrap_or(Timestamp::MAX);
        (from.beginning() < until.ending()).then_some(Self { name, span: Occurrence { open, close } })
    }
}

/// The excluded periods, sorted, with overlapping and touching ones merged.
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
