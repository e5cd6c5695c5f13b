//! A call, and its outcome.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{Cmd, RedisError, ServerErrorKind, Value};
use tokio::time::timeout;

use crate::error::{Cause, LateAnswer};

/// How long connecting and answering may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

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

/// What to do while the hash slot of a call's keys moves, so that they may be on two nodes and the
/// call is refused. `None` fails at once, for a call that can be split. Otherwise this is called,
/// and the call is repeated after a pause, for a while.
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

/// Sends a command, and waits for its answer until `limit` has passed. Then `late` gets the future
/// of the answer.
pub(super) async fn query(
    connection: &MultiplexedConnection,
    cmd: Cmd,
    limit: Duration,
    late: &mut Option<LateAnswer>,
) -> Result<Value, RedisError> {
    let mut connection = connection.clone();
    connection.set_response_timeout(Duration::MAX);
    let mut answer: LateAnswer = Box::pin(async move { cmd.query_async(&mut connection).await });
    timeout(limit, &mut answer).await.unwrap_or_else(|_| {
        *late = Some(answer);
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    })
}

/// The cause of a failed call, with the answer that may come late.
pub(super) fn cause(error: RedisError, late: Option<LateAnswer>) -> Cause {
    match late {
        Some(late) => Cause::Unanswered(error, Mutex::new(Some(late))),
        None => Cause::Redis(error),
    }
}

pub(super) fn server_kind(error: &RedisError) -> Option<ServerErrorKind> {
    match error.kind() {
        bb8_redis::redis::ErrorKind::Server(kind) => Some(kind),
        _ => None,
    }
}
