//! What responses tell clients about their quotas.

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate_core::{Clock, Policy, Status, Verdict, Wait};

use crate::interned::{Text, printable};
use crate::problem::{escaped, seconds_up};
use crate::rule::Rules;

/// Which fields responses carry. Those to requests that pass carry them as well as refusals.
///
/// [`Fields::Ietf`] writes the two of draft-ietf-httpapi-ratelimit-headers-08 to -11; both are lists of structured-field strings
/// (RFC 9651), one item a rule, so that layers that stack append to them:
///
/// ```text
/// RateLimit-Policy: "burst";q=20;w=2, "daily";q=5000;w=86400
/// RateLimit: "burst";r=19;t=1, "daily";r=4999;t=18
/// ```
///
/// | value | is |
/// |---|---|
/// | `q` | the capacity: the burst of the bucket algorithms, the limit of the others |
/// | `w` | the time in which that much comes back: ceil(q × window / limit), in whole seconds, at least 1 |
/// | `r` | units that would pass without delay, after this request |
/// | `t` | seconds until the whole quota is back, rounded up; on a rule that refuses, the same as `Retry-After`. Where a leaky bucket holds a request back, from when it passes |
///
/// `t` is that of -08 and -09. Later drafts mean the time until some of the quota is back, which is no later: who waits for `t`
/// passes, and need not have waited so long. `Retry-After`, on a refusal, is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fields {
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft. The default.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last as seconds since the Unix epoch, by this
    /// process's clock even where the store goes by another.
    /// They tell of one rule: of those that refuse, the one with the longest wait; else the one with the least left.
    XEpoch,
    /// The same, with `X-RateLimit-Reset` in seconds from now.
    XDelta,
    /// None. Refusals still carry `Retry-After`.
    None,
}

// The draft's parameter names: a renaming is being discussed.
const QUOTA: &str = ";q=";
const WINDOW: &str = ";w=";
const REMAINING: &str = ";r=";
const RESET: &str = ";t=";

/// Between the items of a list.
const SEPARATOR: &str = ", ";

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What can be written once for all responses.
#[derive(Clone, Debug)]
pub(crate) struct FieldWriter {
    fields: Fields,
    /// For each policy.
    items: Box<[Item]>,
    /// `RateLimit-Policy` where all rules apply, each with its own policy.
    own_policies: Text,
    rules: usize,
    clock: Clock,
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// `"name";q=20;w=2`
    policy: Text,
    /// The length of `"name"`.
    name: u16,
}

/// The fields of one response, as little as has to be carried along until it is there: it moves with the future.
#[derive(Debug)]
pub(crate) enum Written {
    /// Of one rule: the numbers, whose text is made where it is put into the response.
    One {
        item: Item,
        remaining: u32,
        reset: u64,
    },
    Several {
        policy: Text,
        limit: Box<[u8]>,
    },
    X {
        limit: u32,
        remaining: u32,
        reset: u64,
    },
}

impl FieldWriter {
    pub(crate) fn new(rules: &Rules, fields: Fields) -> FieldWriter {
        let items: Box<[Item]> =
            rules.policies().iter().map(|policy| Item::new(policy, Text::interned)).collect();
        let count = rules.iter().count();
        let own_policies = Text::interned(join(items[..count].iter()));
        FieldWriter { fields, own_policies, rules: count, items, clock: Clock::system() }
    }

