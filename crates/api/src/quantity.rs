//! Kubernetes quantities: `500m`, `2Gi`, `1e3`.

use std::{fmt, iter::Sum, ops::Add, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of a resource, in thousandths; finer fractions are rounded up, as Kubernetes does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// The text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity (as 500m, 2, 4Gi, 1e3)")]
pub struct QuantityError(String);

const SUFFIXES: [(&str, i128, i128); 14] = [
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1_000),
    ("", 1, 1),
    ("k", 1_000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
];
const LARGE_SUFFIXES: [(&str, i128, i128); 2] = [("Pi", 1 << 50, 1), ("Ei", 1 << 60, 1)];

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// So many whole units.
    pub fn whole(units: i64) -> Self {
        Self(i128::from(units) * 1000)
    }

    /// So many thousandths.
    pub const fn milli(thousandths: i64) -> Self {
        Self(thousandths as i128)
    }

    /// Whole units, rounded up; saturates.
    pub fn value(self) -> i64 {
        let up = self.0.div_euclid(1000) + i128::from(self.0.rem_euclid(1000) != 0);
        i64::try_from(up).unwrap_or(if up > 0 { i64::MAX } else { i64::MIN })
    }

    /// Thousandths; saturates.
    pub fn millis(self) -> i64 {
        i64::try_from(self.0).unwrap_or(if self.0 > 0 { i64::MAX } else { i64::MIN })
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError(text.to_owned());
        let digits_end = text
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let (negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !(all_digits(whole) && all_digits(fraction)) || (whole.is_empty() && fraction.is_empty())
        {
            return Err(error());
        }
        let exponent =
            suffix.strip_prefix(['e', 'E']).filter(|rest| !rest.is_empty() && *rest != "i");
        let (scale, divisor) = if let Some(exponent) = exponent {
            let exponent: i32 = exponent.parse().map_err(|_| error())?;
            let power = |n: i32| 10_i128.checked_pow(n.unsigned_abs()).ok_or_else(error);
            if exponent >= 0 { (power(exponent)?, 1) } else { (1, power(exponent)?) }
        } else {
            let mut all = SUFFIXES.iter().chain(&LARGE_SUFFIXES);
            let (_, scale, divisor) = all.find(|(name, _, _)| *name == suffix).ok_or_else(error)?;
            (*scale, *divisor)
        };
        // Digits beyond a nano carry no weight but still round up.
        let kept = fraction.get(..fraction.len().min(12)).unwrap_or_default();
        let lost =
            fraction.get(kept.len()..).is_some_and(|rest| rest.bytes().any(|byte| byte != b'0'));
        let digits: i128 = format!("0{whole}{kept}").parse().map_err(|_| error())?;
        let places = 10_i128.pow(u32::try_from(kept.len()).map_err(|_| error())?);
        let numerator =
            digits.checked_mul(scale).and_then(|n| n.checked_mul(1000)).ok_or_else(error)?;
        let denominator = places * divisor;
        let up = numerator / denominator + i128::from(numerator % denominator != 0 || lost);
        Ok(Self(if negative { -up } else { up }))
    }
}

impl fmt::Display for Quantity {
    /// Whole units where they are whole, else thousandths.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1000 == 0 { write!(f, "{}", self.0 / 1000) } else { write!(f, "{}m", self.0) }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form() {
        for (text, millis) in [
            ("0", 0),
            ("2", 2000),
            ("500m", 500),
            ("1.5", 1500),
            (".5", 500),
            ("1n", 1),
            ("100u", 1),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("1e-3", 1),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("-3", -3000),
            ("0.0001", 1),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().millis(), millis, "{text}");
        }
        assert_eq!("1E".parse::<Quantity>().unwrap().value(), 1_000_000_000_000_000_000);
        assert_eq!("7Ei".parse::<Quantity>().unwrap().value(), 7 << 60);
        for bad in ["", "x", "1x", "1..2", "1-2", "m", "1 Gi", "--1", "e3"] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_and_back(millis in any::<i64>()) {
            let quantity = Quantity::milli(millis);
            prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
        }
    }
}
