//! Rules from a file, in TOML or JSON (feature `config`).
//!
//! A file has a list of named rules. It says all that a [`Policy`](crate::Policy) and a
//! [`Rule`](crate::Rule) can say. What only code can say, such as who a caller is, is a closure in
//! a [`Registry`], which the file names.
//!
//! ```
//! use tollgate::config::{Registry, RuleFile};
//! use tollgate::extract::{ClientIp, extension};
//! use tollgate::{Head, Key, RateLimitLayer};
//!
//! // Inserted into the extensions by an outer authentication layer.
//! #[derive(Clone)]
//! struct Caller { id: u64, plan: &'static str }
//!
//! // In an application: std::fs::read_to_string("rules.toml")?
//! let text = r#"
//! [[rule]]
//! name = "burst"
//! quota = "10/s burst 20"
//! by = "ip"
//!
//! [[rule]]
//! name = "daily"
//! quota = "5000/d"
//! by = "user | ip"
//! algorithm = "sliding-buckets"
//! when = { path = "/api/*" }
//! tiers = { by = "plan", quotas = { pro = "50000/d" } }
//! "#;
//!
//! let registry = Registry::new()
//!     .client_ip(ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]))
//!     .key("user", extension(|caller: &Caller| caller.id))
//!     .class("plan", |head: &Head<'_>, _: &Key| Some(head.extensions().get::<Caller>()?.plan));
//! let rules = registry.rules(&RuleFile::from_toml(text)?)?;
//! let layer = RateLimitLayer::try_new(rules)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Registry::open`] reads a file that the layer can follow while it runs.
//!
//! A mistake is a [`ConfigError`]: one line with the line of the file, the rule, the field, the
//! value, and what is allowed. A file without rules, a field that does not exist, and a name or a
//! field that is given twice are mistakes too. [`RuleFile::mistakes_in_toml`] lists all of them.
//! Of a text that is no file of rules, an error contains no more than 20 characters of a name,
//! since it may be a secret. `tollgate check` also lists ways around the rules of a file, and
//! requests that never pass.
//!
//! A [`RuleConfig`] is a rule as a value: code can make it, read it, and change it. A field that
//! only one kind of limit or one algorithm takes stands only there.
//!
//! Tens of rules are usual, and files of 5,000 are tested. A request is compared with the rules
//! whose `path` may be its own, and with all rules without a path, which should stay few. Use
//! [tiers](crate::Rule::tiers) or a [quota of the request](crate::Rule::quota) for thousands of
//! tenants.
//!
//! # The fields of a rule
//!
//! | field | such as | says |
//! |---|---|---|
//! | `name` | `"api"` | the name of the policy: once in a file |
//! | `quota` | `"100/min"`, `"5/10s burst 20"` | a [`Quota`](crate::Quota): `ms`, `s`, `min` or `m`, `h`, `d` |
//! | `quota` with `zone` | `"10000/month"`, `"Europe/Berlin"` | a window of the [calendar](#calendar): `day`, `week`, `month` (feature `calendar`) |
//! | `anchor` | `15` | its first day: 1 to 31 of a month, 1 (Monday) to 7 of a week; 1 by default |
//! | `in-flight` | `20` | how many requests at once, instead of a quota: [`Policy::in_flight`](crate::Policy::in_flight) |
//! | `by` | `"header:x-api-key \| ip"` | the key: see [below](#keys) |
//! | `algorithm` | `"leaky-bucket"` | an [algorithm](crate::algorithm) by its [name](crate::Algorithm::name); `gcra` by default |
//! | `buckets` | `60` | the sub-windows of `sliding-buckets`; 10 by default |
//! | `max-limit` | `1000000` | the largest limit of `sliding-log`; 100,000 by default |
//! | `max-wait` | `"5s"` | how long `leaky-bucket` delays a request (the window by default), or a request waits [for a slot](crate::Rule::wait_at_most) |
//! | `ttl`, `held-at-most` | `"15s"` | of requests in flight: [`Policy::with_ttl`](crate::Policy::with_ttl), [`Rule::held_at_most`](crate::Rule::held_at_most) |
//! | `when` | `{ path = "/api/*" }` | the requests to which the rule applies: see [below](#when) |
//! | `exempt` | `["203.0.113.0/24", "cors-preflight"]` | requests that it [ignores](crate::Rule::exempt): networks, `cors-preflight`, or an exemption of the registry: `a` to `z`, `0` to `9`, `-` and `_` |
//! | `missing-key` | `"skip"` | [`MissingKey`](crate::MissingKey): `refuse` (default), `skip`, `one-key` |
//! | `cost` | `5`, `"kib"` | what a request [costs](crate::Rule::cost): a number, or a cost of the registry |
//! | `reserve`, `reserve-at-most` | `"tokens"`, `"1/2"` | a cost of the registry that [estimates](crate::Rule::reserve), and its [bound](crate::Rule::reserve_at_most) |
//! | `count-if`, `cost-by` | `"failed"` | a condition or a cost of the registry, by the response: [`Rule::count_if`](crate::Rule::count_if), [`Rule::cost_by`](crate::Rule::cost_by) |
//! | `tiers` | `{ by = "plan", quotas = { pro = "600/min" } }` | other quotas for classes of the registry: [`Rule::tiers`](crate::Rule::tiers); numbers for requests in flight |
//! | `quota-by` | `"claims"` | a quota of the registry, which a request brings along: [`Rule::quota`](crate::Rule::quota) |
//! | `leaving` | `{ by = "class", units = { batch = 200 } }` | classes that leave units to others: [`Rule::leaving`](crate::Rule::leaving) |
//! | `block` | `{ after = 20, for = "15m" }` | blocks a key after so many denials: [`Rule::block_after`](crate::Rule::block_after) |
//! | `unit` | `"tokens"` | what the policy counts: [`Policy::unit`](crate::Policy::unit) |
//! | `track-usage`, `without-fields` | `true` | [`Policy::track_usage`](crate::Policy::track_usage), [`Rule::without_fields`](crate::Rule::without_fields) |
//! | `mode` | `"shadow"` | `enforce` (default), or `shadow`, which only shows what it would refuse: [`Rule::shadow`](crate::Rule::shadow) |
//!
//! `name`, `by`, and one of `quota` and `in-flight` are required.
//!
//! # Calendar
//!
//! `"10000/month"` with `zone = "Europe/Berlin"` is a quota for each month of that time zone:
//! `CalendarWindow`. Such a rule has no `algorithm`, and its tiers have quotas per month too. An
//! edit of `zone` or `anchor` applies when the running windows end.
//!
//! **`day` and `d` differ.** `"100/day"` needs a `zone`, and all callers have their quota again at
//! midnight there. `"100/d"` is 24 hours of any [algorithm](crate::algorithm), and refills
//! continuously by default.
//!
//! # Keys
//!
//! | in `by` | the key is |
//! |---|---|
//! | `ip` | the address of the connection, or of the client if there is [`Registry::client_ip`] |
//! | `bearer`, `basic-user` | the token or the user of `Authorization` |
//! | `header:NAME`, `cookie:NAME` | the value of a header or a cookie |
//! | `path` | the route that matched (feature `axum`) |
//! | `method` | the request's method |
//! | `global` | the same for all requests |
//! | another name | that of [`Registry::key`] |
//! | `a + b` | both together |
//! | `a \| b` | the first that the request has; `+` binds tighter |
//!
//! [Some of them are what callers write](crate::extract#which-values-to-believe): a caller that
//! invents a header for each request is not limited by it.
//!
//! # When
//!
//! A rule without `when` applies to every request. With it, a request must meet each condition:
//!
//! - `path`: a path, the beginning of paths before `*`, or a list of them. `/api/*` is every path
//!   that begins with `/api/`, so not `/api`.
//! - `method`: a method, or a list of them. `GET` includes `HEAD`, since routers answer it alike,
//!   and a WebSocket over HTTP/2, which is a `CONNECT` with a path.
//! - `header`: the name of a header that the request has. A caller escapes the rule by omitting it.
//!
//! **The path is compared as received**: undecoded, and without the query. `//api` and `/api`
//! differ, and so do `/a%2Fb` and `/a/b`. If your router treats them alike, a caller can avoid the
//! rule: let a rule without `when` limit all paths, or refuse unusual paths in an outer layer.
//!
//! `OPTIONS *` and `CONNECT` have no path that begins with `/`. Within a nested router of axum, it
//! is the whole path (feature `axum`).

mod block;
mod build;
mod calendar;
mod cost;
mod error;
mod exemption;
mod file;
mod key;
mod key_extractor;
mod leaving;
mod limit;
mod line;
mod message;
mod mistakes;
mod name;
mod place;
mod rate;
mod registry;
mod rule;
mod rule_fields;
mod rules;
#[cfg(test)]
mod schema;
mod table;
#[cfg(test)]
mod tests;
mod tiers;
mod values;
mod when;

pub use block::BlockConfig;
#[cfg(test)]
pub(crate) use build::count::built;
pub use cost::{CorrectionConfig, CostConfig};
pub use error::ConfigError;
pub use exemption::ExemptionText;
pub use file::RuleFile;
pub use key::{KeyExpression, KeyPart};
pub use leaving::LeavingConfig;
pub use limit::{AlgorithmConfig, LimitConfig};
pub use rate::{CalendarQuota, WindowName};
pub use registry::Registry;
pub use rule::RuleConfig;
pub use rule_fields::Mode;
pub use tiers::TiersConfig;
pub use when::{MethodName, PathPattern, When};
