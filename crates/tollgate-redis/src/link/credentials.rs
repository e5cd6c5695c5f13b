//! Users and passwords that change while the store runs.

use std::fmt::{self, Display};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{ConnectionInfo, ErrorKind, RedisError, cmd};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tollgate_core::{Clock, Timestamp};

use super::call::Timeouts;

/// A user and a password, as a [source of credentials](crate::RedisStoreBuilder::credentials)
/// returns them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
    valid_for: Option<Duration>,
}

impl Credentials {
    /// This user with this password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Credentials {
        Credentials { user: Some(user.into()), ..Credentials::password(password) }
    }

    /// The user of the URL, or else the default user, with this password.
    pub fn password(password: impl Into<String>) -> Credentials {
        Credentials { user: None, password: password.into(), valid_for: None }
    }

    /// Sets how long the password is valid, from when it is returned: that of a token, which its
    /// issuer says. The source is asked again in the last fifth of that time, and connections
    /// authenticate again before their next call. If it fails then, the password serves until its
    /// end, and the source is asked again after a fiftieth of the time, a second at least. One that
    /// hangs delays the calls of a connection by the [connect
    /// timeout](crate::RedisStoreBuilder::connect_timeout) each time. Without this, the source is
    /// asked before each connection, and connections stay as they are.
    #[must_use]
    pub fn valid_for(self, time: Duration) -> Credentials {
        Credentials { valid_for: Some(time), ..self }
    }
}

/// Omits the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Credentials { user, valid_for, .. } = self;
        f.debug_struct("Credentials")
            .field("user", user)
            .field("valid_for", valid_for)
            .finish_non_exhaustive()
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Credentials, String>> + Send>>;

/// Asks for credentials, and keeps a token while it is valid.
pub(crate) struct CredentialsSource {
    ask: Box<dyn Fn() -> Answer + Send + Sync>,
    clock: Clock,
    latest: Mutex<Option<CredentialsAnswer>>,
}

/// An answer of the source.
#[derive(Clone)]
pub(super) struct CredentialsAnswer {
    credentials: Credentials,
    /// If the source says how long they are valid.
    term: Option<Term>,
}

/// When to ask again, and until when the answer serves if that fails.
#[derive(Clone, Copy)]
struct Term {
    renew: Timestamp,
    end: Timestamp,
    /// After a failure.
    pause: Duration,
}

impl CredentialsSource {
    pub(crate) fn new<F, A, E>(ask: F) -> CredentialsSource
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Display,
    {
        let ask = move || -> Answer {
            let answer = ask();
            Box::pin(async move { answer.await.map_err(|error| error.to_string()) })
        };
        CredentialsSource { ask: Box::new(ask), clock: Clock::system(), latest: Mutex::default() }
    }

    /// The credentials for a connection.
    pub(super) async fn current(&self, limit: Duration) -> Result<CredentialsAnswer, RedisError> {
        let mut latest = self.latest.lock().await;
        let now = self.clock.now();
        match latest.as_ref().filter(|answered| answered.term.is_some_and(|term| now < term.renew)) {
            Some(valid) => Ok(valid.clone()),
            None => self.ask(&mut latest, limit).await.or_else(|error| self.still_valid(&mut latest, error)),
        }
    }

    /// The latest answer until its end, after the source has failed.
    fn still_valid(
        &self,
        latest: &mut Option<CredentialsAnswer>,
        error: RedisError,
    ) -> Result<CredentialsAnswer, RedisError> {
        let now = self.clock.now();
        let Some(CredentialsAnswer { credentials, term: Some(term) }) = latest else { return Err(error) };
        if now >= term.end {
            return Err(error);
        }
        term.renew = now.saturating_add(term.pause).min(term.end);
        Ok(CredentialsAnswer { credentials: credentials.clone(), term: Some(*term) })
    }

    /// Those after an answer that the server refused. Of several connections that it refused, one
    /// asks. A later answer may be as old as the refused one, so the passwords are compared.
    pub(super) async fn after(
        &self,
        refused: &CredentialsAnswer,
        limit: Duration,
    ) -> Result<CredentialsAnswer, RedisError> {
        let mut latest = self.latest.lock().await;
        match latest.as_ref().filter(|answered| answered.credentials != refused.credentials) {
            Some(newer) => Ok(newer.clone()),
            None => self.ask(&mut latest, limit).await,
        }
    }

    async fn ask(
        &self,
        latest: &mut Option<CredentialsAnswer>,
        limit: Duration,
    ) -> Result<CredentialsAnswer, RedisError> {
        let answer = timeout(limit, (self.ask)()).await;
        let answer = answer.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
        // An outage, which may pass: not a mistake of the configuration.
        let failed = |what| io::Error::other(format!("the source of credentials failed: {what}"));
        let credentials = answer.map_err(failed)?;
        let now = self.clock.now();
        let term = |valid: Duration| Term {
            renew: now.saturating_add(valid - valid / 5),
            end: now.saturating_add(valid),
            pause: (valid / 50).max(Duration::from_secs(1)),
        };
        let term = credentials.valid_for.map(term);
        Ok(latest.insert(CredentialsAnswer { credentials, term }).clone())
    }
}

impl CredentialsAnswer {
    /// How to connect with these credentials.
    pub(super) fn apply(&self, info: ConnectionInfo) -> ConnectionInfo {
        let mut settings = info.redis_settings().clone().set_password(&self.credentials.password);
        if let Some(user) = &self.credentials.user {
            settings = settings.set_username(user);
        }
        info.set_redis_settings(settings)
    }

    /// The login of a connection with these credentials, if it ends.
    pub(super) fn login(&self, source: &Arc<CredentialsSource>, info: &ConnectionInfo) -> Option<Login> {
        let user = info.redis_settings().username().map(str::to_owned);
        self.term.map(|term| Login { source: Arc::clone(source), user, renew: term.renew })
    }
}

