//! One entry of `maintenanceWindows`, and its occurrence on a local date (§5.1).

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, AmbiguousTimestamp, Offset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};

use super::Occurrence;

/// A day of the week on which a window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
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

    /// The day's number, from 0 for Monday to 6 for Sunday.
    pub fn index(self) -> u8 {
        self as u8
    }
}

/// A local time of day, in minutes from 0 (`00:00`) to 1440 (`24:00`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock(u16);

/// The minutes of a day; as a [`Clock`] this is `24:00`.
const DAY: u16 = 24 * 60;

impl Clock {
    /// Parses `HH:MM`, two digits each, from `00:00` to `24:00`. `None` if `text` is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let two_digits = |part: &str| {
            (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse::<u16>().ok())
        };
        let (hours, minutes) = (two_digits(hours)??, two_digits(minutes)??);
        match (hours, minutes) {
            (0..24, 0..60) | (24, 0) => Some(Self(hours * 60 + minutes)),
            _ => None,
        }
    }

    /// The minutes since midnight by the clock, 0 to 1440.
    pub fn minutes(self) -> u16 {
        self.0
    }

    /// This time on `date`; `24:00` is midnight of the next date.
    fn on(self, date: Date) -> Option<DateTime> {
        let date = if self.0 == DAY { date.tomorrow().ok()? } else { date };
        let minutes = self.0 % DAY;
        Some(date.at(i8::try_from(minutes / 60).ok()?, i8::try_from(minutes % 60).ok()?, 0, 0))
    }
}

/// One entry of `maintenanceWindows`: the weekdays on which it opens, its start and end, and its time zone.
#[derive(Clone, Debug)]
pub struct Entry {
    zone: TimeZone,
    /// The weekdays as a bit set; bit `n` stands for the day with index `n`.
    days: u8,
    start: Clock,
    end: Clock,
}

/// How many days a clock change must be away from a date so as not to touch its occurrence: one until the occurrence ends, one
/// for the largest clock change (a zone that skips a date), one between local time and UTC.
const NEAR: i64 = 3;

/// The offset of a time zone on consecutive dates.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteadyOffset {
    offset: Offset,
    /// The first date on which the offset may be another.
    until: Date,
}

impl SteadyOffset {
    /// Whether the offset holds on `date`, which is not before the date that it was computed for.
    pub(super) fn covers(self, date: Date) -> bool {
        date < self.until
    }
}

/// How a clock change moved an occurrence (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// No clock change affects the occurrence.
    None,
    /// The start does not exist on that date, so start and end move later by the length of the gap.
    Whole(SignedDuration),
    /// The end does not exist on that date, so the end alone moves later by the length of the gap.
    End(SignedDuration),
    /// The start or the end exists twice on that date; the first of the two is used.
    First,
}

