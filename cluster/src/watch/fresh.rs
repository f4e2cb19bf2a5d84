//! How fresh the view is (§8).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A view in which a watch said nothing for this long is stale: nothing is started on it.
pub const STALE_AFTER: Duration = Duration::from_secs(300);

/// When each watch last said something.
#[derive(Default)]
pub struct Freshness {
    last: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Freshness {
    /// This watch has said something.
    pub fn touch(&self, resource: &'static str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(resource, Instant::now());
    }

    /// How long each watch has been silent.
    pub fn ages(&self) -> Vec<(&'static str, Duration)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().map(|(resource, at)| (*resource, at.elapsed())).collect()
    }

    /// Whether any watch has been silent for too long.
    pub fn is_stale(&self) -> bool {
        self.ages().iter().any(|(_, age)| *age > STALE_AFTER)
    }
}
