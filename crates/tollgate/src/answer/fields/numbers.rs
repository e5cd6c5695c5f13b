//! The fields that describe one rule by three numbers.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Clock, Policy, Status, Verdict, Wait};

use crate::errors::seconds_up;
use crate::plan::interned::printable;

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

const COMBINED: HeaderName = HeaderName::from_static("ratelimit");

/// How the numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberForm {
    XEpoch,
    XDelta,
    Draft06,
    Draft07,
}

/// The numbers of one rule.
#[derive(Debug)]
pub(crate) struct NumberFields {
    form: NumberForm,
    limit: u64,
    remaining: u64,
    reset: u64,
}

impl NumberFields {
    /// Those of the strictest policy; the policies have the verdict's statuses, and there is one.
    pub(super) fn new<'a, 'b>(
        form: NumberForm,
        policies: impl Iterator<Item = (&'a Policy, &'b Status)>,
        verdict: &Verdict,
        clock: &Clock,
    ) -> NumberFields {
        let (policy, status) =
            policies.max_by_key(|(_, status)| strictness(status)).expect("at least one policy");
        let share = verdict.share().and_then(|share| policy.share_of_at_least_one(share).ok());
        let reset = match status.wait() {
            Wait::For(wait) => wait,
            Wait::None | Wait::Never => status.reset_after(),
        };
        let reset = if form == NumberForm::XEpoch {
            Duration::from_micros(clock.now().as_micros()).saturating_add(reset)
        } else {
            reset.saturating_sub(verdict.delay())
        };
        NumberFields {
            form,
            limit: share.as_ref().unwrap_or(policy).capacity(),
            remaining: status.remaining(),
            reset: seconds_up(reset),
        }
    }

    /// Adds the fields, unless an inner layer has: its work is closer, and there is room for one
    /// rule only.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        let NumberFields { form, limit, remaining, reset } = self;
        let names = match form {
            NumberForm::XEpoch | NumberForm::XDelta => [X_LIMIT, X_REMAINING, X_RESET],
            NumberForm::Draft06 => [LIMIT, REMAINING, RESET],
            NumberForm::Draft07 => {
                let value = format!("limit={limit}, remaining={remaining}, reset={reset}");
                headers.entry(COMBINED).or_insert_with(|| printable(value.into()));
                return;
            }
        };
        if !headers.contains_key(&names[0]) {
            headers.reserve(names.len());
            headers.extend(names.into_iter().zip([number(*limit), number(*remaining), number(*reset)]));
        }
    }
}

/// Orders rules: last the one that refuses with the longest wait, or has the least left.
pub(crate) fn strictness(status: &Status) -> (Wait, Reverse<u64>) {
    (status.wait(), Reverse(status.remaining()))
}

/// A number as the value of a field. `HeaderValue::from` would allocate for the longest number.
pub(crate) fn number(number: impl itoa::Integer) -> HeaderValue {
    printable(Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(forms: impl IntoIterator<Item = (NumberForm, u64)>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (form, limit) in forms {
            NumberFields { form, limit, remaining: 4, reset: 3 }.add_to(&mut headers);
        }
        headers
    }

    #[test]
    fn fields_of_an_inner_layer_stay() {
        let headers = added([(NumberForm::XDelta, 1), (NumberForm::XDelta, 2)]);
        assert_eq!(headers.get_all(&X_LIMIT).iter().collect::<Vec<_>>(), ["1"]);
        let headers = added([(NumberForm::Draft07, 1), (NumberForm::Draft07, 2)]);
        assert_eq!(headers.get_all(&COMBINED).iter().collect::<Vec<_>>(), ["limit=1, remaining=4, reset=3"]);
    }

    #[test]
    fn draft_06_has_a_field_for_each_number() {
        let headers = added([(NumberForm::Draft06, 5)]);
        assert_eq!(
            (&headers[LIMIT], &headers[REMAINING], &headers[RESET]),
            (&5.into(), &4.into(), &3.into())
        );
    }
}
