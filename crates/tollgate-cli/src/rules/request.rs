//! The request that is explained, and what the application would say of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use tollgate::charge::ResponseHead;
use tollgate::config::{Registry, RuleFile};
use tollgate::extract::{ClientIpHeader, PeerAddr};
use tollgate::{Head, Key};

use super::names::application_names;

/// Options that describe a request. Errors do not repeat values, which may be secret.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// The method, in capitals
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,

    /// The path as received, with or without a query
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,

    /// A header; repeatable
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// The address at the other end of the connection, with or without a port
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<String>,

    /// Network of proxies to trust for client addresses, such as 10.0.0.0/8; repeatable
    #[arg(long, value_name = "CIDR", requires = "client_ip_header")]
    trust: Vec<String>,

    /// Header in which those proxies write the client's address, such as x-forwarded-for
    #[arg(long, value_name = "NAME", requires = "trust")]
    client_ip_header: Option<String>,

    /// What the application finds in the request: 'key user=alice', 'key user=#42', 'class
    /// plan=pro' or 'cost kib=3'; repeatable
    #[arg(long = "given", value_name = "KIND NAME=VALUE")]
    given: Vec<String>,
}

/// The kinds and names of what only the application knows.
pub(super) type AppNames<'a> = BTreeSet<(&'static str, &'a str)>;

const GIVEN: &str = "--given: expected 'key NAME=KEY', 'class NAME=CLASS' or 'cost NAME=UNITS'";

impl RequestArgs {
    pub(super) fn request(&self) -> Result<Request<()>, String> {
        let mut request = Request::new(());
        let is_usual = |method: &Method| !method.as_str().contains(|sign: char| sign.is_ascii_lowercase());
        let method = Method::from_bytes(self.method.as_bytes()).ok().filter(is_usual);
        *request.method_mut() = method
            .ok_or_else(|| format!("--method {:?}: expected one such as GET, in capitals", self.method))?;
        let uri: Option<Uri> = self.path.parse().ok().filter(|_| self.path.starts_with('/'));
        *request.uri_mut() = uri.ok_or("--path: expected one such as /api/users, percent-encoded")?;
        for header in &self.headers {
            let form = "--header: expected a name, a colon and a value: 'x-api-key: k1'";
            let (name, value) = header.split_once(':').ok_or(form)?;
            let value = HeaderValue::from_str(value.trim()).map_err(|_| form)?;
            request.headers_mut().append(HeaderName::try_from(name).map_err(|_| form)?, value);
        }
        if let Some(peer) = &self.peer {
            let address = peer.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0)).or_else(|_| peer.parse());
            let address = address.map_err(|_| format!("--peer {peer:?}: expected one such as 192.0.2.1"))?;
            request.extensions_mut().insert(PeerAddr(address));
        }
        Ok(request)
    }

    /// The registry of an application that answers what the options say. And the kinds and names of
    /// what only the application knows, if no option says it.
    pub(super) fn registry<'a>(&self, file: &'a RuleFile) -> Result<(Registry, AppNames<'a>), String> {
        let mut registry = Registry::new();
        if let Some(header) = &self.client_ip_header {
            let name =
                HeaderName::try_from(header).map_err(|error| format!("--client-ip-header: {error}"))?;
            let client_ip = ClientIpHeader::from(name).try_trusting(&self.trust);
            registry = registry.client_ip(client_ip.map_err(|error| format!("--trust: {error}"))?);
        }
        let mut unknown = BTreeSet::new();
        for (kind, name) in file.rules().iter().flat_map(application_names) {
            registry = match kind {
                // Asked after the request, or named in the words of the rule.
                "count_if" => registry.count_if(name, |_: &ResponseHead<'_>| true),
                "cost_by" => registry.cost_by(name, |_: &ResponseHead<'_>| 1),
                "exempt" => registry.exempt(name, |_: &Head<'_>| false),
                _ => {
                    unknown.insert((kind, name));
                    registry
                }
            };
        }
        for given in &self.given {
            let (kind, given) = given.split_once(' ').ok_or(GIVEN)?;
            let (name, value) = given.split_once('=').ok_or(GIVEN)?;
            let needed = unknown.len();
            unknown.retain(|other| *other != (kind, name));
            if unknown.len() == needed {
                return Err(format!("--given {kind} {name}: no rule of the file has it"));
            }
            registry = match kind {
                "key" => {
                    let key: Key = value.parse().map_err(|_| GIVEN)?;
                    registry.key(name, move |_: &Head<'_>| Some(key.clone()))
                }
                "class" => {
                    let class = value.to_owned();
                    registry.class(name, move |_: &Head<'_>, _: &Key| Some(class.clone()))
                }
                "cost" => {
                    let units: u64 = value.parse().map_err(|_| GIVEN)?;
                    registry.cost(name, move |_: &Head<'_>| units)
                }
                _ => return Err(GIVEN.to_owned()),
            };
        }
        Ok((registry, unknown))
    }
}
