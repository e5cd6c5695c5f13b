//! Networks in CIDR notation.

use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_core::counted_address;

use crate::errors::SetupError;

/// A list of networks.
#[derive(Clone, Debug)]
pub(crate) struct Networks(Box<[IpNet]>);

impl Networks {
    pub(crate) fn parse<N: AsRef<str>>(texts: impl IntoIterator<Item = N>) -> Result<Networks, SetupError> {
        texts.into_iter().map(|text| parse_network(text.as_ref())).collect::<Result<_, _>>().map(Networks)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether each address of a family is in them.
    #[cfg(feature = "tracing")]
    pub(super) fn cover_all(&self) -> bool {
        self.0.iter().any(|network| network.prefix_len() == 0)
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

fn parse_network(text: &str) -> Result<IpNet, SetupError> {
    let text = text.trim();
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| SetupError::NotANetwork(text.to_owned()))?;
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
