//! `tollgate explain`: what a file of rules does with a request.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use http::Request;
use tollgate::config::{Registry, RuleConfig};
use tollgate::store::NeverFails;
use tollgate::{Denial, Head, MemoryStore, Reason, Report, RequestLimiter, Rule, StoreExt};
use tollgate_core::{Check, Key, Store, Times};

use super::RulesText;
use super::request::RequestArgs;
use crate::chart::human;
use crate::keys::span;
use crate::output::{print, printable};
use crate::redis_args::{PREFIX, RedisArgs, TIMEOUT};

pub(crate) const AFTER_HELP: &str = "\
This prints for each rule whether it applies to the request, its key, the cost, what is left, and
what would happen. Nothing is charged. Values of headers and cookies, tokens, users, and keys of
the application are hidden.

Without --redis, each key is shown as if it had used nothing.

Examples:
  tollgate explain rules.toml --path /api/users --peer 192.0.2.1
  tollgate explain rules.toml --header 'x-api-key: k1' --redis redis://10.0.0.5/
  tollgate explain rules.toml --method POST --path /reports --key user=alice --class plan=pro";

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
    let request = args.request.request()?;
    let (registry, given) = (args.request.registry(&file)?, args.request.given()?);
    let given = given.into_iter().map(|(kind, name, _)| (kind, name)).collect();
    let explainer = Explainer { registry, given, request };
    let text = match &args.redis.redis {
        Some(_) => {
            let store = args.redis.connect(PREFIX, TIMEOUT).await?;
            // The failure policy below does not say why a store fails.
            if let Some(rule) = file.rules().first() {
                let look = store.acquire(&[Check::new(rule.policy(), &Key::global(), 1)], Times::LOOK);
                look.wait().await.map_err(|error| format!("--redis: {error}"))?;
            }
            explainer.explain(file.rules(), store.fail_closed()).await?
        }
        None => {
            let text = explainer.explain(file.rules(), MemoryStore::new()).await?;
            text + "Without --redis, each key is shown as if it had used nothing.\n"
        }
    };
    print(&text);
    Ok(ExitCode::SUCCESS)
}

struct Explainer<'a> {
    registry: Registry,
    /// The kinds and names of the application that options give.
    given: Vec<(&'static str, &'a str)>,
    request: Request<()>,
}

impl Explainer<'_> {
    async fn explain<S>(&self, rules: &[RuleConfig], store: S) -> Result<String, String>
    where
        S: Store,
        S::Error: NeverFails,
    {
        let head = Head::from(&self.request);
        let (mut text, mut known, mut by) = (String::new(), Vec::new(), "");
        for config in rules {
            let unknown = self.unknown(config);
            let what = if !config.applies_to(&head) {
                "does not apply: the request does not meet its conditions".to_owned()
            } else if unknown.is_empty() {
                let rule = self.registry.rule(config).map_err(|error| error.to_string())?;
                known.push(rule.clone());
                self.of_rule(config, rule, &store).await?
            } else {
                by = "by the rules that are explained, ";
                format!("not explained: only the application knows {}", unknown.join(", "))
            };
            let words = format!("{}: {}", config.name(), config.in_words());
            text.push_str(&format!("{}\n  {}\n", printable(&words), printable(&what)));
        }
        if known.is_empty() && by.is_empty() {
            text.push_str("the request passes: no rule applies\n");
        } else if !known.is_empty() {
            let outcome = outcome(&self.look(known, &store).await?);
            text.push_str(&format!("{by}the request {outcome}\n"));
        }
        Ok(text)
    }

    /// What only the application knows of a rule.
    fn unknown(&self, config: &RuleConfig) -> Vec<String> {
        let route = config.counts_by_route().then(|| "the route, which is in its key".to_owned());
        let names = config.registry_names().into_iter().filter(|name| !self.given.contains(name));
        let names = names.filter_map(|(kind, name)| match kind {
            "key" | "class" | "cost" => Some(format!("its {kind} {name} (--{kind} {name}=...)")),
            "quota" => Some(format!("its quota {name}")),
            _ => None,
        });
        route.into_iter().chain(names).collect()
    }

    async fn of_rule<S>(&self, config: &RuleConfig, rule: Rule, store: &S) -> Result<String, String>
    where
        S: Store,
        S::Error: NeverFails,
    {
        let head = Head::from(&self.request);
        if rule.is_exempt(&head) {
            return Ok("does not apply: the request is exempt".to_owned());
        }
        let looked = self.look(vec![rule.clone()], store).await?;
        let Some((policy, status)) = looked.as_ref().ok().and_then(|report| report.iter().next()) else {
            return Ok(match looked {
                Ok(_) => "does not apply: the request has no key for it".to_owned(),
                refused => outcome(&refused),
            });
        };
        let shown = self.registry.shown_key(config, &head).map_err(|error| error.to_string())?;
        let key = shown.map(|key| key.to_text()).unwrap_or_default();
        let quota = match policy.quota() {
            quota if quota == config.policy().quota() || policy.is_in_flight() => String::new(),
            quota => format!("quota {quota}, "),
        };
        let cost = human(rule.cost_of(&head, policy));
        let (left, capacity) = (human(status.remaining()), human(policy.capacity()));
        let outcome = outcome(&looked);
        let exempt = config.registry_names().into_iter().filter(|(kind, _)| *kind == "exempt");
        let exempt: String =
            exempt.map(|(_, name)| format!(", unless {name} of the application exempts it")).collect();
        Ok(format!("key {key}, {quota}cost {cost}, {left} of {capacity} left: {outcome}{exempt}"))
    }

    /// The state of these rules for the request, or why one has no key.
    async fn look<S>(&self, rules: Vec<Rule>, store: &S) -> Result<Result<Report, Denial>, String>
    where
        S: Store,
        S::Error: NeverFails,
    {
        let limiter = RequestLimiter::try_new(rules).and_then(|limiter| limiter.try_store(store.clone()));
        let limiter = limiter.map_err(|error| error.to_string())?;
        let looked = limiter.look(&Head::from(&self.request)).await;
        match &looked {
            Ok(report) if report.policies().next().is_some() && report.statuses().is_empty() => {
                Err("--redis: it does not answer any more".to_owned())
            }
            _ => Ok(looked),
        }
    }
}

/// Completes "the request …".
fn outcome(looked: &Result<Report, Denial>) -> String {
    let denial = match looked {
        Ok(report) => report.denial(),
        Err(denial) => Some(denial.clone()),
    };
    let Some(denial) = denial else { return "passes".to_owned() };
    let hint = match (denial.reason(), denial.retry_after()) {
        (Reason::NoPeerAddress, _) => " (give --peer)".to_owned(),
        (_, Some(wait)) => format!(", retry after {}", span(wait)),
        _ => String::new(),
    };
    format!("is refused with {}: {denial}{hint}", denial.status())
}
