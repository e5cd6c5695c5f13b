//! Errors of the store.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tollgate_core::{ErrorKind as Kind, StoreError, UsageError};

/// Why Redis did not decide.
///
/// Cheap to clone: every caller that waited for a call gets its failure.
#[derive(Clone)]
pub struct Error {
    cause: Arc<Cause>,
    /// The call or the silence that the request shared with others, if any.
    call: Option<u64>,
    /// Whether another part of the operation may have been executed, in another hash slot.
    is_partial: bool,
    /// Whether there was no connection to send the operation over.
    is_unsent: bool,
}

/// A number for a call or a silence, unique in this process.
pub(crate) fn next_call() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    CALLS.fetch_add(1, Ordering::Relaxed)
}

/// The answer to a call that was not answered in time. It comes as long as the connection lives.
pub(crate) type LateAnswer = Pin<Box<dyn Future<Output = Result<Value, RedisError>> + Send>>;

pub(crate) enum Cause {
    /// A setting or URL is invalid.
    Config(String),
    /// Redis, or the connection to it.
    Redis(RedisError),
    /// A call was not answered in time, over a connection that still exists.
    Unanswered(RedisError, Mutex<Option<LateAnswer>>),
    /// The queue is full.
    Overloaded,
    /// The deadline of a check passed in our queue, while Redis answered others.
    Queued,
    /// The runtime in which the store was connected has stopped.
    Stopped,
    /// There was no connection in time.
    NoConnection,
    /// There was no answer before the caller's deadline.
    Late,
    /// The deadline passed before a call was repeated that met `TRYAGAIN`.
    Moving,
    /// The answer is not in the form of the scripts' answers.
    Garbled,
}

impl Error {
    pub(crate) fn config(what: impl Into<String>) -> Error {
        Cause::Config(what.into()).into()
    }

    /// Whether something is misconfigured: a URL, a password, a permission, the topology.
    ///
    /// A retry cannot fix such an error, and [`StoreError::is_transient`] is false for it.
    pub fn is_configuration(&self) -> bool {
        match &*self.cause {
            Cause::Config(_) => true,
            Cause::Redis(error) => is_configuration(error),
            _ => false,
        }
    }

    /// Whether a node refused a call because some of its keys have moved to another node, and some
    /// have not.
    pub(crate) fn is_try_again(&self) -> bool {
        matches!(&*self.cause, Cause::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain))
    }

    /// Whether Redis was not asked because too many requests of this process wait for it.
    ///
    /// The queue was full, or the deadline of a check passed in the queue while Redis answered
    /// others. Nothing was charged, and no circuit breaker counts it. A refund or a reset whose
    /// deadline passes in the queue is sent nevertheless, so its error is a timeout.
    pub fn is_overloaded(&self) -> bool {
        matches!(*self.cause, Cause::Overloaded | Cause::Queued)
    }

    /// Whether the server answered, with an error of its own.
    pub(crate) fn is_reply(&self) -> bool {
        matches!(&*self.cause, Cause::Redis(error) if matches!(error.kind(), ErrorKind::Server(_)))
    }

    /// Whether a call was sent and not answered in time.
    pub(crate) fn is_unanswered(&self) -> bool {
        match &*self.cause {
            Cause::Redis(error) => error.is_timeout() && !self.is_unsent,
            Cause::Unanswered(..) => true,
            _ => false,
        }
    }

    /// Takes the answer that may still come to a call that was not answered in time.
    pub(crate) fn take_late_answer(&self) -> Option<LateAnswer> {
        let Cause::Unanswered(_, late) = &*self.cause else { return None };
        late.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Marks the error as the failure of this call, so that a circuit breaker counts it once.
    pub(crate) fn of_call(self, call: u64) -> Error {
        Error { call: Some(call), ..self }
    }

    /// Marks the error as the failure of a silence, which has a number unless it lasts.
    pub(crate) fn of_silence(self, number: Option<u64>) -> Error {
        Error { call: number, ..self }
    }

    /// Marks the error as that of an operation that had no connection.
    pub(crate) fn unsent(self) -> Error {
        Error { is_unsent: true, ..self }
    }

    /// Marks the error as that of one part of an operation over several hash slots.
    pub(crate) fn of_part(self) -> Error {
        Error { is_partial: true, ..self }
    }
}

