//! The work queue: names, each at most once, each worked on by one worker at a time (§8).
//!
//! A name triggered while it is worked on runs once more afterwards. A failure puts it back after
//! `min(1s · 2^n, 2m)`, drawn from the upper half; a clean pass resets `n`. No name is ever dropped but by its own
//! `forget`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use noderotation_cluster::backoff::backoff;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How a pass ended, which decides when the name is due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It succeeded: due again at this instant, or when triggered.
    Success(Instant),
    /// LiveRead again at once: somebody else was faster.
    Again,
    /// It failed: due again after the backoff, or after this time where the server asked for a longer one.
    Failed(Option<Duration>),
}

#[derive(Default)]
struct QueuedKey {
    due: Option<Instant>,
    /// Whether it is due by the clock alone, and not by a trigger.
    timed: bool,
    running: bool,
    again: bool,
    failures: u32,
    /// Lost conflicts in a row.
    conflicts: u32,
}

/// After so many conflicts in a row a name backs off as after a failure.
pub const MAX_CONFLICTS: u32 = 5;

#[derive(Default)]
struct QueueState {
    entries: HashMap<Arc<str>, QueuedKey>,
    due: BTreeSet<(Instant, Arc<str>)>,
}

impl QueueState {
    /// The entry is due at the earlier of what it was and `at`.
    fn schedule(&mut self, key: &Arc<str>, at: Instant, timed: bool) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.again |= at <= Instant::now();
            return;
        }
        if entry.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(old) = entry.due.replace(at) {
            self.due.remove(&(old, key.clone()));
        }
        entry.timed = timed;
        self.due.insert((at, key.clone()));
    }
}

/// The work queue of NodePool names.
#[derive(Default)]
pub struct Queue {
    state: Mutex<QueueState>,
    changed: Notify,
}

/// A name that was handed to a worker.
pub struct Work {
    /// The NodePool's name.
    pub key: Arc<str>,
    /// How long after its time it was handed out.
    pub waited: Duration,
    /// Whether it was due by the clock alone, and not by a trigger.
    pub timed: bool,
}

impl Queue {
    /// Asks for a pass over `key` now.
    pub fn trigger(&self, key: &str) {
        self.lock().schedule(&key.into(), Instant::now(), false);
        self.changed.notify_one();
    }

    /// Hands out the next due name; waits for one. To be used by any number of workers.
    pub async fn next(&self) -> Work {
        loop {
            let sleep = match self.take_due() {
                Ok(work) => {
                    // another worker may sleep although a second name is due
                    self.changed.notify_one();
                    return work;
                }
                Err(until) => until,
            };
            let changed = self.changed.notified();
            match sleep {
                Some(until) => tokio::select! { () = tokio::time::sleep_until(until) => {}, () = changed => {} },
                None => changed.await,
            }
        }
    }

    /// The first due name, or when there will be one.
    fn take_due(&self) -> Result<Work, Option<Instant>> {
        let mut state = self.lock();
        let now = Instant::now();
        let Some((at, key)) = state.due.first().cloned() else { return Err(None) };
        if at > now {
            return Err(Some(at));
        }
        state.due.remove(&(at, key.clone()));
        let timed = state.entries.get_mut(&key).is_some_and(|entry| {
            entry.due = None;
            entry.running = true;
            entry.again = false;
            entry.timed
        });
        Ok(Work { key, waited: now - at, timed })
    }

    /// Puts a name back after its pass.
    pub fn done(&self, key: &Arc<str>, end: End) {
        let mut state = self.lock();
        let Some(entry) = state.entries.get_mut(key) else { return };
        entry.running = false;
        let now = Instant::now();
        let mut at = match end {
            End::Success(at) => {
                entry.failures = 0;
                entry.conflicts = 0;
                at
            }
            End::Again => {
                entry.conflicts = entry.conflicts.saturating_add(1);
                if entry.conflicts < MAX_CONFLICTS { now } else { now + backoff(entry.conflicts - MAX_CONFLICTS) }
            }
            End::Failed(retry_after) => {
                let wait = backoff(entry.failures).max(retry_after.unwrap_or_default());
                entry.failures = entry.failures.saturating_add(1);
                now + wait
            }
        };
        if std::mem::take(&mut entry.again) && !matches!(end, End::Failed(_)) {
            at = now;
        }
        let timed = at > now && matches!(end, End::Success(_));
        state.schedule(key, at, timed);
        drop(state);
        self.changed.notify_one();
    }

