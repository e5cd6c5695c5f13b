//! What can go wrong between here and Redis.

use std::fmt;
use std::sync::Arc;

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use tollgate_core::{ErrorKind as Kind, StoreError};

/// Why Redis did not decide.
///
/// Cheap to clone: all that waited for one call are told of its failure.
#[derive(Clone)]
pub struct Error(Arc<Cause>);

pub(crate) enum Cause {
    /// What was configured cannot be.
    Config(String),
    /// Redis, or the way to it.
    Redis(RedisError),
    /// Too many checks wait for Redis already.
    Overloaded,
    /// The runtime in which the store was made is gone.
    Stopped,
    /// No connection within the time for that.
    NoConnection,
    /// No answer within the time that who asked had for it.
    Late,
    /// The answer is not one of our scripts'.
    Garbled,
}

impl Error {
    pub(crate) fn config(what: impl Into<String>) -> Error {
        Cause::Config(what.into()).into()
    }

    /// Whether something has to be mended: a URL, a password, a permission, the topology. Such an error does not pass by
    /// itself, and [`StoreError::is_transient`] is false for it.
    pub fn is_configuration(&self) -> bool {
        match &*self.0 {
            Cause::Config(_) => true,
            Cause::Redis(error) => is_configuration(error),
            _ => false,
        }
    }

    /// Whether a Cluster's node refused a call since some of its keys have moved to another node and some have not.
    pub(crate) fn is_torn_apart(&self) -> bool {
        matches!(&*self.0, Cause::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain))
    }

    /// Whether so many checks were waiting for Redis that this one was not taken up. It was charged nowhere.
    pub fn is_overloaded(&self) -> bool {
        matches!(*self.0, Cause::Overloaded)
    }
}

impl StoreError for Error {
    fn kind(&self) -> Kind {
        let is_timeout = match &*self.0 {
            Cause::Redis(error) => error.is_timeout(),
            Cause::NoConnection | Cause::Late => true,
            _ => false,
        };
        if self.is_configuration() {
            Kind::Misconfigured
        } else if is_timeout {
            Kind::Timeout
        } else {
            Kind::Unavailable
        }
    }
}

/// What older servers tell by words, and scripts of the commands that they call.
const SIGNS: [&str; 14] = [
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
    // How TLS is refused by the other side: it wants a certificate, or another.
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
        // A standalone connection to a node of a cluster: where that is known to be one, redirections are followed.
        ErrorKind::Server(ServerErrorKind::Moved) => true,
        _ => {
            let text = error.to_string();
            SIGNS.iter().any(|sign| text.contains(sign))
        }
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Error {
        Error(Arc::new(cause))
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Error {
        Cause::Redis(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Cause::Config(what) => f.write_str(what),
            Cause::Redis(error) => {
                let text = error.to_string();
                // A server that does not know a command repeats what it was asked, keys and all, and this is logged.
                let told = text.split_once(", with args beginning with").map_or(&*text, |(told, _)| told);
                write!(f, "redis: {told}")
            }
            Cause::Overloaded => f.write_str("too many checks are waiting for redis"),
            Cause::Stopped => f.write_str("the runtime in which the store was made has stopped"),
            Cause::NoConnection => f.write_str("no connection to redis in time"),
            Cause::Late => f.write_str("no answer of redis in time"),
            Cause::Garbled => f.write_str("redis gave an answer that is not of tollgate's scripts"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

/// Without a source: the text says all, and a type of the `redis` crate is nobody's business here.
impl std::error::Error for Error {}
