//! Go durations (`24h0m0s`, `1h30m`, `90s`), the notation that Kubernetes users know (§3).
//!
//! The arithmetic is exact and uses integers: the parser in `kube` computes in floating point and panics on overflow.

use jiff::SignedDuration;

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a Go duration. `None` if `text` is not one, or if the value exceeds what a Go duration holds (about 292
/// years), as in Go.
pub fn parse(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let (value, after) = component(rest)?;
        nanos = nanos.checked_add(value)?;
        rest = after;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

/// One `<number><unit>` at the start of `text`, in nanoseconds, and what follows it.
fn component(text: &str) -> Option<(i128, &str)> {
    let (whole, after) = split_digits(text);
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => split_digits(after),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (unit, after) = (after.get(..end)?, after.get(end..)?);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let mut nanos =
        if whole.is_empty() { 0 } else { whole.parse::<i64>().ok().map(i128::from)?.checked_mul(*scale)? };
    let mut place = *scale;
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(i128::from(digit - b'0') * place)?;
    }
    Some((nanos, after))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Formats a duration as Go does: `24h17m0s`, `1.5s`, `-17m0s`, `0s`. Fractions of a second keep their digits.
pub fn format(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    if total == 0 {
        return "0s".into();
    }
    if total < 1_000_000_000 {
        let (scale, unit) = match total {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "\u{b5}s"),
            _ => (1_000_000, "ms"),
        };
        return format!("{sign}{}{unit}", decimal(total, scale));
    }
    let (hours, rest) = (total / 3_600_000_000_000, total % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let seconds = decimal(rest, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// `total / scale` with as many decimals as it needs.
fn decimal(total: u128, scale: u128) -> String {
    let fraction = total % scale;
    if fraction == 0 {
        return (total / scale).to_string();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{fraction:0width$}");
    format!("{}.{}", total / scale, digits.trim_end_matches('0'))
}

/// Formats a duration for messages, with days and without fractions of a second: `5d22h43m`, `4d`, `1h17m`, `1m30s`.
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (sign, total) = (if seconds < 0 { "-" } else { "" }, seconds.unsigned_abs());
    let parts = [(total / 86_400, 'd'), (total / 3_600 % 24, 'h'), (total / 60 % 60, 'm'), (total % 60, 's')];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".into() } else { format!("{sign}{text}") }
}

/// `duration * factor`, saturating.
pub fn times(duration: SignedDuration, factor: i64) -> SignedDuration {
    let nanos = duration.as_nanos().saturating_mul(i128::from(factor));
    from_nanos(nanos)
}

/// A duration of so many nanoseconds, saturating at [`SignedDuration::MIN`] and [`SignedDuration::MAX`].
pub fn from_nanos(nanos: i128) -> SignedDuration {
    let seconds = nanos.div_euclid(1_000_000_000);
    match i64::try_from(seconds) {
        Ok(seconds) => SignedDuration::new(seconds, i32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0)),
        Err(_) if nanos < 0 => SignedDuration::MIN,
        Err(_) => SignedDuration::MAX,
    }
}

/// `floor(a / b)`, saturating; `None` if `b` is not positive.
pub fn floor_div(a: SignedDuration, b: SignedDuration) -> Option<i64> {
    let (a, b) = (a.as_nanos(), b.as_nanos());
    (b > 0).then(|| clamp(a.div_euclid(b)))
}

/// `ceil(a / b)`, saturating; `None` if `b` is not positive.
pub fn ceil_div(a: SignedDuration, b: SignedDuration) -> Option<i64> {
    let (a, b) = (a.as_nanos(), b.as_nanos());
    (b > 0).then(|| clamp(a.div_euclid(b).saturating_add(i128::from(a.rem_euclid(b) != 0))))
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // What Go's time.ParseDuration returns, in nanoseconds.
    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            ("+5s", 5_000_000_000),
            ("1h15m30.918273645s", 4_530_918_273_645),
            ("1.0040s", 1_004_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("10us", 10_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s10ns", 12_010),
            ("39h9m14.425s", 140_954_425_000_000),
            ("9007199254.740993ms", 9_007_199_254_740_993),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(parse(text).map(|d| d.as_nanos()), Some(nanos), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "10 m",
            "1h ",
            "1e3s",
            "infs",
            "NaNs",
            "--5s",
            "+-5s",
            "9223372036854775808ns",
            "9223372036854775.808us",
            "2562048h",
            "99999999999999999999h",
            "1h\u{0}",
            "1mm",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn writes_as_go_writes() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (-1_020_000_000_000, "-17m0s"),
            (86_400_000_000_000, "24h0m0s"),
        ] {
            assert_eq!(format(SignedDuration::from_nanos(nanos)), text);
        }
        assert_eq!(human(SignedDuration::from_secs(513_780)), "5d22h43m");
    }

    proptest! {
        #[test]
        fn round_trip(nanos: i64) {
            let duration = SignedDuration::from_nanos(nanos);
            // Go itself cannot read the text of its smallest duration back
            prop_assume!(nanos != i64::MIN);
            prop_assert_eq!(parse(&format(duration)), Some(duration));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = parse(&text);
        }

        #[test]
        fn division_never_panics(a: i64, b: i64) {
            let (a, b) = (SignedDuration::from_nanos(a), SignedDuration::from_nanos(b));
            if let (Some(floor), Some(ceil)) = (floor_div(a, b), ceil_div(a, b)) {
                prop_assert!(ceil - floor <= 1 && floor <= ceil);
            }
        }
    }
}
