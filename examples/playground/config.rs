//! From the command line to a layer.

use http::HeaderName;
use tollgate::extract::{ClientIp, ClientIpHeader};
use tollgate::{MissingKey, PolicyExt, RateLimitLayer};

use crate::cli::Cli;
use crate::rule_spec::RuleSpec;
use crate::store::StoreSpec;
use crate::transfer;

/// What the server does.
#[derive(Debug)]
pub(crate) struct Config {
    /// Where to listen.
    pub(crate) listen: String,
    /// The rules as they were written, for the banner.
    pub(crate) rules: Vec<RuleSpec>,
    /// The header in which trusted proxies tell the client's address.
    pub(crate) client_ip_header: Option<HeaderName>,
    /// What happens where a rule finds no key.
    pub(crate) missing_key: MissingKey,
    /// Where the counts are kept.
    pub(crate) store: StoreSpec,
    /// The rules as they are enforced, once they have that store.
    pub(crate) layer: RateLimitLayer,
}

impl TryFrom<Cli> for Config {
    type Error = String;

    /// Errors are one line, to be read by whoever typed the command.
    fn try_from(cli: Cli) -> Result<Config, String> {
        let store = StoreSpec::new(&cli)?;
        let client_ip = client_ip(cli.client_ip_header.as_deref(), &cli.trust)?;
        let (client_ip_header, client_ip) = client_ip.unzip();
        let missing_key = MissingKey::from(cli.missing_key);
        let rules = cli.rules.iter().map(|text| text.parse()).collect::<Result<Vec<RuleSpec>, _>>()?;
        let layer = RateLimitLayer::try_new(rules.iter().map(|rule| {
            let extractor = rule.key.extractor(client_ip.as_ref());
            rule.policy.clone().by(extractor).cost(transfer::cost).on_missing_key(missing_key)
        }));
        let layer = layer.map_err(|error| format!("--rule: {error}"))?.fields(cli.headers.into());
        Ok(Config { listen: cli.listen, rules, client_ip_header, missing_key, store, layer })
    }
}

/// The client's address behind trusted proxies; `None` to go by the peer's.
fn client_ip(header: Option<&str>, trust: &[String]) -> Result<Option<(HeaderName, ClientIp)>, String> {
    let header = match (header, trust) {
        (None, []) => return Ok(None),
        (None, _) => {
            return Err(
                "--trust needs --client-ip-header: in which header do these proxies tell the client's address?"
                    .to_owned(),
            );
        }
        (Some(_), []) => {
            return Err(
                "--client-ip-header needs --trust: anybody can write that header, whose is believed?"
                    .to_owned(),
            );
        }
        (Some(header), _) => header,
    };
    let name = HeaderName::try_from(header)
        .map_err(|_| format!("--client-ip-header: {header:?} is not the name of a header"))?;
    let client_ip = ClientIpHeader::from(name.clone()).trusting(trust);
    let client_ip = client_ip.map_err(|error| format!("--trust: {error}"))?;
    Ok(Some((name, client_ip)))
}
