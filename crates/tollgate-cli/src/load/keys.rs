//! Which key a request is for.

use rand::RngExt;
use rand::distr::Distribution as _;
use rand_distr::Zipf;

use super::args::Distribution;

/// Chooses keys at random, from 1 to `count`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    Uniform { count: u32 },
    Zipf(Zipf<f64>),
    Hot { count: u32 },
}

/// The part of the requests for the first key of [`Keys::Hot`].
const HOT: f64 = 0.9;

impl Keys {
    pub(crate) fn new(distribution: Distribution, count: u32) -> Keys {
        match distribution {
            Distribution::Hot if count > 1 => Keys::Hot { count },
            Distribution::Zipf => {
                Zipf::new(f64::from(count), 1.0).map_or(Keys::Uniform { count }, Keys::Zipf)
            }
            _ => Keys::Uniform { count },
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to the count, a u32")]
    pub(crate) fn choose(&self) -> u32 {
        let mut random = rand::rng();
        match self {
            Keys::Uniform { count } => random.random_range(1..=*count),
            Keys::Zipf(zipf) => zipf.sample(&mut random) as u32,
            Keys::Hot { .. } if random.random_bool(HOT) => 1,
            Keys::Hot { count } => random.random_range(2..=*count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each key was chosen in 100,000 times.
    fn counts(distribution: Distribution, keys: u32) -> Vec<u32> {
        let chosen = Keys::new(distribution, keys);
        let mut counts = vec![0; keys as usize];
        for _ in 0..100_000 {
            counts[chosen.choose() as usize - 1] += 1;
        }
        counts
    }

    #[test]
    fn keys_get_their_parts_of_the_requests() {
        let near =
            |count: u32, expected: u32| assert!(count.abs_diff(expected) < 2_000, "{count} of {expected}");
        counts(Distribution::Uniform, 4).into_iter().for_each(|count| near(count, 25_000));
        let hot = counts(Distribution::Hot, 11);
        near(hot[0], 90_000);
        hot[1..].iter().for_each(|count| near(*count, 1_000));
        let zipf = counts(Distribution::Zipf, 3);
        zipf.into_iter().zip([54_545, 27_273, 18_182]).for_each(|(count, expected)| near(count, expected));
    }

    #[test]
    fn a_single_key_is_the_first() {
        for distribution in [Distribution::Uniform, Distribution::Zipf, Distribution::Hot] {
            assert_eq!(counts(distribution, 1), [100_000]);
        }
    }
}
