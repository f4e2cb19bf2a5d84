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

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);
    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn one_watch_that_is_silent_for_more_than_five_minutes_makes_the_view_stale() {
        let fresh = Freshness::default();
        assert!(!fresh.is_stale() && fresh.ages().is_empty(), "what was never opened is not silent");
        fresh.touch(Kind::Node);
        advance(LIMIT).await;
        fresh.touch(Kind::Pod);
        assert_eq!(fresh.ages(), [(Kind::Node, LIMIT), (Kind::Pod, Duration::ZERO)]);
        assert!(!fresh.is_stale());
        advance(MOMENT).await;
        assert!(fresh.is_stale());
        fresh.touch(Kind::Node);
        assert_eq!(fresh.ages(), [(Kind::Node, Duration::ZERO), (Kind::Pod, MOMENT)]);
        assert!(!fresh.is_stale());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_watch_that_was_silent_for_too_long_recovers() {
        let fresh = Freshness::default();
        fresh.touch(Kind::Node);
        assert_eq!(fresh.recovered().now_or_never(), None, "its first event");
        advance(LIMIT).await;
        fresh.touch(Kind::Node);
        assert_eq!(fresh.recovered().now_or_never(), None, "exactly five minutes are not too long");
        advance(LIMIT + MOMENT).await;
        assert_eq!(fresh.recovered().now_or_never(), None, "nothing has come yet");
        fresh.touch(Kind::Node);
        assert_eq!(fresh.recovered().now_or_never(), Some(()));
        fresh.touch(Kind::Node);
        assert_eq!(fresh.recovered().now_or_never(), None, "told once");
    }
}
