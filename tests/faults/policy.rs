//! The failure policies, each with and without a circuit breaker, and their events.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::failure::CircuitState;
use tollgate::failure::Event;
use tollgate::store::Source;
use tollgate::store::{BoxStore, ErrorKind, Store, StoreError};
use tollgate::{CircuitBreaker, MemoryStore, Share, StoreExt};
use tollgate_redis::RedisStore;

/// What the fallback grants.
pub(crate) const SHARE: Share = Share::new(1, 10);

/// A policy as users write it: behind a timeout, and with or without a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) instead: Instead,
    pub(crate) has_breaker: bool,
}

/// What replaces a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    Open,
    Closed,
    Fallback,
}

impl Guard {
    pub(crate) const EVERY: [Guard; 6] = [
        Guard { instead: Instead::Open, has_breaker: false },
        Guard { instead: Instead::Open, has_breaker: true },
        Guard { instead: Instead::Closed, has_breaker: false },
        Guard { instead: Instead::Closed, has_breaker: true },
        Guard { instead: Instead::Fallback, has_breaker: false },
        Guard { instead: Instead::Fallback, has_breaker: true },
    ];

    pub(crate) fn around(
        self,
        store: RedisStore,
        timeout: Duration,
        heard: &Arc<Heard>,
    ) -> BoxStore<Infallible> {
        let store = store.timeout(timeout);
        if self.has_breaker {
            let breaker =
                CircuitBreaker::default().probe_after(Duration::from_millis(100), Duration::from_millis(400));
            self.decides_for(store.circuit_breaker(breaker.observe(ear(heard))), heard)
        } else {
            self.decides_for(store, heard)
        }
    }

    fn decides_for<S>(self, store: S, heard: &Arc<Heard>) -> BoxStore<Infallible>
    where
        S: Store<Error: StoreError>,
    {
        match self.instead {
            Instead::Open => store.fail_open().observe(ear(heard)).boxed(),
            Instead::Closed => store.fail_closed().observe(ear(heard)).boxed(),
            Instead::Fallback => store.fall_back_to(MemoryStore::new(), SHARE).observe(ear(heard)).boxed(),
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let breaker = if self.has_breaker { " + breaker" } else { "" };
        match self.instead {
            Instead::Open => write!(f, "open{breaker}"),
            Instead::Closed => write!(f, "closed{breaker}"),
            Instead::Fallback => write!(f, "fallback {SHARE}{breaker}"),
        }
    }
}

fn ear(heard: &Arc<Heard>) -> impl Fn(Event) + Send + Sync + 'static {
    let heard = Arc::clone(heard);
    move |event| heard.hear(event)
}

/// Counts of events.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    by: [AtomicU32; Source::ALL.len()],
    failed: [AtomicU32; 5],
    opened: AtomicU32,
    watch: Mutex<Watch>,
}

/// When the store answered again.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    is_watched: bool,
    probed: Option<Instant>,
    back: Option<Back>,
}

/// The first decision of a store after an outage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back {
    pub(crate) at: Instant,
    /// When the breaker sent its last probe before it, if it sent one.
    pub(crate) probed: Option<Instant>,
}

const KINDS: [ErrorKind; 5] = [
    ErrorKind::Timeout,
    ErrorKind::Unavailable,
    ErrorKind::Overloaded,
    ErrorKind::CircuitOpen,
    ErrorKind::Misconfigured,
];

impl Heard {
    fn hear(&self, event: Event) {
        match event {
            Event::Decided(source) => {
                if source == Source::Store {
                    let mut watch = self.watch();
                    if watch.is_watched && watch.back.is_none() {
                        watch.back = Some(Back { at: Instant::now(), probed: watch.probed });
                    }
                }
                self.by[source as usize].fetch_add(1, Ordering::Relaxed);
            }
            Event::Failed(kind) => {
                let at = KINDS.iter().position(|one| *one == kind).expect("a known kind");
                self.failed[at].fetch_add(1, Ordering::Relaxed);
            }
            Event::Circuit(CircuitState::Open) => {
                self.opened.fetch_add(1, Ordering::Relaxed);
            }
            Event::Circuit(CircuitState::HalfOpen) => self.watch().probed = Some(Instant::now()),
            _ => {}
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, records the first decision of the store.
    pub(crate) fn watch_for_the_store(&self) {
        *self.watch() = Watch { is_watched: true, ..Watch::default() };
    }

    /// When the store answered again, if it has.
    pub(crate) fn back(&self) -> Option<Back> {
        self.watch().back
    }

    pub(crate) fn decided_by(&self, source: Source) -> u32 {
        self.by[source as usize].load(Ordering::Relaxed)
    }

    /// How often the store failed in that way.
    pub(crate) fn failed(&self, kind: ErrorKind) -> u32 {
        let at = KINDS.iter().position(|one| *one == kind).expect("a known kind");
        self.failed[at].load(Ordering::Relaxed)
    }

    /// Failures after the request was sent, which may have charged.
    pub(crate) fn failed_when_asked(&self) -> u32 {
        let asked = [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::Misconfigured];
        asked.into_iter().map(|kind| self.failed(kind)).sum()
    }

    /// How often a circuit opened.
    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::Relaxed)
    }
}
