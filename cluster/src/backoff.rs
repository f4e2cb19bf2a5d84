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
