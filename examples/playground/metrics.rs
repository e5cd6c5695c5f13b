//! `--metrics`: the metrics in the text format of Prometheus, on an address of their own.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use tokio::net::TcpListener;
use tollgate::metrics::StoreMetrics;

/// Seconds. Most stores answer within milliseconds, and a timeout is rarely above a second.
const BUCKETS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// How long the series of a rule stay that a file no longer has. Each scrape touches all others.
const END_OF_REMOVED: Duration = Duration::from_secs(600);

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4";

/// Collects the metrics of the process. Made before layer and store, which register theirs.
#[derive(Debug)]
pub(crate) struct Exporter {
    listener: TcpListener,
    address: SocketAddr,
    handle: PrometheusHandle,
}

impl Exporter {
    pub(crate) async fn install(address: &str) -> Result<Exporter, String> {
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|error| format!("--metrics: cannot listen on {address:?}: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let is_latency = Matcher::Full("tollgate_store_seconds".to_owned());
        let idle = MetricKindMask::COUNTER | MetricKindMask::GAUGE;
        let builder = PrometheusBuilder::new().idle_timeout(idle, Some(END_OF_REMOVED));
        let builder = builder.set_buckets_for_metric(is_latency, &BUCKETS);
        let handle = builder.and_then(PrometheusBuilder::install_recorder);
        let handle = handle.map_err(|error| format!("--metrics: {error}"))?;
        Ok(Exporter { listener, address, handle })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `/metrics`. Each scrape reads the stores first.
    pub(crate) async fn serve(self, stores: StoreMetrics) -> Result<(), String> {
        let (stores, handle) = (std::sync::Arc::new(stores), self.handle);
        let scrape = move || {
            stores.update();
            // Moves samples into the buckets, which otherwise grow until the next scrape.
            handle.run_upkeep();
            let text = handle.render();
            async { ([(CONTENT_TYPE, TEXT)], text) }
        };
        let app = Router::new().route("/metrics", get(scrape));
        axum::serve(self.listener, app).await.map_err(|error| error.to_string())
    }
}
