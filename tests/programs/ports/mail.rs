//! A mail server. It limits connections of an address, messages and recipients of a sender,
//! messages of a sender's domain, and what it sends to another server.

use std::net::IpAddr;
use std::time::Duration;

use tollgate::store::{NeverFails, Store};
use tollgate::{Denial, Key, Limiter, MemoryStore, Policy, Quota, Reason};

pub(super) struct Mail<S = MemoryStore> {
    connections: Limiter<S>,
    submissions: Limiter<S>,
    deliveries: Limiter<S>,
}

/// A reply of SMTP (RFC 5321).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply(pub(super) u16, pub(super) String);

impl<S: Store<Error: NeverFails>> Mail<S> {
    pub(super) fn new(store: S) -> Mail<S> {
        let policy = |name, quota| Policy::new(name, quota);
        let connections = Limiter::new([policy("connections", Quota::per_minute(20))]);
        let submissions = Limiter::new([
            policy("messages", Quota::per_hour(25)),
            policy("recipients", Quota::per_day(200).burst(100)),
            policy("domain", Quota::per_hour(1_000)),
        ]);
        let deliveries = Limiter::new([policy("deliveries", Quota::per_second(50).paced())]);
        Mail {
            connections: connections.store(store.clone()),
            submissions: submissions.store(store.clone()),
            deliveries: deliveries.store(store),
        }
    }

    pub(super) async fn connect(&self, peer: IpAddr) -> Result<(), Reply> {
        self.connections.check(&Key::network(peer, 64), 1).await.map(drop).map_err(|denial| reply(&denial))
    }

    /// Accepts a message for so many recipients: all limits count it, or none.
    pub(super) async fn submit(&self, sender: &str, recipients: u64) -> Result<(), Reply> {
        let Some((_, domain)) = sender.rsplit_once('@') else {
            return Err(Reply(553, "5.1.7 a sender has a domain".to_owned()));
        };
        let (sender, domain) = (sender.to_ascii_lowercase(), domain.to_ascii_lowercase());
        let (sender, domain) = (Key::from(sender), Key::from(domain));
        let asked = [("messages", &sender, 1), ("recipients", &sender, recipients), ("domain", &domain, 1)];
        self.submissions.check_each(&asked).await.map(drop).map_err(|denial| reply(&denial))
    }

    /// Waits for a turn to deliver to that host.
    pub(super) async fn deliver(&self, host: &str) -> Result<(), Reply> {
        let patience = Duration::from_secs(600);
        let turn = self.deliveries.until_ready(&Key::from(host), 1, patience).await;
        turn.map(drop).map_err(|denial| reply(&denial))
    }
}

/// A temporary error with the wait, unless waiting does not help (RFC 3463).
fn reply(denial: &Denial) -> Reply {
    match (denial.reason(), denial.retry_after_seconds()) {
        (Reason::NeverPossible, _) => Reply(552, "5.5.3 too many recipients".to_owned()),
        (_, Some(seconds)) => Reply(451, format!("4.7.1 {denial}, try again in {seconds} s")),
        _ => Reply(451, format!("4.7.1 {denial}")),
    }
}
