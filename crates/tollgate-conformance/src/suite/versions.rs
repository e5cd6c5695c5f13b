//! Cases of several versions of a bucket: an edit, a deployment, tiers.

use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Stamp, Times, Timestamp, Wait};

use super::case::{Case, SECOND, micros, nothing};
use crate::oracle::{Ledger, Mark};
use crate::random::Random;

/// During a deployment, processes have two versions of a policy. What one of them has admitted is
/// not forgiven by a look or a refusal of the other.
pub(super) async fn a_version_keeps_what_it_owes_beside_another(case: &Case) {
    let key = Key::from("caller");
    let queue = |wait| Algorithm::LeakyBucket { max_wait: Duration::from_secs(wait) };
    let versions = [
        // A larger burst; a lower limit; a longer wait.
        ("burst", (60, 100, Algorithm::Gcra), (60, 10, Algorithm::Gcra)),
        ("limit", (10, 100, Algorithm::Gcra), (1_000, 100, Algorithm::Gcra)),
        ("wait", (60, 10, queue(90)), (60, 10, queue(0))),
        ("queue", (6, 10, queue(9)), (60, 10, queue(0))),
    ];
    for (name, further, nearer) in versions {
        let [further, nearer] = [further, nearer].map(|(limit, burst, algorithm)| {
            Policy::new(name, Quota::per_minute(limit).burst(burst)).with_algorithm(algorithm)
        });
        case.must_take(&further, &key, further.largest_cost()).await;
        let wait = case.look(&further, &key, 1).await.reset_after();
        for _ in 0..3 {
            case.left("by the version that reaches less far", &nearer, &key, 0).await;
            case.denied(&nearer, &key, 1).await;
            let look = case.look(&further, &key, 1).await;
            case.same("the reset after its look and its denial", look.reset_after(), wait);
        }
        let reach = case.denied(&nearer, &key, 1).await;
        if nearer.algorithm() == Algorithm::Gcra {
            case.same("the wait in its own bucket", micros(reach), 60 * SECOND / nearer.quota().limit());
        }
        case.advance(micros(reach) - 1);
        case.denied(&nearer, &key, 1).await;
        case.advance(1);
        case.must_take(&nearer, &key, 1).await;
        if nearer.algorithm() == Algorithm::Gcra {
            // Its unit is charged to the other version too, up to a bucket used up.
            case.left("to the other version", &further, &key, 0).await;
        }
    }
}

/// Edits that shorten the time in which a bucket fills, with the longest wait for one unit
/// afterwards in seconds: that of the raised policy, or less if the caller waited for less before.
pub(super) async fn an_edit_makes_no_caller_wait_for_the_old_bucket(case: &Case) {
    if case.excuses.leases.is_some() {
        // A lease holds units of the old version.
        return;
    }
    let hour = |limit| Quota::per_hour(limit);
    let edits = [
        (hour(10).burst(50), 50, hour(600).burst(50), 6.0),
        (hour(10).burst(50), 50, hour(600), 6.0),
        (hour(10).burst(50), 5, hour(600).burst(50), 6.0),
        (hour(10).burst(50), 25, hour(20).burst(50), 180.0),
        (hour(600), 600, hour(1_200).burst(20), 3.0),
        (Quota::per_day(1_000), 100, Quota::per_day(1_000).burst(50), 86.4),
        (Quota::per_day(1_000), 500, Quota::per_day(1_000).burst(50), 86.4),
        (Quota::per_minute(100).burst(500), 500, Quota::per_minute(100).burst(10), 0.6),
        // From a free tier to a paid one.
        (hour(10).burst(50), 50, hour(1_000).burst(100), 3.6),
    ];
    for (n, (before, used, after, longest)) in edits.into_iter().enumerate() {
        let (key, policy) = (Key::from(n as u64), |quota| Policy::new("edited", quota));
        let (before, after) = (policy(before), policy(after));
        case.must_take(&before, &key, used).await;
        let wait = match case.take(&after, &key, 1).await.wait() {
            Wait::For(wait) => wait,
            _ => Duration::ZERO,
        };
        case.same(
            &format!("a wait of {wait:?} after edit {n}"),
            wait <= Duration::from_secs_f64(longest),
            true,
        );
        case.advance(micros(wait));
        case.must_take(&after, &key, 1).await;
        // The whole rate from now on.
        let unit = micros(after.quota().window()) / after.quota().limit();
        let granted = case.take(&after, &key, 1).await.times();
        for _ in 0..10 {
            case.advance(unit);
            case.must_take(&after, &key, 1).await;
        }
        case.same("what one version admits after a used-up bucket", granted <= 1, true);
    }
}

