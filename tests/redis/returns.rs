//! Releases, renewals and refunds: what one call carries, and what waits for what.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::store::{Check, Grant, Renewal, Stamp, Store, Times, renewals};
use tollgate::{Algorithm, Key, Policy, Quota};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Proxy, Way};

use crate::redis::calls::calls;
use crate::redis::{Fresh, acquire, builder, eventually, look, shared, used};

fn exports(limit: u64) -> Policy {
    Policy::in_flight("exports", limit).with_ttl(Duration::from_secs(600))
}

fn log(limit: u64) -> Policy {
    Policy::new("log", Quota::per_day(limit)).with_algorithm(Algorithm::SLIDING_LOG)
}

fn bucket() -> Policy {
    Policy::new("bucket", Quota::per_day(1_000_000))
}

fn grant<'a>(policy: &'a Policy, key: &'a Key, stamp: Stamp) -> Grant<'a> {
    Grant { policy, key, units: 1, stamp, share: None }
}

/// Takes so many units or slots of ada at once, and returns the stamp of each, the newest first.
async fn claim(store: &RedisStore, policy: &Policy, times: u32) -> Vec<Stamp> {
    let ada = Key::from("ada");
    let check = [Check::new(policy, &ada, 1)];
    let verdict = store.acquire(&check, Times::between(times, times)).wait().await.unwrap();
    assert_eq!(verdict.times(), times);
    let stamp = verdict.each()[0].stamp();
    (0..u64::from(times)).map(|n| stamp.after_refund(policy, n)).collect()
}

/// What a script call ran.
struct ScriptCall {
    keys: usize,
    commands: Vec<String>,
}

impl ScriptCall {
    fn ran(&self, command: &str) -> bool {
        self.commands.iter().any(|ran| ran.eq_ignore_ascii_case(command))
    }
}

/// Watches the calls of scripts on a server.
struct Monitor<'a> {
    server: &'a Server,
    lines: BufReader<TcpStream>,
}

impl Monitor<'_> {
    fn of(server: &Server) -> Monitor<'_> {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        lines.read_line(&mut String::new()).unwrap();
        Monitor { server, lines }
    }

    /// The calls since it was asked last.
    fn calls(&mut self) -> Vec<ScriptCall> {
        self.server.command(&["ECHO", "the end"]).unwrap();
        let mut calls: Vec<ScriptCall> = Vec::new();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            let Some((client, command)) = line.split_once("] ") else { continue };
            let words: Vec<&str> =
                command.split_whitespace().take(3).map(|word| word.trim_matches('"')).collect();
            match (words[0].to_uppercase().as_str(), calls.last_mut()) {
                ("ECHO", _) => return calls,
                ("EVALSHA", _) => {
                    calls.push(ScriptCall { keys: words[2].parse().unwrap(), commands: Vec::new() });
                }
                (command, Some(call)) if client.ends_with("lua") => call.commands.push(command.to_owned()),
                _ => {}
            }
        }
    }

    /// How many keys each call named.
    fn sizes(&mut self) -> Vec<usize> {
        self.calls().iter().map(|call| call.keys).collect()
    }
}

/// Gives back one unit of each of these grants, each by a request of its own. All are queued before
/// the first is sent.
async fn refund_each(store: &RedisStore, policy: &Policy, stamps: &[Stamp]) {
    let ada = Key::from("ada");
    let refunds: Vec<_> = stamps.iter().map(|stamp| store.refund(&[grant(policy, &ada, *stamp)])).collect();
    for refund in refunds {
        refund.await.unwrap();
    }
}

/// Has each lane open its connection and load its script.
async fn warm_up(server: &Server, store: &RedisStore) {
    let (slots, bucket, ada) = (exports(1), bucket(), Key::from("warm"));
    server.pause().unwrap();
    let grants = [grant(&slots, &ada, Stamp::new(1, 1)), grant(&bucket, &ada, Stamp::new(1, 0))];
    let (release, refund) = (store.refund(&grants[..1]), store.refund(&grants[1..]));
    let check = store.acquire(&[Check::new(&slots, &ada, 1)], Times::LOOK);
    let renewal = renewals(store, &grants[..1]);
    let resume = async {
        tokio::task::yield_now().await;
        server.resume().unwrap();
    };
    let answers = tokio::join!(renewal, resume, release, refund, check.wait());
    assert!(answers.0.is_ok() && answers.2.is_ok() && answers.3.is_ok() && answers.4.is_ok());
}

/// A renewal is as much work as ten checks, and a call carries as much as 1,024.
#[tokio::test]
async fn a_call_carries_at_most_a_hundred_renewals() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let (policy, ada) = (exports(1_000_000), Key::from("ada"));
    let stamps = claim(&fresh.store, &policy, 5_000).await;
    let grants: Vec<Grant<'_>> = stamps.iter().map(|stamp| grant(&policy, &ada, *stamp)).collect();
    let mut monitor = Monitor::of(&server);
    assert_eq!(renewals(&fresh.store, &grants).await.unwrap(), vec![Renewal::Held; 5_000]);
    assert_eq!(monitor.sizes(), [100; 50]);
}

/// One writes up to 1,024 runs again. Of a short log as many share a call as it has time for.
#[tokio::test]
async fn a_call_carries_as_many_refunds_of_a_log_as_it_has_time_for() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let mut monitor = Monitor::of(&server);
    for (limit, most) in [(100_000, 1), (100, 8), (10, 29)] {
        refund_each(&fresh.store, &log(limit), &[Stamp::new(1, 0); 120]).await;
        let sizes = monitor.sizes();
        assert_eq!(sizes.iter().sum::<usize>(), 120, "{limit}: {sizes:?}");
        assert!(sizes.iter().all(|size| *size <= most), "{limit}: {sizes:?}");
    }
}

