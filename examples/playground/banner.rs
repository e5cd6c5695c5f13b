//! What the server says when it starts.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tollgate::MissingKey;

use crate::config::Config;

/// Where it listens, what it limits, and commands to try.
pub(crate) fn banner(config: &Config, address: SocketAddr) -> String {
    let store = config.store.place();
    let mut text = format!("Listening on http://{address}, counting in {store}. Ctrl-C stops.\n");
    if let Some(outage) = config.store.outage() {
        let _ = writeln!(text, "{outage}");
    }
    text.push_str("\nLimits:\n");
    for rule in &config.rules {
        let _ = writeln!(text, "  {}: {}", rule.policy.name(), rule.in_words());
    }
    if config.rules.len() > 1 {
        text.push_str("A request passes if all of them let it, and is charged to all or to none.\n");
    }
    match &config.client_ip_header {
        Some(header) if !config.rules.iter().any(|rule| rule.key.uses_addresses()) => {
            let _ = writeln!(text, "No rule counts by address: what {header} says changes nothing.");
        }
        Some(header) => {
            let _ =
                writeln!(text, "Addresses are read from {header}, as far as trusted proxies vouch for them.");
        }
        None if config.rules.iter().any(|rule| rule.key.uses_addresses()) => {
            text.push_str(
                "Addresses are those of the peers; behind a proxy, use --trust and --client-ip-header.\n",
            );
        }
        None => {}
    }

    let headers = headers(config);
    let reachable = reachable(address);
    let url = format!("http://{reachable}");
    let amount = config.rules.iter().map(|rule| rule.policy.largest_cost()).min().unwrap_or(1).min(3);
    let _ = write!(
        text,
        "\nTry, several times:\n  curl -i{headers} {url}/\n  curl -i{headers} -X POST {url}/transfer/{amount}\n  \
         grpcurl -plaintext{headers} {reachable} helloworld.Greeter/SayHello\n\
         What is left is at {url}/me; {url}/health is never limited.\n\n",
    );
    text
}

/// The options that give a request the keys it is counted by.
fn headers(config: &Config) -> String {
    let mut needed: Vec<String> = Vec::new();
    if config.missing_key == MissingKey::Refuse {
        for header in config.rules.iter().flat_map(|rule| rule.key.needed_headers()) {
            if !needed.contains(&header) {
                needed.push(header);
            }
        }
    }
    // A quote inside single quotes, for the shell.
    needed.iter().map(|header| format!(" -H '{}'", header.replace('\'', r"'\''"))).collect()
}

/// An address that a client on this machine can use, where the server listens on all.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