    /// Whether no fields are wanted.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.fields == Fields::None
    }

    /// The fields for a verdict; none where no store was asked.
    #[inline]
    pub(crate) fn write(&self, rules: &Rules, asked: &[usize], verdict: &Verdict) -> Option<Written> {
        match (self.fields, asked, verdict.each()) {
            (Fields::None, ..) | (_, _, []) => None,
            (Fields::Ietf, [policy], [status]) if verdict.share().is_none() => {
                let item = self.items[*policy].clone();
                let reset = reset_seconds(status, longest_wait_seconds(&[*status]), verdict.delay());
                Some(Written::One { item, remaining: status.remaining(), reset })
            }
            _ => Some(self.write_any(rules, asked, verdict)),
        }
    }

    /// Whatever is not one rule's in the draft's fields. Out of line, to keep the way of most requests short.
    #[inline(never)]
    fn write_any(&self, rules: &Rules, asked: &[usize], verdict: &Verdict) -> Written {
        let (statuses, share) = (verdict.each(), verdict.share());
        let x = |reset: &dyn Fn(Duration) -> u64| {
            let capacity = |number: usize| {
                let policy = rules.policy(number);
                share
                    .and_then(|share| policy.share(share).ok())
                    .map_or(policy.capacity(), |part| part.capacity())
            };
            x_ratelimit(capacity, asked, statuses, reset)
        };
        match self.fields {
            Fields::XEpoch => {
                let now = Duration::from_micros(self.clock.now().as_micros());
                x(&|reset| seconds_up(now.saturating_add(reset)))
            }
            Fields::XDelta => x(&|reset| seconds_up(reset.saturating_sub(verdict.delay()))),
            Fields::Ietf | Fields::None => {
                let parts: Vec<Item>;
                let items: SmallVec<[&Item; 4]> = match share {
                    None => asked.iter().map(|policy| &self.items[*policy]).collect(),
                    // Not kept, since an outage is short.
                    Some(share) => {
                        let part = |policy: &usize| rules.policy(*policy).share(share).ok();
                        parts = asked
                            .iter()
                            .filter_map(part)
                            .map(|part| Item::new(&part, Text::counted))
                            .collect();
                        parts.iter().collect()
                    }
                };
                let (longest, delay) = (longest_wait_seconds(statuses), verdict.delay());
                let told = items.iter().zip(statuses);
                let told = told.map(|(item, status)| {
                    (item.name(), status.remaining(), reset_seconds(status, longest, delay))
                });
                // Rules come in their order, and no two numbers are of one: these are all, under their own policies.
                let all = asked.len() == self.rules && asked.iter().all(|policy| *policy < self.rules);
                let policy = if all && share.is_none() {
                    self.own_policies.clone()
                } else {
                    Text::counted(join(items.iter().copied()))
                };
                Written::Several { policy, limit: limit_of(told) }
            }
        }
    }
}

/// The value of `RateLimit-Policy`.
fn join<'a>(items: impl Iterator<Item = &'a Item>) -> String {
    let policies: Vec<_> = items.map(|item| item.policy.as_str()).collect();
    policies.join(SEPARATOR)
}