/// The login of a connection by a token, which is renewed before the token ends.
pub(super) struct Login {
    source: Arc<CredentialsSource>,
    /// That of the URL.
    user: Option<String>,
    renew: Timestamp,
}

impl Login {
    /// Authenticates again if it is time to. `false` if that failed: then the connection cannot be
    /// used for much longer.
    pub(super) async fn is_kept(
        login: &mut Option<Login>,
        connection: &mut MultiplexedConnection,
        timeouts: Timeouts,
    ) -> bool {
        match login {
            Some(due) if due.source.clock.now() >= due.renew => {
                due.renew(connection, timeouts.connect).await.is_ok()
            }
            _ => true,
        }
    }

    async fn renew(
        &mut self,
        connection: &mut MultiplexedConnection,
        limit: Duration,
    ) -> Result<(), RedisError> {
        let answered = self.source.current(limit).await?;
        let mut auth = cmd("AUTH");
        if let Some(user) = answered.credentials.user.as_ref().or(self.user.as_ref()) {
            auth.arg(user);
        }
        auth.arg(&answered.credentials.password).query_async::<()>(connection).await?;
        // Without an end, it is kept for good.
        self.renew = answered.term.map_or(Timestamp::MAX, |term| term.renew);
        Ok(())
    }
}

/// Whether the server refused user or password.
pub(super) fn is_refused(error: &RedisError) -> bool {
    let text = || error.to_string();
    error.kind() == ErrorKind::AuthenticationFailed
        || ["WRONGPASS", "NOAUTH", "invalid password"].iter().any(|sign| text().contains(sign))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use tollgate_core::ManualClock;

    const LIMIT: Duration = Duration::from_secs(1);

    fn counting(valid_for: Option<Duration>) -> (CredentialsSource, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let source = CredentialsSource::new(move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move {
                let credentials = Credentials::password(format!("p{number}"));
                Ok::<_, io::Error>(valid_for.map_or(credentials.clone(), |time| credentials.valid_for(time)))
            }
        });
        (source, asked)
    }

    #[tokio::test]
    async fn a_token_is_kept_and_a_password_is_asked_for_each_time() {
        for (valid_for, expected) in [(None, 3), (Some(Duration::from_secs(3_600)), 1)] {
            let (source, asked) = counting(valid_for);
            for _ in 0..3 {
                source.current(LIMIT).await.unwrap();
            }
            assert_eq!(asked.load(Ordering::Relaxed), expected, "{valid_for:?}");
        }
    }

    #[tokio::test]
    async fn a_token_in_the_last_fifth_of_its_life_is_replaced() {
        let (source, asked) = counting(Some(Duration::ZERO));
        source.current(LIMIT).await.unwrap();
        source.current(LIMIT).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_token_serves_until_its_end_while_its_source_fails() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let source = CredentialsSource::new(move || {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            let token = Credentials::password("t").valid_for(Duration::from_secs(100));
            std::future::ready(if is_first { Ok(token) } else { Err("no token today") })
        });
        let time = ManualClock::new(Timestamp::EPOCH);
        let source = CredentialsSource { clock: (&time).into(), ..source };
        for (seconds, is_valid, questions) in
            [(0, true, 1), (79, true, 1), (80, true, 2), (81, true, 2), (82, true, 3), (99, true, 4)]
        {
            time.set(Timestamp::from_micros(seconds * 1_000_000));
            assert_eq!(source.current(LIMIT).await.is_ok(), is_valid, "{seconds} s");
            assert_eq!(asked.load(Ordering::Relaxed), questions, "{seconds} s");
        }
        time.advance(Duration::from_secs(1));
        let Err(error) = source.current(LIMIT).await else { panic!("it is over") };
        assert!(error.to_string().contains("no token today"), "{error}");
    }

    #[tokio::test]
    async fn of_several_connections_that_were_refused_one_asks() {
        let (source, asked) = counting(Some(Duration::from_secs(3_600)));
        let refused = source.current(LIMIT).await.unwrap();
        for _ in 0..3 {
            assert_eq!(source.after(&refused, LIMIT).await.unwrap().credentials.password, "p1");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    /// Two connections asked before the password changed, and the first of them is refused.
    #[tokio::test]
    async fn an_answer_as_old_as_the_refused_one_is_not_taken() {
        let asked = AtomicU32::new(0);
        let source = CredentialsSource::new(move || {
            let is_old = asked.fetch_add(1, Ordering::Relaxed) < 2;
            let password = if is_old { "old" } else { "new" };
            async move { Ok::<_, io::Error>(Credentials::password(password)) }
        });
        let refused = source.current(LIMIT).await.unwrap();
        source.current(LIMIT).await.unwrap();
        assert_eq!(source.after(&refused, LIMIT).await.unwrap().credentials.password, "new");
    }

    #[tokio::test]
    async fn a_source_that_fails_or_hangs_is_an_outage() {
        let failing = CredentialsSource::new(async || Err::<Credentials, _>("no token today"));
        let hanging = CredentialsSource::new(std::future::pending::<Result<Credentials, String>>);
        for (source, text) in [(failing, "no token today"), (hanging, "it did not answer in time")] {
            let Err(error) = source.current(LIMIT / 50).await else { panic!("{text}") };
            assert!(error.to_string().contains(text), "{error}");
            assert!(!crate::error::is_configuration(&error), "{error}");
        }
    }

    #[test]
    fn debug_omits_the_password() {
        let text = format!("{:?}", Credentials::new("ada", "hunter2").valid_for(LIMIT));
        assert!(text.contains("ada") && !text.contains("hunter2"), "{text}");
    }
}
