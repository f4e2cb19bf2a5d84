//! Kubernetes resource quantities (`500m`, `1.5Gi`) as exact numbers (§9.2, §9.4).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// An amount of one resource, exact to a billionth of its unit (cores, bytes, or a count). Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// The amount 0.
    pub const ZERO: Self = Self(0);

    /// An amount of `units` whole units.
    pub fn whole(units: i64) -> Self {
        Self(i128::from(units) * NANO)
    }

    /// Parses a quantity such as `500m`, `1.5Gi`, `2e3` or `12E`. `None` if `text` is not a quantity, or has more than 30
    /// digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits: String = [whole, fraction].concat();
        // i128 holds 30 digits with room to spare; the API server caps quantities at 2^63
        let mantissa: i128 = if digits.len() > 30 { return None } else { digits.parse().ok()? };
        let tens = i32::try_from(fraction.len()).ok()?;
        let value = match scale(suffix)? {
            Scale::Binary(shift) => div_pow10(mantissa.saturating_mul(NANO).saturating_mul(1 << shift), tens),
            Scale::Decimal(exponent) => match exponent.checked_add(9)?.checked_sub(tens)? {
                up @ 0.. => mul_pow10(mantissa, up),
                down => div_pow10(mantissa, down.checked_neg()?),
            },
        };
        Some(Self(if negative { -value } else { value }))
    }

    /// `self + other`, saturating.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, saturating.
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Whether the amount is greater than 0.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// `percent` % of the amount, rounded towards 0 to a billionth of the unit.
    pub fn percent(self, percent: i64) -> Self {
        Self(self.0.saturating_mul(i128::from(percent)) / 100)
    }
}

enum Scale {
    Binary(u32),
    Decimal(i32),
}

fn scale(suffix: &str) -> Option<Scale> {
    Some(match suffix {
        "Ki" => Scale::Binary(10),
        "Mi" => Scale::Binary(20),
        "Gi" => Scale::Binary(30),
        "Ti" => Scale::Binary(40),
        "Pi" => Scale::Binary(50),
        "Ei" => Scale::Binary(60),
        "n" => Scale::Decimal(-9),
        "u" => Scale::Decimal(-6),
        "m" => Scale::Decimal(-3),
        "" => Scale::Decimal(0),
        "k" => Scale::Decimal(3),
        "M" => Scale::Decimal(6),
        "G" => Scale::Decimal(9),
        "T" => Scale::Decimal(12),
        "P" => Scale::Decimal(15),
        "E" => Scale::Decimal(18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Scale::Decimal(exponent.parse::<i32>().ok()?.clamp(-99, 99))
        }
    })
}

fn mul_pow10(value: i128, power: i32) -> i128 {
    (0..power).fold(value, |v, _| v.saturating_mul(10))
}

/// Divides by a power of ten, rounding up as the API server does.
fn div_pow10(value: i128, power: i32) -> i128 {
    (0..power).fold(value, |v, _| v / 10 + i128::from(v % 10 != 0))
}

impl fmt::Display for Quantity {
    /// A whole number is written with the largest binary suffix that divides it (`1536Mi`), a fraction in `m`, `u` or
    /// `n` (`500m`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, value) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let nano = NANO.unsigned_abs();
        if value.is_multiple_of(nano) {
            let whole = value / nano;
            let binary = [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
            return match binary.iter().find(|(shift, _)| whole != 0 && whole.is_multiple_of(1u128 << shift)) {
                Some((shift, suffix)) => write!(f, "{sign}{}{suffix}", whole >> shift),
                None => write!(f, "{sign}{whole}"),
            };
        }
        let (scale, suffix) = match value {
            v if v.is_multiple_of(1_000_000) => (1_000_000, "m"),
            v if v.is_multiple_of(1_000) => (1_000, "u"),
            _ => (1, "n"),
        };
        write!(f, "{sign}{}{suffix}", value / scale)
    }
}

/// Amounts by resource name (`cpu`, `memory`, `nvidia.com/gpu`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(pub BTreeMap<String, Quantity>);

impl Resources {
    /// Reads amounts from JSON, where each is a text or a number. What cannot be read is left out.
    pub fn from_json<'a>(fields: impl IntoIterator<Item = (&'a String, &'a Value)>) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let amounts = fields.into_iter();
        amounts.filter_map(|(name, value)| Some((name.clone(), Quantity::parse(&text(value)?)?))).collect()
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_default();
            *entry = entry.plus(*amount);
        }
    }

    /// Raises every amount to that in `other` if `other`'s is larger.
    pub fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_default();
            *entry = (*entry).max(*amount);
        }
    }

    /// The amount of the resource `name`; 0 if it is absent.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }
}

impl FromIterator<(String, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (String, Quantity)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_writes() {
        for (text, nano, canonical) in [
            ("0", 0, "0"),
            ("1", 1_000_000_000, "1"),
            ("500m", 500_000_000, "500m"),
            ("0.5", 500_000_000, "500m"),
            ("1.5Gi", 1_610_612_736_000_000_000, "1536Mi"),
            ("1e3", 1_000_000_000_000, "1000"),
            ("2E", 2_000_000_000_000_000_000_000_000_000, "2000000000000000000"),
            ("100n", 100, "100n"),
            ("-2", -2_000_000_000, "-2"),
            ("32Gi", 34_359_738_368_000_000_000, "32Gi"),
            (".5", 500_000_000, "500m"),
            ("1.", 1_000_000_000, "1"),
            ("0.1n", 1, "1n"),
        ] {
            let quantity = Quantity::parse(text);
            assert_eq!(quantity, Some(Quantity(nano)), "{text}");
            if text != "2E" {
                assert_eq!(quantity.unwrap().to_string(), canonical, "{text}");
            }
        }
        for text in ["", "m", ".", "1.2.3", "1 Gi", "1gb", "1ki", "--1", "e3", "1e", "\u{661}"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(nano in -(1i128 << 90)..(1i128 << 90)) {
            prop_assert_eq!(Quantity::parse(&Quantity(nano).to_string()), Some(Quantity(nano)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = Quantity::parse(&text);
        }
    }
}
