//! What groups do before a call is sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tollgate_core::{Clock, Key, ManualClock, Policy, Quota, Timestamp};

use super::caller::{Caller, Deadline};
use super::context::CallContext;
use super::group::{Group, Load};
use super::lane::Lane;
use super::pace::Pace;
use super::refund_batch::{RefundBatch, RefundEntry};
use super::server_clock::ServerClocks;
use crate::link::tls::Certificates;
use crate::link::topology::Topology;
use crate::link::{Connecting, Link, Timeouts};
use crate::wire::layout::SlidingLogLayout;
use crate::wire::names::KeyNames;
use crate::wire::script::Scripts;

/// The context of a server that no test connects to.
pub(super) fn context_without_server() -> Arc<CallContext> {
    context_by(Clock::system())
}

/// The same, where a clock measures how long callers wait.
fn context_by(waits: Clock) -> Arc<CallContext> {
    let topology = Topology::parse("redis://127.0.0.1:1", &Certificates::default()).unwrap();
    let second = Duration::from_secs(1);
    let timeouts = Timeouts { connect: second, response: second };
    Arc::new(CallContext {
        link: Arc::new(Link::new(topology, "t", 1, Connecting { timeouts, credentials: None })),
        names: KeyNames::new("t", None, SlidingLogLayout::List),
        scripts: Arc::new(Scripts::new(false)),
        usage_life_ms: 1,
        clocks: ServerClocks::default(),
        clock: None,
        waits,
        questions: Arc::new(Semaphore::new(1)),
        longest_turn: second,
        longest_wait_elsewhere: second,
        runtime: Handle::current(),
    })
}

fn group(lanes: usize) -> Arc<Group<RefundBatch>> {
    Arc::new(Group::new(context_without_server(), lanes, 1_000, Pace::new()))
}

/// Queues a reset. Returns whether it starts a lane.
fn push(group: &Arc<Group<RefundBatch>>) -> bool {
    push_work(group, 1)
}

fn push_work(group: &Arc<Group<RefundBatch>>, work: u32) -> bool {
    push_until(group, work, None)
}

fn push_until(group: &Arc<Group<RefundBatch>>, work: u32, deadline: Option<Deadline>) -> bool {
    let (names, policy) = (&group.context.names, Policy::new("p", Quota::per_day(5)));
    let key = names.bounded(&Key::from("ada"));
    let entries = RefundEntry::resets(names, &key, &policy).collect();
    let (caller, _) = Caller::new(deadline);
    group.push(0, deadline, work, |batch| batch.push(entries, caller)).unwrap()
}

#[tokio::test]
async fn a_call_carries_at_most_128_requests() {
    let group = group(1);
    let opened = (0..300).filter(|_| push(&group)).count();
    assert_eq!(opened, 1);
    let calls: Vec<_> = std::iter::from_fn(|| Some(group.queues().pop(0)?.len())).collect();
    assert_eq!(calls, [128, 128, 44]);
}

#[tokio::test]
async fn what_would_exceed_the_work_of_a_call_waits_for_the_next() {
    let group = group(1);
    let most = group.queues().pace.most_work();
    for work in [1, most, 1] {
        push_work(&group, work);
    }
    let calls = || std::iter::from_fn(|| Some(group.queues().pop(0)?.len()));
    assert_eq!(calls().collect::<Vec<_>>(), [1, 2]);
    for work in [1, most - 1] {
        push_work(&group, work);
    }
    assert_eq!(calls().collect::<Vec<_>>(), [2], "exactly full");
}

#[tokio::test]
async fn a_lane_that_ends_leaves_the_others_open() {
    let group = group(2);
    assert_eq!([(); 3].map(|()| push(&group)), [true, true, false]);
    while group.queues().pop(0).is_some() {}
    Lane::new(Arc::clone(&group), 0).run().await;
    assert_eq!([(); 2].map(|()| push(&group)), [true, false]);
}

/// Otherwise it would sleep until the deadline, an hour later.
#[tokio::test]
async fn the_task_that_watches_deadlines_ends_with_its_store() {
    let (group, now) = (group(1), Clock::system().now());
    let an_hour = Deadline { asked: now, until: now.saturating_add(Duration::from_secs(3_600)) };
    push_until(&group, 1, Some(an_hour));
    let yield_to_it = async || {
        for _ in 0..10 {
            yield_now().await;
        }
    };
    yield_to_it().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 1);
    drop(group);
    yield_to_it().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test]
async fn an_answer_ends_the_silence_of_its_node() {
    let clock = ManualClock::new(Timestamp::from_micros(1));
    let context = context_by(Clock::from(&clock));
    let group: Group<RefundBatch> = Group::new(context, 1, 1_000, Pace::new());
    let late = || {
        let sent = clock.now();
        clock.advance(Duration::from_millis(50));
        group.silence(0, sent)
    };
    let first = late();
    group.answered(0, 1, clock.now());
    clock.advance(Duration::from_secs(1));
    let next = late();
    assert!(first.is_some() && next.is_some() && first != next, "{first:?} {next:?}");
}