    /// Drops a name whose object is gone. Unless it was triggered meanwhile, it is forgotten.
    pub fn forget(&self, key: &Arc<str>) {
        let mut state = self.lock();
        let Some(mut entry) = state.entries.remove(key) else { return };
        if let Some(due) = entry.due.take() {
            state.due.remove(&(due, key.clone()));
        }
        if entry.again {
            state.schedule(key, Instant::now(), false);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Names that are due now.
    pub fn depth(&self) -> usize {
        let now = Instant::now();
        self.lock().due.iter().take_while(|(at, _)| *at <= now).count()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_is_worked_on_once_and_once_more_if_triggered_meanwhile() {
        let queue = Queue::default();
        queue.trigger("a");
        queue.trigger("a");
        let work = queue.next().await;
        assert_eq!(&*work.key, "a");
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
        queue.trigger("a");
        assert!(tokio::time::timeout(Duration::from_secs(3600), queue.next()).await.is_err());
        queue.done(&work.key, End::Success(Instant::now() + Duration::from_secs(300)));
        assert_eq!(queue.next().await.waited, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn wake_ups_are_exact_and_a_trigger_is_sooner() {
        let queue = Queue::default();
        queue.trigger("a");
        let work = queue.next().await;
        let at = Instant::now() + Duration::from_millis(12_345);
        queue.done(&work.key, End::Success(at));
        let work = queue.next().await;
        assert!(work.timed);
        assert_eq!(Instant::now(), at);
        queue.done(&work.key, End::Success(at + Duration::from_secs(60)));
        queue.trigger("a");
        queue.next().await;
        assert_eq!(Instant::now(), at);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_a_clean_pass_resets() {
        let queue = Queue::default();
        queue.trigger("a");
        let mut waits = Vec::new();
        for _ in 0..10 {
            let work = queue.next().await;
            let began = Instant::now();
            queue.done(&work.key, End::Failed(None));
            let work = queue.next().await;
            waits.push(began.elapsed().as_secs_f64());
            queue.lock().entries.get_mut(&work.key).unwrap().running = false;
            queue.lock().schedule(&work.key, Instant::now(), false);
        }
        for (n, wait) in waits.iter().enumerate() {
            let full = f64::from(1u32 << n.min(7)).min(120.0);
            assert!((full / 2.0..=full + 0.002).contains(wait), "failure {n}: waited {wait}, full {full}");
        }
        let work = queue.next().await;
        queue.done(&work.key, End::Failed(Some(Duration::from_secs(500))));
        let began = Instant::now();
        let work = queue.next().await;
        assert_eq!(began.elapsed(), Duration::from_secs(500));
        queue.done(&work.key, End::Success(Instant::now()));
        assert_eq!(queue.lock().entries[&work.key].failures, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn races_are_run_again_at_once_and_back_off_from_the_fifth() {
        let queue = Queue::default();
        queue.trigger("a");
        let mut waits = Vec::new();
        for _ in 0..7 {
            let work = queue.next().await;
            let began = Instant::now();
            queue.done(&work.key, End::Again);
            let work = queue.next().await;
            waits.push(began.elapsed());
            queue.lock().entries.get_mut(&work.key).unwrap().running = false;
            queue.lock().schedule(&work.key, Instant::now(), false);
        }
        assert_eq!(waits[..4], [Duration::ZERO; 4]);
        assert!(waits[4..].iter().all(|w| *w >= Duration::from_millis(500)), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clean_pass_ends_a_row_of_lost_races() {
        let queue = Queue::default();
        queue.trigger("a");
        for _ in 0..MAX_CONFLICTS {
            queue.done(&queue.next().await.key, End::Again);
        }
        let work = queue.next().await;
        queue.done(&work.key, End::Success(Instant::now()));
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
        assert!(queue.lock().entries.is_empty());
        queue.trigger("a");
        let work = queue.next().await;
        queue.trigger("a");
        queue.forget(&work.key);
        assert_eq!(&*queue.next().await.key, "a");
    }
}
