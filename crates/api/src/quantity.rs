//! Kubernetes quantities: `500m`, `2Gi`, `1e3`.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    iter::Sum,
    ops::Add,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of a resource, exact to a billionth; finer fractions are rounded away from zero and amounts beyond
/// 2⁶³−1 are cut to that, as Kubernetes does. Equality and order are the amount's; the notation only shows in text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// How an amount is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Notation {
    /// `m`, nothing, `k`, `M`, …
    #[default]
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`, `e6`, …
    Exponent,
}

/// The text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity (as 500m, 2, 4Gi, 1e3)")]
pub struct QuantityError(String);

const NANO: i128 = 1_000_000_000;
/// The largest amount that Kubernetes keeps.
const MOST: i128 = (i64::MAX as i128) * NANO;

/// Decimal suffixes by power of a thousand, from a billionth on.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes by power of 1024, from 1024 on.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, notation: Notation::Decimal };

    /// So many whole units.
    pub fn whole(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANO, notation: Notation::Decimal }
    }

    /// So many bytes: written with `Ki`, `Mi`, … where that is exact.
    pub fn bytes(bytes: i64) -> Self {
        Self { notation: Notation::Binary, ..Self::whole(bytes) }
    }

    /// So many thousandths.
    pub const fn milli(thousandths: i64) -> Self {
        Self { nanos: (thousandths as i128) * (NANO / 1000), notation: Notation::Decimal }
    }

    /// Whole units, rounded up; saturates.
    pub fn value(self) -> i64 {
        self.rounded_up(NANO)
    }

    /// Thousandths, rounded up; saturates.
    pub fn millis(self) -> i64 {
        self.rounded_up(NANO / 1000)
    }

    fn rounded_up(self, unit: i128) -> i64 {
        let up = self.nanos.div_euclid(unit) + i128::from(self.nanos.rem_euclid(unit) != 0);
        i64::try_from(up).unwrap_or(if up > 0 { i64::MAX } else { i64::MIN })
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Add for Quantity {
    type Output = Self;

    /// The sum, in the notation of the first that is not nothing.
    fn add(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self { nanos: self.nanos.saturating_add(other.nanos), notation }
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Add::add)
    }
}

/// `base` to the power of `exponent`; `None` beyond what an amount can be.
fn power(base: i128, exponent: u32) -> Option<i128> {
    base.checked_pow(exponent)
}

/// What a suffix multiplies by, as a fraction, and its notation.
fn scale(suffix: &str) -> Option<(i128, i128, Notation)> {
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        let exponent = u32::try_from(at).ok()? + 1;
        return Some((power(1024, exponent)?, 1, Notation::Binary));
    }
    if let Some(at) = DECIMAL.iter().position(|name| *name == suffix) {
        let exponent = i32::try_from(at).ok()? - 3;
        let factor = power(1000, exponent.unsigned_abs())?;
        let (up, down) = if exponent < 0 { (1, factor) } else { (factor, 1) };
        return Some((up, down, Notation::Decimal));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Beyond these every amount but nothing is cut to the most or rounded up to the least.
    let factor = power(10, exponent.unsigned_abs().min(28))?;
    let (up, down) = if exponent < 0 { (1, factor) } else { (factor, 1) };
    Some((up, down, Notation::Exponent))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError(text.to_owned());
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        let digits_end =
            unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(error());
        }
        let (up, down, notation) = scale(suffix).ok_or_else(error)?;

        // Digits beyond these cannot change a billionth, but still round up.
        let whole = whole.trim_start_matches('0');
        let kept = fraction.get(..fraction.len().min(9)).unwrap_or_default();
        let lost = fraction.get(kept.len()..).is_some_and(|rest| rest.bytes().any(|b| b != b'0'));
        let places =
            power(10, u32::try_from(kept.len()).map_err(|_| error())?).ok_or_else(error)?;
        // More digits than this are more than the most whatever the suffix: the smallest is a billionth.
        let nanos = if whole.len() > 28 {
            MOST
        } else {
            let digits: i128 = format!("0{whole}{kept}").parse().map_err(|_| error())?;
            nanos_of(digits, up, places.saturating_mul(down), lost)
        };
        Ok(Self { nanos: if negative { -nanos } else { nanos }, notation })
    }
}

/// `digits`·`up`/`down` in billionths, rounded up and cut to the most.
fn nanos_of(digits: i128, up: i128, down: i128, lost: bool) -> i128 {
    if digits == 0 {
        return i128::from(lost);
    }
    // Reduce before multiplying: 1E is a billion billions in billionths.
    let (up, down) = if down > NANO { (up, down / NANO) } else { (up * (NANO / down), 1) };
    match digits.checked_mul(up) {
        Some(product) => {
            let rounded = product / down + i128::from(product % down != 0 || lost);
            rounded.min(MOST)
        }
        None => MOST,
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that allows that; binary suffixes only for whole amounts of
    /// at least 1024.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.nanos % NANO == 0;
        if self.notation == Notation::Binary && whole && self.nanos.abs() >= 1024 * NANO {
            let (mut amount, mut suffix) = (self.nanos / NANO, "");
            for next in BINARY {
                if amount % 1024 != 0 {
                    break;
                }
                (amount, suffix) = (amount / 1024, next);
            }
            return write!(f, "{amount}{suffix}");
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        let (mut amount, mut thousands) = (self.nanos, 0);
        while amount % 1000 == 0 && thousands + 1 < DECIMAL.len() {
            (amount, thousands) = (amount / 1000, thousands + 1);
        }
        let suffix = DECIMAL.get(thousands).copied().unwrap_or_default();
        match (self.notation, suffix) {
            (_, "") => write!(f, "{amount}"),
            (Notation::Exponent, _) => {
                let exponent = i64::try_from(thousands).unwrap_or_default() * 3 - 9;
                write!(f, "{amount}e{exponent}")
            }
            _ => write!(f, "{amount}{suffix}"),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Number(i64),
            Fraction(f64),
        }
        match Form::deserialize(deserializer)? {
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
            Form::Number(number) => Ok(Self::whole(number)),
            Form::Fraction(number) => number.to_string().parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