/// Work that ends early gives back the grants of all its extensions at once.
#[tokio::test]
async fn a_request_of_many_refunds_is_sent_in_parts() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let ada = Key::from("ada");
    for (policy, grants, most) in [(bucket(), 5_000, 170), (log(100_000), 50, 1)] {
        let stamps = claim(&fresh.store, &policy, grants).await;
        let grants: Vec<Grant<'_>> = stamps.iter().map(|stamp| grant(&policy, &ada, *stamp)).collect();
        let mut monitor = Monitor::of(&server);
        fresh.store.refund(&grants).await.unwrap();
        let sizes = monitor.sizes();
        assert_eq!(sizes.iter().sum::<usize>(), grants.len(), "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= most), "{sizes:?}");
        assert_eq!(used(&fresh.store, &policy, "ada").await, 0);
    }
}

/// Parts behind one that failed are not sent, so a server that is silent does not hold up its
/// caller for each of them.
#[tokio::test]
async fn a_request_of_many_refunds_ends_with_its_first_failure() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    // It refills no unit during the test.
    let (policy, ada) = (Policy::new("bucket", Quota::per_day(1_000)), Key::from("ada"));
    let stamps = claim(&fresh.store, &policy, 1_000).await;
    let grants: Vec<Grant<'_>> = stamps.iter().map(|stamp| grant(&policy, &ada, *stamp)).collect();
    // The script reads the bucket first, and fails.
    server.command(&["ACL", "SETUSER", "default", "-mget"]).unwrap();
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    assert!(fresh.store.refund(&grants).await.is_err());
    assert_eq!(calls(&server, "evalsha"), 1);
    server.command(&["ACL", "SETUSER", "default", "+mget"]).unwrap();
    assert_eq!(used(&fresh.store, &policy, "ada").await, 1_000);
}

#[tokio::test]
async fn slots_are_kept_and_released_while_refunds_fill_their_queue() {
    let fresh = Fresh::on(shared(Kind::Redis8_2)).await;
    let (slots, log, ada) = (exports(200), log(100_000), Key::from("ada"));
    let stamps = claim(&fresh.store, &slots, 200).await;
    let of_log = acquire(&fresh.store, &log, "ada", 20_000).await.each()[0].stamp();
    // Nothing is sent before this task waits.
    let (mut queued, mut refused) = (Vec::new(), 0);
    for _ in 0..20_000 {
        let mut refund = Box::pin(fresh.store.refund(&[grant(&log, &ada, of_log)]));
        match refund.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) if error.is_overloaded() => refused += 1,
            _ => queued.push(refund),
        }
    }
    assert_eq!(refused, 20_000 - 16_384);
    let grants: Vec<Grant<'_>> = stamps.iter().map(|stamp| grant(&slots, &ada, *stamp)).collect();
    assert_eq!(renewals(&fresh.store, &grants).await.unwrap(), vec![Renewal::Held; 200]);
    fresh.store.refund(&grants).await.unwrap();
    assert_eq!(look(&fresh.store, &slots, "ada").await.each()[0].remaining(), 200);
}

#[tokio::test]
async fn a_release_passes_renewals_that_are_queued() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let (policy, ada) = (exports(1_000_000), Key::from("ada"));
    let stamps = claim(&fresh.store, &policy, 5_000).await;
    let last = claim(&fresh.store, &policy, 1).await;
    let grants: Vec<Grant<'_>> = stamps.iter().map(|stamp| grant(&policy, &ada, *stamp)).collect();
    warm_up(&server, &fresh.store).await;
    let mut monitor = Monitor::of(&server);
    server.pause().unwrap();
    let release = async {
        let release = fresh.store.refund(&[grant(&policy, &ada, last[0])]);
        server.resume().unwrap();
        release.await.unwrap();
    };
    // The renewals are queued first.
    let (renewals, ()) = tokio::join!(renewals(&fresh.store, &grants), release);
    assert_eq!(renewals.unwrap(), vec![Renewal::Held; 5_000]);
    let calls = monitor.calls();
    let at = calls.iter().position(|call| call.ran("ZREM")).unwrap();
    assert!(at <= 3 && calls.len() == 51, "after {at} of {} calls", calls.len());
}

/// Otherwise a slot would stay taken that no request holds.
#[tokio::test]
async fn a_renewal_that_is_executed_after_the_release_claims_nothing() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let proxy = Proxy::before(server.address()).await;
    let straight = Fresh::on(&server).await;
    let builder = builder(&format!("redis://{}/", proxy.address())).prefix(&*straight.prefix);
    // The test needs a renewal without an answer.
    let stalled = builder.response_timeout(Duration::from_secs(2)).connect().await.unwrap();
    let (policy, ada) = (exports(1), Key::from("ada"));
    let stamps = claim(&stalled, &policy, 1).await;
    let grants = [grant(&policy, &ada, stamps[0])];
    assert_eq!(renewals(&stalled, &grants).await.unwrap(), [Renewal::Held]);
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    proxy.set(Way::IsSilent);
    assert!(renewals(&stalled, &grants).await.is_err(), "the proxy holds it back");
    straight.store.refund(&grants).await.unwrap();
    assert_eq!(calls(&server, "evalsha") + calls(&server, "eval"), 1);
    proxy.set(Way::IsOpen);
    eventually("the renewal is executed", async || calls(&server, "evalsha") > 1).await;
    assert_eq!(look(&straight.store, &policy, "ada").await.each()[0].remaining(), 1);
    // A holder that waits for the answer claims again what the server has lost.
    assert_eq!(renewals(&straight.store, &grants).await.unwrap(), [Renewal::Held]);
    assert_eq!(look(&straight.store, &policy, "ada").await.each()[0].remaining(), 0);
}
