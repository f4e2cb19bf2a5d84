//! One entry of `maintenanceWindows`, and its occurrence on one local date (§5.1).

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};

use super::Occurrence;

/// A day of the week, as users write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl Day {
    fn of(date: Date) -> Self {
        match date.weekday() {
            Weekday::Monday => Self::Mon,
            Weekday::Tuesday => Self::Tue,
            Weekday::Wednesday => Self::Wed,
            Weekday::Thursday => Self::Thu,
            Weekday::Friday => Self::Fri,
            Weekday::Saturday => Self::Sat,
            Weekday::Sunday => Self::Sun,
        }
    }

    /// 0 for Monday to 6 for Sunday.
    pub fn index(self) -> u8 {
        self as u8
    }
}

/// A time of day by the clock, in minutes from 0 (`00:00`) to 1440 (`24:00`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock(u16);

/// The minutes of a day, which is also `24:00`.
const DAY: u16 = 24 * 60;

impl Clock {
    /// Reads `HH:MM`, two digits each, `00:00` to `23:59`, and `24:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let two = |part: &str| {
            (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse::<u16>().ok())
        };
        let (hours, minutes) = (two(hours)??, two(minutes)??);
        match (hours, minutes) {
            (0..24, 0..60) | (24, 0) => Some(Self(hours * 60 + minutes)),
            _ => None,
        }
    }

    /// Minutes since midnight.
    pub fn minutes(self) -> u16 {
        self.0
    }

    /// This time on `date`; `24:00` is the next date's midnight.
    fn on(self, date: Date) -> Option<DateTime> {
        let date = if self.0 == DAY { date.tomorrow().ok()? } else { date };
        let minutes = self.0 % DAY;
        Some(date.at(i8::try_from(minutes / 60).ok()?, i8::try_from(minutes % 60).ok()?, 0, 0))
    }
}

/// One entry: on which local dates it opens, and from when until when.
#[derive(Clone, Debug)]
pub struct Entry {
    zone: TimeZone,
    /// Bit `n` is `Day::index() == n`.
    days: u8,
    start: Clock,
    end: Clock,
}

/// What a clock change did to an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Nothing.
    None,
    /// Start and end moved later by the length of the gap that swallowed the start.
    Whole(SignedDuration),
    /// The end fell into a gap and moved later by its length.
    End(SignedDuration),
    /// Start or end exists twice; its first occurrence is meant.
    First,
}

impl Entry {
    /// An entry. The caller has seen to it that `start != end` and that there is at least one day.
    pub fn new(zone: TimeZone, days: &[Day], start: Clock, end: Clock) -> Self {
        Self { zone, days: days.iter().fold(0, |bits, day| bits | 1 << day.index()), start, end }
    }

    /// The entry's zone.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Whether it opens on this weekday.
    pub fn opens_on(&self, day: Day) -> bool {
        self.days & (1 << day.index()) != 0
    }

    /// The local date of `instant` in the entry's zone.
    pub fn local_date(&self, instant: Timestamp) -> Date {
        self.zone.to_datetime(instant).date()
    }

    /// The occurrence that opens on this local date, if its weekday is among the entry's days. `None` also at the
    /// very end of the calendar.
    pub fn on(&self, date: Date) -> Option<Occurrence> {
        self.on_with_shift(date).map(|(occurrence, _)| occurrence)
    }

    /// The same, with what a clock change did to it.
    pub fn on_with_shift(&self, date: Date) -> Option<(Occurrence, Shift)> {
        if !self.opens_on(Day::of(date)) {
            return None;
        }
        let closing_date = if self.end < self.start { date.tomorrow().ok()? } else { date };
        let (start, mut end) = (self.start.on(date)?, self.end.on(closing_date)?);
        // A start that does not exist moves the whole entry later, so that its nominal length is kept.
        let moved = self.gap_at(start);
        if let Some(gap) = moved {
            end = end.checked_add(gap).ok()?;
        }
        let open = self.instant(start)?;
        let close = self.instant(end)?;
        // Holds for every zone there is; should a zone ever bring a stranger change, nothing negative escapes.
        let close = if close > open { close } else { super::super::instant::plus(open, nominal(start, end)) };
        let shift = match (moved, self.gap_at(end)) {
            (Some(gap), _) => Shift::Whole(gap),
            (None, Some(gap)) => Shift::End(gap),
            (None, None) if self.is_twice(start) || self.is_twice(end) => Shift::First,
            (None, None) => Shift::None,
        };
        Some((Occurrence { open, close }, shift))
    }

    /// A missing local time is shifted later by the gap, a doubled one means the first: RFC 5545's rule, which jiff
    /// calls compatible.
    fn instant(&self, local: DateTime) -> Option<Timestamp> {
        self.zone.to_ambiguous_timestamp(local).compatible().ok()
    }

    fn gap_at(&self, local: DateTime) -> Option<SignedDuration> {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Gap { before, after } => {
                Some(SignedDuration::from_secs(i64::from(after.seconds()) - i64::from(before.seconds())))
            }
            _ => None,
        }
    }

    fn is_twice(&self, local: DateTime) -> bool {
        matches!(self.zone.to_ambiguous_timestamp(local).offset(), AmbiguousOffset::Fold { .. })
    }
}

fn nominal(start: DateTime, end: DateTime) -> SignedDuration {
    end.duration_since(start).max(SignedDuration::from_mins(1))
}

/// Whether the entries of some zone cover every minute of the week by the clock. Clock changes open no hole in such
/// a cover, since starts and ends are mapped to instants alike.
pub(super) fn cover_every_minute(entries: &[Entry]) -> bool {
    const WEEK: i32 = 7 * DAY as i32;
    entries.iter().any(|first| {
        let mut spans: Vec<(i32, i32)> = Vec::new();
        for entry in entries.iter().filter(|e| e.zone == first.zone) {
            let (start, end) = (i32::from(entry.start.0), i32::from(entry.end.0));
            let length = if end < start { end + i32::from(DAY) - start } else { end - start };
            for day in (0..7).filter(|day| entry.days & (1 << day) != 0) {
                let open = day * i32::from(DAY) + start;
                spans.push((open, open + length));
                // what runs over the end of the week covers its beginning
                spans.push((open - WEEK, open + length - WEEK));
            }
        }
        spans.sort_unstable();
        let covered =
            spans.iter().fold(0, |until, (open, close)| if *open <= until { until.max(*close) } else { until });
        covered >= WEEK
    })
}

/// `date` moved by whole days, held at the ends of the calendar.
pub(super) fn days_from(date: Date, days: i64) -> Date {
    date.saturating_add(Span::new().days(days.clamp(-100_000, 100_000)))
}
