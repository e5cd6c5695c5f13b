//! The contenders: the bare service, and a file for each limiter in front of it.

mod axum_governor;
mod ours;
mod tower_governor;
#[cfg(feature = "rust-1-96")]
mod tower_rate_limiter;
mod tower_rate_tier;

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use tower::{Service, service_fn};

use crate::measure::{Prepared, Subject};
use crate::scenario::{KeySource, Plan};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    /// The package name, or [`BARE`].
    pub(crate) package: &'static str,
    /// Whether it writes the quota into header fields.
    pub(crate) fields: bool,
    pub(crate) key: KeySource,
    /// Makes a fresh limiter with this quota around the bare service.
    pub(crate) build: fn(Plan) -> Box<dyn Subject>,
}

pub(crate) const OURS: &str = "tollgate";

/// The package name of a service without a limiter.
pub(crate) const BARE: &str = "(none)";

/// One per way to carry the key, because the loop also builds the request.
pub(crate) fn bare() -> [Contender; 2] {
    let contender = |key, build| Contender { package: BARE, fields: false, key, build };
    [
        contender(KeySource::PeerIp, |_| Prepared::boxed(service(), KeySource::PeerIp)),
        contender(KeySource::Field, |_| Prepared::boxed(service(), KeySource::Field)),
    ]
}

pub(crate) fn limiters() -> Vec<Contender> {
    let mut all = Vec::new();
    all.extend(ours::contenders());
    all.extend(tower_governor::contenders());
    all.extend(axum_governor::contenders());
    all.extend(tower_rate_tier::contenders());
    #[cfg(feature = "rust-1-96")]
    all.extend(tower_rate_limiter::contenders());
    all
}

/// The service behind every limiter: always ready, with an immediate, empty answer without fields.
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
