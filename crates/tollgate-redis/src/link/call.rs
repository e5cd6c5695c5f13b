//! A call, and its outcome.

use bb8_redis::redis::{Cmd, RedisError, ServerErrorKind, Value};

/// A connection is replaced after this many timeouts in a row.
pub(super) const MAX_TIMEOUTS: u32 = 3;

/// Makes the command when it is sent, with a script's hash or its source. `None` if no caller waits
/// for it any more.
pub(crate) type Build<'a> = &'a (dyn Fn(Text) -> Option<Cmd> + Send + Sync);

/// Makes a command that is no script.
pub(crate) fn plain(cmd: &Cmd) -> impl Fn(Text) -> Option<Cmd> + Send + Sync + use<> {
    let cmd = cmd.clone();
    move |_| Some(cmd.clone())
}

/// What to do while the slot of a call's keys moves, so that they may be on two nodes and the call
/// is refused. `None` fails at once, for a call that can be split. Otherwise this is called, and
/// the call is repeated after a pause, for a while.
pub(crate) type Moving<'a> = Option<&'a (dyn Fn() + Send + Sync)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Hash,
    Source,
}

/// Whether the server is a replica that refused the call. Nothing was executed: the script's first
/// write was refused. Versions before 7 report this in the text of another error.
pub(super) fn is_replica(error: &RedisError) -> bool {
    match server_kind(error) {
        Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => true,
        Some(ServerErrorKind::ResponseError) => {
            error.detail().is_some_and(|text| text.contains("-READONLY "))
        }
        _ => false,
    }
}

/// What a call says about its connection.
pub(super) enum CallOutcome {
    /// The server answered, with a value or an error.
    Answered,
    TimedOut,
    /// The connection is lost.
    Ended,
}

impl CallOutcome {
    pub(super) fn of(result: &Result<Value, RedisError>) -> CallOutcome {
        match result {
            Err(error) if error.is_timeout() => CallOutcome::TimedOut,
            Err(error) if error.is_unrecoverable_error() || error.is_io_error() => CallOutcome::Ended,
            _ => CallOutcome::Answered,
        }
    }
}

pub(super) fn server_kind(error: &RedisError) -> Option<ServerErrorKind> {
    match error.kind() {
        bb8_redis::redis::ErrorKind::Server(kind) => Some(kind),
        _ => None,
    }
}
