//! Cases of concurrent requests.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Algorithm, Check, Grant, Key, Policy, Reply, Settled, Stamp, Times, Verdict};

use super::case::{Case, nothing, plain_with_limit, with_debt};
use super::tested::{BoxFuture, ReplyOf};

pub(super) const CALLERS: usize = 8;
pub(super) const EACH: usize = 25;

/// Starts `CALLERS` × `EACH` requests by number. If the store answers immediately, several threads
/// call it. Otherwise all calls are in flight before the first answer is awaited.
fn begin<T>(case: &Case, is_immediate: bool, request: impl Fn(usize) -> T + Sync) -> Vec<T>
where
    T: Send,
{
    if !is_immediate {
        return (0..CALLERS * EACH).map(request).collect();
    }
    let request = &request;
    let answers = std::thread::scope(|scope| {
        let caller =
            |n: usize| scope.spawn(move || (n * EACH..(n + 1) * EACH).map(request).collect::<Vec<_>>());
        let callers: Vec<_> = (0..CALLERS).map(caller).collect();
        callers.into_iter().map(|caller| caller.join()).collect::<Vec<_>>()
    });
    let answers = answers.into_iter().flat_map(|caller| match caller {
        Ok(answers) => answers,
        Err(_) => case.fail("the store panicked"),
    });
    answers.collect()
}

/// Sends `EACH` requests from every caller. `set` returns the checks of the n-th request.
pub(super) async fn ask<'a>(
    case: &Case,
    set: impl Fn(usize) -> Vec<Check<'a>> + Sync,
    times: Times,
) -> Vec<Verdict> {
    let first = case.store.acquire(&set(0), times);
    let replies: Vec<ReplyOf<Verdict>> =
        begin(case, matches!(first, Reply::Now(_)), |n| case.store.acquire(&set(n), times));
    let replies = std::iter::once(first).chain(replies).map(|reply| Box::pin(reply.wait())).collect();
    let answers = join(replies).await;
    answers.into_iter().map(|answer| case.answered("a concurrent acquire", answer)).collect()
}

/// Sends these requests before the first answer is awaited.
pub(super) async fn ask_all(case: &Case, requests: &[(Check<'_>, Times)]) -> Vec<Verdict> {
    let replies =
        requests.iter().map(|(check, times)| Box::pin(case.store.acquire(&[*check], *times).wait()));
    let answers = join(replies.collect()).await;
    let verdicts = answers.into_iter().map(|answer| case.answered("a concurrent acquire", answer));
    let verdicts: Vec<Verdict> = verdicts.collect();
    for ((check, times), verdict) in requests.iter().zip(&verdicts) {
        case.denials.note(&[*check], *times, verdict, case.time.now());
    }
    verdicts
}

/// Sends `EACH` refunds from every caller. `grant` returns the grant of the n-th refund.
pub(super) async fn all_refunded<'a>(case: &Case, grant: impl Fn(usize) -> Grant<'a> + Sync) {
    let first = begun(case.store.refund(&[grant(0)]));
    let replies = begin(case, matches!(first, Reply::Now(_)), |n| begun(case.store.refund(&[grant(n)])));
    let replies = std::iter::once(first).chain(replies).map(|reply| Box::pin(reply.wait())).collect();
    for answer in join(replies).await {
        case.answered("a concurrent refund", answer);
    }
}

async fn join<F: Future>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.into_iter().enumerate().collect();
    let mut done = Vec::new();
    poll_fn(|cx| {
        pending.retain_mut(|(n, future)| match future.as_mut().poll(cx) {
            Poll::Ready(answer) => {
                done.push((*n, answer));
                false
            }
            Poll::Pending => true,
        });
        if pending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, answer)| answer).collect()
}

/// Half of the requests refund an earlier unit, and the other half take one.
pub(super) async fn concurrent_refunds_and_requests_are_counted_once(case: &Case) {
    const HALF: u64 = 100;
    let key = Key::from("all callers");
    let mut policies = plain_with_limit(2 * HALF);
    // A leaky bucket refunds only its latest grant, which is random here.
    policies.retain(|policy| !matches!(policy.algorithm(), Algorithm::LeakyBucket { .. }));
    for policy in &policies {
        let one = [Check::new(policy, &key, 1)];
        let grant = |stamp: Stamp| Grant { policy, key: &key, units: 1, stamp, share: None };
        let taken = case.store.acquire(&one, Times::ONCE);
        let mut is_immediate = matches!(taken, Reply::Now(_));
        let taken = case.answered("acquire", taken.wait().await);
        let given_back = begun(case.store.refund(&[grant(taken.each()[0].stamp())]));
        is_immediate &= matches!(given_back, Reply::Now(_));
        case.answered("refund", given_back.wait().await);
        let mut stamps = Vec::new();
        for _ in 0..HALF {
            stamps.push(case.must_take(policy, &key, 1).await);
        }
        let replies = begin(case, is_immediate, |n| match n % 2 {
            0 => Ok(case.store.acquire(&one, Times::ONCE)),
            _ => Err(begun(case.store.refund(&[grant(stamps[n / 2])]))),
        });
        let answers = replies.into_iter().map(|reply| {
            Box::pin(async {
                match reply {
                    Ok(taken) => Some(case.answered("an acquire among refunds", taken.wait().await)),
                    Err(given_back) => {
                        case.answered("a refund among acquires", given_back.wait().await);
                        None
                    }
                }
            })
        });
        let verdicts: Vec<Verdict> = join(answers.collect()).await.into_iter().flatten().collect();
        granted_and_left(case, policy, &key, (granted(&verdicts), HALF), 2 * HALF).await;
    }
}

