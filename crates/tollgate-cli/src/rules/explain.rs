//! `tollgate explain`: what a file of rules does with a request.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use http::Request;
use tollgate::config::{Mode, Registry, RuleConfig};
use tollgate::{Denial, Head, MemoryStore, Reason, Report, RequestLimiter, Rule, StoreExt};
use tollgate_core::{BoxStore, Check, Key, Store, Times};

use super::RulesText;
use super::names::application_names;
use super::request::{AppNames, RequestArgs};
use super::words::in_words;
use crate::chart::human;
use crate::keys::span;
use crate::output::{print, printable};
use crate::redis_args::{PREFIX, RedisArgs};

pub(crate) const AFTER_HELP: &str = "\
This prints for each rule whether it applies to the request, its key, the cost, what is left, and
what would happen. Nothing is charged. Values of headers and cookies, tokens, users, and keys of
the application are hidden.

Without --redis, each key is shown as if it had used nothing.

Examples:
  tollgate explain rules.toml --path /api/users --peer 192.0.2.1
  tollgate explain rules.toml --header 'x-api-key: k1' --redis redis://10.0.0.5/
  tollgate explain rules.toml --path /api/users --given 'key user=alice' --given 'class plan=pro'";

/// `tollgate explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Rules in TOML, or in JSON if the name ends in .json
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    redis: RedisArgs,
}

/// Prints what each rule does with the request, and what all do together.
pub(crate) async fn explain(args: &ExplainArgs) -> Result<ExitCode, String> {
    let file = RulesText::read(&args.file)?.rules()?;
    let (request, (registry, unknown)) = (args.request.request()?, args.request.registry(&file)?);
    let (store, end) = match (&args.redis.redis, file.rules()) {
        (Some(_), [rule, ..]) => {
            let store = args.redis.connect(PREFIX).await?;
            // The failure policy below does not say why a store fails.
            let policy = rule.policy().map_err(|error| error.to_string())?;
            let look = store.acquire(&[Check::new(&policy, &Key::global(), 1)], Times::LOOK);
            look.wait().await.map_err(|error| format!("--redis: {error}"))?;
            (BoxStore::new(store.fail_closed()), "")
        }
        _ => (
            BoxStore::new(MemoryStore::new()),
            "Without --redis, each key is shown as if it had used nothing.\n",
        ),
    };
    let explainer = Explainer { registry, unknown, request, store };
    print(&(explainer.explain(file.rules()).await? + end)).map(|()| ExitCode::SUCCESS)
}

struct Explainer<'a> {
    registry: Registry,
    /// What no option gives.
    unknown: AppNames<'a>,
    request: Request<()>,
    store: BoxStore<Infallible>,
}

impl Explainer<'_> {
    async fn explain(&self, rules: &[RuleConfig]) -> Result<String, String> {
        let (mut text, mut known, mut by) = (String::new(), Vec::new(), "");
        for config in rules {
            let names = application_names(config).into_iter().filter(|name| self.unknown.contains(name));
            let names: Vec<String> = names.map(|(kind, name)| format!("{kind} {name}")).collect();
            let what = if !config.applies_to(&Head::from(&self.request)) {
                "does not apply to the request".to_owned()
            } else if names.is_empty() {
                let is_in_shadow = config.mode == Mode::Shadow;
                // A limiter does not look at others.
                let config = RuleConfig { mode: Mode::Enforce, ..config.clone() };
                let rule = self.registry.rule(&config).map_err(|error| error.to_string())?;
                // Rules in shadow count apart.
                let store = if is_in_shadow { self.store.in_shadow() } else { self.store.clone() };
                let what = self.of_rule(&config, rule.clone(), store).await?;
                if is_in_shadow {
                    format!("in shadow, so nothing follows: {what}")
                } else {
                    known.push(rule);
                    what
                }
            } else {
                by = "by the rules that are explained, ";
                format!(
                    "not explained: only the application knows its {} (see --given)",
                    names.join(", its ")
                )
            };
            let words = format!("{}: {}", config.name, in_words(config));
            text.push_str(&format!("{}\n  {}\n", printable(&words), printable(&what)));
        }
        if known.is_empty() {
            return Ok(text);
        }
        Ok(format!("{text}{by}the request {}\n", outcome(&self.look(known, self.store.clone()).await?)))
    }

    async fn of_rule(
        &self,
        config: &RuleConfig,
        rule: Rule,
        store: BoxStore<Infallible>,
    ) -> Result<String, String> {
        let head = Head::from(&self.request);
        if rule.is_exempt(&head) {
            return Ok("does not apply: the request is exempt".to_owned());
        }
        let looked = self.look(vec![rule.clone()], store).await?;
        let outcome = outcome(&looked);
        let Ok(report) = looked else { return Ok(outcome) };
        let Some((policy, status)) = report.iter().next() else {
            return Ok("does not apply: the request has no key for it".to_owned());
        };
        let key = self.registry.shown_key(config, &head).map_err(|error| error.to_string())?;
        let key = key.map(|key| key.to_readable()).unwrap_or_default();
        let cost = human(rule.cost_of(&head, policy));
        let (left, capacity) = (human(status.remaining()), human(policy.capacity()));
        Ok(format!("key {key}, cost {cost}, {left} of {capacity} left: {outcome}"))
    }

    /// The state of these rules for the request, or why one has no key.
    async fn look(
        &self,
        rules: Vec<Rule>,
        store: BoxStore<Infallible>,
    ) -> Result<Result<Report, Denial>, String> {
        let limiter = RequestLimiter::try_new(rules).and_then(|new| new.try_store(store));
        let looked = limiter.map_err(|error| error.to_string())?.look(&Head::from(&self.request)).await;
        match &looked {
            Ok(report) if report.policies().count() > report.statuses().len() => {
                Err("--redis: it does not answer any more".to_owned())
            }
            _ => Ok(looked),
        }
    }
}

/// Completes "the request …".
fn outcome(looked: &Result<Report, Denial>) -> String {
    let denial = looked.as_ref().map_or_else(|denial| Some(denial.clone()), Report::denial);
    let Some(denial) = denial else { return "passes".to_owned() };
    let hint = match (denial.reason(), denial.retry_after()) {
        (Reason::NoPeerAddress, _) => " (give --peer)".to_owned(),
        (_, Some(wait)) => format!(", retry after {}", span(wait)),
        _ => String::new(),
    };
    format!("is refused with {}: {denial}{hint}", denial.status())
}
