//! Ten thousand simulated fleets with random faults keep the bounds of leases.

use std::time::Duration;

use tollgate::{Algorithm, Quota};
use tollgate_conformance::random::Random;

#[path = "../../examples/fleet/sim/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::float_arithmetic, clippy::cast_precision_loss)]
mod sim;

use sim::bounds::closest;
use sim::{Faults, Load, Mode, Plan};

const FLEETS: u64 = 10_000;

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
    let mut now_and_then = |most: u32| if random.below(2) == 0 { 0 } else { 1_000 * random.units(0, most) };
    let faults = Faults {
        lost_requests: now_and_then(100),
        lost_answers: now_and_then(100),
        crashes: now_and_then(30),
        slow: now_and_then(300),
        partition: now_and_then(200),
    };
    let window = Duration::from_millis(random.magnitude(50, 2_000));
    let limit = random.units(1, 2_000);
    Plan {
        mode: Mode::Leased,
        nodes: random.one_of(&[1, 2, 3, 5]),
        joins: random.one_of(&[0, 0, 1, 3]),
        quota: Quota::new(limit, window),
        algorithm: random.one_of(&LEASED),
        lease_units: random.units(1, 300),
        life: Duration::from_millis(random.magnitude(2, 400)),
        rate: random.units(100, 2_000),
        length: Duration::from_millis(300),
        keys: random.units(1, 3),
        load: random.one_of(&[Load::Skewed, Load::Skewed, Load::Even]),
        round_trip: Duration::from_micros(random.magnitude(100, 30_000)),
        faults,
        seed,
    }
}

#[test]
fn ten_thousand_fleets_with_faults_keep_every_bound() {
    let mut worst: Vec<(Algorithm, f64, u64)> = LEASED.map(|algorithm| (algorithm, 0.0, 0)).into();
    let (mut leased, mut trips) = (0, 0);
    for seed in 0..FLEETS {
        let plan = plan(seed);
        let outcome = sim::run(&plan, |_| {});
        let closest = closest(&plan, &outcome);
        assert!(closest.holds(), "seed {seed}: {closest:?} of {plan:#?}");
        assert!(outcome.most_held <= plan.lease_units, "seed {seed}: {} held, {plan:#?}", outcome.most_held);
        let last = outcome.stranded.last().expect("a sample at the end");
        assert_eq!(last.1, 0, "seed {seed}: units are held after their life, {plan:#?}");
        leased += outcome.admitted.len();
        trips += outcome.round_trips;
        let of_algorithm = worst.iter_mut().find(|(algorithm, ..)| *algorithm == plan.algorithm);
        let of_algorithm = of_algorithm.expect("it is one of them");
        if closest.ratio() > of_algorithm.1 {
            (of_algorithm.1, of_algorithm.2) = (closest.ratio(), seed);
        }
    }
    println!("{leased} admissions by {trips} round trips; the closest to each bound:");
    for (algorithm, ratio, seed) in worst {
        println!("{:<22} {ratio:.3} of the bound (seed {seed})", algorithm.name());
        assert!(ratio > 0.5, "{} was never near its bound: the test shows nothing", algorithm.name());
    }
}
