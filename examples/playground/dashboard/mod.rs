//! `/dashboard`: a page that shows live what the limiter decides, and sends requests to it.
//!
//! The limiter adds to counters ([`Counts`]), which a task reads four times a second. While a page
//! is open, it makes a [`Snapshot`] of them, and all pages share that as a server-sent event. So
//! more pages do not make a decision slower. A slow page misses snapshots instead of queueing them.
//!
//! The page shows keys to everyone who can reach it, under a host that it answers to: see `hosts`.
//! In a service of your own, put it behind authentication.

// From top to bottom; imports run down this list only: this module, snapshot, blocks, slots,
// key_limiter, note, shown_key, minute, counts, hosts.
mod blocks;
mod counts;
mod hosts;
mod key_limiter;
mod minute;
mod note;
mod shown_key;
mod slots;
mod snapshot;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;
use tollgate::failure::CircuitView;
use tollgate::usage::top_keys::{MemoryLog, Recorder, Recording, TopKeys};
use tollgate::watch::Watcher;
use tollgate::{Decision, RateLimitLayer, StoreExt};

pub(crate) use self::hosts::Hosts;

use self::blocks::Blocks;
use self::counts::Counts;
use self::minute::Minute;
use self::slots::Slots;
use self::snapshot::{DeniedKey, OfPolicy, RulesFile, Snapshot};
use crate::config::Config;
use crate::in_force::rules;
use crate::live_rules::{LiveRule, LiveRules, needed_headers};
use crate::store::AnyStore;

const PAGE: &str = include_str!("page.html");

/// The time between two snapshots.
const TICK: Duration = Duration::from_millis(250);
/// Every second.
const TICKS_OF_KEYS: u64 = 4;
/// Every 5 seconds, so the page shows the latencies of the last 5 to 10.
const TICKS_OF_LATENCIES: u64 = 20;
/// The keys that the page shows.
const MOST_KEYS: usize = 8;
/// The time over which keys are counted: the current minute and the one before.
const TIME_OF_KEYS: Duration = Duration::from_secs(120);
/// The rules that the page shows.
const MOST_RULES: usize = 20;

/// What the page needs to know. It counts from its construction.
#[derive(Debug)]
pub(crate) struct Dashboard {
    counts: Arc<Counts>,
    slots: Slots,
    blocks: Blocks,
    usage: TopKeys<MemoryLog>,
    recorder: Recorder<MemoryLog>,
    rules: LiveRules,
    /// The path of the file of rules, if there is one.
    file: Option<String>,
    place: String,
}

/// What the page follows while the server runs.
pub(crate) struct Running {
    pub(crate) layer: RateLimitLayer<AnyStore>,
    /// `None` without a file of rules.
    pub(crate) watcher: Option<Arc<Watcher>>,
    /// `None` without a circuit breaker.
    pub(crate) circuit: Option<CircuitView>,
}

impl Dashboard {
    /// For a server that counts in this store.
    pub(crate) fn new(config: &Config, store: AnyStore) -> Dashboard {
        let usage = TopKeys::new(MemoryLog::new());
        let counts = Arc::new(Counts::default());
        counts.show(config.rules.now().iter().take(MOST_RULES).map(LiveRule::name));
        Dashboard {
            slots: Slots::new(config.rules.clone(), store.clone()),
            blocks: Blocks::new(config.rules.clone(), store),
            counts,
            recorder: usage.record(Recording::default().keep_for(TIME_OF_KEYS)),
            usage,
            rules: config.rules.clone(),
            file: config.rules_path.as_ref().map(|path| path.display().to_string()),
            place: config.store.place(),
        }
    }