/// During a deployment, old and new processes have one key: 600 to 6,000 a minute. The raised ones
/// pass at their own rate, and both within the two bursts and the faster rate.
pub(super) async fn a_raised_version_passes_at_its_rate_beside_the_old_one(case: &Case) {
    if case.excuses.leases.is_some() {
        return;
    }
    let key = Key::from("caller");
    let version = |limit| Policy::new("deployed", Quota::per_minute(limit).burst(100));
    let (old, raised) = (version(600), version(6_000));
    let mut passed = [0_u32; 2];
    for _ in 0..600 {
        for (at, policy) in [&old, &raised].into_iter().enumerate() {
            passed[at] += case.take(policy, &key, 1).await.times();
        }
        case.advance(SECOND / 100);
    }
    // In 6 seconds: 600 by its rate.
    case.same(&format!("{passed:?} pass"), passed[1] >= 400 && passed[0] + passed[1] <= 200 + 600, true);
}

/// A fifth version gets what one of four has left, and none gets another bucket by turns.
pub(super) async fn rotating_versions_share_four_buckets(case: &Case) {
    if case.excuses.leases.is_some() {
        return;
    }
    let key = Key::from("caller");
    let version = |limit, burst| Policy::new("rotating", Quota::per_hour(limit).burst(burst));
    case.must_take(&version(60, 400), &key, 400).await;
    for due in [0, 1] {
        let mut passed = 0;
        for n in 0..200 {
            passed += case.take(&version(61 + n % 49, 10 + n), &key, 1).await.times();
        }
        case.same(&format!("{passed} of 200 versions pass"), passed <= due, true);
        // At most a unit by the fastest.
        case.advance(33 * SECOND);
    }
}

/// 50 requests as free, and then the same caller as pro.
pub(super) async fn a_slow_tier_uses_up_no_faster_one(case: &Case) {
    if case.excuses.leases.is_some() {
        return;
    }
    let key = Key::from("caller");
    let tier = |limit, burst| Policy::new("tiers", Quota::per_hour(limit).burst(burst));
    let (free, pro) = (tier(10, 50), tier(600, 20));
    case.must_take(&free, &key, 50).await;
    case.same("the wait as pro", micros(case.denied(&pro, &key, 1).await), 6 * SECOND);
    for _ in 0..10 {
        case.advance(6 * SECOND);
        case.must_take(&pro, &key, 1).await;
    }
    // Its units are charged to the other tier, which was used up.
    case.left("as free", &free, &key, 0).await;
    case.advance(20 * 6 * SECOND);
    case.left("as pro, after a full bucket", &pro, &key, 20).await;
}

/// A failover to a server whose clock is an hour behind, and then to one that is an hour ahead.
pub(super) async fn a_failover_makes_no_caller_wait_for_more_than_a_bucket(case: &Case) {
    if case.excuses.leases.is_some() || case.excuses.cached_denials {
        return;
    }
    let version = |(limit, burst)| Policy::new("failover", Quota::per_hour(limit).burst(burst));
    let versions = [(10, 50), (600, 50), (600, 600), (1_200, 20)].map(version);
    let mut random = Random::new(1);
    // The clock of a test may begin at 0.
    case.advance(3_600 * SECOND);
    for caller in 0..1_000_u64 {
        for _ in 0..3 {
            let policy = &versions[random.one_of(&[0, 1, 2, 3])];
            case.take(policy, &Key::from(caller), 1 + random.below(policy.capacity())).await;
        }
    }
    let behind = case.time.now().as_micros() - 3_600 * SECOND;
    for now in [behind, behind + 2 * 3_600 * SECOND] {
        case.time.set(Timestamp::from_micros(now));
        for caller in 0..1_000_u64 {
            let policy = &versions[random.one_of(&[0, 1, 2, 3])];
            let wait = case.look(policy, &Key::from(caller), 1).await.wait();
            // A full bucket, and the unit that is asked for.
            let longest = (policy.capacity() + 1) * (3_600 * SECOND / policy.quota().limit());
            let is_in_time = match wait {
                Wait::For(wait) => micros(wait) <= longest,
                Wait::None => true,
                Wait::Never => false,
            };
            case.same(&format!("{wait:?} of caller {caller} by {policy:?} is in time"), is_in_time, true);
        }
    }
}

/// A class is of the version of its base.
pub(super) async fn a_refused_class_forgives_nothing_while_the_clock_is_behind(case: &Case) {
    if case.excuses.leases.is_some() || case.excuses.cached_denials {
        return;
    }
    let key = Key::from("caller");
    let base = Policy::new("classes", Quota::per_hour(600).burst(100));
    let batch = base.leaving(80).unwrap_or_else(|error| case.fail(&error.to_string()));
    case.advance(3_600 * SECOND);
    case.must_take(&base, &key, 100).await;
    for _ in 0..20 {
        case.time.set(Timestamp::from_micros(case.time.now().as_micros() - SECOND));
        case.denied(&batch, &key, 20).await;
        case.denied(&base, &key, 1).await;
    }
}

