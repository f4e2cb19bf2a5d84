//! Waits that are spread by chance.

use std::time::Duration;

/// The wait after so many failures in a row.
pub fn backoff(failures: u32) -> Duration {
    noderotation_shared::backoff::backoff(failures, fastrand::f64())
}

/// `length`, lengthened or shortened by up to a tenth, so that pools and replicas do not march in step.
pub fn jittered(length: Duration) -> Duration {
    length.mul_f64(0.9 + fastrand::f64() / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a thousand, some lie in each half of what is allowed, and none beyond.
    #[test]
    fn waits_are_spread_by_a_tenth_to_either_side() {
        let all: Vec<f64> = (0..1_000).map(|_| jittered(Duration::from_secs(100)).as_secs_f64()).collect();
        assert!(all.iter().all(|wait| (90.0..=110.0).contains(wait)), "{all:?}");
        for part in [90.0..92.0, 99.0..101.0, 108.0..110.0] {
            assert!(all.iter().any(|wait| part.contains(wait)), "none in {part:?}");
        }
        let first: Vec<f64> = (0..1_000).map(|_| backoff(0).as_secs_f64()).collect();
        assert!(first.iter().all(|wait| (0.5..=1.0).contains(wait)) && first.iter().any(|wait| *wait > 0.75));
        assert!((0..1_000).map(|_| backoff(20)).all(|wait| wait >= Duration::from_secs(60)));
    }
}
