//! How long to wait after a failure: one formula for every program.

use std::time::Duration;

/// `min(1s · 2^failures, 2m)`, of which `spread` in `[0, 1)` picks a point in the upper half, so that many who failed
/// together do not return together.
pub fn backoff(failures: u32, spread: f64) -> Duration {
    let full = Duration::from_secs(1).saturating_mul(1 << failures.min(7)).min(Duration::from_secs(120));
    full.mul_f64(0.5 + spread.clamp(0.0, 1.0) / 2.0)
}
