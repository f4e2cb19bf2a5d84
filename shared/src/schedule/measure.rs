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
    let mut opening = schedule.recurring(begin).filter(|o| o.open >= begin).take_while(|o| o.open < end);
    let Some(first) = opening.next() else {
        return if schedule.recurring(now).next().is_some() { Measures::Always } else { Measures::Never };
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
