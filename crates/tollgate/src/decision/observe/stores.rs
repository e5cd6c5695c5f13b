//! Metrics of stores, through the facade [`metrics`](https://docs.rs/metrics) (feature `metrics`).
//!
//! [`RateLimitLayer::metrics`](crate::RateLimitLayer::metrics) and
//! [`Limiter::metrics`](crate::Limiter::metrics) count decisions. This module adds what only stores
//! know. The guide lists [all names](crate::guide::watching#metrics).
//!
//! ```
//! use std::time::Duration;
//! use tollgate::metrics::{StoreMetrics, count_errors};
//! use tollgate::{CircuitBreaker, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
//!
//! # let redis = MemoryStore::new();
//! // Install an exporter first. Metrics that are registered before are lost.
//! let memory = MemoryStore::new();
//! let guarded = redis.timeout(Duration::from_millis(250)).circuit_breaker(CircuitBreaker::default());
//! let watched = StoreMetrics::new().memory(&memory).circuit(guarded.circuit());
//! let store = guarded.fall_back_to(memory, Share::new(1, 3)).observe(count_errors());
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store).metrics();
//!
//! // Before each scrape, or every few seconds.
//! watched.update();
//! ```

use std::fmt;

use ::metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use tollgate_core::{ErrorKind, Store};

use super::live_series::{self, Series, touch_all};
use crate::failure::{CircuitState, CircuitView, Event};
use crate::memory::MemoryStore;
use crate::scale::Leases;

/// Shows the state of stores as metrics, each time that [`StoreMetrics::update`] is called.
///
/// Several stores of one kind are added up. Of several circuits the one that is furthest open is
/// shown. A metric without a store is not registered.
#[derive(Default)]
#[must_use = "metrics change only if `update` is called"]
pub struct StoreMetrics {
    memory: Vec<MemoryStore>,
    circuits: Vec<CircuitView>,
    stranded: Vec<Box<dyn Fn() -> u64 + Send + Sync>>,
}

impl StoreMetrics {
    /// Shows no store yet.
    pub fn new() -> StoreMetrics {
        describe();
        StoreMetrics::default()
    }

    /// Adds a store in memory, such as that of a fallback: `tollgate_memory_keys`,
    /// `tollgate_evictions_total` and `tollgate_overflows_total`.
    pub fn memory(mut self, store: &MemoryStore) -> StoreMetrics {
        self.memory.push(store.clone());
        self
    }

    /// Adds a circuit: `tollgate_circuit_state`, which is 0 if the circuit is closed, 1 if it is
    /// half open and 2 if it is open.
    pub fn circuit(mut self, circuit: CircuitView) -> StoreMetrics {
        self.circuits.push(circuit);
        self
    }

    /// Adds a leased store: `tollgate_lease_stranded`, the units that this process holds.
    pub fn leased<S: Store>(mut self, store: &Leases<S>) -> StoreMetrics {
        let store = store.clone();
        self.stranded.push(Box::new(move || store.stats().held_units));
        self
    }

    /// Reads the stores and sets the metrics. It locks each part of a store in memory for a moment,
    /// and visits all keys with leases: call it every few seconds, not for each request.
    ///
    /// It also touches the counters and gauges of all layers and limiters, so that an exporter that
    /// [ends idle series](crate::guide::watching#metrics) ends only those of removed rules.
    pub fn update(&self) {
        touch_all();
        if !self.memory.is_empty() {
            let sum = |read: fn(&MemoryStore) -> u64| self.memory.iter().map(read).sum::<u64>();
            set(&gauge!("tollgate_memory_keys"), sum(|store| store.keys() as u64));
            counter!("tollgate_evictions_total").absolute(sum(MemoryStore::evictions));
            counter!("tollgate_overflows_total").absolute(sum(MemoryStore::overflows));
        }
        if let Some(state) = self.circuits.iter().map(|circuit| openness(circuit.state())).max() {
            gauge!("tollgate_circuit_state").set(state);
        }
        if !self.stranded.is_empty() {
            set(&gauge!("tollgate_lease_stranded"), self.stranded.iter().map(|units| units()).sum());
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "decides nothing")]
fn set(gauge: &Gauge, value: u64) {
    gauge.set(value as f64);
}

fn openness(state: CircuitState) -> u32 {
    match state {
        CircuitState::Closed => 0,
        CircuitState::HalfOpen => 1,
        CircuitState::Open => 2,
    }
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreMetrics { memory, circuits, stranded } = self;
        f.debug_struct("StoreMetrics")
            .field("memory", memory)
            .field("circuits", circuits)
            .field("leased", &stranded.len())
            .finish()
    }
}

/// Returns an observer for a failure policy that counts `tollgate_store_errors_total`, by
/// [kind](ErrorKind::name).
///
/// Pass it to [`Answering::observe`](crate::failure::Answering::observe). To observe more, call it
/// within a closure of your own.
pub fn count_errors() -> impl Fn(Event) + Send + Sync + 'static {
    describe();
    let handle = |kind: ErrorKind| counter!("tollgate_store_errors_total", "kind" => kind.name());
    let counters = live_series::keep(ErrorCounters(ErrorKind::ALL.map(|kind| (kind, handle(kind)))));
    move |event| {
        if let Event::Failed(kind) = event
            && let Some((_, counter)) = counters.0.iter().find(|(known, _)| *known == kind)
        {
            counter.increment(1);
        }
    }
}

struct ErrorCounters([(ErrorKind, Counter); ErrorKind::ALL.len()]);

impl Series for ErrorCounters {
    fn touch(&self) {
        self.0.iter().for_each(|(_, counter)| counter.increment(0));
    }
}

/// Says what each metric means, to exporters that show it.
pub(crate) fn describe() {
    let counters = [
        ("tollgate_decisions_total", "Decisions, one for each rule of a request"),
        ("tollgate_units_total", "Units that requests asked for"),
        ("tollgate_blocks_total", "Blocks of keys that this process started"),
        (
            "tollgate_dropped_blocks_total",
            "Blocks of keys that found no room in memory, or that the store failed",
        ),
        ("tollgate_store_errors_total", "Requests, refunds and resets that the store failed"),
        ("tollgate_evictions_total", "Keys that lost their place in memory before their reset"),
        ("tollgate_overflows_total", "Decisions by an entry that keys without a place share"),
    ];
    for (name, text) in counters {
        describe_counter!(name, text);
    }
    let gauges = [
        ("tollgate_circuit_state", "0 is closed, 1 is half open, 2 is open"),
        ("tollgate_in_flight", "Slots that requests of this process hold"),
        ("tollgate_memory_keys", "Keys in memory"),
        (
            "tollgate_policy_limit",
            "The limit of a policy, in units for each window: the largest if layers share its name",
        ),
        ("tollgate_rules_error", "1 if the file of rules is not valid, and the rules before it apply"),
        ("tollgate_rules_version", "The version of the rules of a file"),
        ("tollgate_lease_stranded", "Units that this process holds and has not spent"),
    ];
    for (name, text) in gauges {
        describe_gauge!(name, text);
    }
    let text = "The time for which requests waited for the store";
    describe_histogram!("tollgate_store_seconds", Unit::Seconds, text);
}
