//! The text that the server prints when it starts.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::Config;
use crate::live_rules::{LiveRule, needed_headers};
use crate::login;
use crate::tokens;

/// Returns the address, the limits, and commands to try.
pub(crate) fn banner(config: &Config, address: SocketAddr, metrics: Option<SocketAddr>) -> String {
    let store = config.store.place();
    let mut text = format!("Listening on http://{address}, with its limits in {store}. Ctrl-C stops.\n");
    if let Some(outage) = config.store.outage() {
        let _ = writeln!(text, "{outage}");
    }
    let rules = config.rules.now();
    match &config.rules_path {
        None => text.push_str("\nLimits:\n"),
        Some(path) => _ = writeln!(text, "\nLimits, until {} changes:", path.display()),
    }
    for rule in rules.iter() {
        let _ = writeln!(text, "  {}: {}", rule.name(), rule.words);
    }
    if rules.len() > 1 {
        text.push_str("A request that one rule refuses is charged to none.\n");
    }
    match &config.client_ip_header {
        Some(header) if !rules.iter().any(|rule| rule.uses_addresses) => {
            let _ = writeln!(text, "No rule counts by address, so {header} has no effect.");
        }
        Some(header) => {
            let _ = writeln!(text, "Client addresses come from {header}, if trusted proxies wrote them.");
        }
        None if rules.iter().any(|rule| rule.uses_addresses) => {
            text.push_str(
                "Client addresses are those of the peers. Behind a proxy, use --trust and --client-ip-header.\n",
            );
        }
        None => {}
    }

    let headers = headers(&rules);
    let (reachable, metrics) = (reachable(address), metrics.map(reachable));
    let url = format!("http://{reachable}");
    let rates = rules.iter().filter(|rule| !rule.policy().is_in_flight());
    let amount = rates.map(|rule| rule.policy().largest_cost()).min().unwrap_or(3).min(3);
    let _ = write!(
        text,
        "\nWatch the limits live, and send requests: {url}/dashboard\n\nTry, several times:\n  curl -i{headers} {url}/\n  curl -i{headers} -X POST {url}/transfer/{amount}\n  \
         grpcurl -plaintext{headers} {reachable} helloworld.Greeter/SayHello\n",
    );
    let are_options = config.rules_path.is_none();
    let rule = |name| rules.iter().find(|rule| rule.name() == name);
    if let Some(tokens) = rule(tokens::RULE) {
        let estimate = tokens.policy().largest_cost().min(100);
        let used = estimate.div_ceil(3);
        let _ = write!(
            text,
            "  curl -i{headers} -X POST {url}/chat/{estimate}/{used}\n  \
             curl -N{headers} -X POST {url}/stream/{used}/500\n"
        );
    }
    if rule(login::RULE).is_some() {
        let _ = writeln!(text, "  curl -i{headers} -d 'user=ada&password=open sesame' {url}/login");
    }
    if rules.iter().any(|rule| rule.policy().is_in_flight()) {
        let _ = write!(text, "  curl -i{headers} {url}/slow/2000\n  curl -N{headers} {url}/drip/2000\n");
    } else if are_options {
        text.push_str("Add --in-flight exports=2 to try GET /slow/2000 and GET /drip/2000.\n");
    }
    if are_options && rule(tokens::RULE).is_none() {
        text.push_str("Add --rule tokens=1000/m to try POST /chat/100/37 and POST /stream/20/500.\n");
    }
    if are_options && rule(login::RULE).is_none() {
        text.push_str("Add --rule login=5/h --block login=20/15m to limit failures of POST /login, and to block guessers.\n");
    }
    match &config.jobs {
        Some(jobs) => {
            let _ = write!(
                text,
                "  curl -i -X POST {url}/jobs/acme/1\nJobs, {} of a key at a time: {url}/jobs/acme shows them.\n",
                jobs.limit()
            );
        }
        None if are_options => text.push_str("Add --jobs jobs=2 to try POST /jobs/acme/1.\n"),
        None => {}
    }
    let _ = writeln!(text, "{url}/me shows what is left. {url}/health is never limited.");
    if let Some(metrics) = metrics {
        let _ = writeln!(text, "http://{metrics}/metrics shows metrics to Prometheus.");
    }
    text.push('\n');
    text
}

/// Returns the curl options that give a request the keys of all rules.
fn headers(rules: &[LiveRule]) -> String {
    // A quote inside single quotes, for the shell.
    needed_headers(rules).iter().map(|header| format!(" -H '{}'", header.replace('\'', r"'\''"))).collect()
}

/// Replaces an unspecified address by one that a client on this machine can use.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
