//! Commands on one multiplexed connection: a count, an empty script and the simplest limiter.

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, FromRedisValue, IntoConnectionInfo, RedisError, cmd};

use super::{Contender, DAY, Setup};
use crate::measure::Answers;
use crate::over_redis::host::Failure;
use crate::over_redis::measure::{Decide, Prepared, Subject, failed};
use crate::over_redis::scenario::{Draws, EMPTY_SCRIPT, INCR, User};

const BARE: &str = "bare";

pub(super) fn contenders() -> [Contender; 4] {
    [
        Contender {
            name: INCR,
            part: BARE,
            algorithm: "none: it decides nothing",
            connections: None,
            build: |setup| Box::pin(incr(setup, connect_by_default)),
        },
        Contender {
            name: "INCR, tuned",
            part: BARE,
            algorithm: "none: it decides nothing",
            connections: None,
            build: |setup| Box::pin(incr(setup, connect)),
        },
        Contender {
            name: EMPTY_SCRIPT,
            part: BARE,
            algorithm: "none: it decides nothing",
            connections: None,
            build: |setup| Box::pin(empty_script(setup)),
        },
        Contender {
            name: "GCRA in Lua",
            part: BARE,
            algorithm: "GCRA",
            connections: None,
            build: |setup| Box::pin(gcra(setup)),
        },
    ]
}

/// A connection without response timeout, which a limiter would need.
pub(super) async fn connect(setup: &Setup) -> Result<MultiplexedConnection, Failure> {
    let info = setup.url.as_str().into_connection_info()?;
    let client = Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn connect_by_default(setup: &Setup) -> Result<MultiplexedConnection, Failure> {
    Ok(Client::open(setup.url.as_str())?.get_multiplexed_async_connection().await?)
}

pub(super) async fn load(connection: &mut MultiplexedConnection, script: &str) -> Result<String, Failure> {
    Ok(cmd("SCRIPT").arg("LOAD").arg(script).query_async(connection).await?)
}

pub(super) fn gcra_terms(setup: &Setup) -> (u64, u64) {
    let day = DAY.as_micros() as u64;
    let interval = day / u64::from(setup.per_day);
    (interval, interval * u64::from(setup.per_day))
}

/// One command per decision.
#[derive(Clone)]
struct Bare<W, A> {
    connection: MultiplexedConnection,
    /// Makes the command for a user.
    write: W,
    allows: fn(&A) -> bool,
}

impl<W, A> Decide for Bare<W, A>
where
    W: Fn(&User) -> Cmd + Clone + Send + Sync + 'static,
    A: FromRedisValue + Clone + Send + 'static,
{
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        let answer: Result<A, RedisError> =
            (self.write)(draws.draw()).query_async(&mut self.connection).await;
        match answer {
            Ok(answer) if (self.allows)(&answer) => answers.allowed += 1,
            Ok(_) => answers.denied += 1,
            Err(error) => failed(answers, &error),
        }
    }
}

async fn incr<C>(setup: Setup, connect: C) -> Result<Box<dyn Subject>, Failure>
where
    C: AsyncFn(&Setup) -> Result<MultiplexedConnection, Failure>,
{
    let write = |user: &User| {
        let mut incr = cmd("INCR");
        incr.arg(&user.name);
        incr
    };
    let bare = Bare { connection: connect(&setup).await?, write, allows: |_: &i64| true };
    Ok(Prepared::boxed(bare, setup.tasks))
}

/// Sends neither key nor argument, the smallest possible call.
async fn empty_script(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let mut connection = connect(&setup).await?;
    let hash = load(&mut connection, "return 1").await?;
    let write = move |_: &User| {
        let mut call = cmd("EVALSHA");
        call.arg(&hash).arg(0);
        call
    };
    Ok(Prepared::boxed(Bare { connection, write, allows: |_: &i64| true }, setup.tasks))
}

async fn gcra(setup: Setup) -> Result<Box<dyn Subject>, Failure> {
    let mut connection = connect(&setup).await?;
    let hash = load(&mut connection, include_str!("gcra.lua")).await?;
    let (interval, horizon) = gcra_terms(&setup);
    let write = move |user: &User| {
        let mut call = cmd("EVALSHA");
        call.arg(&hash).arg(1).arg(&user.name).arg(interval).arg(horizon);
        call
    };
    let allows = |answer: &(i64, i64)| answer.0 == 1;
    Ok(Prepared::boxed(Bare { connection, write, allows }, setup.tasks))
}
