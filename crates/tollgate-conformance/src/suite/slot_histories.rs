//! Random histories of one key with slots and a rate, compared with the oracle.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Check, Grant, Key, Policy, Quota, Renewal, Stamp, Status, Times, Timestamp, Wait,
};

use super::case::{Case, micros};
use super::histories::OF_A_STORE;
use super::slots::{TTL, class, has_ttl, slot, slots};
use crate::oracle::SlotOracle;
use crate::random::Random;

/// Few, so that the rate refuses some of the sets.
const RATE: u64 = 6;

/// Runs the histories of these numbers, at most [`OF_A_STORE`].
pub(super) async fn match_the_oracle(case: &Case, numbers: Range<u32>) {
    let has_ttl = has_ttl(case).await;
    for number in numbers.take(OF_A_STORE) {
        let mut random = Random::new(number.into());
        let policy = slots(1 + random.below(4));
        let mut run = Run {
            case,
            oracle: SlotOracle::new(has_ttl),
            policy,
            key: Key::from(number),
            has_ttl,
            // Its only window outlasts the history.
            rate: Policy::new("rate", Quota::new(RATE, Duration::from_secs(366 * 86_400)))
                .with_algorithm(Algorithm::FIXED_WINDOW),
            rate_left: RATE,
            held: Vec::new(),
            ended: Vec::new(),
            known: HashSet::new(),
            latest: case.time.now(),
            last_wait: 0,
        };
        for _ in 0..4 + random.below(20) {
            run.play(&mut random).await;
            run.compare().await;
        }
        case.time.set(run.latest);
    }
}

struct Run<'a> {
    case: &'a Case,
    policy: Policy,
    key: Key,
    oracle: SlotOracle,
    has_ttl: bool,
    rate: Policy,
    rate_left: u64,
    /// Grants of several slots, which their holders have not released.
    held: Vec<(Stamp, u64)>,
    /// Slots that were released, or that their holders know to be lost.
    ended: Vec<Stamp>,
    known: HashSet<Stamp>,
    latest: Timestamp,
    last_wait: u64,
}