/// Histories of a key that up to six versions and their classes ask for in random orders.
pub(super) async fn random_versions_match_the_oracle(case: &Case, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        let mut random = Random::new(u64::from(number));
        let window = Duration::from_micros(random.one_of(&[SECOND, 60 * SECOND, 3_600 * SECOND, 999_983]));
        let versions = (0..1 + random.below(6)).map(|_| {
            let quota = Quota::new(random.magnitude(1, 5_000_000), window);
            let policy = Policy::new("versions", quota.burst(random.magnitude(1, 100_000)));
            let headroom = random.magnitude(0, policy.capacity());
            if random.below(4) == 0 { policy.leaving(headroom).unwrap_or(policy) } else { policy }
        });
        let mut run = Run {
            case,
            versions: versions.collect(),
            ledger: Ledger::default(),
            key: Key::from(u64::from(number)),
            grants: Vec::new(),
            last_wait: 0,
            is_used: false,
        };
        let latest = case.time.now();
        for _ in 0..10 + random.below(30) {
            run.play(&mut random).await;
        }
        case.time.set(latest.max(case.time.now()).saturating_add(Duration::from_secs(1)));
    }
}

struct Run<'a> {
    case: &'a Case,
    versions: Vec<Policy>,
    ledger: Ledger,
    key: Key,
    grants: Vec<Granted>,
    last_wait: u64,
    /// Whether the bucket of the version that asked last is not full, so that no state has expired.
    is_used: bool,
}

struct Granted {
    policy: Policy,
    units: u64,
    stamp: Stamp,
    mark: Mark,
}

impl Run<'_> {
    async fn play(&mut self, random: &mut Random) {
        let version = usize::try_from(random.below(self.versions.len() as u64)).unwrap_or(0);
        let policy = self.versions[version].clone();
        let some = random.magnitude(1, policy.largest_cost());
        match random.below(10) {
            0..=5 => {
                let min = u32::try_from(random.magnitude(0, 4)).unwrap_or(0);
                let times = random.one_of(&[Times::ONCE, Times::ONCE, Times::between(min, 9), Times::LOOK]);
                self.acquire(&policy, random.one_of(&[1, 1, some, 0]), times).await;
            }
            6 => self.refund(random).await,
            7 => self.charge(&policy, random.magnitude(1, 2 * policy.largest_cost())).await,
            8 if random.below(3) == 0 && self.is_used => {
                let back = random.magnitude(0, 7_200 * SECOND);
                let now = self.case.time.now().as_micros();
                self.case.time.set(Timestamp::from_micros(now - back));
            }
            _ => {
                let far = random.magnitude(0, 7_200 * SECOND);
                let wait = self.last_wait;
                let span = random.one_of(&[1, wait, wait.saturating_sub(1), SECOND, far]);
                self.case.advance(span.min(100_000 * SECOND));
            }
        }
        self.acquire(&policy, 1, Times::LOOK).await;
    }

    async fn acquire(&mut self, policy: &Policy, cost: u64, times: Times) {
        let set = [Check::new(policy, &self.key, cost)];
        let due = self.ledger.acquire(&set, times, self.case.time.now());
        let verdict = self.case.acquire(&set, times).await;
        if let Some(difference) = due.difference(&verdict) {
            self.case.fail(&format!("{difference}; {times:?} of {set:#?} with {:#?}", self.versions));
        }
        let status = verdict.each()[0];
        if let Wait::For(wait) = status.wait() {
            self.last_wait = micros(wait);
        }
        self.is_used = !status.reset_after().is_zero();
        if let (Some(mark), true) = (due.each[0].mark, verdict.is_granted()) {
            let (policy, units) = (policy.clone(), cost * u64::from(due.times));
            self.grants.push(Granted { policy, units, stamp: status.stamp(), mark });
        }
    }

    async fn refund(&mut self, random: &mut Random) {
        let Some(last) = (self.grants.len() as u64).checked_sub(1) else { return };
        let at = usize::try_from(random.below(last + 1)).unwrap_or(0);
        let Granted { policy, units, stamp, mark } = self.grants.swap_remove(at);
        let units = random.magnitude(0, units);
        self.ledger.refund(&policy, &self.key, units, mark, self.case.time.now());
        self.case.refund(&policy, &self.key, units, stamp).await;
    }

    /// Charges units beyond a grant.
    async fn charge(&mut self, policy: &Policy, units: u64) {
        let due = self.ledger.settle(policy, &self.key, &[], units, self.case.time.now());
        let settled = self.case.settle(&[nothing(policy, &self.key)], units).await;
        self.case.same(&format!("{units} beyond a grant of {policy:?}"), settled, due);
    }
}
