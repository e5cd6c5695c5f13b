//! What is asked of every limiter: the quotas, the keys, and the requests that carry them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use clap::ValueEnum;
use http::{HeaderName, HeaderValue, Request};

/// The field that carries the key for limiters which are shown the header fields of a request and nothing else.
pub(crate) const KEY_FIELD: HeaderName = HeaderName::from_static("x-client");

/// The quota, in the terms that every limiter's own can be built from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The time in which one request comes back.
    pub(crate) interval: Duration,
    /// The most requests at once; also the limit of a window.
    pub(crate) burst: u32,
}

impl Plan {
    /// The time in which the whole quota comes back: `burst` requests in each.
    pub(crate) const fn window(self) -> Duration {
        self.interval.saturating_mul(self.burst)
    }
}

/// One of the situations that a limiter is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// 1,000 keys, every request within its quota: the limiter's state is in the processor's caches.
    AllowedHot,
    /// 1,000,000 keys, every request within its quota: nearly every one touches memory that no cache holds.
    AllowedCold,
    /// 1,000 keys, each of which has used up its quota: nothing reaches the service.
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

    /// The peer that the others are set against: the fastest, when the comparison was made.
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

    /// Whether the requests that are measured must all be allowed; if not, they must all be denied.
    pub(crate) const fn allows(self) -> bool {
        matches!(self, Scenario::AllowedHot | Scenario::AllowedCold)
    }

    /// The quota of each key. Where requests are to be allowed it is long enough that no key falls idle while it
    /// is measured: an idle key costs some limiters less, because they may forget it.
    pub(crate) const fn plan(self) -> Plan {
        match self {
            Scenario::AllowedHot | Scenario::AllowedCold => {
                Plan { interval: Duration::from_secs(30), burst: 100_000 }
            }
            Scenario::DeniedHot => Plan { interval: Duration::from_secs(86_400), burst: 1 },
        }
    }
}

/// Where a limiter finds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// `ConnectInfo<SocketAddr>` in the request's extensions, as axum puts it there.
    PeerIp,
    /// The same address as text in [`KEY_FIELD`]; `ConnectInfo` is there all the same.
    Field,
}

impl KeySource {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            KeySource::PeerIp => "peer IP",
            KeySource::Field => "header field",
        }
    }

    /// The request of the client with this number. The loop without a limiter builds it in the same way, so that
    /// its cost is not counted as the limiter's.
    pub(crate) fn request(self, client: u32) -> Request<Body> {
        const FIRST: u32 = u32::from_be_bytes([10, 0, 0, 0]);
        let ip = Ipv4Addr::from(FIRST + client);
        let mut request = Request::new(Body::empty());
        if self == KeySource::Field {
            let text = HeaderValue::try_from(ip.to_string()).expect("an address is a valid header value");
            request.headers_mut().insert(KEY_FIELD, text);
        }
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((ip, 40_000))));
        request
    }
}

/// Client numbers, drawn evenly and in the same order for every limiter (SplitMix64).
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
        // The high half times the count, of which the high half again: below `count`, without a division.
        (((bits >> 32) * u64::from(self.count)) >> 32) as u32
    }
}
