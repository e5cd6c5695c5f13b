//! Ten thousand simulated fleets with random faults keep the bounds of leases.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use tollgate_test_servers::short_or_long;

use tollgate::{Algorithm, Quota};
use tollgate_conformance::random::Random;

#[path = "../../examples/fleet/sim/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::float_arithmetic, clippy::cast_precision_loss)]
mod sim;

use sim::bounds::closest;
use sim::{Faults, Load, Mode, Plan};

fn fleets() -> u64 {
    short_or_long(1_000, 10_000)
}

const LEASED: [Algorithm; 6] = [
    Algorithm::Gcra,
    Algorithm::FIXED_WINDOW,
    Algorithm::FIXED_WINDOW_ALIGNED,
    Algorithm::SlidingWindow,
    Algorithm::SLIDING_BUCKETS,
    Algorithm::SLIDING_LOG,
];

/// A small fleet under load, with some faults.
fn plan(seed: u64) -> Plan {
    let random = &mut Random::new(seed);
    let mut now_and_then = |most: u32| if random.below(2) == 0 { 0 } else { 1_000 * random.small(0, most) };
    let faults = Faults {
        lost_requests: now_and_then(100),
        lost_answers: now_and_then(100),
        crashes: now_and_then(30),
        slow: now_and_then(300),
        partition: now_and_then(200),
    };
    let window = Duration::from_millis(random.magnitude(50, 2_000));
    let limit = random.small(1, 2_000);
    Plan {
        mode: Mode::Leases,
        nodes: random.one_of(&[1, 2, 3, 5]),
        joins: random.one_of(&[0, 0, 1, 3]),
        quota: Quota::new(limit.into(), window),
        algorithm: random.one_of(&LEASED),
        lease_units: random.small(1, 300),
        life: Duration::from_millis(random.magnitude(2, 400)),
        rate: random.small(100, 2_000),
        length: Duration::from_millis(300),
        keys: random.small(1, 3),
        load: random.one_of(&[Load::Skewed, Load::Skewed, Load::Even]),
        round_trip: Duration::from_micros(random.magnitude(100, 30_000)),
        faults,
        seed,
    }
}

/// What some of the fleets came to.
struct Sum {
    /// How close each algorithm came to its bound, and in which fleet.
    closest: [(f64, u64); LEASED.len()],
    admitted: usize,
    round_trips: u64,
}

/// Runs every `step`-th fleet from `first`.
fn run(first: u64, step: u64) -> Sum {
    let mut sum = Sum { closest: [(0.0, 0); LEASED.len()], admitted: 0, round_trips: 0 };
    for seed in (first..fleets()).step_by(usize::try_from(step).expect("a few threads")) {
        let plan = plan(seed);
        let outcome = sim::run(&plan, |_| {});
        let closest = closest(&plan, &outcome);
        assert!(closest.holds(), "seed {seed}: {closest:?} of {plan:#?}");
        assert!(
            outcome.most_held <= plan.lease_units.into(),
            "seed {seed}: {} held, {plan:#?}",
            outcome.most_held
        );
        let last = outcome.stranded.last().expect("a sample at the end");
        assert_eq!(last.1, 0, "seed {seed}: units are held after their life, {plan:#?}");
        sum.admitted += outcome.admitted.len();
        sum.round_trips += outcome.round_trips;
        let at = LEASED.iter().position(|algorithm| *algorithm == plan.algorithm);
        let known = &mut sum.closest[at.expect("it is one of them")];
        if closest.ratio() > known.0 {
            *known = (closest.ratio(), seed);
        }
    }
    sum
}

#[test]
fn thousands_of_fleets_with_faults_keep_every_bound() {
    let threads = thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    let sums: Vec<Sum> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || run(first, threads))).collect();
        let sum =
            |thread: ScopedJoinHandle<'_, Sum>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        running.into_iter().map(sum).collect()
    });
    let admitted: usize = sums.iter().map(|sum| sum.admitted).sum();
    let trips: u64 = sums.iter().map(|sum| sum.round_trips).sum();
    println!("{admitted} admissions by {trips} round trips; the closest to each bound:");
    for (at, algorithm) in LEASED.iter().enumerate() {
        let (ratio, seed) =
            sums.iter().map(|sum| sum.closest[at]).fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
        println!("{:<22} {ratio:.3} of the bound (seed {seed})", algorithm.name());
        assert!(ratio > 0.5, "{} was never near its bound: the test shows nothing", algorithm.name());
    }
}
