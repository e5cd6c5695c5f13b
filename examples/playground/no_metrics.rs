//! `--metrics` without the feature of that name: an error that says how to get it.

use std::net::SocketAddr;

use tollgate::metrics::StoreMetrics;

#[derive(Debug)]
pub(crate) enum Exporter {}

impl Exporter {
    pub(crate) async fn install(_: &str) -> Result<Exporter, String> {
        Err("--metrics is not compiled in: add `--features metrics` before the `--`".to_owned())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match *self {}
    }

    pub(crate) async fn serve(self, _: StoreMetrics) -> Result<(), String> {
        match self {}
    }
}