#[cfg(test)]
std::thread_local! {
    /// How many local times were looked up in the time zone database.
    pub(super) static LOOKUPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Entry {
    /// An entry that opens on `days`. An `end` before `start` means the next day. The caller guarantees that `start` and
    /// `end` differ and that `days` is not empty.
    pub fn new(zone: TimeZone, days: &[Day], start: Clock, end: Clock) -> Self {
        Self { zone, days: days.iter().fold(0, |bits, day| bits | 1 << day.index()), start, end }
    }

    /// The time zone of the entry.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Whether the entry opens on this weekday.
    pub fn opens_on(&self, day: Day) -> bool {
        self.days & (1 << day.index()) != 0
    }

    /// The date of `instant` in the entry's time zone.
    pub fn local_date(&self, instant: Timestamp) -> Date {
        self.zone.to_datetime(instant).date()
    }

    /// The occurrence that opens on this local date; `None` if the entry does not open on that weekday, or beyond the end
    /// of the calendar (year 9999).
    pub fn on(&self, date: Date) -> Option<Occurrence> {
        self.on_with_shift(date).map(|(occurrence, _)| occurrence)
    }

    /// Like [`Entry::on`], together with the effect of a clock change on the occurrence.
    pub fn on_with_shift(&self, date: Date) -> Option<(Occurrence, Shift)> {
        if !self.opens_on(Day::of(date)) {
            return None;
        }
        let closing_date = if self.end < self.start { date.tomorrow().ok()? } else { date };
        let (start, mut end) = (self.start.on(date)?, self.end.on(closing_date)?);
        // A start that does not exist moves start and end, so that the occurrence keeps its nominal length.
        let moved = self.gap_at(start);
        if let Some(gap) = moved {
            end = end.checked_add(gap).ok()?;
        }
        let open = self.instant(start)?;
        let close = self.instant(end)?;
        // In every known zone `close` is later. If a future rule breaks that, the occurrence still must not be empty.
        let close = if close > open { close } else { super::super::instant::plus(open, nominal_length(start, end)) };
        let shift = match (moved, self.gap_at(end)) {
            (Some(gap), _) => Shift::Whole(gap),
            (None, Some(gap)) => Shift::End(gap),
            (None, None) if self.exists_twice(start) || self.exists_twice(end) => Shift::First,
            (None, None) => Shift::None,
        };
        Some((Occurrence { open, close }, shift))
    }

    /// The offset of the zone on `date` and the dates after it; `None` if a clock change is near, so that each date has to be
    /// looked up by itself.
    pub(super) fn steady_from(&self, date: Date) -> Option<SteadyOffset> {
        let begin = Offset::UTC.to_timestamp(days_from(date, -NEAR).at(0, 0, 0, 0)).ok()?;
        let change = self.zone.following(begin).next();
        let until = change.map_or(Date::MAX, |change| days_from(self.local_date(change.timestamp()), -NEAR));
        (date < until).then(|| SteadyOffset { offset: self.zone.to_offset(begin), until })
    }

    /// Like [`Entry::on`], for a date on which the zone has this offset: without a look at the time zone database, since a year
    /// of a policy with 64 windows has 23,000 occurrences.
    pub(super) fn on_steady(&self, date: Date, steady: SteadyOffset) -> Option<Occurrence> {
        if !self.opens_on(Day::of(date)) {
            return None;
        }
        let closing_date = if self.end < self.start { date.tomorrow().ok()? } else { date };
        let instant = |local: DateTime| steady.offset.to_timestamp(local).ok();
        Some(Occurrence { open: instant(self.start.on(date)?)?, close: instant(self.end.on(closing_date)?)? })
    }

    /// The instant of a local time. One that does not exist is shifted later by the length of the gap, one that exists
    /// twice means the first: the rule of RFC 5545, which jiff calls "compatible".
    fn instant(&self, local: DateTime) -> Option<Timestamp> {
        self.look_up(local).compatible().ok()
    }

    fn look_up(&self, local: DateTime) -> AmbiguousTimestamp {
        #[cfg(test)]
        LOOKUPS.set(LOOKUPS.get() + 1);
        self.zone.to_ambiguous_timestamp(local)
    }

    fn gap_at(&self, local: DateTime) -> Option<SignedDuration> {
        match self.look_up(local).offset() {
            AmbiguousOffset::Gap { before, after } => {
                Some(SignedDuration::from_secs(i64::from(after.seconds()) - i64::from(before.seconds())))
            }
            _ => None,
        }
    }

    fn exists_twice(&self, local: DateTime) -> bool {
        matches!(self.look_up(local).offset(), AmbiguousOffset::Fold { .. })
    }
}

fn nominal_length(start: DateTime, end: DateTime) -> SignedDuration {
    end.duration_since(start).max(SignedDuration::from_mins(1))
}

/// Whether the entries of one time zone cover every minute of the week. A clock change cannot open a gap between them,
/// because starts and ends are converted to instants in the same way.
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
                // a window that crosses the end of the week also covers its beginning
                spans.push((open - WEEK, open + length - WEEK));
            }
        }
        spans.sort_unstable();
        let covered =
            spans.iter().fold(0, |until, (open, close)| if *open <= until { until.max(*close) } else { until });
        covered >= WEEK
    })
}

/// `date` moved by whole days, saturating at the ends of the calendar.
pub(super) fn days_from(date: Date, days: i64) -> Date {
    date.saturating_add(Span::new().days(days.clamp(-100_000, 100_000)))
}
