//! How long to wait after failures, and the randomness that spreads it.

use std::time::Duration;

/// `min(1s · 2^n, 2m)`, drawn from the upper half.
pub fn backoff(failures: u32) -> Duration {
    let full = Duration::from_secs(1).saturating_mul(1 << failures.min(7)).min(Duration::from_secs(120));
    full.mul_f64(0.5 + random_fraction() / 2.0)
}

/// Random bits, good enough to spread retries and to tell replicas apart: the hasher's own random keys.
pub fn random_bits() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// A random number in `[0, 1)`.
pub fn random_fraction() -> f64 {
    f64::from(u32::try_from(random_bits() >> 32).unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}
