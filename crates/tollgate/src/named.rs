//! A service of tonic keeps its name inside of the layer.

use tonic::server::NamedService;

use crate::service::RateLimit;

/// So that a layer may stand around a single service of a server: its name is what the server finds it by.
impl<Svc: NamedService, S> NamedService for RateLimit<Svc, S> {
    const NAME: &'static str = Svc::NAME;
}
