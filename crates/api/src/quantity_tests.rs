//! Amounts in every notation, and back.

use proptest::prelude::*;

use super::*;

#[test]
fn every_form_and_its_canonical_one() {
    for (text, millis, canonical) in [
        ("0", 0, "0"),
        ("0Mi", 0, "0"),
        ("2", 2000, "2"),
        ("2000", 2_000_000, "2k"),
        ("2500", 2_500_000, "2500"),
        ("500m", 500, "500m"),
        ("1000m", 1000, "1"),
        ("0.5", 500, "500m"),
        ("1.5", 1500, "1500m"),
        (".5", 500, "500m"),
        ("5.", 5000, "5"),
        ("007", 7000, "7"),
        ("1n", 1, "1n"),
        ("100u", 1, "100u"),
        ("1500u", 2, "1500u"),
        ("0.0000000001", 1, "1n"),
        ("1e3", 1_000_000, "1e3"),
        ("1E3", 1_000_000, "1e3"),
        ("12e-3", 12, "12e-3"),
        ("1e-30", 1, "1e-9"),
        ("1Ki", 1_024_000, "1Ki"),
        ("1024Ki", 1_048_576_000, "1Mi"),
        ("1.5Gi", 1_610_612_736_000, "1536Mi"),
        ("1000Ki", 1_024_000_000, "1000Ki"),
        ("0.5Ki", 512_000, "512"),
        ("-3", -3000, "-3"),
        ("+4", 4000, "4"),
        ("-1.5", -1500, "-1500m"),
        ("-2Ki", -2_048_000, "-2Ki"),
    ] {
        let quantity: Quantity = text.parse().unwrap();
        assert_eq!(
            (quantity.millis(), quantity.to_string().as_str()),
            (millis, canonical),
            "{text}"
        );
    }
}

#[test]
fn large_amounts_are_exact_and_the_largest_are_cut() {
    for (text, value) in [
        ("1E", 1_000_000_000_000_000_000),
        ("1Ei", 1 << 60),
        ("7Ei", 7 << 60),
        ("9223372036854775807", i64::MAX),
        ("9223372036854775808", i64::MAX),
        ("16Ei", i64::MAX),
        ("1e100", i64::MAX),
        ("-16Ei", -i64::MAX),
        ("123456789012345678901234567890", i64::MAX),
    ] {
        assert_eq!(text.parse::<Quantity>().unwrap().value(), value, "{text}");
    }
    assert_eq!(
        "9223372036854775807".parse::<Quantity>().unwrap().to_string(),
        "9223372036854775807"
    );
}

#[test]
fn what_is_none() {
    for bad in [
        "", "x", "1x", "1..2", "1.2.3", "1-2", "m", "1 Gi", "--1", "e3", ".", "-", "1K", "1ki",
        "1e", "1e1.5", "1 ", "0x1", "1Eii", "１",
    ] {
        assert!(bad.parse::<Quantity>().is_err(), "{bad}");
    }
}

#[test]
fn sums_keep_the_notation_of_what_is_there() {
    let sum: Quantity = ["1Gi", "512Mi"].iter().map(|t| t.parse::<Quantity>().unwrap()).sum();
    assert_eq!(sum.to_string(), "1536Mi");
    assert_eq!(Quantity::bytes(1 << 30).to_string(), "1Gi");
}

proptest! {
    #[test]
    fn text_and_back(millis in any::<i64>()) {
        let quantity = Quantity::milli(millis);
        prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
    }

    #[test]
    fn canonical_text_is_a_fixed_point(
        number in "[-+]?([0-9]{1,18}|[0-9]{0,9}\\.[0-9]{1,12})",
        suffix in "(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[-+]?[0-9])",
    ) {
        let quantity: Quantity = format!("{number}{suffix}").parse().unwrap();
        let canonical = quantity.to_string();
        let again: Quantity = canonical.parse().unwrap();
        prop_assert_eq!(again, quantity);
        prop_assert_eq!(again.to_string(), canonical);
    }

    #[test]
    fn nothing_panics(text in "\\PC{0,12}") {
        let _: Result<Quantity, _> = text.parse();
    }

    #[test]
    fn rounding_is_up(nanos in any::<i64>()) {
        let quantity: Quantity = format!("{nanos}n").parse().unwrap();
        let value = i128::from(quantity.value()) * NANO;
        prop_assert!(value >= i128::from(nanos) && value - i128::from(nanos) < NANO);
    }
}
