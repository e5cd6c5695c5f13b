//! What works together: each pair of capabilities on one rule, in memory and in Redis. The guide
//! has the table.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod proofs;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tollgate::Outcome;
use tollgate::calendar::CalendarWindow;
use tollgate::extract::header;
use tollgate::failure::{Answering, Fixed};
use tollgate::scale::Leases;
use tollgate::store::{BoxStore, Source, Store, StoreError};
use tollgate::usage::UsageTotals;
use tollgate::{
    Algorithm, Denial, Head, Key, Lease, ManualClock, Permit, Policy, PolicyExt, Quota, RequestLimiter, Rule,
    StoreExt,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::Kind;
use tollgate_tests::{clock, store};

/// Of all rules, in units a day or at once.
const LIMIT: u64 = 60;

/// What each request reserves if a rule corrects charges.
const RESERVED: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capability {
    Leases,
    DenyCache,
    Classes,
    Blocks,
    Slots,
    Charges,
    Shadow,
    Tiers,
    Quotas,
    Calendar,
    Tracking,
}

use Capability::{
    Blocks, Calendar, Charges, Classes, DenyCache, Leases as Leased, Quotas, Shadow, Slots, Tiers, Tracking,
};

/// Two capabilities, and the limiter that has both.
struct Pair<S: Store> {
    both: [Capability; 2],
    limiter: RequestLimiter<Answering<BoxStore<S::Error>, Fixed>>,
    leases: Option<Leases<S>>,
    store: S,
    time: ManualClock,
    seen: Arc<Mutex<Vec<(Outcome, Source)>>>,
    asked: Mutex<usize>,
}

fn text<'a>(head: &'a Head<'_>, name: &str) -> Option<&'a str> {
    head.headers().get(name)?.to_str().ok()
}

/// The rule with both. Slots and windows of a calendar are algorithms, so these are two rules.
fn rules(both: [Capability; 2]) -> Vec<Rule> {
    if both == [Slots, Calendar] {
        return both.iter().map(|one| rule(&[*one], &format!("{one:?}"))).collect();
    }
    vec![rule(&both, "pair")]
}

fn rule(has: &[Capability], name: &str) -> Rule {
    let is = |one| has.contains(&one);
    let quota = if is(Slots) { Quota::in_flight } else { Quota::per_day };
    let policy = match () {
        () if is(Slots) => Policy::in_flight(name, LIMIT),
        () if is(Calendar) => CalendarWindow::day("UTC").policy(name, LIMIT),
        () => Policy::new(name, quota(LIMIT)).with_algorithm(Algorithm::FIXED_WINDOW),
    };
    let policy = if is(Tracking) { policy.track_usage() } else { policy };
    let mut rule = policy.by(header("x-user"));
    for one in has {
        rule = match one {
            Classes => {
                rule.leaving([("batch", LIMIT / 2)], |head, _| text(head, "x-class").map(str::to_owned))
            }
            Blocks => rule.block_after(3, Duration::from_secs(900)),
            Charges => rule.reserve(|_| RESERVED),
            Shadow => rule.shadow(),
            Tiers => {
                rule.tiers([("pro", quota(2 * LIMIT))], |head, _| text(head, "x-plan").map(str::to_owned))
            }
            Quotas => rule.quota(move |head, _| Some(quota(text(head, "x-quota")?.parse().ok()?))),
            Leased | DenyCache | Slots | Calendar | Tracking => rule,
        };
    }
    rule
}

impl<S: Store<Error: StoreError> + UsageTotals> Pair<S> {
    /// `Err` if the two are refused at construction.
    fn new(both: [Capability; 2], store: S, time: &ManualClock) -> Result<Pair<S>, String> {
        let lease = Lease::at_most(LIMIT).lasting(Duration::from_secs(60)).clock(time);
        let leases = both.contains(&Leased).then(|| store.clone().leased(lease));
        let is_cached = both.contains(&DenyCache);
        let all = match &leases {
            Some(leases) if is_cached => BoxStore::new(leases.clone().deny_cache(1_000).clock(time)),
            Some(leases) => BoxStore::new(leases.clone()),
            None if is_cached => BoxStore::new(store.clone().deny_cache(1_000).clock(time)),
            None => BoxStore::new(store.clone()),
        };
        let limiter = RequestLimiter::try_new(rules(both)).map_err(|error| error.to_string())?;
        let limiter = limiter.try_store(all.fail_closed()).map_err(|error| error.to_string())?;
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let observed = Arc::clone(&seen);
        let limiter = limiter
            .observe(move |decision| observed.lock().unwrap().push((decision.outcome(), decision.source())));
        Ok(Pair { both, limiter, leases, store, time: time.clone(), seen, asked: Mutex::default() })
    }

    fn has(&self, one: Capability) -> bool {
        self.both.contains(&one)
    }

    /// What a request takes of the quota.
    fn cost(&self) -> u64 {
        if self.has(Charges) { RESERVED } else { 1 }
    }

    async fn ask(&self, user: &str, header: Option<(&str, &str)>) -> Result<Permit, Denial> {
        let mut request = Request::builder().header("x-user", user);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let answer = self.limiter.check(&Head::from(&request.body(()).unwrap())).await;
        // Fetches are answered meanwhile.
        yield_now().await;
        if self.has(Shadow) {
            *self.asked.lock().unwrap() += 1;
            let asked = *self.asked.lock().unwrap();
            while self.seen.lock().unwrap().len() < asked {
                yield_now().await;
            }
        }
        answer
    }

    /// The permits of a caller until it is refused, or until it is clear that it never is.
    async fn use_up(&self, user: &str, header: Option<(&str, &str)>) -> Vec<Permit> {
        let mut permits = Vec::new();
        while (permits.len() as u64) < 5 * LIMIT
            && let Ok(permit) = self.ask(user, header).await
        {
            permits.push(permit);
        }
        permits
    }

    /// Uses up a quota of so many units.
    #[track_caller]
    fn assert_passed(&self, permits: &[Permit], units: u64) {
        let due = if self.has(Shadow) { 5 * LIMIT } else { units / self.cost() };
        assert_eq!(permits.len() as u64, due, "{:?} of {units} units", self.both);
    }
}

fn key(user: &str) -> Key {
    Key::from(user)
}

/// Plays a pair on a store. Both capabilities do what each does alone, in either order.
async fn play<S: Store<Error: StoreError> + UsageTotals>(
    both: [Capability; 2],
    store: S,
    time: &ManualClock,
) {
    match (Pair::new(both, store, time), proofs::refusal(both)) {
        (Err(error), Some(due)) => assert!(error.contains(due), "{both:?}: {error}"),
        (Ok(pair), None) => {
            for one in both {
                pair.proves(one).await;
            }
        }
        (Err(error), None) => panic!("{both:?} is refused: {error}"),
        (Ok(_), Some(due)) => panic!("{both:?} is not refused: {due}"),
    }
}

fn plays(both: [Capability; 2]) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let time = clock();
        play(both, store(&time), &time).await;
        let time = clock();
        let url = crate::redis::shared(Kind::Redis8_2).url();
        let redis = RedisStore::builder(&url).prefix(crate::redis::prefix()).clock(&time);
        let redis = redis.response_timeout(Duration::from_secs(60)).connect().await.unwrap();
        play(both, redis, &time).await;
    });
}

