//! A policy's window in a word or two, for the column of `kubectl get` (§3). kubectl counts no time that is still to come, so
//! that the text itself has to change: seldom enough to cost nothing.

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::schedule::Schedule;

/// Further off than this, days are counted.
const IN_DAYS: SignedDuration = SignedDuration::from_hours(48);

/// Nearer than this, nothing is counted.
const SOON: SignedDuration = SignedDuration::from_hours(2);

/// `open`, `in 3d`, `in 5h`, `in less than 2h` or `never`; and when the text changes, where it does.
pub fn text(schedule: &Schedule, now: Timestamp) -> (String, Option<Timestamp>) {
    if let Some(open) = schedule.open_at(now) {
        return ("open".into(), open.closing());
    }
    let Some(opens) = schedule.next_opening(now).map(|occurrence| occurrence.open) else {
        return ("never".into(), None);
    };
    let left = opens.duration_since(now);
    let (unit, letter) = if left >= IN_DAYS {
        (SignedDuration::from_hours(24), 'd')
    } else if left >= SOON {
        (SignedDuration::from_hours(1), 'h')
    } else {
        return ("in less than 2h".into(), Some(opens));
    };
    let count = left.as_secs() / unit.as_secs();
    let whole = SignedDuration::from_secs(count * unit.as_secs());
    // one nanosecond later there is one less
    let changes = opens.checked_sub(whole).and_then(|at| at.checked_add(SignedDuration::from_nanos(1))).ok();
    (format!("in {count}{letter}"), changes)
}

#[cfg(test)]
mod tests {
    use noderotation_shared::policy::Policy;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_to_the_next_opening_is_coarse() {
        let window = json!([{"timezone": "UTC", "days": ["Sat"], "start": "02:00", "end": "06:00"}]);
        let policy = Policy::from_json(&json!({"nodePoolSelector": {}, "maintenanceWindows": window})).unwrap();
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        // 2026-12-05 is a Saturday
        for (now, expected, changes) in [
            ("2026-12-01T02:00:00Z", "in 4d", Some("2026-12-01T02:00:00.000000001Z")),
            ("2026-12-01T02:00:01Z", "in 3d", Some("2026-12-02T02:00:00.000000001Z")),
            ("2026-12-03T02:00:00Z", "in 2d", Some("2026-12-03T02:00:00.000000001Z")),
            ("2026-12-03T02:00:01Z", "in 47h", Some("2026-12-03T03:00:00.000000001Z")),
            ("2026-12-05T00:00:00Z", "in 2h", Some("2026-12-05T00:00:00.000000001Z")),
            ("2026-12-05T00:00:01Z", "in less than 2h", Some("2026-12-05T02:00:00Z")),
            ("2026-12-05T02:00:00Z", "open", Some("2026-12-05T06:00:00Z")),
            ("2026-12-05T06:00:00Z", "in 6d", Some("2026-12-06T02:00:00.000000001Z")),
        ] {
            let expected = (expected.to_owned(), changes.map(at));
            assert_eq!(text(&policy.schedule, at(now)), expected, "{now}");
        }
    }
}
