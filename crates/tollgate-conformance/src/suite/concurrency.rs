//! Many at once.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tollgate_core::{Check, Key, Reply, Store, Times, Verdict};

use super::bench::{Bench, plain_with_limit};

const CALLERS: usize = 8;
const EACH: usize = 25;

type Answer<S> = Result<Verdict, <S as Store>::Error>;

/// Asks from every caller `EACH` times; `set` says what the n-th request asks. A store that answers on the spot is
/// asked from threads; of any other, all requests are under way before the first answer is awaited.
async fn ask<'a, S>(
    bench: &Bench<S>,
    set: impl Fn(usize) -> Vec<Check<'a>> + Sync,
    times: Times,
) -> Vec<Verdict>
where
    S: Store<Error: Debug>,
{
    let first = bench.store.acquire(&set(0), times);
    let replies: Vec<Reply<Answer<S>, S::Acquire>> = if matches!(first, Reply::Now(_)) {
        let ask = |caller: usize| {
            let requests = caller * EACH..(caller + 1) * EACH;
            requests.map(|n| bench.store.acquire(&set(n), times)).collect::<Vec<_>>()
        };
        let ask = &ask;
        let asked = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS).map(|caller| scope.spawn(move || ask(caller))).collect();
            callers.into_iter().map(|caller| caller.join()).collect::<Vec<_>>()
        });
        let asked = asked.into_iter().flat_map(|caller| match caller {
            Ok(replies) => replies,
            Err(_) => bench.fail("the store panicked"),
        });
        asked.collect()
    } else {
        (0..CALLERS * EACH).map(|n| bench.store.acquire(&set(n), times)).collect()
    };
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