impl Run<'_> {
    async fn play(&mut self, random: &mut Random) {
        match random.below(20) {
            0..=6 => self.acquire(random).await,
            7..=9 => self.release(random).await,
            10 => self.release_again(random).await,
            11..=12 => self.renew().await,
            13 => {
                let ttl = Duration::from_micros(random.one_of(&[TTL, TTL, TTL / 5, 3 * TTL]));
                self.policy = slots(1 + random.below(4)).with_ttl(ttl);
            }
            14 => self.policy = class(self.case, 1 + random.below(4)),
            15 if random.below(4) == 0 => self.reset().await,
            16 => self.step_back(random.magnitude(1, 3 * TTL)),
            _ => {
                let some = random.below(TTL);
                let span = random.one_of(&[1, some, some, TTL, self.last_wait]);
                self.case.advance(span.saturating_sub(random.below(2)));
                self.latest = self.latest.max(self.case.time.now());
            }
        }
    }

    async fn acquire(&mut self, random: &mut Random) {
        let now = self.case.time.now();
        // While the clock is behind, a refusal cuts what lies ahead; one of 2 may, or not.
        let most = if now < self.latest { 1 } else { 2 };
        let cost = random.one_of(&[1, 1, 1, 1, 1, 1, 0, most]);
        let some = random.small(1, 4);
        let times =
            random.one_of(&[Times::ONCE, Times::up_to(some), Times::between(0, some), Times::between(2, 3)]);
        let slot = Check::new(&self.policy, &self.key, cost);
        let rate = Check::new(&self.rate, &self.key, 1);
        let (set, at) = match random.below(4) {
            0 => (vec![slot, rate], 0),
            1 => (vec![rate, slot], 1),
            _ => (vec![slot], 0),
        };
        let left = self.oracle.left(&self.policy, now);
        let of_slots = match cost {
            0 => u64::MAX,
            1 => left,
            _ => 0,
        };
        let of_rate = if set.len() > 1 { self.rate_left } else { u64::MAX };
        let room = of_slots.min(of_rate).min(times.max().into());
        let due = if room < u64::from(times.min()) { 0 } else { room };
        let verdict = self.case.acquire(&set, times).await;
        let what = format!("{times:?} of {cost} with {left} and {of_rate} left: granted");
        self.case.same(&what, u64::from(verdict.times()), due);
        let status = verdict.each()[at];
        if due == 0 {
            self.compare_refusal(status, cost, times.min().max(1).into(), left);
            return;
        }
        if set.len() > 1 {
            self.rate_left -= due;
        }
        self.case.same("remaining", status.remaining(), left - due * cost);
        if cost == 1 {
            let ttl = self.has_ttl.then(|| self.policy.quota().window());
            self.case.same("the end of the slot", status.ends_after(), ttl);
            self.held.push((status.stamp(), due));
            for turn in 0..due {
                let stamp = status.stamp().after_refund(&self.policy, turn);
                self.case.same("an identity that was used before", self.known.insert(stamp), true);
                self.oracle.claim(&self.policy, stamp, now);
            }
        }
    }

    /// Compares the wait of a refused cost, which had to fit `least` times.
    fn compare_refusal(&mut self, status: Status, cost: u64, least: u64, left: u64) {
        // A cache answered by a denial of the rate.
        let is_unknown = (status.remaining(), status.reset_after()) == (0, Duration::ZERO);
        if self.case.excuses.cached_denials && is_unknown {
            return;
        }
        let lacks_some = cost == 1 && left < least;
        match status.wait() {
            Wait::For(wait) if lacks_some && least <= self.policy.capacity() => {
                let due = self.oracle.refuse(&self.policy, least, self.case.time.now());
                self.compare_wait(wait, due);
            }
            wait => {
                let due = if lacks_some || cost > 1 { Wait::Never } else { Wait::None };
                self.case.same(&format!("the wait for {least} of {cost} with {left} left"), wait, due);
            }
        }
    }

    fn compare_wait(&self, wait: Duration, due: Option<u64>) {
        match due {
            Some(due) => self.case.same("the wait", micros(wait), due),
            None => {
                let bounded = !wait.is_zero() && wait <= self.policy.quota().window();
                self.case.same("a wait of a time to live at most", bounded, true);
            }
        }
    }

    /// Releases some of a grant, or all.
    async fn release(&mut self, random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        let at = usize::try_from(random.below(self.held.len() as u64)).unwrap_or(0);
        let (stamp, granted) = self.held.swap_remove(at);
        let units = 1 + random.below(granted);
        self.case.refund(&self.policy, &self.key, units, stamp).await;
        for turn in 0..units {
            let stamp = stamp.after_refund(&self.policy, turn);
            self.oracle.release(stamp);
            self.ended.push(stamp);
        }
        if units < granted {
            self.held.push((stamp.after_refund(&self.policy, units), granted - units));
        }
    }

    async fn release_again(&mut self, random: &mut Random) {
        if !self.ended.is_empty() {
            let stamp = random.one_of(&self.ended);
            self.case.refund(&self.policy, &self.key, 1, stamp).await;
        }
    }

    /// Renews all slots. A holder that has lost its slot ends.
    async fn renew(&mut self) {
        let now = self.case.time.now();
        let units = |(stamp, units): &(Stamp, u64)| {
            let (stamp, policy) = (*stamp, &self.policy);
            (0..*units).map(move |turn| stamp.after_refund(policy, turn)).collect::<Vec<_>>()
        };
        let stamps: Vec<Stamp> = self.held.iter().flat_map(units).collect();
        let grants: Vec<Grant<'_>> =
            stamps.iter().map(|stamp| slot(&self.policy, &self.key, *stamp)).collect();
        let due: Vec<Renewal> =
            stamps.iter().map(|stamp| self.oracle.renew(&self.policy, *stamp, now)).collect();
        self.case.same("renewals", self.case.renew(&grants).await, due.clone());
        self.held.clear();
        for (stamp, renewal) in stamps.into_iter().zip(due) {
            match renewal {
                Renewal::Held => self.held.push((stamp, 1)),
                _ => self.ended.push(stamp),
            }
        }
    }

    async fn reset(&mut self) {
        self.case.reset(&self.key, &[&self.policy]).await;
        self.oracle.reset();
        // The contract lets no holder release a slot from before a reset.
        self.held.clear();
        self.ended.clear();
        self.known.clear();
    }

    fn step_back(&self, span: u64) {
        let now = self.case.time.now();
        let back = Timestamp::from_micros(now.as_micros().saturating_sub(span));
        self.case.time.set(back.max(self.oracle.ended()));
    }

    /// Compares the answers to a request that is refused, and to a look.
    async fn compare(&mut self) {
        let now = self.case.time.now();
        let left = self.oracle.left(&self.policy, now);
        if left == 0 {
            // A store need not cut on a look what a clock that stepped back left ahead.
            let wait = self.case.denied(&self.policy, &self.key, 1).await;
            let due = self.oracle.refuse(&self.policy, 1, now);
            self.compare_wait(wait, due);
            self.last_wait = micros(wait);
        }
        let look = self.case.look(&self.policy, &self.key, 1).await;
        self.case.same("units left", look.remaining(), left);
        self.case.same("the wait of a look, with room", look.wait() == Wait::None, left > 0);
        self.case.left("of the rate", &self.rate, &self.key, self.rate_left).await;
    }
}
