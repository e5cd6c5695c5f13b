//! Networks in CIDR notation.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_core::counted_address;

/// A list of networks.
#[derive(Clone, Debug)]
pub(crate) struct Networks(Box<[IpNet]>);

impl Networks {
    pub(crate) fn parse<N: AsRef<str>>(texts: impl IntoIterator<Item = N>) -> Result<Networks, TrustError> {
        texts.into_iter().map(|text| parse_network(text.as_ref())).collect::<Result<_, _>>().map(Networks)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address, unmapped, is in one of the networks.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether an address is in one of the networks, by itself or as the IPv4 address in it.
    pub(crate) fn contain_caller(&self, address: IpAddr) -> bool {
        self.contain(address) || self.contain(counted_address(address))
    }
}

/// Reasons why a list of networks is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustError {
    /// The text is neither a network in CIDR notation nor an address.
    NotANetwork(String),
    /// There is no network to trust. The header would never be read, and all clients of a proxy
    /// would share one quota.
    NoNetworks,
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustError::NotANetwork(text) => {
                write!(f, "{text:?} is neither a network such as 10.0.0.0/8 nor an address")
            }
            TrustError::NoNetworks => f.write_str("no networks to trust: the header would never be read"),
        }
    }
}

impl std::error::Error for TrustError {}

fn parse_network(text: &str) -> Result<IpNet, TrustError> {
    let text = text.trim();
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| TrustError::NotANetwork(text.to_owned()))?;
    // Addresses are compared unmapped, so a mapped network is unmapped too.
    match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => {
            let mapped = v6.addr().to_ipv4_mapped();
            let v4 = mapped.and_then(|v4| IpNet::new(IpAddr::V4(v4), v6.prefix_len() - 96).ok());
            Ok(v4.unwrap_or(network))
        }
        _ => Ok(network),
    }
}
