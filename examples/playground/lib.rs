//! A server with every option of tollgate, to try it out.
//!
//! ```text
//! cargo run --release -p playground --example playground -- --rule api=5/10s
//! cargo run --release -p playground --example playground -- --help
//! ```
//!
//! It serves HTTP and gRPC on one port, under the same rules. These files are worth copying from:
//!
//! - `config.rs` makes a layer from the command line.
//! - `live_rules.rs` and `registry.rs` take rules from a file, which the layer follows.
//! - `in_force.rs` shows the rules in force to operators.
//! - `rule_options.rs` takes rules from the command line.
//! - `store.rs` and `outage.rs` make a store from it.
//! - `routes.rs` puts the layer around routes.
//! - `tokens.rs` reserves units before the work, and settles them after it.
//! - `login.rs` counts failed log-ins, and checks one of a name at a time.
//! - `slow.rs` ends requests that lose their slots.
//! - `jobs.rs` takes and ends jobs with owners.
//! - `log.rs` logs what a store decides.
//! - `metrics.rs` serves metrics for Prometheus.
//! - `dashboard` serves a page that shows live what is limited.

mod banner;
mod cli;
mod config;
mod dashboard;
mod greeter;
mod helloworld;
mod in_force;
mod jobs;
mod live_rules;
mod log;
mod login;
mod me;
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
mod metrics;
mod outage;
#[cfg(feature = "reflection")]
mod reflection;
mod registry;
mod routes;
mod rule_options;
mod scale;
mod slow;
mod store;
mod terminal;
mod tokens;
mod transfer;
/// The words of `tollgate check`.
#[path = "../../crates/tollgate-cli/src/rules/words.rs"]
mod words;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::serve::ListenerExt;
use tokio::join;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tollgate::store::Unsent;
use tollgate::watch::Watcher;
use tollgate::{Limiter, RateLimitLayer};

use crate::cli::Cli;
use crate::config::Config;
use crate::dashboard::{Dashboard, Running};
use crate::log::DecisionLog;
use crate::metrics::Exporter;
use crate::outage::Views;
use crate::store::AnyStore;
use crate::terminal::{fail, parse, print};

/// How long in-flight requests, and those that a leaky bucket delays, may take after a signal to
/// stop.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the program with the arguments of the process.
pub async fn run() -> ExitCode {
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    let mut config = match parse::<Cli>().map(Config::try_from) {
        Ok(Ok(config)) => config,
        Ok(Err(error)) => return fail(&error, 2),
        Err(code) => return code,
    };
    // Before layer and store, which register their metrics.
    let exporter = match &config.metrics {
        None => None,
        Some(address) => match Exporter::install(address).await {
            Ok(exporter) => Some(exporter),
            Err(error) => return fail(&error, 1),
        },
    };
    let served = match open(&mut config, exporter.is_some()).await {
        Err(error) => return fail(&error, 2),
        Ok(opened) => serve(config, opened, exporter).await,
    };
    served.map_or_else(|error| fail(&error, 1), |()| ExitCode::SUCCESS)
}

/// A store, and what asks it.
struct Opened {
    layer: RateLimitLayer<AnyStore>,
    /// The layer follows the file of rules for as long as this lives.
    watcher: Option<Arc<Watcher>>,
    /// `None` unless failed log-ins are limited.
    turns: Option<Limiter<AnyStore>>,
    dashboard: Dashboard,
    views: Views,
    jobs: Router,
    log: Option<DecisionLog>,
}

/// Opens the store, and makes what asks it.
async fn open(config: &mut Config, metrics: bool) -> Result<Opened, String> {
    let (store, views, jobs) = config.store.open(config.jobs.as_ref()).await?;
    let file = config.rules_file.take();
    let wrong = |error| config.rules_error(error);
    let dashboard = Dashboard::new(config, store.clone());
    // A file may add the rule later.
    let limits_log_ins = file.is_some() || config.rules.now().iter().any(|rule| rule.name() == login::RULE);
    let turns = limits_log_ins.then(|| login::turns(store.clone())).transpose().map_err(wrong)?;
    let log = config.log.as_deref().map(|path| DecisionLog::open(path, config)).transpose()?;
    let counted = dashboard.count_keys(store);
    let logged = log.as_ref().map_or(counted.clone(), |log| log.of(counted));
    let layer = config.layer.clone().try_store(logged).map_err(wrong)?;
    let layer = layer.observe(dashboard.observer());
    let layer = if metrics { layer.metrics() } else { layer };
    // After all options of the layer, which the rules that replace these keep.
    let watcher = file.map(|file| Arc::new(file.watch(&layer)));
    if let (Some(log), Some(watcher)) = (&log, &watcher) {
        log.follow(watcher);
    }
    Ok(Opened { layer, watcher, turns, dashboard, views, jobs, log })
}

/// How long it may take to send what the store has not heard of, after that.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Serves until a signal to stop.
async fn serve(config: Config, opened: Opened, exporter: Option<Exporter>) -> Result<(), String> {
    let Opened { layer, watcher, turns, dashboard, views, jobs, log } = opened;
    let listen = &config.listen;
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| format!("cannot listen on {listen:?}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    print(&banner::banner(&config, address, exporter.as_ref().map(Exporter::address)));

    // Answers are small: Nagle's algorithm would only delay them.
    let listener = listener.tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    let limited = routes::router(&layer, turns.clone()).merge(jobs);
    let limited = match log {
        Some(log) => limited.layer(from_fn_with_state(log, log::note)),
        None => limited,
    };
    let hosts = config.hosts.and(address.ip());
    let running = Running { layer: layer.clone(), watcher: watcher.clone(), circuit: views.circuit };
    let app = dashboard.note_keys(limited).merge(dashboard.router(hosts, running, stopped()));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, app).with_graceful_shutdown(stopped());
    let metrics = async {
        match exporter {
            Some(exporter) => exporter.serve(views.metrics).await,
            None => std::future::pending().await,
        }
    };
    let served = tokio::select! {
        served = server => served.map_err(|error| error.to_string()),
        served = metrics => served,
        () = async { stopped().await; sleep(GRACE).await } => Ok(()),
    };
    // After the grace. Requests that still run find their slots lost, and other servers need not
    // wait for the end of these.
    let turns = async {
        match turns {
            Some(turns) => turns.close(CLOSE_WITHIN).await,
            None => Unsent::default(),
        }
    };
    let (of_layer, of_turns) = join!(layer.close(CLOSE_WITHIN), turns);
    for unsent in [of_layer, of_turns].iter().filter(|unsent| !unsent.is_nothing()) {
        let _ = writeln!(io::stderr(), "warning: {unsent}");
    }
    drop(watcher);
    served
}

/// Returns when the process gets a signal to stop.
async fn stopped() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupt => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => _ = signal.recv().await,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
