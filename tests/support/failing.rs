//! A store that fails on command.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;
use tollgate::store::{
    Check, End, ErrorKind, Grant, Renewal, RenewalReport, Reply, Store, StoreError, Times, Verdict,
};
use tollgate::{Key, MemoryStore, Policy};

use crate::later::{at_hand, at_once};

/// A [`MemoryStore`] behind a connection whose behaviour a test sets. Clones share it.
#[derive(Clone, Debug)]
pub struct Failing {
    store: MemoryStore,
    connection: Arc<Mutex<Connection>>,
    asked: Arc<AtomicU32>,
}

/// How a [`Failing`] store is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It answers at once.
    Works,
    /// It decides at once, and the answer takes so long.
    IsSlow(Duration),
    /// Nothing is decided, and the error comes at once.
    Fails(Fault),
    /// Nothing is decided, and the error must be awaited.
    FailsLater(Fault),
    /// Nothing is decided or answered.
    IsSilent,
}

/// An error of a [`Failing`] store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It may be reachable again.
    Unreachable,
    /// It was not sent.
    Refused,
    /// By its own deadline.
    TooSlow,
    /// An operator must fix that.
    WrongPassword,
}

impl Failing {
    /// A store behind such a connection.
    pub fn new(store: MemoryStore, connection: Connection) -> Failing {
        Failing { store, connection: Arc::new(Mutex::new(connection)), asked: Arc::default() }
    }

    /// Changes the connection.
    pub fn set(&self, connection: Connection) {
        *self.connection() = connection;
    }

    /// How often it was asked for anything.
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&MemoryStore) -> Result<T, Infallible>,
    ) -> BoxFuture<T> {
        let reply = self.reply(|store| Reply::<_, BoxFuture<T>>::Now(decide(store)));
        Box::pin(reply.wait())
    }

    fn reply<T, F>(
        &self,
        decide: impl FnOnce(&MemoryStore) -> Reply<Result<T, Infallible>, F>,
    ) -> Reply<Result<T, Fault>, BoxFuture<T>>
    where
        T: Send + 'static,
    {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let decided = || at_hand(decide(&self.store)).map_err(|never| match never {});
        let connection = *self.connection();
        match connection {
            Connection::Works => Reply::Now(decided()),
            Connection::IsSlow(delay) => {
                let answer = decided();
                Reply::Later(Box::pin(async move {
                    sleep(delay).await;
                    answer
                }))
            }
            Connection::Fails(fault) => Reply::Now(Err(fault)),
            Connection::FailsLater(fault) => Reply::Later(Box::pin(async move {
                yield_now().await;
                Err(fault)
            })),
            // In paused time a test that waits for ever would hang. This panic makes it fail.
            Connection::IsSilent => Reply::Later(Box::pin(async {
                sleep(Duration::from_secs(3_600)).await;
                panic!("a caller waited for an hour")
            })),
        }
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send>>;

impl Store for Failing {
    type Error = Fault;
    type Acquire = BoxFuture<Verdict>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Fault>, Self::Acquire> {
        self.reply(|store| store.acquire(set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Fault> + use<> {
        self.end(|store| at_once(store.refund(grants)))
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Fault> + use<> {
        let count = grants.len();
        let renewed = self.end(|_| Ok(()));
        async move {
            renewed.await?;
            (0..count).for_each(|at| report(at, Renewal::Held));
            Ok(())
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Fault> + use<> {
        self.end(|store| at_once(store.reset(key, policies)))
    }
}

impl StoreError for Fault {
    fn kind(&self) -> ErrorKind {
        match self {
            Fault::Unreachable | Fault::Refused => ErrorKind::Unavailable,
            Fault::TooSlow => ErrorKind::Timeout,
            Fault::WrongPassword => ErrorKind::Misconfigured,
        }
    }

    fn executed_nothing(&self) -> bool {
        *self == Fault::Refused
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Unreachable => "unreachable",
            Fault::Refused => "refused",
            Fault::TooSlow => "too slow",
            Fault::WrongPassword => "wrong password",
        })
    }
}

impl Error for Fault {}
