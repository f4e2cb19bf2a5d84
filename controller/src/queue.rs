//! The work queue as the controller's workers share it: `noderotation_rotation::work_queue` on the monotonic clock, with
//! wake-ups for whoever waits.

use std::sync::Arc;
use std::time::Duration;

use noderotation_rotation::work_queue::{End, Work, WorkQueue};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The work queue of NodePool names.
pub struct Queue {
    /// Where its time begins.
    epoch: Instant,
    state: Mutex<WorkQueue>,
    changed: Notify,
}

impl Default for Queue {
    fn default() -> Self {
        Self { epoch: Instant::now(), state: Mutex::default(), changed: Notify::new() }
    }
}

impl Queue {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Asks for a pass over `key` now.
    pub fn trigger(&self, key: &str) {
        self.state.lock().trigger(key, self.now());
        self.changed.notify_one();
    }

    /// Hands out the next due name; waits for one. To be used by any number of workers.
    pub async fn next(&self) -> Work {
        loop {
            let taken = self.state.lock().take(self.now());
            let sleep = match taken {
                Ok(work) => {
                    // another worker may sleep although a second name is due
                    self.changed.notify_one();
                    return work;
                }
                Err(until) => until,
            };
            let changed = self.changed.notified();
            match sleep {
                Some(until) => {
                    tokio::select! { () = tokio::time::sleep_until(self.epoch + until) => {}, () = changed => {} }
                }
                None => changed.await,
            }
        }
    }

    /// An instant as the queue counts time.
    pub fn time_of(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.epoch)
    }

    /// Puts a name back after its pass.
    pub fn done(&self, key: &Arc<str>, end: End) {
        self.state.lock().done(key, end, self.now(), fastrand::f64());
        self.changed.notify_one();
    }

    /// Drops a name whose object is gone, unless it was triggered meanwhile.
    pub fn forget(&self, key: &Arc<str>) {
        self.state.lock().forget(key, self.now());
        self.changed.notify_one();
    }

    /// How many names are due now.
    pub fn depth(&self) -> usize {
        self.state.lock().depth(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_is_worked_on_once_and_once_more_if_triggered_meanwhile() {
        let queue = Queue::default();
        assert_eq!(queue.depth(), 0);
        queue.trigger("a");
        queue.trigger("a");
        let work = queue.next().await;
        assert_eq!(&*work.key, "a");
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
        queue.trigger("a");
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
        queue.done(&work.key, End::Success(queue.time_of(Instant::now() + Duration::from_secs(300))));
        assert_eq!(queue.next().await.waited, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn wake_ups_are_exact_and_a_trigger_is_sooner() {
        let queue = Queue::default();
        queue.trigger("a");
        let work = queue.next().await;
        let at = Instant::now() + Duration::from_millis(12_345);
        queue.done(&work.key, End::Success(queue.time_of(at)));
        let work = queue.next().await;
        assert!(work.timed);
        assert_eq!(Instant::now(), at);
        queue.done(&work.key, End::Success(queue.time_of(at + Duration::from_secs(60))));
        queue.trigger("a");
        queue.next().await;
        assert_eq!(Instant::now(), at);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_a_success_resets() {
        let queue = Queue::default();
        queue.trigger("a");
        let mut work = queue.next().await;
        for n in 0..10u32 {
            let began = Instant::now();
            queue.done(&work.key, End::Failed(None));
            work = queue.next().await;
            let (wait, full) = (began.elapsed().as_secs_f64(), f64::from(1u32 << n.min(7)).min(120.0));
            assert!((full / 2.0..=full + 0.002).contains(&wait), "failure {n}: waited {wait}, full {full}");
        }
        let began = Instant::now();
        queue.done(&work.key, End::Failed(Some(Duration::from_secs(500))));
        work = queue.next().await;
        assert_eq!(began.elapsed(), Duration::from_secs(500));
        queue.done(&work.key, End::Success(queue.time_of(Instant::now())));
        work = queue.next().await;
        let began = Instant::now();
        queue.done(&work.key, End::Failed(None));
        queue.next().await;
        assert!(began.elapsed() <= Duration::from_secs(1) + Duration::from_millis(2), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn conflicts_are_looked_at_again_at_once_and_back_off_from_the_fifth() {
        let queue = Queue::default();
        queue.trigger("a");
        let mut work = queue.next().await;
        for n in 1..=7 {
            let began = Instant::now();
            queue.done(&work.key, End::Again);
            work = queue.next().await;
            assert_eq!(began.elapsed() >= Duration::from_millis(500), n >= 5, "conflict {n}: {:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clean_pass_ends_a_row_of_lost_races() {
        let queue = Queue::default();
        queue.trigger("a");
        for _ in 0..5 {
            queue.done(&queue.next().await.key, End::Again);
        }
        let work = queue.next().await;
        queue.done(&work.key, End::Success(queue.time_of(Instant::now())));
        let began = Instant::now();
        queue.done(&queue.next().await.key, End::Again);
        queue.next().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "the first race after a clean pass is run again at once");
    }

    #[tokio::test(start_paused = true)]
    async fn several_workers_share_what_is_due() {
        let queue = Arc::new(Queue::default());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await.key })
            })
            .collect();
        tokio::task::yield_now().await;
        for key in ["a", "b", "c"] {
            queue.trigger(key);
        }
        let mut got = Vec::new();
        for worker in workers {
            got.push(worker.await.unwrap().to_string());
        }
        got.sort();
        assert_eq!(got, ["a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn forgetting_keeps_a_trigger_that_came_meanwhile() {
        let queue = Queue::default();
        queue.trigger("a");
        let work = queue.next().await;
        queue.forget(&work.key);
        assert!(queue.state.lock().is_empty());
        queue.trigger("a");
        let work = queue.next().await;
        queue.trigger("a");
        queue.forget(&work.key);
        assert_eq!(&*queue.next().await.key, "a");
    }
}