/// Half of the requests charge a unit beyond a grant, and the other half ask for one.
pub(super) async fn concurrent_charges_and_requests_are_counted_once(case: &Case) {
    const HALF: u64 = 100;
    let key = Key::from("all callers");
    for policy in with_debt(HALF) {
        let one = [Check::new(&policy, &key, 1)];
        let no_grant = [nothing(&policy, &key)];
        let is_immediate = matches!(case.store.acquire(&one, Times::LOOK), Reply::Now(_));
        let replies = begin(case, is_immediate, |n| match n % 2 {
            0 => Ok(case.store.acquire(&one, Times::ONCE)),
            _ => Err(begun(case.store.settle(&no_grant, 1))),
        });
        let answers = replies.into_iter().map(|reply| {
            Box::pin(async {
                match reply {
                    Ok(taken) => Ok(case.answered("an acquire among charges", taken.wait().await)),
                    Err(charged) => Err(case.answered("a charge among acquires", charged.wait().await)),
                }
            })
        });
        let (mut taken, mut charged, mut debt) = (0, 0, 0);
        for answer in join(answers.collect()).await {
            match answer {
                Ok(verdict) => taken += u64::from(verdict.times()),
                Err(settled) => (charged, debt) = (charged + settled.charged, debt + settled.debt),
            }
        }
        let rest = case.charge(&policy, &key, 3 * HALF).await;
        if case.excuses.leases.is_some() {
            // Units on their way to the store's callers are charged too.
            let within = taken + charged + rest.charged <= 2 * HALF;
            case.same(&format!("no more is charged of {}", policy.name()), within, true);
            continue;
        }
        case.same(&format!("all are charged of {}", policy.name()), charged, HALF);
        case.same(&format!("what exceeds the limit is debt of {}", policy.name()), debt, taken);
        let charged = HALF - taken;
        let rest_due = Settled { charged, debt: charged, forgiven: 3 * HALF - charged, ..Settled::default() };
        case.same(&format!("the rest of the debt of {}", policy.name()), rest, rest_due);
    }
}

/// Polls the end of a grant once where it is made.
fn begun<T>(mut end: BoxFuture<T>) -> ReplyOf<T> {
    match end.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Reply::Now(answer),
        Poll::Pending => Reply::Later(end),
    }
}

/// Fails unless all `expected` requests were granted, of `room` units. A store with leases may have
/// some of those units on their way to it: then fewer are granted, and never more.
async fn granted_and_left(
    case: &Case,
    policy: &Policy,
    key: &Key,
    (granted, expected): (u64, u64),
    room: u64,
) {
    if case.excuses.leases.is_none() {
        case.same(&format!("granted of {}", policy.name()), granted, expected);
        return case.left("after all requests", policy, key, room - expected).await;
    }
    let left = case.look(policy, key, 1).await.remaining();
    case.same(&format!("no more is granted of {}", policy.name()), granted <= expected, true);
    case.same(&format!("no more is left of {}", policy.name()), granted + left <= room, true);
}

fn granted(verdicts: &[Verdict]) -> u64 {
    verdicts.iter().map(|verdict| u64::from(verdict.times())).sum()
}

pub(super) async fn a_burst_of_concurrent_requests_gets_the_limit(case: &Case) {
    for policy in plain_with_limit(100) {
        let key = Key::from("all callers");
        let verdicts = ask(case, |_| vec![Check::new(&policy, &key, 1)], Times::ONCE).await;
        granted_and_left(case, &policy, &key, (granted(&verdicts), 100), 100).await;

        let key = Key::from("all callers, several units at a time");
        let verdicts = ask(case, |_| vec![Check::new(&policy, &key, 3)], Times::up_to(4)).await;
        case.same(&format!("granted of {}", policy.name()), granted(&verdicts), 33);
        case.left("after the burst", &policy, &key, 1).await;
    }
}

pub(super) async fn concurrent_sets_in_any_order_are_all_or_nothing(case: &Case) {
    let policies = plain_with_limit(100);
    let keys = [Key::from("ours"), Key::from("theirs"), Key::from("scarce")];
    for policy in &policies {
        case.must_take(policy, &keys[2], 96).await;
    }
    // Half of the requests reverse their pairs, so a store that locks them one by one would
    // deadlock. Every fifth also names the scarce key, which has room for 4.
    let set = |n: usize| {
        let keys = &keys[..if n.is_multiple_of(5) { 3 } else { 2 }];
        let pairs = policies.iter().flat_map(|policy| keys.iter().map(move |key| Check::new(policy, key, 1)));
        let mut set: Vec<Check<'_>> = pairs.collect();
        if n.is_multiple_of(2) {
            set.reverse();
        }
        set
    };
    let verdicts = ask(case, set, Times::ONCE).await;
    case.same("granted", granted(&verdicts), 100);
    let of_the_scarce = verdicts.iter().filter(|verdict| verdict.each().len() > 2 * policies.len());
    let scarce: u64 = of_the_scarce.map(|verdict| u64::from(verdict.times())).sum();
    for policy in &policies {
        case.left("no denied set was charged", policy, &keys[0], 0).await;
        case.left("no denied set was charged", policy, &keys[1], 0).await;
        case.left("no denied set was charged in part", policy, &keys[2], 4 - scarce).await;
    }
}
