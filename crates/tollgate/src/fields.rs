//! The rate limit fields of responses.

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Clock, Policy, Status, Verdict, Wait};

use crate::interned::{interned, printable};
use crate::problem::{escaped, seconds_up};
use crate::rules::{Ask, Rules};

/// The rate limit fields of responses, both to allowed and to refused requests.
///
/// [`Fields::Ietf`] writes the two of draft-ietf-httpapi-ratelimit-headers-08 to -11. Both are
/// lists of structured-field strings (RFC 9651) with one item for each rule, so stacked layers
/// append to them:
///
/// ```text
/// RateLimit-Policy: "burst";q=20;w=2, "daily";q=5000;w=86400
/// RateLimit: "burst";r=19;t=1, "daily";r=4999;t=18
/// ```
///
/// | value | is |
/// |---|---|
/// | `q` | the capacity: the burst of the bucket algorithms, the limit of the others |
/// | `w` | the time to refill the capacity: ceil(q × window / limit) in whole seconds, at least 1 |
/// | `r` | units that would pass without delay, after this request |
/// | `t` | seconds until the whole quota is back, rounded up. On a rule that refuses, the same as `Retry-After`. If a leaky bucket delays the request, counted from when it passes |
///
/// `t` is that of -08 and -09. In later drafts it is the time until some of the quota is back,
/// which is no later: a client that waits for `t` passes, but may wait longer than needed.
/// `Retry-After`, on a refusal, is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fields {
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft. The default.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`. The reset is in
    /// seconds since the Unix epoch, by the clock of this process even if the store uses another.
    ///
    /// They describe one rule: of those that refuse, the one with the longest wait; otherwise the
    /// one with the least left.
    XEpoch,
    /// [`Fields::XEpoch`], but with the reset in seconds from now.
    XDelta,
    /// No fields. Refusals still carry `Retry-After`.
    None,
}

// The parameter names of the draft, which may still change.
const QUOTA: &str = ";q=";
const WINDOW: &str = ";w=";
const REMAINING: &str = ";r=";
const RESET: &str = ";t=";

const SEPARATOR: &str = ", ";

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The texts that are the same in all responses.
#[derive(Clone, Debug)]
pub(crate) struct FieldWriter {
    fields: Fields,
    /// One for each policy, by its number.
    items: Box<[Item]>,
    /// `RateLimit-Policy` if all rules apply, each with its own policy.
    own_policies: HeaderValue,
    rules: usize,
    clock: Clock,
}

/// A policy's item in `RateLimit-Policy`.
#[derive(Clone, Debug)]
struct Item {
    /// `"name";q=20;w=2`
    policy: HeaderValue,
    /// The length of `"name"`.
    name: u16,
}

/// The fields of one response, until the response is there. Small, because it moves with the
/// future.
#[derive(Debug)]
pub(crate) enum Written {
    Ietf { policy: HeaderValue, limit: Box<[u8]> },
    X { limit: u32, remaining: u32, reset: u64 },
}

impl FieldWriter {
    pub(crate) fn new(rules: &Rules, fields: Fields) -> FieldWriter {
        let items: Box<[Item]> = rules.policies().iter().map(|policy| Item::new(policy, interned)).collect();
        let count = rules.iter().count();
        let own_policies = printable(interned(join(items[..count].iter())));
        FieldWriter { fields, own_policies, rules: count, items, clock: Clock::system() }
    }

    /// Whether responses carry no fields.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.fields == Fields::None
    }

    /// The fields for a verdict on what was asked; `None` if no store was asked.
    pub(crate) fn write(&self, rules: &Rules, asks: &[Ask], verdict: &Verdict) -> Option<Written> {
        if verdict.each().is_empty() {
            return None;
        }
        match self.fields {
            Fields::None => None,
            Fields::XEpoch | Fields::XDelta => Some(self.write_x(rules, asks, verdict)),
            Fields::Ietf => Some(match verdict.share() {
                Some(share) => {
                    // Not cached, since an outage is short.
                    let shares = asks.iter().filter_map(|ask| rules.policy(ask.policy).share(share).ok());
                    let items: Vec<Item> = shares.map(|policy| Item::new(&policy, Bytes::from)).collect();
                    write_ietf(printable(join(items.iter()).into()), items.iter(), verdict)
                }
                None => {
                    let items = asks.iter().map(|ask| &self.items[ask.policy]);
                    // The numbers are ascending and distinct, so these are the policies of all
                    // rules.
                    let all_own = asks.len() == self.rules && asks.iter().all(|ask| ask.policy < self.rules);
                    let policy = match asks {
                        _ if all_own => self.own_policies.clone(),
                        [only] => self.items[only.policy].policy.clone(),
                        _ => printable(join(items.clone()).into()),
                    };
                    write_ietf(policy, items, verdict)
                }
            }),
        }
    }

    fn write_x(&self, rules: &Rules, asks: &[Ask], verdict: &Verdict) -> Written {
        let wait = |status: &Status| match status.wait() {
            Wait::None => Duration::ZERO,
            Wait::For(wait) => wait,
            Wait::Never => Duration::MAX,
        };
        let (ask, status) = asks
            .iter()
            .zip(verdict.each())
            .max_by_key(|(_, status)| (wait(status), std::cmp::Reverse(status.remaining())))
            .expect("a verdict of a store has a status");
        let policy = rules.policy(ask.policy);
        let share = verdict.share().and_then(|share| policy.share(share).ok());
        let reset = match status.wait() {
            Wait::For(wait) => wait,
            Wait::None | Wait::Never => status.reset_after(),
        };
        let reset = if self.fields == Fields::XEpoch {
            Duration::from_micros(self.clock.now().as_micros()).saturating_add(reset)
        } else {
            reset.saturating_sub(verdict.delay())
        };
        Written::X {
            limit: share.as_ref().unwrap_or(policy).capacity(),
            remaining: status.remaining(),
            reset: seconds_up(reset),
        }
    }
}

/// The value of `RateLimit-Policy`.
fn join<'a>(items: impl Iterator<Item = &'a Item>) -> String {
    let policies: Vec<_> = items.map(|item| item.policy.to_str().unwrap_or_default()).collect();
    policies.join(SEPARATOR)
}

fn write_ietf<'a>(
    policy: HeaderValue,
    items: impl Iterator<Item = &'a Item> + Clone,
    verdict: &Verdict,
) -> Written {
    let (longest, delay) = (longest_wait_seconds(verdict.each()), verdict.delay());
    let values = items
        .zip(verdict.each())
        .map(|(item, status)| (item.name(), status.remaining(), reset_seconds(status, longest, delay)));
    Written::Ietf { policy, limit: limit_of(values) }
}

/// The value of `RateLimit`, from the quoted name, the remaining units and the reset of each rule.
fn limit_of<'a>(values: impl Iterator<Item = (&'a [u8], u32, u64)> + Clone) -> Box<[u8]> {
    // Of the exact length: spare capacity would cost `Bytes` a second allocation.
    let length = |(name, remaining, reset): (&[u8], u32, u64)| {
        let digits = decimal_digits(u64::from(remaining)) + decimal_digits(reset);
        SEPARATOR.len() + name.len() + REMAINING.len() + RESET.len() + digits
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
        text.extend_from_slice(RESET.as_bytes());
        text.extend_from_slice(digits.format(reset).as_bytes());
    }
    text.into_boxed_slice()
}

impl Item {
    fn new(policy: &Policy, bytes: impl Fn(String) -> Bytes) -> Item {
        let name = escaped(policy.name());
        let quota = policy.quota();
        let seconds = (u128::from(policy.capacity()) * quota.window().as_micros())
            .div_ceil(u128::from(quota.limit()) * 1_000_000)
            .max(1);
        let text = format!("\"{name}\"{QUOTA}{}{WINDOW}{seconds}", policy.capacity());
        // At most 128 characters, each of which may be escaped.
        let name = u16::try_from(name.len() + 2).expect("a policy's name is short");
        Item { policy: printable(bytes(text)), name }
    }

    /// `"name"`
    #[inline]
    fn name(&self) -> &[u8] {
        &self.policy.as_bytes()[..usize::from(self.name)]
    }
}

impl Written {
    /// Adds the fields to a response.
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        match self {
            Written::Ietf { policy, limit } => {
                // Grows once, and appends to the items of an inner layer.
                headers.reserve(2);
                headers.append(RATELIMIT_POLICY, policy.clone());
                headers.append(RATELIMIT, printable(mem::take(limit).into()));
            }
            // These fields describe one rule: that of an inner layer stays, since it is closer to
            // the work.
            Written::X { .. } if headers.contains_key(&X_LIMIT) => {}
            Written::X { limit, remaining, reset } => {
                headers.reserve(3);
                headers.insert(X_LIMIT, number(*limit));
                headers.insert(X_REMAINING, number(*remaining));
                headers.insert(X_RESET, number(*reset));
            }
        }
    }
}

/// The reset of a rule that allows, counted from the end of the delay. For a rule that refuses, the
/// longest wait, as in `Retry-After`: a client that waits for either passes.
fn reset_seconds(status: &Status, longest: u64, delay: Duration) -> u64 {
    match status.wait() {
        Wait::For(_) => longest,
        Wait::None | Wait::Never => seconds_up(status.reset_after().saturating_sub(delay)),
    }
}

fn longest_wait_seconds(statuses: &[Status]) -> u64 {
    let waits = statuses.iter().map(|status| match status.wait() {
        Wait::For(wait) => seconds_up(wait).max(1),
        Wait::None | Wait::Never => 0,
    });
    waits.max().unwrap_or(0)
}

fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// A number as the value of a field. `HeaderValue::from` would allocate for the longest number.
pub(crate) fn number(number: impl itoa::Integer) -> HeaderValue {
    printable(Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::global;
    use crate::rule::PolicyExt;
    use tollgate_core::{Algorithm, Key, Quota, Stamp};

    fn status(remaining: u32, wait: Wait, reset_us: u64) -> Status {
        Status::new(remaining, wait, Duration::from_micros(reset_us), Stamp::default())
    }

    fn headers(fields: Fields, policies: &[Policy], statuses: &[Status]) -> HeaderMap {
        let rules = Rules::try_new(policies.iter().map(|policy| policy.clone().by(global()))).unwrap();
        let ask = |policy| Ask { policy, key: Key::global(), cost: 1 };
        let asks: Vec<Ask> = (0..statuses.len()).map(ask).collect();
        let verdict = Verdict::new(1, Duration::ZERO, statuses.iter().copied());
        let mut headers = HeaderMap::new();
        if let Some(mut written) = FieldWriter::new(&rules, fields).write(&rules, &asks, &verdict) {
            written.add_to(&mut headers);
        }
        headers
    }

    #[test]
    fn all_rules_in_one_field() {
        let policies = [
            Policy::new("burst", Quota::per_second(10).burst(20)),
            Policy::new("daily", Quota::per_day(5_000)),
        ];
        let statuses = [status(19, Wait::None, 100_000), status(4_999, Wait::None, 17_280_000)];
        let headers = headers(Fields::Ietf, &policies, &statuses);
        assert_eq!(headers["ratelimit-policy"], "\"burst\";q=20;w=2, \"daily\";q=5000;w=86400");
        assert_eq!(headers["ratelimit"], "\"burst\";r=19;t=1, \"daily\";r=4999;t=18");
    }

    #[test]
    fn a_rule_that_did_not_apply_has_no_item() {
        let policies = [Policy::new("a", Quota::per_second(1)), Policy::new("b", Quota::per_second(1))];
        let headers = headers(Fields::Ietf, &policies, &[status(0, Wait::None, 1)]);
        assert_eq!(headers["ratelimit-policy"], "\"a\";q=1;w=1");
        assert_eq!(headers["ratelimit"], "\"a\";r=0;t=1");
    }

    #[test]
    fn a_quote_in_a_name_does_not_break_the_field() {
        let policies = [Policy::new(r#"a"b\c"#, Quota::per_second(1))];
        let headers = headers(Fields::Ietf, &policies, &[status(0, Wait::None, 0)]);
        assert_eq!(headers["ratelimit"], r#""a\"b\\c";r=0;t=0"#);
    }

    #[test]
    fn the_window_is_the_time_to_refill_the_capacity() {
        let w = |quota: Quota, algorithm| {
            let policy = Policy::new("p", quota).with_algorithm(algorithm);
            headers(Fields::Ietf, &[policy], &[status(0, Wait::None, 0)])["ratelimit-policy"].clone()
        };
        let leaky = Algorithm::LeakyBucket { max_wait: Duration::from_secs(5) };
        assert_eq!(w(Quota::per_minute(100), Algorithm::Gcra), "\"p\";q=100;w=60");
        assert_eq!(w(Quota::per_minute(100).burst(1), Algorithm::Gcra), "\"p\";q=1;w=1");
        assert_eq!(w(Quota::per_second(3).burst(10), Algorithm::Gcra), "\"p\";q=10;w=4");
        assert_eq!(w(Quota::per_minute(7), leaky), "\"p\";q=1;w=9");
        assert_eq!(w(Quota::new(1, Duration::from_millis(1)), Algorithm::SlidingWindow), "\"p\";q=1;w=1");
    }

    #[test]
    fn the_reset_of_a_refusing_rule_is_its_wait() {
        let policies = [Policy::new("a", Quota::per_minute(60)), Policy::new("b", Quota::per_minute(60))];
        let micro = Wait::For(Duration::from_micros(1));
        let statuses = [status(0, micro, 60_000_000), status(3, Wait::None, 1_000_001)];
        assert_eq!(headers(Fields::Ietf, &policies, &statuses)["ratelimit"], "\"a\";r=0;t=1, \"b\";r=3;t=2");
    }

    #[test]
    fn x_fields_describe_the_strictest_rule() {
        let policies = [Policy::new("a", Quota::per_minute(60)), Policy::new("b", Quota::per_minute(30))];
        let least = [status(5, Wait::None, 10), status(4, Wait::None, 2_500_000)];
        let fields = headers(Fields::XDelta, &policies, &least);
        assert_eq!((&fields["x-ratelimit-limit"], &fields["x-ratelimit-reset"]), (&30.into(), &3.into()));
        let longest =
            [status(9, Wait::For(Duration::from_secs(7)), 60_000_000), status(0, Wait::None, 2_500_000)];
        let fields = headers(Fields::XDelta, &policies, &longest);
        assert_eq!((&fields["x-ratelimit-limit"], &fields["x-ratelimit-reset"]), (&60.into(), &7.into()));
        let fields = headers(Fields::XEpoch, &policies, &longest);
        let reset: u64 = fields["x-ratelimit-reset"].to_str().unwrap().parse().unwrap();
        assert!(reset > 1_600_000_000, "{reset} is not a time since the epoch");
    }

    #[test]
    fn x_fields_of_an_inner_layer_stay_and_ietf_items_are_appended() {
        let mut headers = HeaderMap::new();
        Written::X { limit: 1, remaining: 1, reset: 1 }.add_to(&mut headers);
        Written::X { limit: 2, remaining: 2, reset: 2 }.add_to(&mut headers);
        assert_eq!(headers["x-ratelimit-limit"], "1");
        let ietf = |policy: &str, limit: &str| Written::Ietf {
            policy: policy.parse().unwrap(),
            limit: limit.as_bytes().into(),
        };
        ietf("a", "b").add_to(&mut headers);
        ietf("c", "d").add_to(&mut headers);
        assert_eq!(headers.get_all("ratelimit").iter().collect::<Vec<_>>(), ["b", "d"]);
    }
}
