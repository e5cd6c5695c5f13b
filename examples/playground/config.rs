//! Makes a layer from the command line.

use std::path::PathBuf;

use http::HeaderName;
use tollgate::extract::{ClientIp, ClientIpHeader};
use tollgate::jobs::JobPolicy;
use tollgate::watch::WatchedFile;
use tollgate::{RateLimitLayer, SetupError};

use crate::cli::Cli;
use crate::dashboard::Hosts;
use crate::jobs;
use crate::live_rules::{LiveRule, LiveRules};
use crate::registry::registry;
use crate::rule_options;
use crate::store::StoreSpec;

/// The configuration of the server.
#[derive(Debug)]
pub(crate) struct Config {
    /// The address to listen on.
    pub(crate) listen: String,
    /// The hosts that the dashboard answers to.
    pub(crate) hosts: Hosts,
    /// The address on which metrics are served, if any.
    pub(crate) metrics: Option<String>,
    /// The rules, and what is said of them.
    pub(crate) rules: LiveRules,
    /// The path of the file that they are from, if they are from one.
    pub(crate) rules_path: Option<PathBuf>,
    /// That file, until the layer follows it.
    pub(crate) rules_file: Option<WatchedFile>,
    /// The header in which trusted proxies write the client's address.
    pub(crate) client_ip_header: Option<HeaderName>,
    /// The client's address, if it comes from that header.
    pub(crate) client_ip: Option<ClientIp>,
    /// The file to which decisions are logged.
    pub(crate) log: Option<PathBuf>,
    /// Where the usage is stored.
    pub(crate) store: StoreSpec,
    /// The limit of jobs, if there is one.
    pub(crate) jobs: Option<JobPolicy>,
    /// The layer with the rules, still without that store.
    pub(crate) layer: RateLimitLayer,
}

impl TryFrom<Cli> for Config {
    type Error = String;

    /// Errors are one line, for the user of the command line.
    fn try_from(cli: Cli) -> Result<Config, String> {
        let store = StoreSpec::new(&cli)?;
        let jobs = cli.jobs.as_deref().map(jobs::parse).transpose()?;
        let client_ip = client_ip(cli.client_ip_header.as_deref(), &cli.trust)?;
        let (client_ip_header, client_ip) = client_ip.unzip();
        let hosts = Hosts::parse(&cli.hosts)?;
        let registry = registry(client_ip.clone());
        let (rules, rules_file) = match &cli.rules_file {
            None => (LiveRules::fixed(rule_options::rules(&cli, &registry)?), None),
            Some(path) => {
                let opened = LiveRules::open(path, registry);
                let (rules, file) = opened.map_err(|error| one_line(&format!("--rules: {error}")))?;
                (rules, Some(file))
            }
        };
        let layer = RateLimitLayer::try_new(rules.now().iter().map(LiveRule::rule).cloned());
        let layer = layer.map_err(|error| rules_error(&rules, cli.rules_file.is_some(), error))?;
        Ok(Config {
            listen: cli.listen,
            hosts,
            metrics: cli.metrics,
            rules,
            rules_path: cli.rules_file,
            rules_file,
            client_ip_header,
            client_ip,
            log: cli.log,
            store,
            jobs,
            layer: layer.fields(cli.headers.into()),
        })
    }
}

impl Config {
    /// An error of all rules together, which names the options that were given.
    pub(crate) fn rules_error(&self, error: SetupError) -> String {
        rules_error(&self.rules, self.rules_path.is_some(), error)
    }
}

fn rules_error(rules: &LiveRules, are_from_a_file: bool, error: SetupError) -> String {
    let options = match rules.now().iter().any(|rule| rule.policy().is_in_flight()) {
        _ if are_from_a_file => "--rules",
        true => "--rule, --in-flight",
        false => "--rule",
    };
    format!("{options}: {error}")
}

/// A message that quotes a path or a file.
fn one_line(message: &str) -> String {
    message.replace(char::is_control, "\u{fffd}")
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
