//! The rate limit fields of responses.

// From top to bottom; imports run down this list only: this module, ietf, numbers.
mod ietf;
mod numbers;

use bytes::Bytes;
use http::HeaderMap;
use tollgate_core::{Clock, Status, Verdict, Wait};

use crate::decision::is_refusing_block;
use crate::errors::seconds_up;
use crate::plan::{Ask, Item, Plan};

use ietf::Lists;
use numbers::{NumberFields, NumberForm};

pub(crate) use numbers::{number, strictness};

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
/// | `qu` | the [unit](crate::Policy::unit): `content-bytes` or `concurrent-requests`. Left out for requests, and for units without a registered name |
/// | `w` | the time to refill the capacity: ceil(q × window / limit) in whole seconds, at least 1 |
/// | `r` | units that would pass without delay, after this request |
/// | `t` | seconds until the whole quota is back, rounded up. On a rule that refuses, the same as `Retry-After`. If a leaky bucket delays the request, counted from when it passes |
///
/// `t` is that of -08 and -09. In later drafts it is the time until some of the quota is back,
/// which is no later: a client that waits for `t` passes, but may wait longer than needed.
/// `Retry-After`, on a refusal, is exact.
///
/// Servers and proxies bound the headers of a response, often by 4 or 8 kB. If the items need more
/// than 1 kB, only some are written: first those of rules that refuse, with the longest wait, then
/// those with the least left.
///
/// All other fields describe one rule: of those that refuse, the one with the longest wait;
/// otherwise the one with the least left.
///
/// A rule of [requests in flight](crate::Policy::in_flight) has neither `w` nor `t`, since its
/// units do not come back with time. `r` is the number of free slots. Only `RateLimit` and
/// `RateLimit-Policy` contain it:
///
/// ```text
/// RateLimit-Policy: "exports";q=20;qu="concurrent-requests"
/// RateLimit: "exports";r=19
/// ```
///
/// A rule [without fields](crate::Rule::without_fields) is in none of them.
///
/// A rule that counts bytes, and its fields:
///
/// ```
/// use std::convert::Infallible;
///
/// use http::header::CONTENT_LENGTH;
/// use http::{Request, Response};
/// use tollgate::extract::global;
/// use tollgate::{Head, Policy, PolicyExt, Quota, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let length = |head: &Head<'_>| {
///     let length = head.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
///     // A body of unknown length uses up the quota.
///     length.unwrap_or(1_000_000)
/// };
/// let upload = Policy::new("upload", Quota::per_minute(1_000_000)).unit("content-bytes");
/// let service = RateLimitLayer::new(upload.by(global()).cost(length))
///     .layer(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()))));
///
/// let request = Request::post("/").header(CONTENT_LENGTH, 600_000).body("…".to_owned()).unwrap();
/// let response = service.oneshot(request).await?;
/// assert_eq!(response.headers()["ratelimit-policy"], r#""upload";q=1000000;qu="content-bytes";w=60"#);
/// assert_eq!(response.headers()["ratelimit"], r#""upload";r=400000;t=36"#);
/// # Ok(())
/// # }
/// ```
#[doc(alias("headers", "use_headers"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fields {
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft. The default.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`. The reset is in
    /// seconds since the Unix epoch, by the clock of this process even if the store uses another.
    XEpoch,
    /// [`Fields::XEpoch`], but with the reset in seconds from now.
    XDelta,
    /// [`Fields::Ietf`] and [`Fields::XEpoch`], for clients of both kinds.
    IetfAndXEpoch,
    /// [`Fields::Ietf`] and [`Fields::XDelta`], for clients of both kinds.
    IetfAndXDelta,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of the IETF draft up to -06,
    /// for clients that were written then. The reset is in seconds from now.
    Draft06,
    /// `RateLimit: limit=20, remaining=19, reset=1` of the IETF draft -07, for clients that were
    /// written then. The reset is in seconds from now.
    Draft07,
    /// No fields. Refusals still carry `Retry-After`.
    None,
}

/// Writes the fields of a layer.
#[derive(Clone, Debug)]
pub(crate) struct FieldWriter {
    fields: Fields,
    clock: Clock,
}

/// The fields of one response, until the response is there. Small, because it moves with the
/// future.
#[derive(Debug)]
pub(crate) enum Written {
    Lists(Lists),
    Numbers(NumberFields),
    Both(Box<(Lists, NumberFields)>),
}

impl Default for FieldWriter {
    fn default() -> FieldWriter {
        FieldWriter::new(Fields::default())
    }
}

impl FieldWriter {
    pub(crate) fn new(fields: Fields) -> FieldWriter {
        FieldWriter { fields, clock: Clock::system() }
    }

    /// Whether responses carry no fields.
    #[inline]
    pub(crate) fn is_off(&self, plan: &Plan) -> bool {
        self.fields == Fields::None || !plan.needs().fields
    }

    /// The fields for a verdict on what was asked; `None` if no store was asked, or if fields leave
    /// out all rules that apply.
    pub(crate) fn write(&self, plan: &Plan, asks: &[Ask], verdict: &Verdict) -> Option<Written> {
        shown(plan, asks, verdict).next()?;
        let ietf = || ietf(plan, asks, verdict);
        let numbers = |form| self.numbers(form, plan, asks, verdict);
        let both = |form| match numbers(form) {
            Some(numbers) => Written::Both(Box::new((ietf(), numbers))),
            None => Written::Lists(ietf()),
        };
        Some(match self.fields {
            Fields::None => return None,
            Fields::Ietf => Written::Lists(ietf()),
            Fields::XEpoch => Written::Numbers(numbers(NumberForm::XEpoch)?),
            Fields::XDelta => Written::Numbers(numbers(NumberForm::XDelta)?),
            Fields::IetfAndXEpoch => both(NumberForm::XEpoch),
            Fields::IetfAndXDelta => both(NumberForm::XDelta),
            Fields::Draft06 => Written::Numbers(numbers(NumberForm::Draft06)?),
            Fields::Draft07 => Written::Numbers(numbers(NumberForm::Draft07)?),
        })
    }

    fn numbers(
        &self,
        form: NumberForm,
        plan: &Plan,
        asks: &[Ask],
        verdict: &Verdict,
    ) -> Option<NumberFields> {
        let shown = shown(plan, asks, verdict).map(|(ask, _, status)| (plan.policy(&ask.policy), status));
        // They cannot say that units come back without a reset.
        let mut shown = shown.filter(|(policy, _)| !policy.is_in_flight()).peekable();
        shown.peek()?;
        Some(NumberFields::new(form, shown, verdict, &self.clock))
    }
}

/// What was asked of the rules that fields do not leave out, with their items and statuses.
#[inline]
fn shown<'a>(
    plan: &'a Plan,
    asks: &'a [Ask],
    verdict: &'a Verdict,
) -> impl Iterator<Item = (&'a Ask, &'a Item, &'a Status)> + Clone {
    let with_item = |(ask, status): (&'a Ask, &'a Status)| Some((ask, plan.item(&ask.policy)?, status));
    asks.iter().zip(verdict.each()).filter_map(with_item)
}

fn ietf(plan: &Plan, asks: &[Ask], verdict: &Verdict) -> Lists {
    let mut shown = shown(plan, asks, verdict);
    let (longest, delay) = (longest_wait_seconds(plan, asks, verdict), verdict.delay());
    if let Some(share) = verdict.share() {
        // Not cached, since an outage is short.
        let of_share = |(ask, _, status): (&Ask, _, _)| {
            let policy = plan.policy(&ask.policy).share_of_at_least_one(share).ok()?;
            Some((Item::new(&policy, Bytes::from), status))
        };
        let items: Vec<(Item, &Status)> = shown.filter_map(of_share).collect();
        return Lists::new(None, items.iter().map(|(item, status)| (item, *status)), longest, delay);
    }
    let items = shown.clone().map(|(_, item, status)| (item, status));
    let policy = match asks {
        [_] => shown.next().map(|(_, item, _)| item.policy()),
        _ => plan.own_items(asks),
    };
    Lists::new(policy, items, longest, delay)
}

/// The longest wait of a rule that refuses, in whole seconds: the same as `Retry-After`. A block
/// that refuses comes before all others, as it does there.
fn longest_wait_seconds(plan: &Plan, asks: &[Ask], verdict: &Verdict) -> u64 {
    let waits = asks.iter().zip(verdict.each()).map(|(ask, status)| {
        let policy = plan.policy(&ask.policy);
        let seconds = match status.wait() {
            Wait::For(_) if policy.is_in_flight() => 1,
            Wait::For(wait) => seconds_up(wait).max(1),
            Wait::None | Wait::Never => 0,
        };
        (is_refusing_block((policy, status)), seconds)
    });
    waits.max().map_or(0, |(_, seconds)| seconds)
}

impl Written {
    /// Adds the fields to a response.
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        match self {
            Written::Lists(lists) => lists.add_to(headers),
            Written::Numbers(numbers) => numbers.add_to(headers),
            Written::Both(both) => {
                both.0.add_to(headers);
                both.1.add_to(headers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use tollgate_core::{Algorithm, Boundaries, Key, Policy, Quota, Share, Stamp};

    use crate::extract::global;
    use crate::plan::RuleNumber;
    use crate::rule::PolicyExt;

    fn status(remaining: u64, wait: Wait, reset_us: u64) -> Status {
        Status::new(remaining, wait, Duration::from_micros(reset_us), Stamp::default())
    }

    fn headers(fields: Fields, policies: &[Policy], statuses: &[Status]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        add_to(&mut headers, fields, policies, statuses);
        headers
    }

    fn add_to(headers: &mut HeaderMap, fields: Fields, policies: &[Policy], statuses: &[Status]) {
        let plan = Plan::try_new(policies.iter().map(|policy| policy.clone().by(global()))).unwrap();
        let verdict = Verdict::new(1, Duration::ZERO, statuses.iter().copied());
        write_to(headers, fields, &plan, &verdict);
    }

    fn write_to(headers: &mut HeaderMap, fields: Fields, plan: &Plan, verdict: &Verdict) {
        let ask = |rule: RuleNumber| Ask { policy: rule.into(), key: Key::global(), cost: 1 };
        let asks: Vec<Ask> = plan.enforced().take(verdict.each().len()).map(ask).collect();
        if let Some(mut written) = FieldWriter::new(fields).write(plan, &asks, verdict) {
            written.add_to(headers);
        }
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
    fn the_largest_quota_is_written_with_all_of_its_digits() {
        let policy = [Policy::new("tokens", Quota::per_day(Quota::MAX_UNITS))];
        let status = [status(Quota::MAX_UNITS - 1, Wait::None, 1)];
        let of_ietf = headers(Fields::Ietf, &policy, &status);
        assert_eq!(of_ietf["ratelimit-policy"], "\"tokens\";q=1099511627776;w=86400");
        assert_eq!(of_ietf["ratelimit"], "\"tokens\";r=1099511627775;t=1");
        let of_three = headers(Fields::XDelta, &policy, &status);
        assert_eq!(of_three["x-ratelimit-limit"], "1099511627776");
        assert_eq!(of_three["x-ratelimit-remaining"], "1099511627775");
    }

    #[test]
    fn slots_have_neither_window_nor_reset() {
        let policies = [Policy::in_flight("exports", 20), Policy::new("burst", Quota::per_second(10))];
        let statuses = [
            status(0, Wait::For(Duration::from_secs(15)), u64::MAX),
            status(9, Wait::For(Duration::from_millis(5)), 100_000),
        ];
        let both = headers(Fields::IetfAndXDelta, &policies, &statuses);
        let policy = r#""exports";q=20;qu="concurrent-requests", "burst";q=10;w=1"#;
        assert_eq!(both["ratelimit-policy"], policy);
        assert_eq!(both["ratelimit"], r#""exports";r=0, "burst";r=9;t=1"#);
        assert_eq!(both["x-ratelimit-limit"], "10");
        let alone = headers(Fields::Draft06, &policies[..1], &statuses[..1]);
        assert!(alone.is_empty(), "{alone:?}");
    }

    #[test]
    fn only_registered_units_other_than_requests_are_written() {
        let upload = Policy::new("upload", Quota::per_minute(1_000_000));
        let written =
            |unit, fields| headers(fields, &[upload.clone().unit(unit)], &[status(1, Wait::None, 1)]);
        for (unit, item) in [
            ("content-bytes", r#""upload";q=1000000;qu="content-bytes";w=60"#),
            ("concurrent-requests", r#""upload";q=1000000;qu="concurrent-requests";w=60"#),
            ("request", r#""upload";q=1000000;w=60"#),
            ("tokens", r#""upload";q=1000000;w=60"#),
            (r#"a"b"#, r#""upload";q=1000000;w=60"#),
        ] {
            let fields = written(unit, Fields::Ietf);
            assert_eq!(fields["ratelimit-policy"], item);
            assert_eq!(fields["ratelimit"], r#""upload";r=1;t=1"#);
        }
        let fields = written("content-bytes", Fields::Draft07);
        assert_eq!(fields["ratelimit"], "limit=1000000, remaining=1, reset=1");
    }

    #[test]
    fn the_unit_is_written_with_a_share_of_the_policy() {
        let policy = Policy::new("p", Quota::per_minute(9)).unit("content-bytes");
        let plan = Plan::try_new(policy.by(global())).unwrap();
        let verdict = Verdict::new(1, Duration::ZERO, [status(2, Wait::None, 1)]).of_share(Share::new(1, 3));
        let mut headers = HeaderMap::new();
        write_to(&mut headers, Fields::Ietf, &plan, &verdict);
        assert_eq!(headers["ratelimit-policy"], r#""p";q=3;qu="content-bytes";w=60"#);
    }

    #[test]
    fn a_share_of_at_least_one_unit_is_the_limit_in_all_fields() {
        let plan = Plan::try_new(Policy::new("p", Quota::per_day(2)).by(global())).unwrap();
        let verdict = Verdict::new(1, Duration::ZERO, [status(0, Wait::None, 1)]).of_share(Share::new(1, 3));
        let mut headers = HeaderMap::new();
        write_to(&mut headers, Fields::IetfAndXDelta, &plan, &verdict);
        assert_eq!(headers["ratelimit-policy"], r#""p";q=1;w=86400"#);
        assert_eq!(headers["x-ratelimit-limit"], "1");
    }

    fn without_fields_of(left_out: &[usize], fields: Fields, statuses: [Status; 3]) -> HeaderMap {
        let policies = ["a", "b", "c"].map(|name| Policy::new(name, Quota::per_minute(60)));
        let rules =
            policies.into_iter().enumerate().map(|(number, policy)| match left_out.contains(&number) {
                true => policy.by(global()).without_fields(),
                false => policy.by(global()),
            });
        let plan = Plan::try_new(rules).unwrap();
        let mut headers = HeaderMap::new();
        write_to(&mut headers, fields, &plan, &Verdict::new(1, Duration::ZERO, statuses));
        headers
    }

    #[test]
    fn a_rule_without_fields_is_left_out_of_every_field() {
        let wait = |seconds| Wait::For(Duration::from_secs(seconds));
        let statuses = [status(0, wait(5), 1), status(0, wait(9), 1), status(7, Wait::None, 1)];
        let headers = without_fields_of(&[1], Fields::Ietf, statuses);
        assert_eq!(headers["ratelimit-policy"], "\"a\";q=60;w=60, \"c\";q=60;w=60");
        assert_eq!(headers["ratelimit"], "\"a\";r=0;t=9, \"c\";r=7;t=1", "a refusal waits for all rules");
        let headers = without_fields_of(&[0, 1], Fields::IetfAndXDelta, statuses);
        assert_eq!(headers["ratelimit-policy"], "\"c\";q=60;w=60");
        assert_eq!(headers["ratelimit"], "\"c\";r=7;t=1");
        assert_eq!(headers["x-ratelimit-remaining"], "7");
        let headers = without_fields_of(&[1, 2], Fields::Draft07, statuses);
        assert_eq!(headers["ratelimit"], "limit=60, remaining=0, reset=5");
    }

    #[test]
    fn rules_that_are_all_without_fields_write_no_field() {
        for fields in [Fields::Ietf, Fields::IetfAndXEpoch, Fields::Draft06, Fields::Draft07] {
            let statuses = [status(1, Wait::None, 1); 3];
            assert_eq!(without_fields_of(&[0, 1, 2], fields, statuses), HeaderMap::new());
        }
    }

    #[test]
    fn a_rule_that_did_not_apply_has_no_item() {
        let policies = [Policy::new("a", Quota::per_second(1)), Policy::new("b", Quota::per_second(1))];
        let headers = headers(Fields::Ietf, &policies, &[status(0, Wait::None, 1)]);
        assert_eq!(headers["ratelimit-policy"], "\"a\";q=1;w=1");
        assert_eq!(headers["ratelimit"], "\"a\";r=0;t=1");
    }

    /// A proxy that takes no header above 4 kB would answer 502.
    #[test]
    fn the_items_of_many_rules_are_those_that_deny_and_fit_in_a_kilobyte() {
        let names: Vec<String> = (0..60).map(|n| format!("{n:02} {}", "x".repeat(100))).collect();
        let policies: Vec<Policy> = names.iter().map(|name| Policy::new(name, Quota::per_day(100))).collect();
        let mut statuses = vec![status(50, Wait::None, 1); 60];
        statuses[7] = status(0, Wait::For(Duration::from_secs(1)), 1);
        statuses[31] = status(0, Wait::For(Duration::from_secs(9)), 1);
        statuses[58] = status(0, Wait::Never, 1);
        statuses[40] = status(49, Wait::None, 1);
        let headers = headers(Fields::Ietf, &policies, &statuses);
        for field in ["ratelimit", "ratelimit-policy"] {
            let value = headers[field].to_str().unwrap();
            assert!((800..=1_024).contains(&value.len()), "{} bytes", value.len());
            let found: Vec<&str> = value.split(", ").map(|item| &item[1..3]).collect();
            assert!(["07", "31", "40", "58"].iter().all(|name| found.contains(name)), "{found:?}");
            assert!(found.is_sorted(), "{found:?}");
        }
        let limit = headers["ratelimit"].to_str().unwrap();
        assert_eq!(limit.matches(";t=9").count(), 2, "{limit}");
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
        let month = Quota::new(9, Duration::from_secs(31 * 86_400));
        let calendar = Algorithm::CalendarWindow { boundaries: Boundaries::NONE };
        assert_eq!(w(month, calendar), "\"p\";q=9;w=2678400", "no month is longer");
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
        let policy = |name, limit| [Policy::new(name, Quota::per_minute(limit))];
        let mut added = HeaderMap::new();
        for policy in [policy("a", 1), policy("b", 2)] {
            add_to(&mut added, Fields::IetfAndXDelta, &policy, &[status(0, Wait::None, 1)]);
        }
        let all = |name| added.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(all("x-ratelimit-limit"), ["1"]);
        assert_eq!(all("ratelimit"), ["\"a\";r=0;t=1", "\"b\";r=0;t=1"]);
        assert_eq!(all("ratelimit-policy"), ["\"a\";q=1;w=60", "\"b\";q=2;w=60"]);
    }

    #[test]
    fn earlier_drafts_describe_the_strictest_rule() {
        let policies = [Policy::new("a", Quota::per_minute(60)), Policy::new("b", Quota::per_minute(30))];
        let statuses = [status(5, Wait::None, 10), status(4, Wait::None, 2_500_000)];
        let fields = headers(Fields::Draft07, &policies, &statuses);
        assert_eq!(fields["ratelimit"], "limit=30, remaining=4, reset=3");
        let fields = headers(Fields::Draft06, &policies, &statuses);
        assert_eq!((&fields["ratelimit-limit"], fields.len()), (&30.into(), 3));
    }
}
