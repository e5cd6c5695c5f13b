//! The contenders: the bare loops, and a file for each limiter.

mod axum_governor;
mod governor;
mod limitador;
mod ours;
mod tower_governor;
#[cfg(feature = "rust-1-96")]
mod tower_rate_limiter;
mod tower_rate_tier;

use std::convert::Infallible;
use std::hint::black_box;
use std::net::IpAddr;

use axum::body::Body;
use http::{Request, Response};
use tower::{Service, service_fn};

use crate::measure::{Layered, Primitive, Subject};
use crate::scenario::{KeySource, Plan, Scenario};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    /// The package name, or [`BARE`].
    pub(crate) package: &'static str,
    pub(crate) part: Part,
    pub(crate) key: KeySource,
    /// Makes a fresh limiter with this quota.
    pub(crate) build: fn(Plan) -> Box<dyn Subject>,
}

/// What is measured of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The layer around the bare service, with its header fields.
    Layer,
    /// The layer, with its header fields off.
    LayerWithoutFields,
    /// A decision without a layer: there is neither a request nor a response.
    Primitive,
    /// A decision of the store behind the primitive.
    Store,
}

impl Part {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Part::Layer => "layer",
            Part::LayerWithoutFields => "layer, no fields",
            Part::Primitive => "primitive",
            Part::Store => "primitive, the store alone",
        }
    }

    /// Denied answers have `Retry-After` even without fields; only allowed answers differ.
    pub(crate) fn is_measured(self, scenario: Scenario) -> bool {
        self != Part::LayerWithoutFields || scenario.allows()
    }

    pub(crate) const fn has_layer(self) -> bool {
        matches!(self, Part::Layer | Part::LayerWithoutFields)
    }

    /// The package to compare with, by the same part or its primitive.
    pub(crate) const fn yardstick(self, scenario: Scenario) -> &'static str {
        if self.has_layer() { scenario.yardstick() } else { "governor" }
    }
}

pub(crate) const OURS: &str = "tollgate";

/// A cap for limiters that have one. It exceeds the keys of the comparison, with room for shards
/// that fill unevenly, because most peers have no cap.
const MAX_KEYS: usize = 2_000_000;

/// The package name of a loop without a limiter.
pub(crate) const BARE: &str = "(none)";

/// One per way to carry the key, because the loop also builds the request.
pub(crate) fn bare() -> [Contender; 3] {
    [
        Contender {
            package: BARE,
            part: Part::Layer,
            key: KeySource::PeerIp,
            build: |_| behind(KeySource::PeerIp),
        },
        Contender {
            package: BARE,
            part: Part::Layer,
            key: KeySource::Field,
            build: |_| behind(KeySource::Field),
        },
        Contender {
            package: BARE,
            part: Part::Primitive,
            key: KeySource::Argument,
            build: |_| Box::new(Primitive(|client: IpAddr| black_box(client).is_ipv4())),
        },
    ]
}

fn behind(key: KeySource) -> Box<dyn Subject> {
    Box::new(Layered { service: service(), key })
}

pub(crate) fn limiters() -> Vec<Contender> {
    let mut all = Vec::new();
    all.extend(ours::contenders());
    all.extend(tower_governor::contenders());
    all.extend(axum_governor::contenders());
    all.extend(tower_rate_tier::contenders());
    #[cfg(feature = "rust-1-96")]
    all.extend(tower_rate_limiter::contenders());
    all.extend(governor::contenders());
    all.extend(limitador::contenders());
    all
}

/// The service behind every layer: always ready, with an immediate, empty answer without fields.
pub(crate) fn service()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(answer)
}

async fn answer(_request: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::empty()))
}
