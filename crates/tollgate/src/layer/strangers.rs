//! Random deadlines of strangers.

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::deadline::deadline;

proptest! {
    // `PROPTEST_CASES` sets more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A positive integer of at most eight digits and a unit.
    #[test]
    fn grpc_timeout_is_what_the_specification_says(
        sign in "[-+ .]?", number in "[0-9]{0,10}", unit in "[HMSmunhsX]?",
    ) {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", HeaderValue::from_str(&format!("{sign}{number}{unit}")).unwrap());
        let nanos = match &*unit {
            "H" => Some(3_600_000_000_000),
            "M" => Some(60_000_000_000),
            "S" => Some(1_000_000_000),
            "m" => Some(1_000_000),
            "u" => Some(1_000),
            "n" => Some(1),
            _ => None,
        };
        let is_number = sign.is_empty() && (1..=8).contains(&number.len());
        let expected = nanos.filter(|_| is_number).map(|nanos| number.parse::<u128>().unwrap() * nanos);
        prop_assert_eq!(deadline(&headers, None).map(|deadline| deadline.as_nanos()), expected);
    }
}
