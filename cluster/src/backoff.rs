//! How long to wait after a failure.

use std::time::Duration;

/// `min(1s · 2^failures, 2m)`, drawn from the upper half so that many who failed together do not return together.
pub fn backoff(failures: u32) -> Duration {
    let full = Duration::from_secs(1).saturating_mul(1 << failures.min(7)).min(Duration::from_secs(120));
    full.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// `length`, lengthened or shortened by up to a tenth, so that pools and replicas do not march in step.
pub fn jittered(length: Duration) -> Duration {
    length.mul_f64(0.9 + fastrand::f64() / 5.0)
}
