//! Every order in which a request, its renewals and its release reach a slot.

// A slot and its releases once more, whose `super::sync` and `super::timer_now` are these.
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "held.rs"]
mod held;
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "releases.rs"]
mod releases;

use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};
use std::time::Duration;

use loom::sync::Mutex;
use loom::{sync, thread};
use tokio::time::Instant;
use tollgate_core::{Key, Policy, Renewal, Stamp};

use self::held::{Claim, HeldSlot, Keeper, RenewalPlace};
use self::releases::{OnItsWay, Releases};
use crate::decision::GrantStamp;
use crate::extract::global;
use crate::plan::{Ask, Plan};
use crate::rule::PolicyExt;
use crate::table::digest::{Digest, Secret};
use crate::time::ending::Home;

/// The time to live of a slot.
const TTL: Duration = Duration::from_secs(15);

thread_local! {
    /// The time of a schedule, all of whose threads run on one thread. It stands still unless a
    /// thread moves it.
    static NOW: Cell<Instant> = Cell::new(crate::time::timer_now());
}

/// That of the slots.
fn timer_now() -> Instant {
    NOW.get()
}

/// What a store and the book of slots saw of one slot.
#[derive(Default)]
struct Seen {
    /// Where the book finds the slot to renew it.
    due: Option<RenewalPlace>,
    /// Renewals that were sent and not answered.
    renewing: usize,
    released: usize,
}

/// Keeps one slot, and checks that the store could do so.
struct OneSlot {
    digest: Digest,
    releases: Releases,
    seen: Mutex<Seen>,
}

impl OneSlot {
    fn seen<T>(&self, see: impl FnOnce(&mut Seen) -> T) -> T {
        see(&mut self.seen.lock().expect("no thread panics"))
    }
}

impl Keeper for OneSlot {
    fn announce(&self, _: &Claim) -> OnItsWay {
        self.releases.announce(self.digest)
    }

    fn release(self: Arc<Self>, _: &Claim, announced: OnItsWay, _: &Home) {
        self.seen(|seen| {
            assert_eq!(seen.renewing, 0, "a renewal that is on its way may claim the slot again");
            seen.released += 1;
        });
        drop(announced);
    }

    fn forget(&self, place: RenewalPlace) {
        self.seen(|seen| {
            seen.due.take_if(|due| *due == place);
        });
    }
}

/// A slot of a request, and what keeps it.
#[derive(Clone)]
struct Request {
    held: Arc<HeldSlot>,
    book: Arc<OneSlot>,
}

impl Request {
    /// A slot that was granted now, to be renewed later.
    fn claim() -> Request {
        let plan = Plan::try_new(Policy::in_flight("slots", 1).by(global())).expect("it is valid");
        let key = Key::from("ada");
        let digest = Secret::random().digest(0, key.as_encoded());
        let book = OneSlot { digest, releases: Releases::default(), seen: Mutex::default() };
        let book = Arc::new(book);
        let claim = Claim {
            ask: Ask { policy: plan.number("slots").expect("it is there").into(), key, cost: 1 },
            plan: Arc::new(plan),
            digest,
            stamp: GrantStamp { stamp: Stamp::new(1, 1), share: None },
        };
        let keeper: Arc<dyn Keeper> = book.clone();
        Request { held: Arc::new(HeldSlot::new(keeper, claim, Some(timer_now() + TTL))), book }
    }

    /// Notes that the slot is to be renewed, as the book does when it is granted.
    fn renew_later(&self) {
        let place = (timer_now() + TTL / 3, 1);
        self.book.seen(|seen| {
            if self.held.stands_at(place) {
                seen.due = Some(place);
            }
        });
    }

    /// Renews the slot if it is due, as the book does.
    fn renew(self, answer: Renewal) {
        let next = (timer_now() + TTL / 3, 1);
        let sent = timer_now();
        let begins = self.book.seen(|seen| {
            if seen.due.take().is_none() {
                return false;
            }
            let (is_held, begins) = self.held.begin_renewal(next);
            if is_held {
                seen.due = Some(next);
            }
            begins
        });
        if begins {
            self.book.seen(|seen| {
                assert_eq!(seen.released, 0, "it is renewed after its release");
                seen.renewing += 1;
            });
            self.book.seen(|seen| seen.renewing -= 1);
            self.held.end_renewal(answer, sent + TTL);
            assert!(answer != Renewal::Lost || self.held.is_lost());
        }
    }

    /// Waits until the time to live is over, unless it was renewed. Two looks then agree.
    fn expire(self) {
        NOW.set(NOW.get() + TTL * 2 / 3);
        // Now a renewal may begin.
        self.held.is_lost();
        NOW.set(NOW.get() + TTL / 3);
        let was_lost = self.held.is_lost();
        assert!(self.held.is_lost() || !was_lost, "what was lost stays lost");
    }

    fn end(self) {
        self.held.end();
        assert!(self.held.is_lost());
    }
}

/// Explores the orders of some threads, after which the slot was released once.
fn explore<const N: usize>(threads: [fn(Request); N]) {
    let schedules = Arc::new(Counter::new(0));
    let counted = Arc::clone(&schedules);
    let mut model = loom::model::Builder::new();
    // Those of fewer threads are few.
    model.preemption_bound = Some(5 - N);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let request = Request::claim();
        let book = Arc::clone(&request.book);
        let threads = threads.map(|run| {
            let request = request.clone();
            thread::spawn(move || run(request))
        });
        request.renew_later();
        drop(request);
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        let seen = book.seen(mem::take);
        assert_eq!((seen.released, seen.renewing), (1, 0));
        assert_eq!(seen.due, None, "no slot is left to be renewed");
        assert!(book.releases.all_on_their_way().is_none(), "no release is left on its way");
    });
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules > 100, "{schedules} schedules show little");
}

#[test]
fn a_slot_that_ends_twice_while_it_is_renewed_is_released_once() {
    explore([Request::end, Request::end, |request| request.renew(Renewal::Held)]);
}

#[test]
fn a_slot_that_others_got_is_released_once() {
    explore([Request::end, |request| request.renew(Renewal::Lost), drop]);
}

#[test]
fn a_slot_that_expires_while_it_is_renewed_is_released_once() {
    explore([Request::expire, |request| request.renew(Renewal::Unanswered), Request::end]);
    explore([Request::expire, |request| request.renew(Renewal::Held), Request::end]);
    explore([Request::expire, |request| request.renew(Renewal::Held)]);
}

/// Two tasks renew at once, one of which was thought to have stopped.
#[test]
fn a_slot_is_not_renewed_by_two_tasks_at_once() {
    let renew = |request: Request| request.renew(Renewal::Held);
    explore([renew, renew, Request::end]);
}
