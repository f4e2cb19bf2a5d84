//! How fresh the caches are (§8).

use std::collections::BTreeMap;
use std::time::Duration;

use noderotation_shared::kind::Kind;
use noderotation_shared::watch_cursor::STALE_AFTER;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// When each watch last delivered an event or a bookmark.
#[derive(Default)]
pub struct Freshness {
    last: Mutex<BTreeMap<Kind, Instant>>,
    recovered: Notify,
}

impl Freshness {
    /// Records that the watch of this kind has just delivered something.
    pub fn touch(&self, kind: Kind) {
        let before = self.last.lock().insert(kind, Instant::now());
        if before.is_some_and(|at| at.elapsed() > STALE_AFTER) {
            self.recovered.notify_one();
        }
    }

    /// Waits until a watch delivers something after it had been silent for longer than [`STALE_AFTER`].
    pub async fn recovered(&self) {
        self.recovered.notified().await;
    }

    /// For each kind, the time since its watch last delivered something.
    pub fn ages(&self) -> Vec<(Kind, Duration)> {
        self.last.lock().iter().map(|(kind, at)| (*kind, at.elapsed())).collect()
    }

    /// Whether some watch has been silent for longer than [`STALE_AFTER`].
    pub fn is_stale(&self) -> bool {
        self.ages().iter().any(|(_, age)| *age > STALE_AFTER)
    }
}
