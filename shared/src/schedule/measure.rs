//! `P`, `D` and `gap` of the recurring schedule (§5.3).

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Schedule;
use super::entry::days_from;
use crate::instant::plus;

/// How often and for how long the window opens, regardless of exclusions (§5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measures {
    /// The window never opens.
    Never,
    /// The window never closes: `P` is one minute, and there is no `gap`.
    Always,
    /// The window opens and closes.
    Recurring(Period),
}

/// The measures of a window that opens and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// `P`: the longest time from one opening to the next.
    pub p: SignedDuration,
    /// `D`: the length of the shortest occurrence.
    pub d: SignedDuration,
    /// `gap`: the shortest time from a closing to the next opening.
    pub gap: SignedDuration,
}

impl Measures {
    /// `P`; zero if the window never opens, one minute if it never closes.
    pub fn p(&self) -> SignedDuration {
        match self {
            Self::Never => SignedDuration::ZERO,
            Self::Always => SignedDuration::from_mins(1),
            Self::Recurring(period) => period.p,
        }
    }
}

const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Measures the occurrences that open within 365 days from Monday 00:00 UTC of the week of `now`; a whole year, so that
/// the gaps that clock changes lengthen are included.
pub(super) fn measures(schedule: &Schedule, now: Timestamp) -> Measures {
    let begin = monday(now);
    let end = plus(begin, HORIZON);
    let mut occurrences = schedule.recurring(begin).peekable();
    let ever_opens = occurrences.peek().is_some();
    let mut opening = occurrences.filter(|o| o.open >= begin).take_while(|o| o.open < end);
    let Some(first) = opening.next() else {
        return if ever_opens { Measures::Always } else { Measures::Never };
    };
    let mut period = Period { p: SignedDuration::ZERO, d: first.length(), gap: SignedDuration::MAX };
    let mut last = first;
    for next in opening {
        period.p = period.p.max(next.open.duration_since(last.open));
        period.d = period.d.min(next.length());
        period.gap = period.gap.min(next.open.duration_since(last.close));
        last = next;
    }
    if period.p.is_zero() { Measures::Always } else { Measures::Recurring(period) }
}

/// Monday 00:00 UTC of the week that contains `now`.
fn monday(now: Timestamp) -> Timestamp {
    let date = TimeZone::UTC.to_datetime(now).date();
    let since = i64::from(date.weekday().since(Weekday::Monday));
    days_from(date, -since).to_zoned(TimeZone::UTC).map_or(now, |at| at.timestamp())
}

#[cfg(test)]
mod tests {
    use super::super::{Clock, Day, Entry, Occurrence, entry, union};
    use super::*;

    const WINDOWS: usize = 64;
    const ZONES: [&str; 8] = [
        "Asia/Tokyo",
        "Europe/Berlin",
        "America/New_York",
        "America/Los_Angeles",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "Asia/Kolkata",
    ];
    const DAYS: [Day; 7] = [Day::Mon, Day::Tue, Day::Wed, Day::Thu, Day::Fri, Day::Sat, Day::Sun];

    /// As many windows as a policy may have, each on every day, in eight zones, and `hours` long.
    fn largest(hours: usize) -> Schedule {
        let clock = |hour: usize, minute: usize| Clock::parse(&format!("{:02}:{minute:02}", hour % 24)).unwrap();
        let window = |i: usize| {
            let zone = crate::zone::find(ZONES[i % 8]).unwrap();
            Entry::new(zone, &DAYS, clock(i / 3, i % 3 * 20), clock(i / 3 + hours, i % 3 * 20 + 10))
        };
        Schedule::new((0..WINDOWS).map(window).collect(), &[])
    }

    /// A review of the largest policy takes as long as it examines dates and looks up the time zone database. A year has 23,360
    /// windows.
    #[test]
    fn the_largest_policy_costs_a_bounded_number_of_steps() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        for (hours, is_recurring) in [(0, true), (9, false), (23, false)] {
            let schedule = largest(hours);
            entry::LOOKUPS.set(0);
            union::EXAMINED.set(0);
            let measures = schedule.measures(now);
            assert_eq!(matches!(measures, Measures::Recurring(_)), is_recurring, "{hours} h: {measures:?}");
            let (lookups, examined) = (entry::LOOKUPS.get(), union::EXAMINED.get());
            // a clock change is near on six dates, of which a zone has four to eight a year; each takes six look-ups
            assert!(lookups <= WINDOWS * 8 * 6 * 6 * 2, "{hours} h: {lookups} look-ups");
            assert!(examined <= WINDOWS * 900, "{hours} h: {examined} dates");
        }
    }

    /// What is computed from an offset is what the time zone database says, in every zone and on every date of three years.
    #[test]
    fn an_offset_that_holds_gives_the_same_occurrences() {
        let (first, last) = (jiff::civil::date(2025, 12, 1), jiff::civil::date(2029, 1, 1));
        for name in crate::zone::names() {
            let zone = crate::zone::find(name).unwrap();
            let clock = |text: &str| Clock::parse(text).unwrap();
            let entry = Entry::new(zone, &DAYS, clock("02:30"), clock("01:15"));
            let begin = entry.on(first).unwrap().open;
            let schedule = Schedule::new(vec![entry.clone()], &[]);
            let seen: Vec<Occurrence> =
                schedule.recurring(begin).take_while(|o| o.open < entry.on(last).unwrap().open).collect();
            let mut expected: Vec<Occurrence> = Vec::new();
            let mut date = first;
            while date < last {
                let next = entry.on(date).unwrap();
                match expected.last_mut() {
                    Some(before) if next.open <= before.close => before.close = before.close.max(next.close),
                    _ => expected.push(next),
                }
                date = date.tomorrow().unwrap();
            }
            assert_eq!(seen, expected, "{name}");
        }
    }
}