impl StoreError for Error {
    fn kind(&self) -> Kind {
        let is_timeout = match &*self.cause {
            Cause::Redis(error) => error.is_timeout(),
            Cause::NoConnection | Cause::Late | Cause::Unanswered(..) => true,
            _ => false,
        };
        if self.is_configuration() {
            Kind::Misconfigured
        } else if self.is_overloaded() {
            Kind::Overloaded
        } else if self.is_try_again() || matches!(*self.cause, Cause::Moving) {
            Kind::Moving
        } else if is_timeout {
            Kind::Timeout
        } else {
            Kind::Unavailable
        }
    }

    fn call(&self) -> Option<u64> {
        self.call
    }

    fn executed_nothing(&self) -> bool {
        let nothing = match &*self.cause {
            Cause::Overloaded | Cause::Queued | Cause::NoConnection => true,
            Cause::Redis(error) => is_refused(error),
            _ => false,
        };
        (nothing || self.is_unsent) && !self.is_partial
    }
}

/// Whether a connection was refused, or a server refused a call before its script ran or wrote.
fn is_refused(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    let refusals = [Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain];
    error.is_connection_refusal() || refusals.map(ErrorKind::Server).contains(&error.kind())
}

/// Parts of error texts, from older servers and from commands that a script runs.
const CONFIGURATION_SIGNS: [&str; 14] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "ACL failure",
    "has no permissions",
    "can't run this command",
    "can't access at least one of the keys",
    "invalid password",
    "authentication failed",
    "unknown command",
    "DB index is out of range",
    "cluster support disabled",
    "invalid peer certificate",
    // The server refused TLS: it wants a client certificate, or another one.
    "received fatal alert",
];

pub(crate) fn is_configuration(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::EmptySentinelList
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::RESP3NotSupported
        | ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot) => true,
        // A node of a Cluster whose URL says that it is a server. In a Cluster, redirections are
        // followed.
        ErrorKind::Server(ServerErrorKind::Moved) => true,
        _ => {
            let text = error.to_string();
            CONFIGURATION_SIGNS.iter().any(|sign| text.contains(sign))
        }
    }
}

/// An error of the `redis` crate becomes one by its cause: `From<RedisError>` would be public.
impl From<Cause> for Error {
    fn from(cause: Cause) -> Error {
        Error { cause: Arc::new(cause), call: None, is_partial: false, is_unsent: false }
    }
}

/// The failure of a question about usage.
impl From<Error> for UsageError {
    fn from(error: Error) -> UsageError {
        UsageError::of_store(&error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.cause {
            Cause::Config(what) => f.write_str(what),
            Cause::Redis(error) | Cause::Unanswered(error, _) => {
                let text = error.to_string();
                // An "unknown command" error repeats the arguments. They contain keys, which must
                // not reach the log.
                let start = text.split_once(", with args beginning with").map_or(&*text, |(start, _)| start);
                write!(f, "redis: {start}")
            }
            Cause::Overloaded => f.write_str("too many requests are waiting for redis"),
            Cause::Queued => f.write_str("the deadline passed in the queue for redis"),
            Cause::Stopped => f.write_str("the runtime in which the store was connected has stopped"),
            Cause::NoConnection => f.write_str("no connection to redis in time"),
            Cause::Late => f.write_str("redis did not answer in time"),
            Cause::Moving => f.write_str("the deadline passed while the hash slot of the keys moves"),
            Cause::Garbled => f.write_str("redis gave an answer that is not one of tollgate's scripts"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

/// There is no source: the text is complete, and no type of the `redis` crate becomes public.
impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_what_was_refused_executed_nothing() {
        let of_server = |kind| Error::from(Cause::Redis((ErrorKind::Server(kind), "refused").into()));
        let of_network = |kind: io::ErrorKind| Error::from(Cause::Redis(io::Error::from(kind).into()));
        for refused in [
            of_server(ServerErrorKind::ClusterDown),
            of_server(ServerErrorKind::BusyLoading),
            of_server(ServerErrorKind::ReadOnly),
            of_network(io::ErrorKind::ConnectionRefused),
            Cause::NoConnection.into(),
            Cause::Queued.into(),
            Cause::Overloaded.into(),
        ] {
            assert!(refused.executed_nothing(), "{refused}");
            assert!(!refused.clone().of_part().executed_nothing(), "{refused}, in one of several hash slots");
        }
        for uncertain in [
            of_server(ServerErrorKind::ResponseError),
            of_network(io::ErrorKind::ConnectionReset),
            of_network(io::ErrorKind::BrokenPipe),
            of_network(io::ErrorKind::TimedOut),
            Cause::Late.into(),
            Cause::Stopped.into(),
            Cause::Garbled.into(),
        ] {
            assert!(!uncertain.executed_nothing(), "{uncertain}");
            assert!(uncertain.unsent().executed_nothing());
        }
    }
}
