//! The quotas, keys and requests of every limiter.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use clap::ValueEnum;
use http::{HeaderName, HeaderValue, Request};

/// The field with the key, for limiters that only see the header fields.
pub(crate) const KEY_FIELD: HeaderName = HeaderName::from_static("x-client");

/// A quota in terms that fit every limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The time to refill one request.
    pub(crate) interval: Duration,
    /// The most requests at once, and the limit of a window.
    pub(crate) burst: u32,
}

impl Plan {
    /// The time to refill the whole quota.
    pub(crate) const fn window(self) -> Duration {
        self.interval.saturating_mul(self.burst)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// 1,000 keys, all requests allowed: the limiter's state is in the processor's caches.
    AllowedHot,
    /// 1,000,000 keys, all requests allowed: almost every request touches uncached memory.
    AllowedCold,
    /// 1,000 keys with used-up quotas: all requests are denied.
    DeniedHot,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 3] = [Scenario::AllowedHot, Scenario::AllowedCold, Scenario::DeniedHot];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Scenario::AllowedHot => "allowed, hot",
            Scenario::AllowedCold => "allowed, cold",
            Scenario::DeniedHot => "denied, hot",
        }
    }

    /// The peer to compare a layer with: the fastest at the time of writing.
    pub(crate) const fn yardstick(self) -> &'static str {
        match self {
            Scenario::AllowedHot | Scenario::AllowedCold => "tower_governor",
            Scenario::DeniedHot => "tower-rate-tier",
        }
    }

    pub(crate) const fn keys(self) -> u32 {
        match self {
            Scenario::AllowedHot | Scenario::DeniedHot => 1_000,
            Scenario::AllowedCold => 1_000_000,
        }
    }

    /// Whether all requests must be allowed; otherwise all must be denied.
    pub(crate) const fn allows(self) -> bool {
        matches!(self, Scenario::AllowedHot | Scenario::AllowedCold)
    }

    /// The quota of each key. In allowed scenarios no key becomes idle during the run: limiters may
    /// forget idle keys, which costs less.
    pub(crate) const fn plan(self) -> Plan {
        match self {
            Scenario::AllowedHot | Scenario::AllowedCold => {
                Plan { interval: Duration::from_secs(30), burst: 100_000 }
            }
            Scenario::DeniedHot => Plan { interval: Duration::from_secs(86_400), burst: 1 },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// `ConnectInfo<SocketAddr>` in the request's extensions, as axum adds it.
    PeerIp,
    /// The same address as text in [`KEY_FIELD`]. `ConnectInfo` is there too.
    Field,
    /// The address itself: there is no request.
    Argument,
}

impl KeySource {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            KeySource::PeerIp => "peer IP",
            KeySource::Field => "header field",
            KeySource::Argument => "argument",
        }
    }

    /// The bare loop builds the request too, so its cost does not count as the limiter's.
    pub(crate) fn request(self, client: u32) -> Request<Body> {
        let ip = address(client);
        let mut request = Request::new(Body::empty());
        if self == KeySource::Field {
            let text = HeaderValue::try_from(ip.to_string()).expect("an address is a valid header value");
            request.headers_mut().insert(KEY_FIELD, text);
        }
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((ip, 40_000))));
        request
    }
}

pub(crate) fn address(client: u32) -> Ipv4Addr {
    const FIRST: u32 = u32::from_be_bytes([10, 0, 0, 0]);
    Ipv4Addr::from(FIRST + client)
}

/// Uniform client numbers, in the same order for every limiter (SplitMix64).
#[derive(Debug)]
pub(crate) struct Clients {
    state: u64,
    count: u32,
}

impl Clients {
    pub(crate) const fn new(seed: u64, count: u32) -> Clients {
        Clients { state: seed, count }
    }

    pub(crate) fn draw(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        // Maps to 0..`count` without a division.
        (((bits >> 32) * u64::from(self.count)) >> 32) as u32
    }
}