macro_rules! pairs {
    ($($name:ident: $one:ident, $other:ident;)*) => {
        $(#[test] fn $name() { plays([$one, $other]); })*

        #[test]
        fn each_pair_has_a_test() {
            let pairs = [$([$one, $other]),*];
            let all = [Leased, DenyCache, Classes, Blocks, Slots, Charges, Shadow, Tiers, Quotas, Calendar, Tracking];
            let mut due = all.iter().enumerate().flat_map(|(n, one)| all[n + 1..].iter().map(|other| [*one, *other]));
            assert!(pairs.len() == 55 && due.all(|pair| pairs.contains(&pair)));
        }
    };
}

pairs! {
    pair_leases_deny_cache: Leased, DenyCache;
    pair_leases_classes: Leased, Classes;
    pair_leases_blocks: Leased, Blocks;
    pair_leases_slots: Leased, Slots;
    pair_leases_charges: Leased, Charges;
    pair_leases_shadow: Leased, Shadow;
    pair_leases_tiers: Leased, Tiers;
    pair_leases_quotas: Leased, Quotas;
    pair_leases_calendar: Leased, Calendar;
    pair_leases_tracking: Leased, Tracking;
    pair_deny_cache_classes: DenyCache, Classes;
    pair_deny_cache_blocks: DenyCache, Blocks;
    pair_deny_cache_slots: DenyCache, Slots;
    pair_deny_cache_charges: DenyCache, Charges;
    pair_deny_cache_shadow: DenyCache, Shadow;
    pair_deny_cache_tiers: DenyCache, Tiers;
    pair_deny_cache_quotas: DenyCache, Quotas;
    pair_deny_cache_calendar: DenyCache, Calendar;
    pair_deny_cache_tracking: DenyCache, Tracking;
    pair_classes_blocks: Classes, Blocks;
    pair_classes_slots: Classes, Slots;
    pair_classes_charges: Classes, Charges;
    pair_classes_shadow: Classes, Shadow;
    pair_classes_tiers: Classes, Tiers;
    pair_classes_quotas: Classes, Quotas;
    pair_classes_calendar: Classes, Calendar;
    pair_classes_tracking: Classes, Tracking;
    pair_blocks_slots: Blocks, Slots;
    pair_blocks_charges: Blocks, Charges;
    pair_blocks_shadow: Blocks, Shadow;
    pair_blocks_tiers: Blocks, Tiers;
    pair_blocks_quotas: Blocks, Quotas;
    pair_blocks_calendar: Blocks, Calendar;
    pair_blocks_tracking: Blocks, Tracking;
    pair_slots_charges: Slots, Charges;
    pair_slots_shadow: Slots, Shadow;
    pair_slots_tiers: Slots, Tiers;
    pair_slots_quotas: Slots, Quotas;
    pair_slots_calendar: Slots, Calendar;
    pair_slots_tracking: Slots, Tracking;
    pair_charges_shadow: Charges, Shadow;
    pair_charges_tiers: Charges, Tiers;
    pair_charges_quotas: Charges, Quotas;
    pair_charges_calendar: Charges, Calendar;
    pair_charges_tracking: Charges, Tracking;
    pair_shadow_tiers: Shadow, Tiers;
    pair_shadow_quotas: Shadow, Quotas;
    pair_shadow_calendar: Shadow, Calendar;
    pair_shadow_tracking: Shadow, Tracking;
    pair_tiers_quotas: Tiers, Quotas;
    pair_tiers_calendar: Tiers, Calendar;
    pair_tiers_tracking: Tiers, Tracking;
    pair_quotas_calendar: Quotas, Calendar;
    pair_quotas_tracking: Quotas, Tracking;
    pair_calendar_tracking: Calendar, Tracking;
}
