//! Makes a layer from the command line.

use http::HeaderName;
use tollgate::extract::{ClientIp, ClientIpHeader};
use tollgate::{MissingKey, PolicyExt, RateLimitLayer, Rule, SetupError};

use crate::cli::Cli;
use crate::dashboard::{DeniedKeys, Hosts, RecentKeys};
use crate::in_flight_spec;
use crate::login;
use crate::rule_options::{RuleOptions, add_blocks};
use crate::rule_spec::RuleSpec;
use crate::store::StoreSpec;
use crate::tokens;
use crate::transfer;

/// The rule of a server whose command line has none.
const DEFAULT_RULE: &str = "api=10/10s";

/// The configuration of the server.
#[derive(Debug)]
pub(crate) struct Config {
    /// The address to listen on.
    pub(crate) listen: String,
    /// The hosts that the dashboard answers to.
    pub(crate) hosts: Hosts,
    /// The address on which metrics are served, if any.
    pub(crate) metrics: Option<String>,
    /// The rules from the command line, for the banner.
    pub(crate) rules: Vec<RuleSpec>,
    /// The header in which trusted proxies write the client's address.
    pub(crate) client_ip_header: Option<HeaderName>,
    /// What happens if a rule finds no key.
    pub(crate) missing_key: MissingKey,
    /// Where the usage is stored.
    pub(crate) store: StoreSpec,
    /// The keys that the rules of requests in flight find.
    pub(crate) recent_keys: RecentKeys,
    /// The keys that rules which block have denied.
    pub(crate) denied_keys: DeniedKeys,
    /// The layer with the rules, still without that store.
    pub(crate) layer: RateLimitLayer,
}

impl TryFrom<Cli> for Config {
    type Error = String;

    /// Errors are one line, for the user of the command line.
    fn try_from(cli: Cli) -> Result<Config, String> {
        let store = StoreSpec::new(&cli)?;
        let client_ip = client_ip(cli.client_ip_header.as_deref(), &cli.trust)?;
        let (client_ip_header, client_ip) = client_ip.unzip();
        let missing_key = MissingKey::from(cli.missing_key);
        let default = (cli.rules.is_empty() && cli.in_flight.is_empty()).then_some(DEFAULT_RULE);
        let rates = cli.rules.iter().map(String::as_str).chain(default).map(str::parse);
        let in_flight = cli.in_flight.iter().map(|text| in_flight_spec::parse(text));
        let mut rules = rates.chain(in_flight).collect::<Result<Vec<RuleSpec>, _>>()?;
        add_blocks(&cli.block, &mut rules)?;
        let recent_keys = RecentKeys::default();
        let denied_keys = DeniedKeys::of(&rules, client_ip.as_ref(), missing_key);
        let options = RuleOptions::parse(&cli.leaving, &rules)?;
        let limit = |rule: &RuleSpec| {
            let extractor = rule.key.extractor(client_ip.as_ref());
            if rule.policy.is_in_flight() {
                let limited = rule.policy.clone().by(recent_keys.noting(&rule.policy, extractor));
                let limited = limited.on_missing_key(missing_key).wait_at_most(rule.wait_for_slot);
                return options.add_to(limited);
            }
            let limited = rule.policy.clone().by(extractor).cost(transfer::cost).on_missing_key(missing_key);
            options.add_to(match rule.policy.name() {
                tokens::RULE => limited.reserve(tokens::estimate),
                login::RULE => limited.exempt(login::is_elsewhere).reserve(|_| 1),
                _ => limited,
            })
        };
        let limited: Result<Vec<Rule>, SetupError> = rules.iter().map(limit).collect();
        let layer = limited.and_then(RateLimitLayer::try_new).map_err(|error| rules_error(&rules, error))?;
        let layer = layer.fields(cli.headers.into());
        let hosts = Hosts::parse(&cli.hosts)?;
        let (listen, metrics) = (cli.listen, cli.metrics);
        Ok(Config {
            listen,
            hosts,
            metrics,
            rules,
            client_ip_header,
            missing_key,
            store,
            recent_keys,
            denied_keys,
            layer,
        })
    }
}

/// An error of all rules together, which names the options that were given.
pub(crate) fn rules_error(rules: &[RuleSpec], error: SetupError) -> String {
    let options = match rules.iter().any(|rule| rule.policy.is_in_flight()) {
        true => "--rule, --in-flight",
        false => "--rule",
    };
    format!("{options}: {error}")
}

impl Config {
    /// Returns the headers that give a request the keys of all rules, as `name: value`.
    pub(crate) fn needed_headers(&self) -> Vec<String> {
        let mut needed: Vec<String> = Vec::new();
        if self.missing_key == MissingKey::Refuse {
            for header in self.rules.iter().flat_map(|rule| rule.key.needed_headers()) {
                if !needed.contains(&header) {
                    needed.push(header);
                }
            }
        }
        needed
    }
}

/// The extractor of the client's address behind trusted proxies; `None` to use the peer's address.
fn client_ip(header: Option<&str>, trust: &[String]) -> Result<Option<(HeaderName, ClientIp)>, String> {
    let header = match (header, trust) {
        (None, []) => return Ok(None),
        (None, _) => {
            return Err(
                "--trust needs --client-ip-header: name the header in which these proxies write the client's address"
                    .to_owned(),
            );
        }
        (Some(_), []) => {
            return Err(
                "--client-ip-header needs --trust: any client can write that header, so name the proxies to trust"
                    .to_owned(),
            );
        }
        (Some(header), _) => header,
    };
    let name = HeaderName::try_from(header)
        .map_err(|_| format!("--client-ip-header: {header:?} is not the name of a header"))?;
    let client_ip = ClientIpHeader::from(name.clone()).try_trusting(trust);
    let client_ip = client_ip.map_err(|error| format!("--trust: {error}"))?;
    Ok(Some((name, client_ip)))
}
