//! Many at once.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tollgate_core::{Algorithm, Check, Grant, Key, Reply, Stamp, Store, Times, Verdict};

use super::bench::{Bench, plain_with_limit};

const CALLERS: usize = 8;
const EACH: usize = 25;

type Answer<S> = Result<Verdict, <S as Store>::Error>;

/// Begins as many requests as there are, by their numbers: from threads, if the store answers on the spot; of any other, all
/// are under way before the first answer is awaited.
fn begin<S, T>(bench: &Bench<S>, is_at_hand: bool, request: impl Fn(usize) -> T + Sync) -> Vec<T>
where
    S: Store<Error: Debug>,
    T: Send,
{
    if !is_at_hand {
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
        Err(_) => bench.fail("the store panicked"),
    });
    answers.collect()
}

/// Asks from every caller `EACH` times; `set` says what the n-th request asks.
async fn ask<'a, S>(
    bench: &Bench<S>,
    set: impl Fn(usize) -> Vec<Check<'a>> + Sync,
    times: Times,
) -> Vec<Verdict>
where
    S: Store<Error: Debug>,
{
    let first = bench.store.acquire(&set(0), times);
    let replies: Vec<Reply<Answer<S>, S::Acquire>> =
        begin(bench, matches!(first, Reply::Now(_)), |n| bench.store.acquire(&set(n), times));
    let replies = std::iter::once(first).chain(replies).map(|reply| Box::pin(reply.wait())).collect();
    let answers = join(replies).await;
    answers.into_iter().map(|answer| bench.answered("a concurrent acquire", answer)).collect()
}

/// Awaits all of them at the same time.
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

/// Every other request gives back a unit that was granted before, and the others take one.
pub(super) async fn refunds_among_requests_are_counted_once<S: Store<Error: Debug>>(bench: &Bench<S>) {
    const HALF: u32 = 100;
    let key = Key::from("everybody");
    let mut policies = plain_with_limit(2 * HALF);
    // A queue takes back its latest grant only: which that is, is chance here.
    policies.retain(|policy| !matches!(policy.algorithm(), Algorithm::LeakyBucket { .. }));
    for policy in &policies {
        let one = [Check::new(policy, &key, 1)];
        let grant = |stamp: Stamp| Grant { policy, key: &key, units: 1, stamp, share: None };
        let taken = bench.store.acquire(&one, Times::ONCE);
        let mut is_at_hand = matches!(taken, Reply::Now(_));
        let taken = bench.answered("acquire", taken.wait().await);
        let given_back = bench.store.refund(&[grant(taken.each()[0].stamp())]);
        is_at_hand &= matches!(given_back, Reply::Now(_));
        bench.answered("refund", given_back.wait().await);
        let mut stamps = Vec::new();
        for _ in 0..HALF {
            stamps.push(bench.must_take(policy, &key, 1).await);
        }
        let replies = begin(bench, is_at_hand, |n| match n % 2 {
            0 => Ok(bench.store.acquire(&one, Times::ONCE)),
            _ => Err(bench.store.refund(&[grant(stamps[n / 2])])),
        });
        let answers = replies.into_iter().map(|reply| {
            Box::pin(async {
                match reply {
                    Ok(taken) => Some(bench.answered("an acquire among refunds", taken.wait().await)),
                    Err(given_back) => {
                        bench.answered("a refund among acquires", given_back.wait().await);
                        None
                    }
                }
            })
        });
        let verdicts: Vec<Verdict> = join(answers.collect()).await.into_iter().flatten().collect();
        bench.same("granted", granted(&verdicts), HALF);
        bench.left("when as much came back as was taken", policy, &key, HALF).await;
    }
}

fn granted(verdicts: &[Verdict]) -> u32 {
    verdicts.iter().map(Verdict::times).sum()
}

pub(super) async fn a_burst_of_concurrent_requests_gets_the_limit<S: Store<Error: Debug>>(bench: &Bench<S>) {
    for policy in plain_with_limit(100) {
        let key = Key::from("everybody");
        let verdicts = ask(bench, |_| vec![Check::new(&policy, &key, 1)], Times::ONCE).await;
        bench.same(&format!("granted of {}", policy.name()), granted(&verdicts), 100);
        bench.left("after the burst", &policy, &key, 0).await;

        let key = Key::from("everybody, some at a time");
        let verdicts = ask(bench, |_| vec![Check::new(&policy, &key, 3)], Times::up_to(4)).await;
        bench.same(&format!("granted of {}", policy.name()), granted(&verdicts), 33);
        bench.left("after the burst", &policy, &key, 1).await;
    }
}

pub(super) async fn concurrent_sets_in_any_order_are_all_or_nothing<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let policies = plain_with_limit(100);
    let keys = [Key::from("ours"), Key::from("theirs"), Key::from("scarce")];
    for policy in &policies {
        bench.must_take(policy, &keys[2], 96).await;
    }
    // Every other request names the pairs the other way round: a store that locks one by one would hang. Every fifth
    // wants of the scarce key too, which refuses after 4 of them.
    let set = |n: usize| {
        let keys = &keys[..if n.is_multiple_of(5) { 3 } else { 2 }];
        let pairs = policies.iter().flat_map(|policy| keys.iter().map(move |key| Check::new(policy, key, 1)));
        let mut set: Vec<Check<'_>> = pairs.collect();
        if n.is_multiple_of(2) {
            set.reverse();
        }
        set
    };
    let verdicts = ask(bench, set, Times::ONCE).await;
    bench.same("granted", granted(&verdicts), 100);
    let of_the_scarce = verdicts.iter().filter(|verdict| verdict.each().len() > 2 * policies.len());
    let scarce: u32 = of_the_scarce.map(Verdict::times).sum();
    for policy in &policies {
        bench.left("no denied set was charged", policy, &keys[0], 0).await;
        bench.left("no denied set was charged", policy, &keys[1], 0).await;
        bench.left("nor in part", policy, &keys[2], 4 - scarce).await;
    }
}
