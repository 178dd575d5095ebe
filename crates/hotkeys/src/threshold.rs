//! From what load on a key is worth a place in a cache that is full (SwitchKV, section 3.2.1).

use rand::{Rng, RngExt};

/// The load at a rank among `sample_len` of a cache's keys, drawn at random (one may be drawn twice); `None` if there are no keys.
///
/// `load_of` gives the load of the key of a number below `len`. `rank` is the share of keys below the threshold: at 0.1, the paper's
/// example, a key is worth its place that has more load than one in ten of those that are cached. A higher one caches less, and a lower one
/// exchanges keys that are as good as each other.
pub fn admission_threshold(
    len: usize,
    load_of: impl Fn(usize) -> f64,
    sample_len: usize,
    rank: f64,
    rng: &mut impl Rng,
) -> Option<f64> {
    if len == 0 || sample_len == 0 {
        return None;
    }
    let mut sample: Vec<f64> = (0..sample_len).map(|_| load_of(rng.random_range(0..len))).collect();
    let at = ((sample_len as f64 * rank) as usize).min(sample_len - 1);
    let (_, threshold, _) = sample.select_nth_unstable_by(at, f64::total_cmp);
    Some(*threshold)
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};

    use super::*;

    #[test]
    fn the_threshold_is_about_the_load_at_its_rank() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for rank in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let threshold = admission_threshold(10_000, |at| at as f64, 2_000, rank, &mut rng).expect("there are keys");
            // Five standard deviations of a quantile of so many draws.
            let bound = 10_000.0 * (5.0 * (rank * (1.0 - rank) / 2_000.0f64).sqrt() + 0.005);
            assert!((threshold - 10_000.0 * rank).abs() <= bound, "{rank}: {threshold}");
        }
    }

    #[test]
    fn a_cache_without_keys_has_none() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        assert_eq!(admission_threshold(0, |_| unreachable!("no key"), 100, 0.1, &mut rng), None);
        assert_eq!(admission_threshold(7, |_| 3.0, 0, 0.1, &mut rng), None);
        assert_eq!(admission_threshold(1, |_| 3.0, 100, 0.1, &mut rng), Some(3.0));
    }
}
