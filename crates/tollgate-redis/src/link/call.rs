//! What a call is, and what came of it.

use bb8_redis::redis::{Cmd, RedisError, ServerErrorKind, Value};

/// A command, with a script's hash or with its whole text, as it is to be sent now; `None` where nobody waits for it any more.
pub(crate) type Build<'a> = &'a (dyn Fn(Text) -> Option<Cmd> + Send + Sync);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Hash,
    Whole,
}

/// Whether a replica was asked: to write, or while it had lost its master. Nothing was executed then: the first thing that a
/// script of ours writes is refused. Versions before 7 tell what befell a script as an error of another kind, in whose text it
/// stands.
pub(super) fn is_replica(error: &RedisError) -> bool {
    match server_kind(error) {
        Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => true,
        Some(ServerErrorKind::ResponseError) => {
            error.detail().is_some_and(|text| text.contains("-READONLY "))
        }
        _ => false,
    }
}

/// What a connection did with a call.
pub(super) enum Outcome {
    /// It answered, though perhaps not what was hoped for.
    Answered,
    TimedOut,
    /// It is of no use any more.
    Ended,
}

impl Outcome {
    pub(super) fn of(result: &Result<Value, RedisError>) -> Outcome {
        match result {
            Err(error) if error.is_timeout() => Outcome::TimedOut,
            Err(error) if error.is_unrecoverable_error() || error.is_io_error() => Outcome::Ended,
            _ => Outcome::Answered,
        }
    }
}

pub(super) fn server_kind(error: &RedisError) -> Option<ServerErrorKind> {
    match error.kind() {
        bb8_redis::redis::ErrorKind::Server(kind) => Some(kind),
        _ => None,
    }
}
