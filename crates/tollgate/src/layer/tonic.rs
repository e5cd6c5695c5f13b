//! Keeps the name of a tonic service inside the layer.

use tonic::server::NamedService;

use super::service::RateLimit;

/// Lets a layer wrap a single service of a server, which finds services by their names.
impl<Svc: NamedService, S> NamedService for RateLimit<Svc, S> {
    const NAME: &'static str = Svc::NAME;
}
