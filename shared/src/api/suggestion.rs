//! What a person most likely meant by a value that is no valid one: the last part of an error message.

use jiff::SignedDuration;
use jiff::civil::Time;
use jiff::fmt::temporal::Pieces;

use crate::duration;
use crate::schedule::Moment;

/// The names of the days, as the schema has them.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// What to write for a required field that is missing: an example that does no harm where somebody copies it as it is.
pub fn required(field: &str) -> &'static str {
    match field {
        "spec" => "nodePoolSelector and maintenanceWindows, as in the documentation's first example",
        "maintenanceWindows" => {
            "when rotations may start, for example [{timezone: Asia/Tokyo, days: [Wed, Sat], start: \"02:00\", end: \"06:00\"}]"
        }
        "nodePoolSelector" => "{matchLabels: {workload: api}} for the NodePools with this label, or {} for all",
        "timezone" => "the IANA name of a time zone, such as Asia/Tokyo",
        "days" => "the days on which the window opens, such as [Wed, Sat]",
        "start" => "when the window opens, such as \"02:00\"",
        "end" => "when the window closes, such as \"06:00\"",
        "from" => "the first day on which nothing is rotated, such as \"2026-12-26\"",
        "until" => "the last day on which nothing is rotated, such as \"2027-01-04\"",
        "key" => "a label key such as workload or example.com/workload",
        "operator" => "one of In, NotIn, Exists, DoesNotExist",
        _ => "a value",
    }
}

/// The allowed word that `found` is, whatever its case.
pub fn word<'a>(found: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.trim();
    allowed.into_iter().find(|word| word.eq_ignore_ascii_case(found))
}

/// The days that are meant by other ways to write them: `saturday`, `Mon-Fri`, `Sat, Sun`, `weekdays`, `daily`.
pub fn days(found: &str) -> Option<Vec<&'static str>> {
    let text = found.trim().to_ascii_lowercase();
    match text.as_str() {
        "daily" | "all" | "any" | "always" | "everyday" | "every day" | "*" => return Some(DAYS.to_vec()),
        "weekday" | "weekdays" | "workday" | "workdays" => return range("mon", "fri"),
        "weekend" | "weekends" => return range("sat", "sun"),
        _ => {}
    }
    let text = ["–", "…", "..", " to ", " - "].iter().fold(text, |text, way| text.replace(way, "-"));
    let parts = text.split([',', ';', '/', '|', ' ']).filter(|part| !part.is_empty());
    let meant: Option<Vec<_>> = parts
        .map(|part| match part.split_once('-') {
            Some((first, last)) => range(first, last),
            None => Some(vec![*DAYS.get(day(part)?)?]),
        })
        .collect();
    meant.map(|days| days.concat()).filter(|days| !days.is_empty())
}

/// The days from one to another, which may lie in the next week.
fn range(first: &str, last: &str) -> Option<Vec<&'static str>> {
    let (first, last) = (day(first)?, day(last)?);
    let length = (last + 7 - first) % 7 + 1;
    Some(DAYS.iter().cycle().skip(first).take(length).copied().collect())
}

/// The number of a day whose name, or a beginning of at least three letters of it, this is in lower case.
fn day(text: &str) -> Option<usize> {
    const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let is_plural = |name: &str| text.strip_suffix('s') == Some(name);
    (text.len() >= 3).then(|| NAMES.iter().position(|name| name.starts_with(text) || is_plural(name)))?
}

/// `HH:MM` for other ways to write a time of day: `6pm`, `6:30 PM`, `2:00`, `0200`, `02.00`, `02:00:00`.
pub fn clock(found: &str) -> Option<String> {
    let text = found.trim().to_ascii_lowercase();
    let (text, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(rest), _) => (rest.trim_end().to_owned(), Some(0)),
        (_, Some(rest)) => (rest.trim_end().to_owned(), Some(12)),
        _ => (text.trim_end_matches("uhr").trim_end_matches('h').trim_end().to_owned(), None),
    };
    let parts: Vec<&str> = match text.split([':', '.']).collect::<Vec<_>>().as_slice() {
        [digits] if digits.len() == 4 && digits.is_ascii() => vec![digits.get(..2)?, digits.get(2..)?],
        // digits alone may be an hour only where something says so
        [hour] if half.is_some() || found.trim().to_ascii_lowercase().ends_with(['h', 'r']) => vec![*hour, "00"],
        [hour, minute] => vec![*hour, *minute],
        [hour, minute, "00"] => vec![*hour, *minute],
        _ => return None,
    };
    let number =
        |text: &str| text.parse::<i8>().ok().filter(|_| text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit()));
    let [hour, minute] = parts.as_slice() else { return None };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let hour = match half {
        None => hour,
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
    };
    Time::new(hour, minute, 0, 0).ok().map(|time| time.strftime("%H:%M").to_string())
}

/// A local date-time for an instant: its offset stands in `timezone` instead. `None` for a year that an exclusion cannot be in.
pub fn moment(found: &str) -> Option<String> {
    // as it is written, not as it would be in another zone
    let written = Pieces::parse(found.trim()).ok()?;
    let meant = written.date().to_datetime(written.time()?).strftime("%Y-%m-%dT%H:%M").to_string();
    Moment::parse(&meant).map(|_| meant)
}

