//! Instants as they are stored in annotations: RFC 3339, UTC, whole seconds (§8, *Unreadable*).

use jiff::{SignedDuration, Timestamp};

/// `instant` rounded down to whole seconds, as it is stored.
pub fn whole_seconds(instant: Timestamp) -> Timestamp {
    Timestamp::from_second(instant.as_second().saturating_sub(i64::from(instant.subsec_nanosecond() < 0)))
        .unwrap_or(instant)
}

/// Formats an instant as it is stored: `2026-12-06T14:00:00Z`.
pub fn format(instant: Timestamp) -> String {
    whole_seconds(instant).to_string()
}

/// Parses an RFC 3339 instant with any offset and rounds it down to whole seconds. `None` if `text` is not one.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.trim().parse::<Timestamp>().ok().map(whole_seconds)
}

/// `instant + by`, saturating.
pub fn plus(instant: Timestamp, by: SignedDuration) -> Timestamp {
    instant.saturating_add(by).unwrap_or(instant)
}

/// `instant - by`, saturating.
pub fn minus(instant: Timestamp, by: SignedDuration) -> Timestamp {
    instant.saturating_sub(by).unwrap_or(instant)
}

/// `later - earlier`; negative if `later` is in fact the earlier one.
pub fn between(earlier: Timestamp, later: Timestamp) -> SignedDuration {
    later.duration_since(earlier)
}

/// The earlier of two optional instants; `None` only if both are absent.
pub fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_is_utc_whole_seconds() {
        let instant: Timestamp = "2026-12-06T23:00:00.999+09:00".parse().unwrap();
        assert_eq!(format(instant), "2026-12-06T14:00:00Z");
        assert_eq!(parse("2026-12-06T14:00:00Z"), Some(whole_seconds(instant)));
        assert_eq!(parse("1969-12-31T23:59:58.5Z"), parse("1969-12-31T23:59:58Z"));
    }

    #[test]
    fn unreadable_is_none_and_ends_saturate() {
        for text in ["", "tomorrow", "2026-13-01T00:00:00Z", "72h", "2026-12-06"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(plus(Timestamp::MAX, SignedDuration::MAX), Timestamp::MAX);
        assert_eq!(minus(Timestamp::MIN, SignedDuration::MAX), Timestamp::MIN);
    }
}
