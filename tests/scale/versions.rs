//! A rule's own quota, a tier and the quotas that requests bring: versions of one bucket, of which
//! some processes lease units.

use std::time::Duration;

use http::Request;
use tollgate::extract::global;
use tollgate::store::{NeverFails, Store};
use tollgate::{Head, Key, Lease, ManualClock, Policy, PolicyExt, Quota, RequestLimiter, Rule, StoreExt};
use tollgate_conformance::random::Random;
use tollgate_test_servers::short_or_long;
use tollgate_tests::{clock, store};

/// Which quota a request has: the rule's own, that of the tier, or one that it brings.
#[derive(Clone, Copy)]
struct Version(usize);

fn version(head: &Head<'_>) -> usize {
    head.extensions().get::<Version>().map_or(0, |version| version.0)
}

fn rule(quotas: [Quota; 4]) -> Rule {
    let tier = |head: &Head<'_>, _: &Key| (version(head) == 1).then_some("pro");
    let brings = move |head: &Head<'_>, _: &Key| (version(head) > 1).then(|| quotas[version(head)]);
    Policy::new("api", quotas[0]).by(global()).tiers([("pro", quotas[1])], tier).quota(brings)
}

/// What one key may use, and what it has used.
struct Play {
    time: ManualClock,
    quotas: [Quota; 4],
    elapsed: Duration,
    passed: u64,
}

impl Play {
    /// All bursts, and the fastest rate.
    fn most(&self) -> u64 {
        let bursts: u64 = self.quotas.iter().filter_map(Quota::given_burst).sum();
        let fastest = self.quotas.iter().map(Quota::limit).max().unwrap_or(0);
        let refilled = u128::from(fastest) * self.elapsed.as_micros() / 3_600_000_000;
        bursts + u64::try_from(refilled).unwrap()
    }

    fn wait(&mut self, time: Duration) {
        self.time.advance(time);
        self.elapsed += time;
    }

    /// Asks as `version`. Returns how long a refused request has to wait.
    async fn ask<S: Store<Error: NeverFails>>(
        &mut self,
        process: &RequestLimiter<S>,
        version: usize,
    ) -> Duration {
        let request = Request::builder().extension(Version(version)).body(()).unwrap();
        match process.check(&Head::from(&request)).await {
            Ok(_) => {
                self.passed += 1;
                let most = self.most();
                assert!(self.passed <= most, "{} of {most} passed by {:?}", self.passed, self.quotas);
                Duration::ZERO
            }
            Err(denial) => {
                let (wait, full) = (denial.retry_after().unwrap(), self.full(version));
                assert!(wait <= full, "{wait:?} for {:?} of {:?}", self.quotas[version], self.quotas);
                wait
            }
        }
    }

    /// The time in which an empty bucket is full.
    fn full(&self, version: usize) -> Duration {
        let quota = self.quotas[version];
        let micros = (quota.given_burst().unwrap() * 3_600_000_000).div_ceil(quota.limit());
        Duration::from_micros(micros)
    }
}

#[tokio::test]
async fn tiers_quotas_and_leases_of_one_bucket_keep_its_bound() {
    for seed in 0..short_or_long(500, 10_000) {
        let random = &mut Random::new(seed);
        let time = clock();
        let mut quota = || Quota::per_hour(random.magnitude(1, 1_000)).burst(random.magnitude(1, 500));
        let quotas = [quota(), quota(), quota(), quota()];
        let inside = store(&time);
        let plain = RequestLimiter::new(rule(quotas)).store(inside.clone());
        let leased = [0, 1].map(|_| {
            let lease = Lease::at_most(random.magnitude(1, 40)).lasting(Duration::from_secs(1)).clock(&time);
            RequestLimiter::new(rule(quotas)).store(inside.clone().leased(lease))
        });
        let mut play = Play { time, quotas, elapsed: Duration::ZERO, passed: 0 };
        for _ in 0..150 {
            let version = usize::try_from(random.below(4)).unwrap();
            match random.below(4) {
                0 => play.wait(Duration::from_micros(random.magnitude(0, 7_200_000_000))),
                1 => _ = play.ask(&plain, version).await,
                _ => _ = play.ask(random.one_of(&[&leased[0], &leased[1]]), version).await,
            }
        }
        let version = usize::try_from(random.below(4)).unwrap();
        let wait = play.ask(&plain, version).await;
        play.wait(wait);
        let again = play.ask(&plain, version).await;
        assert!(wait == Duration::ZERO || again == Duration::ZERO, "{seed}: {again:?} more after {wait:?}");
    }
}