/// The value of `RateLimit`: of each rule its name in quotes, what remains, and when the whole quota is back.
fn limit_of<'a>(told: impl Iterator<Item = (&'a [u8], u32, u64)> + Clone) -> Box<[u8]> {
    // Of its exact length, or `Bytes` would take a second allocation for what is left over.
    let length = |(name, remaining, reset): (&[u8], u32, u64)| {
        let digits = decimal_digits(u64::from(remaining)) + decimal_digits(reset);
        SEPARATOR.len() + name.len() + REMAINING.len() + RESET.len() + digits
    };
    let length = told.clone().map(length).sum::<usize>().saturating_sub(SEPARATOR.len());
    let mut text = Vec::with_capacity(length);
    let mut digits = itoa::Buffer::new();
    for (name, remaining, reset) in told {
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
    fn new(policy: &Policy, text: impl Fn(String) -> Text) -> Item {
        let name = escaped(policy.name());
        let quota = policy.quota();
        let seconds = (u128::from(policy.capacity()) * quota.window().as_micros())
            .div_ceil(u128::from(quota.limit()) * 1_000_000)
            .max(1);
        let told = format!("\"{name}\"{QUOTA}{}{WINDOW}{seconds}", policy.capacity());
        // Of at most 128 characters, each of which may be escaped.
        let name = u16::try_from(name.len() + 2).expect("a policy's name is short");
        Item { policy: text(told), name }
    }

    /// `"name"`
    #[inline]
    fn name(&self) -> &[u8] {
        &self.policy.value().as_bytes()[..usize::from(self.name)]
    }
}

impl Written {
    /// Puts them into a response. From where they lie, since processors are slow at moving what was written a moment ago.
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        match self {
            Written::One { item, remaining, reset } => {
                let limit = limit_of(std::iter::once((item.name(), *remaining, *reset)));
                add_ietf(headers, &item.policy, limit);
            }
            Written::Several { policy, limit } => add_ietf(headers, policy, mem::take(limit)),
            // An inner layer's stand: these fields can tell of one rule only, and the inner one is nearer to the work.
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

#[inline]
fn add_ietf(headers: &mut HeaderMap, policy: &Text, limit: Box<[u8]>) {
    // One growth instead of two; and appended, since an inner layer's items stand beside ours.
    headers.reserve(2);
    headers.append(RATELIMIT_POLICY, policy.value().clone());
    headers.append(RATELIMIT, printable(limit.into()));
}

fn x_ratelimit(
    capacity: impl Fn(usize) -> u32,
    asked: &[usize],
    statuses: &[Status],
    reset: impl Fn(Duration) -> u64,
) -> Written {
    let wait = |status: &Status| match status.wait() {
        Wait::None => Duration::ZERO,
        Wait::For(wait) => wait,
        Wait::Never => Duration::MAX,
    };
    let told = asked.iter().zip(statuses);
    let (policy, status) = told
        .max_by_key(|(_, status)| (wait(status), std::cmp::Reverse(status.remaining())))
        .unwrap_or((&asked[0], &statuses[0]));
    let after = match status.wait() {
        Wait::For(wait) => wait,
        Wait::None | Wait::Never => status.reset_after(),
    };
    Written::X { limit: capacity(*policy), remaining: status.remaining(), reset: reset(after) }
}

/// On a rule that refuses, the longest wait of those that do, as in `Retry-After`: a client that obeys either passes. Of a request
/// that is delayed, from when it passes.
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

/// A number as a field's value. Not by way of `HeaderValue::from`, which takes the memory of the longest number.
pub(crate) fn number(number: impl itoa::Integer) -> HeaderValue {
    printable(Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::global;
    use crate::rule::PolicyExt;
    use tollgate_core::{Algorithm, Quota, Stamp};

    fn status(remaining: u32, wait: Wait, reset_us: u64) -> Status {
        Status::new(remaining, wait, Duration::from_micros(reset_us), Stamp::default())
    }

    fn headers(fields: Fields, policies: &[Policy], statuses: &[Status]) -> HeaderMap {
        let rules = Rules::try_new(policies.iter().map(|policy| policy.clone().by(global()))).unwrap();
        let asked: Vec<usize> = (0..statuses.len()).collect();
        let verdict = Verdict::new(1, Duration::ZERO, statuses.iter().copied());
        let mut headers = HeaderMap::new();
        if let Some(mut written) = FieldWriter::new(&rules, fields).write(&rules, &asked, &verdict) {
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
    fn a_rule_that_did_not_apply_is_not_told() {
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
    fn the_window_is_that_of_the_capacity_rounded_up() {
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
    fn a_refusing_rule_tells_when_this_request_would_pass() {
        let policies = [Policy::new("a", Quota::per_minute(60)), Policy::new("b", Quota::per_minute(60))];
        let micro = Wait::For(Duration::from_micros(1));
        let statuses = [status(0, micro, 60_000_000), status(3, Wait::None, 1_000_001)];
        assert_eq!(headers(Fields::Ietf, &policies, &statuses)["ratelimit"], "\"a\";r=0;t=1, \"b\";r=3;t=2");
    }

    #[test]
    fn x_fields_tell_of_the_rule_that_binds() {
        let policies = [Policy::new("a", Quota::per_minute(60)), Policy::new("b", Quota::per_minute(30))];
        let least = [status(5, Wait::None, 10), status(4, Wait::None, 2_500_000)];
        let told = headers(Fields::XDelta, &policies, &least);
        assert_eq!((&told["x-ratelimit-limit"], &told["x-ratelimit-reset"]), (&30.into(), &3.into()));
        let longest =
            [status(9, Wait::For(Duration::from_secs(7)), 60_000_000), status(0, Wait::None, 2_500_000)];
        let told = headers(Fields::XDelta, &policies, &longest);
        assert_eq!((&told["x-ratelimit-limit"], &told["x-ratelimit-reset"]), (&60.into(), &7.into()));
        let told = headers(Fields::XEpoch, &policies, &longest);
        let reset: u64 = told["x-ratelimit-reset"].to_str().unwrap().parse().unwrap();
        assert!(reset > 1_600_000_000, "{reset} is no time since the epoch");
    }

    #[test]
    fn an_inner_layers_x_fields_stand_and_ietf_items_are_appended() {
        let mut headers = HeaderMap::new();
        Written::X { limit: 1, remaining: 1, reset: 1 }.add_to(&mut headers);
        Written::X { limit: 2, remaining: 2, reset: 2 }.add_to(&mut headers);
        assert_eq!(headers["x-ratelimit-limit"], "1");
        let ietf = |policy: &str, limit: &str| {
            let policy = Text::counted(policy.to_owned());
            Written::Several { policy, limit: limit.as_bytes().into() }
        };
        ietf("a", "b").add_to(&mut headers);
        ietf("c", "d").add_to(&mut headers);
        assert_eq!(headers.get_all("ratelimit").iter().collect::<Vec<_>>(), ["b", "d"]);
    }
}
