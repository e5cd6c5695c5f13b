//! The fields of the IETF draft: lists with one item for each rule.

use std::cmp::Reverse;
use std::mem;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Status, Wait};

use super::numbers::strictness;
use crate::errors::seconds_up;
use crate::plan::interned::printable;
use crate::plan::{Item, SEPARATOR, join};

// The parameter names of the draft, which may still change.
const REMAINING: &str = ";r=";
const RESET: &str = ";t=";

/// The most bytes of a field. The values of an item in the two fields have about the same length.
const MOST_BYTES: usize = 1_024;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The values of both fields.
#[derive(Debug)]
pub(crate) struct Lists {
    policy: HeaderValue,
    limit: Box<[u8]>,
}

impl Lists {
    /// `policy` is the `RateLimit-Policy` of the items, if that is there. `longest` is the longest
    /// wait of a rule that refuses, in seconds.
    pub(super) fn new<'a, 'b>(
        policy: Option<&HeaderValue>,
        items: impl Iterator<Item = (&'a Item, &'b Status)> + Clone,
        longest: u64,
        delay: Duration,
    ) -> Lists {
        if items.clone().map(|(item, _)| item.length()).sum::<usize>() > MOST_BYTES {
            let some = fitting(items);
            return Lists::of(None, some.iter().copied(), longest, delay);
        }
        Lists::of(policy, items, longest, delay)
    }

    fn of<'a, 'b>(
        policy: Option<&HeaderValue>,
        items: impl Iterator<Item = (&'a Item, &'b Status)> + Clone,
        longest: u64,
        delay: Duration,
    ) -> Lists {
        let policy = policy.cloned();
        let policy = policy.unwrap_or_else(|| printable(join(items.clone().map(|(item, _)| item)).into()));
        let value = |(item, status): (&'a Item, &'b Status)| {
            let reset = item.has_window().then(|| reset_seconds(status, longest, delay));
            (item.name(), status.remaining(), reset)
        };
        Lists { policy, limit: limit_of(items.map(value)) }
    }

    pub(super) fn add_to(&mut self, headers: &mut HeaderMap) {
        // Grows once, and appends to the items of an inner layer.
        headers.reserve(2);
        headers.append(RATELIMIT_POLICY, self.policy.clone());
        headers.append(RATELIMIT, printable(mem::take(&mut self.limit).into()));
    }
}

/// The items of the strictest rules, as many as fit, in the order of the rules.
fn fitting<'a, 'b>(items: impl Iterator<Item = (&'a Item, &'b Status)>) -> Vec<(&'a Item, &'b Status)> {
    let mut some: Vec<_> = items.enumerate().collect();
    some.sort_by_key(|(_, (_, status))| Reverse(strictness(status)));
    let mut length = 0;
    let fit = some.iter().take_while(|(_, (item, _))| {
        length += item.length();
        length <= MOST_BYTES
    });
    some.truncate(fit.count());
    some.sort_by_key(|(at, _)| *at);
    some.into_iter().map(|(_, item)| item).collect()
}

/// The value of `RateLimit`, from the quoted name, the remaining units and the reset of each rule.
fn limit_of<'a>(values: impl Iterator<Item = (&'a [u8], u64, Option<u64>)> + Clone) -> Box<[u8]> {
    // Of the exact length: spare capacity would cost `Bytes` a second allocation.
    let length = |(name, remaining, reset): (&[u8], u64, Option<u64>)| {
        let reset = reset.map_or(0, |reset| RESET.len() + decimal_digits(reset));
        SEPARATOR.len() + name.len() + REMAINING.len() + decimal_digits(remaining) + reset
    };
    let length = values.clone().map(length).sum::<usize>().saturating_sub(SEPARATOR.len());
    let mut text = Vec::with_capacity(length);
    let mut digits = itoa::Buffer::new();
    for (name, remaining, reset) in values {
        if !text.is_empty() {
            text.extend_from_slice(SEPARATOR.as_bytes());
        }
        text.extend_from_slice(name);
        text.extend_from_slice(REMAINING.as_bytes());
        text.extend_from_slice(digits.format(remaining).as_bytes());
        if let Some(reset) = reset {
            text.extend_from_slice(RESET.as_bytes());
            text.extend_from_slice(digits.format(reset).as_bytes());
        }
    }
    text.into_boxed_slice()
}

/// The reset of a rule that allows, counted from the end of the delay. For a rule that refuses, the
/// longest wait, as in `Retry-After`: a client that waits for either passes.
fn reset_seconds(status: &Status, longest: u64, delay: Duration) -> u64 {
    match status.wait() {
        Wait::For(_) => longest,
        Wait::None | Wait::Never => seconds_up(status.reset_after().saturating_sub(delay)),
    }
}

fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
