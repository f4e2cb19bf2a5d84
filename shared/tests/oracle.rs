//! Compares occurrences with an independent implementation based on chrono-tz. Its time zone tables are older, so zones
//! whose rules have changed since are listed here and not compared.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use chrono::{Datelike, Duration, LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone, Utc, Weekday};
use chrono_tz::Tz;
use jiff::Timestamp;
use noderotation_shared::schedule::{Clock, Day, Entry, Schedule};
use noderotation_shared::zone;

const FIRST_YEAR: i32 = 2026;
const LAST_YEAR: i32 = 2029;

/// Zones whose rules have changed since chrono-tz's tables (2025b).
const CHANGED_ZONES: &[&str] = &[
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "America/Edmonton",
    "America/Havana",
    "America/Inuvik",
    "America/Rainy_River",
    "America/Vancouver",
    "America/Winnipeg",
    "America/Yellowknife",
    "Canada/Central",
    "Canada/Mountain",
    "Canada/Pacific",
    "Cuba",
    "Europe/Chisinau",
    "Europe/Tiraspol",
];

fn day(weekday: Weekday) -> Day {
    [Day::Mon, Day::Tue, Day::Wed, Day::Thu, Day::Fri, Day::Sat, Day::Sun][weekday.num_days_from_monday() as usize]
}

fn offset(tz: Tz, at: NaiveDateTime) -> i32 {
    tz.offset_from_utc_datetime(&at).fix().local_minus_utc()
}

/// Whether both tables have the same offset at every hour of the tested years.
fn tables_agree(tz: Tz, own: &jiff::tz::TimeZone) -> bool {
    let begin = Utc.with_ymd_and_hms(FIRST_YEAR, 1, 1, 0, 0, 0).unwrap().timestamp();
    let end = Utc.with_ymd_and_hms(LAST_YEAR, 1, 1, 0, 0, 0).unwrap().timestamp();
    (begin..end).step_by(3600).all(|second| {
        let theirs = offset(tz, chrono::DateTime::from_timestamp(second, 0).unwrap().naive_utc());
        own.to_offset(Timestamp::from_second(second).unwrap()).seconds() == theirs
    })
}

/// The rule of §5.1, computed with chrono-tz: the instant of a local time, and the length of the gap if it does not exist.
fn resolve(tz: Tz, local: NaiveDateTime) -> (i64, i64) {
    match tz.from_local_datetime(&local) {
        LocalResult::Single(at) => (at.timestamp(), 0),
        LocalResult::Ambiguous(first, _) => (first.timestamp(), 0),
        LocalResult::None => {
            // 26 hours away from the gap there is no other clock change
            let before = i64::from(offset(tz, local - Duration::hours(26)));
            let after = i64::from(offset(tz, local + Duration::hours(26)));
            (local.and_utc().timestamp() - before, after - before)
        }
    }
}

fn expected_occurrences(tz: Tz, days: &[Weekday], start: u32, end: u32) -> Vec<(i64, i64)> {
    let mut date = NaiveDate::from_ymd_opt(FIRST_YEAR, 1, 2).unwrap();
    let mut all: Vec<(i64, i64)> = Vec::new();
    while date.year() < LAST_YEAR {
        if days.contains(&date.weekday()) {
            let at = |date: NaiveDate, minutes: u32| {
                date.and_hms_opt(0, 0, 0).unwrap() + Duration::minutes(i64::from(minutes))
            };
            let closing = if end < start { date.succ_opt().unwrap() } else { date };
            let (open, gap) = resolve(tz, at(date, start));
            let (close, _) = resolve(tz, at(closing, end) + Duration::seconds(gap));
            match all.last_mut() {
                // an occurrence that a gap moved later may overlap that of the next date
                Some(last) if open <= last.1 => last.1 = last.1.max(close),
                _ => all.push((open, close)),
            }
        }
        date = date.succ_opt().unwrap();
    }
    all
}

#[test]
fn every_zone_opens_when_the_oracle_says() {
    let mut different = Vec::new();
    let mut compared = 0;
    for tz in chrono_tz::TZ_VARIANTS {
        let Ok(own) = zone::find(tz.name()) else { continue };
        if !tables_agree(tz, &own) {
            different.push(tz.name());
            continue;
        }
        compared += 1;
        for (start, end) in [(0, 30), (120, 180), (130, 170), (150, 210), (1380, 120), (1435, 10), (30, 1440)] {
            let weekdays = [Weekday::Sun, Weekday::Mon, Weekday::Fri, Weekday::Sat];
            let days: Vec<Day> = weekdays.iter().map(|d| day(*d)).collect();
            let clock = |minutes: u32| Clock::parse(&format!("{:02}:{:02}", minutes / 60, minutes % 60)).unwrap();
            let entry = Entry::new(own.clone(), &days, clock(start), clock(end));
            let expected = expected_occurrences(tz, &weekdays, start, end);
            let (first, last) = (expected[0].0, expected[expected.len() - 1].0);
            let schedule = Schedule::new(vec![entry], &[]);
            let got: Vec<(i64, i64)> = schedule
                .recurring(Timestamp::from_second(first).unwrap())
                .map(|o| (o.open.as_second(), o.close.as_second()))
                .skip_while(|o| o.0 < first)
                .take_while(|o| o.0 <= last)
                .collect();
            assert_eq!(got, expected, "{} {start}–{end}", tz.name());
        }
    }
    assert!(compared > 500, "only {compared} zones");
    assert_eq!(different, CHANGED_ZONES, "zones whose tables differ");
}