    /// Returns an observer for the limiter.
    pub(crate) fn observer(&self) -> impl Fn(&Decision<'_>) + Send + Sync + 'static {
        let counts = Arc::clone(&self.counts);
        move |decision| counts.add(decision)
    }

    /// Counts the keys that this store denies.
    pub(crate) fn count_keys(&self, store: AnyStore) -> AnyStore {
        store.count_usage(&self.recorder).boxed()
    }

    /// Notes the keys of requests to these routes, if the page shows any or may do so later.
    pub(crate) fn note_keys(&self, limited: Router) -> Router {
        let shows_keys = |rule: &LiveRule| rule.blocks() || rule.policy().is_in_flight();
        if self.file.is_none() && !self.rules.now().iter().any(shows_keys) {
            return limited;
        }
        limited.layer(from_fn_with_state(self.rules.clone(), note::note))
    }

    /// Returns the routes of the page. Its events end when `stopped` does.
    pub(crate) fn router(
        self,
        hosts: Hosts,
        running: Running,
        stopped: impl Future<Output = ()> + Send + 'static,
    ) -> Router {
        let snapshots = Arc::new(watch::Sender::new(Arc::default()));
        // The task has the only strong reference: when it ends, the events of all pages end.
        let pages = Arc::downgrade(&snapshots);
        let (layer, watcher) = (running.layer.clone(), running.watcher.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = self.feed(running, &snapshots) => {}
                // Not by the feed, which waits for no store.
                () = self.slots.watch(&snapshots) => {}
                () = self.blocks.watch(&snapshots) => {}
                () = stopped => {}
            }
        });
        let policy = content_security_policy();
        Router::new()
            .route("/dashboard", get(async move || page(&policy)))
            .route("/dashboard/events", get(async move || events(pages.upgrade().as_deref())))
            .route("/rules", get(async move || rules(&layer, watcher.as_deref())))
            .route_layer(from_fn_with_state(hosts, hosts::only))
    }

    /// Reads the counters, and makes snapshots while a page is open.
    async fn feed(&self, running: Running, snapshots: &watch::Sender<Arc<str>>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let start = ticks.tick().await;
        let mut minute = Minute::default();
        let mut denied = Vec::new();
        for number in 0_u64.. {
            let now = ticks.tick().await;
            self.rules.follow(&running.layer);
            let rules = self.rules.now();
            let shown = rules.iter().take(MOST_RULES);
            self.counts.show(shown.clone().map(LiveRule::name));
            minute.read(&self.counts, now.duration_since(start).as_secs());
            if number.is_multiple_of(TICKS_OF_LATENCIES) {
                self.counts.turn();
            }
            if snapshots.receiver_count() == 0 {
                continue;
            }
            if number.is_multiple_of(TICKS_OF_KEYS) {
                denied = self.denied().await;
            }
            let policies = shown.zip(minute.outcomes()).zip(self.counts.units());
            let status = running.watcher.as_ref().map(|watcher| watcher.status());
            let rules_file = status.as_ref().zip(self.file.as_deref()).map(|(status, path)| RulesFile {
                path,
                version: status.version(),
                since: status.since().as_micros() / 1_000,
                error: status.error(),
            });
            let snapshot = Snapshot {
                headers: needed_headers(&rules),
                rules_file,
                policies: policies
                    .map(|((rule, outcomes), units)| {
                        let (name, rule) = (rule.name(), rule.words.as_str());
                        OfPolicy { name, rule, outcomes, units, slots: self.slots.of(name) }
                    })
                    .collect(),
                more: rules.len().saturating_sub(MOST_RULES),
                sources: minute.sources(),
                place: &self.place,
                latency: self.counts.percentiles(),
                circuit: running.circuit.as_ref().map(|circuit| circuit.state().name()),
                denied: &denied,
                blocked: self.blocks.latest(),
            };
            if let Ok(json) = serde_json::to_string(&snapshot) {
                snapshots.send_replace(json.into());
            }
        }
    }

    async fn denied(&self) -> Vec<DeniedKey> {
        // A log in memory does not fail.
        let _ = self.recorder.flush().await;
        let keys = self.usage.top_denied(MOST_KEYS, TIME_OF_KEYS).await.unwrap_or_default();
        keys.into_iter().map(DeniedKey::from).collect()
    }
}

fn page(policy: &str) -> Response {
    let headers = [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, policy),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Html(PAGE)).into_response()
}

/// Returns the events of a page; an error while the server stops.
fn events(snapshots: Option<&watch::Sender<Arc<str>>>) -> Response {
    let Some(snapshots) = snapshots else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    // The current snapshot may be from the last time that a page was open.
    let snapshots = WatchStream::from_changes(snapshots.subscribe());
    let events = snapshots.map(|snapshot| Ok::<_, Infallible>(Event::default().data(&*snapshot)));
    let headers = [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, Sse::new(events)).into_response()
}

/// Allows the page's own style and script and requests to this server, and nothing else.
fn content_security_policy() -> String {
    let hash = |tag: &str| {
        let (_, rest) = PAGE.split_once(&format!("<{tag}>")).expect("the page has this tag");
        let (text, _) = rest.split_once(&format!("</{tag}>")).expect("the tag ends");
        BASE64_STANDARD.encode(Sha256::digest(text))
    };
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash("style"),
        hash("script"),
    )
}