/// A duration in whole hours, minutes and seconds, as Karpenter takes them: `1.5h` is `1h30m`, `14d` is `336h`.
pub fn whole_seconds(found: &str) -> Option<String> {
    // there is no unit for days
    let days = found.strip_suffix('d').and_then(|days| days.parse::<u16>().ok());
    let meant = days.map(|days| SignedDuration::from_hours(i64::from(days) * 24)).or_else(|| duration::parse(found))?;
    let seconds = SignedDuration::from_secs(meant.as_secs() + i64::from(meant.subsec_nanos() > 0));
    let text = duration::format(seconds);
    let short = text.strip_suffix("0s").filter(|rest| rest.ends_with('m')).unwrap_or(&text);
    let short = short.strip_suffix("0m").filter(|rest| rest.ends_with('h')).unwrap_or(short);
    seconds.is_positive().then(|| short.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schedule::Clock;

    #[test]
    fn other_ways_to_write_a_time_of_day() {
        for (found, meant) in [
            ("6pm", Some("18:00")),
            ("6 PM", Some("18:00")),
            ("6:30pm", Some("18:30")),
            ("12am", Some("00:00")),
            ("12pm", Some("12:00")),
            ("13pm", None),
            ("2:00", Some("02:00")),
            ("0200", Some("02:00")),
            ("02.30", Some("02:30")),
            ("02:00:00", Some("02:00")),
            ("18h", Some("18:00")),
            ("18 Uhr", Some("18:00")),
            ("25:00", None),
            ("02:60", None),
            ("6", None),
            ("noon", None),
            ("", None),
            ("-1:00", None),
            ("１８:００", None),
        ] {
            assert_eq!(clock(found).as_deref(), meant, "{found}");
        }
    }

    #[test]
    fn other_ways_to_write_days() {
        for (found, meant) in [
            ("saturday", "Sat"),
            ("SAT", "Sat"),
            ("Tues", "Tue"),
            ("Sundays", "Sun"),
            ("Mon-Fri", "Mon Tue Wed Thu Fri"),
            ("monday to friday", "Mon Tue Wed Thu Fri"),
            ("Fri..Mon", "Fri Sat Sun Mon"),
            ("Sat – Sun", "Sat Sun"),
            ("Wed-Wed", "Wed"),
            ("Sat,Sun", "Sat Sun"),
            ("Mon-Tue, Sat", "Mon Tue Sat"),
            ("weekend", "Sat Sun"),
            ("Weekdays", "Mon Tue Wed Thu Fri"),
            ("daily", "Mon Tue Wed Thu Fri Sat Sun"),
            ("*", "Mon Tue Wed Thu Fri Sat Sun"),
            ("Sonntag", ""),
            ("Mo", ""),
            ("monster", ""),
            ("Mon-", ""),
            ("6", ""),
            ("", ""),
            (",", ""),
        ] {
            assert_eq!(days(found).unwrap_or_default().join(" "), meant, "{found}");
        }
    }

    #[test]
    fn words_in_any_case() {
        assert_eq!(word("in", ["In", "NotIn"]), Some("In"));
        assert_eq!(word("inside", ["In", "NotIn"]), None);
    }

    #[test]
    fn instants_lose_their_offset() {
        for (found, meant) in [
            ("2026-12-24T18:00:00Z", Some("2026-12-24T18:00")),
            ("2026-12-24T18:00:00+09:00", Some("2026-12-24T18:00")),
            ("2026-12-24T18:00:00.5Z", Some("2026-12-24T18:00")),
            ("2026-12-24 18:00", Some("2026-12-24T18:00")),
            ("24.12.2026", None),
            ("1999-12-24", None),
            ("1999-12-24T18:00Z", None),
            ("2100-01-01T00:00", None),
            ("tomorrow", None),
        ] {
            assert_eq!(moment(found).as_deref(), meant, "{found}");
        }
    }

    proptest! {
        /// Whoever writes what is suggested is not refused again.
        #[test]
        fn what_is_suggested_is_valid(text in "[0-9]{1,4}[-:. T]?[0-9]{0,2}[-:. ]?[0-9]{0,2}[T ]?[0-9]{0,2}:?[0-9]{0,2}(am|pm|h|Z|d|m|s|ms)?") {
            prop_assert!(clock(&text).is_none_or(|meant| Clock::parse(&meant).is_some()), "{text}");
            prop_assert!(moment(&text).is_none_or(|meant| Moment::parse(&meant).is_some()), "{text}");
            prop_assert!(whole_seconds(&text).is_none_or(|meant| duration::parse(&meant).is_some_and(|d| d.is_positive())), "{text}");
        }
    }

    #[test]
    fn karpenter_counts_whole_seconds() {
        for (found, meant) in [
            ("1.5h", Some("1h30m")),
            ("1500ms", Some("2s")),
            ("336h", Some("336h")),
            ("-1h", None),
            ("14d", Some("336h")),
            ("2w", None),
        ] {
            assert_eq!(whole_seconds(found).as_deref(), meant, "{found}");
        }
    }
}
