//! The clients: which streams they ask for, and when they leave.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tollgate_conformance::random::Random;

use crate::gateways::plan::{Plan, policies};

/// The keys of each policy.
pub(crate) const KEYS: u64 = 4;

const A_SECOND: u64 = 100;

/// A stream that a client asks for.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) plan: Plan,
    /// The number of a policy.
    pub(crate) policy: usize,
    pub(crate) key: u64,
    pub(crate) gateway: usize,
    pub(crate) starts_at: Duration,
    /// The units after which the client leaves.
    leaves_after: u64,
    /// How long the client stays, whether it is answered or not.
    pub(crate) stays: Duration,
}

/// The visits of so many seconds, the same in every run.
pub(crate) fn visits(seconds: u64, gateways: usize) -> Vec<Visit> {
    let (mut random, all) = (Random::new(7), policies());
    let mut visit = |id: u64| {
        let one_in = |random: &mut Random, n| random.below(n) == 0;
        // Some streams are slow, and outlive the window that has paid for them.
        let is_slow = one_in(&mut random, 3);
        let units = if is_slow { 8 + random.below(8) } else { 2 + random.below(38) };
        // 0.1 to 10 times the units.
        let estimate = units * random.one_of(&[1, 2, 3, 5, 10, 15, 25, 50, 100]) / 10;
        let policy = random.one_of(&[0, 1, 2, 3]);
        let never = u64::MAX;
        let plan = Plan {
            id: usize::try_from(id).expect("few visits"),
            estimate: estimate.clamp(1, all[policy].capacity() / 2),
            extension: 1 + random.below(10),
            units,
            pace: if is_slow { 150 + random.below(150) } else { 2 + random.below(10) },
            fails_after: if one_in(&mut random, 20) { random.below(units) } else { never },
            settles_twice: one_in(&mut random, 2),
        };
        Visit {
            leaves_after: if one_in(&mut random, 5) { 1 + random.below(units) } else { never },
            plan,
            policy,
            key: random.below(KEYS),
            gateway: usize::try_from(id).expect("few visits") % gateways,
            stays: Duration::MAX,
            starts_at: Duration::from_secs(id) / u32::try_from(A_SECOND).expect("a small number"),
        }
    };
    (0..seconds * A_SECOND).map(&mut visit).collect()
}

impl Visit {
    /// Reads the stream from its start until it ends, or until the client leaves.
    pub(crate) async fn run(&self, gateways: &[SocketAddr]) -> io::Result<()> {
        sleep(self.starts_at).await;
        timeout(self.stays, self.read(gateways)).await.unwrap_or(Ok(()))
    }

    async fn read(&self, gateways: &[SocketAddr]) -> io::Result<()> {
        let mut connection = BufReader::new(TcpStream::connect(gateways[self.gateway]).await?);
        let (policy, key, plan) = (policies()[self.policy].name().to_owned(), self.key, &self.plan);
        let head = format!(
            "GET /{policy} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\nx-user: {key}\r\nx-plan: {plan}\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await?;
        let (mut lines, mut units) = (connection.lines(), 0);
        while let Some(line) = lines.next_line().await? {
            units += u64::from(line.starts_with("data:"));
            if units == self.leaves_after {
                break;
            }
        }
        Ok(())
    }
}
