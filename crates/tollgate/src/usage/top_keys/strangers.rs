//! Random pages of usage: all processes that share a store can write them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::key_list::{KeyList, Listed};
use super::page::{Page, PolicyCount};
use super::settings::MOST_ONE_IN;

/// Larger ones are foreign.
const NUMBER: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

/// Lines of later versions, and lines without a number.
const FOREIGN: &str = concat!(
    r"(later(\t\PC{0,3}){0,4})?|(one-in|floor|allowed|denied)(\t[-x][0-9]?)?|",
    r"(floor|allowed|denied)\t[0-9](\t-)?"
);

fn list() -> impl Strategy<Value = KeyList<String>> {
    let listed = (0_usize..4, r"\PC{0,8}", NUMBER, NUMBER);
    let keys = vec(listed.prop_map(|(policy, key, count, error)| Listed { policy, key, count, error }), 0..5);
    (keys, NUMBER).prop_map(|(keys, floor)| KeyList { keys, floor })
}

fn page() -> impl Strategy<Value = Page> {
    let policy = (r"\PC{0,8}", NUMBER, NUMBER);
    let policies =
        vec(policy.prop_map(|(name, allowed, denied)| PolicyCount { name, allowed, denied }), 0..4);
    (1..=MOST_ONE_IN, policies, list(), list()).prop_map(|(one_in, policies, allowed, denied)| Page {
        one_in,
        policies,
        allowed,
        denied,
    })
}

proptest! {
    // `PROPTEST_CASES` sets more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_page_is_read_as_it_was_written_between_lines_of_another_form(
        page in page(),
        garbage in vec((any::<prop::sample::Index>(), FOREIGN), 0..4),
    ) {
        let text = page.write();
        prop_assert_eq!(&Page::read(&text), &page);

        let mut lines: Vec<&str> = text.lines().collect();
        for (place, line) in &garbage {
            lines.insert(place.index(lines.len() + 1), line);
        }
        prop_assert_eq!(Page::read(&lines.join("\n")), page, "{:?}", lines);
    }

    #[test]
    fn the_numbers_of_any_page_are_bounded(
        text in "((one-in|floor|policy|allowed|denied)(\t[0-9]{1,20}){0,3}(\t\\PC{0,3})?\n){0,8}",
    ) {
        let page = Page::read(&text);
        let policies = page.policies.iter().flat_map(|policy| [policy.allowed, policy.denied]);
        let listed = page.allowed.keys.iter().chain(&page.denied.keys);
        let counts = listed.clone().flat_map(|listed| [listed.count, listed.error]);
        let floors = [page.allowed.floor, page.denied.floor];
        prop_assert!(page.one_in <= MOST_ONE_IN);
        prop_assert!(policies.chain(counts).chain(floors).all(|number| NUMBER.contains(&number)));
        prop_assert!(page.policies.len() + listed.count() <= text.lines().count());
    }
}
