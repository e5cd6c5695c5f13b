//! The request that is explained, and what the application would say of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use tollgate::config::{Registry, RuleFile};
use tollgate::extract::{ClientIpHeader, PeerAddr};
use tollgate::{Head, Key, ResponseHead};

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

    /// A key that the application finds, as `tollgate look` takes it: user=alice, 'user=#42';
    /// repeatable
    #[arg(long = "key", value_name = "NAME=KEY")]
    keys: Vec<String>,

    /// A class that the application finds, for tiers and leaving: plan=pro; repeatable
    #[arg(long = "class", value_name = "NAME=CLASS")]
    classes: Vec<String>,

    /// A cost that the application finds, for cost and reserve: kib=3; repeatable
    #[arg(long = "cost", value_name = "NAME=UNITS")]
    costs: Vec<String>,
}

impl RequestArgs {
    pub(super) fn request(&self) -> Result<Request<()>, String> {
        let mut request = Request::new(());
        let method = Method::from_bytes(self.method.as_bytes()).ok();
        let method =
            method.filter(|method| !method.as_str().contains(|sign: char| sign.is_ascii_lowercase()));
        *request.method_mut() = method.ok_or_else(|| {
            format!("--method {:?}: expected a method such as GET, in capitals", self.method)
        })?;
        let uri: Option<Uri> =
            self.path.parse().ok().filter(|_| self.path.starts_with('/') || self.path == "*");
        *request.uri_mut() = uri.ok_or_else(|| {
            format!("--path {:?}: expected a path that begins with /, percent-encoded", self.path)
        })?;
        for header in &self.headers {
            let (name, value) = header
                .split_once(':')
                .ok_or("--header: expected a name, a colon and a value: 'x-api-key: k1'")?;
            let value = HeaderValue::from_str(value.trim()).map_err(|_| {
                format!("--header {name:?}: the value has characters that no header may have")
            })?;
            let name = HeaderName::try_from(name)
                .map_err(|_| format!("--header: {name:?} is not the name of a header"))?;
            request.headers_mut().append(name, value);
        }
        if let Some(peer) = &self.peer {
            let ip = peer.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0)).or_else(|_| peer.parse());
            let address =
                ip.map_err(|_| format!("--peer {peer:?}: expected an address such as 192.0.2.1"))?;
            request.extensions_mut().insert(PeerAddr(address));
        }
        Ok(request)
    }

    /// Each value of the application: its kind, its name and its text.
    pub(super) fn given(&self) -> Result<Vec<(&'static str, &str, &str)>, String> {
        let each = [("key", &self.keys), ("class", &self.classes), ("cost", &self.costs)];
        let each = each.into_iter().flat_map(|(kind, texts)| texts.iter().map(move |text| (kind, text)));
        each.map(|(kind, text)| {
            let (name, value) = text.split_once('=').ok_or(format!("--{kind}: expected NAME=VALUE"))?;
            Ok((kind, name, value))
        })
        .collect()
    }

    /// The registry of an application that says of this request what the options say.
    pub(super) fn registry(&self, file: &RuleFile) -> Result<Registry, String> {
        let mut registry = Registry::new();
        if let Some(header) = &self.client_ip_header {
            let name = HeaderName::try_from(header);
            let name =
                name.map_err(|_| format!("--client-ip-header: {header:?} is not the name of a header"))?;
            let client_ip = ClientIpHeader::from(name).try_trusting(&self.trust);
            registry = registry.client_ip(client_ip.map_err(|error| format!("--trust: {error}"))?);
        }
        let names: BTreeSet<_> = file.rules().iter().flat_map(|rule| rule.registry_names()).collect();
        for (kind, name, value) in self.given()? {
            if !names.contains(&(kind, name)) {
                return Err(format!("--{kind} {name}: no rule of the file names it"));
            }
            registry = match kind {
                "key" => {
                    let key: Result<Key, _> = value.parse();
                    let key = key.map_err(|_| {
                        format!("--key {name}: expected a key such as alice, '#42' or '@192.0.2.1'")
                    })?;
                    registry.key(name, move |_: &Head<'_>| Some(key.clone()))
                }
                "class" => {
                    let class = value.to_owned();
                    registry.class(name, move |_: &Head<'_>, _: &Key| Some(class.clone()))
                }
                _ => {
                    let units: u64 =
                        value.parse().map_err(|_| format!("--cost {name}: expected a whole number"))?;
                    registry.cost(name, move |_: &Head<'_>| units)
                }
            };
        }
        // What is only asked after the request, and exemptions, of which the output says so.
        for (kind, name) in names {
            registry = match kind {
                "count_if" => registry.count_if(name, |_: &ResponseHead<'_>| true),
                "cost_by" => registry.cost_by(name, |_: &ResponseHead<'_>| 1),
                "exempt" => registry.exempt(name, |_: &Head<'_>| false),
                _ => registry,
            };
        }
        Ok(registry)
    }
}
