//! The policy of the work queue: names, each at most once, each worked on by one worker at a time (§8).
//!
//! Time is what the caller says it is: a duration since some beginning, by a clock that never goes back. So the controller
//! runs it on its monotonic clock, and the simulator on its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use noderotation_shared::backoff::backoff;

/// How a pass ended, which decides when the name is due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It succeeded: due again at this time, or when triggered.
    Success(Duration),
    /// It met a conflict: due again at once.
    Again,
    /// It failed: due again after the backoff, or after this time where the server asked for a longer one.
    Failed(Option<Duration>),
}

/// After so many conflicts in a row a name backs off as after a failure.
const CONFLICTS_BEFORE_BACKOFF: u32 = 5;

/// A name that was handed to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The NodePool's name.
    pub key: Arc<str>,
    /// How long after its time it was handed out.
    pub waited: Duration,
    /// Whether it was due by the clock alone, and not by a trigger.
    pub timed: bool,
}

#[derive(Debug, Default)]
struct QueuedKey {
    due: Option<Duration>,
    timed: bool,
    running: bool,
    again: bool,
    failures: u32,
    conflicts: u32,
}

/// The queue. A name that is triggered while it is worked on is worked on once more afterwards; a failure puts it back
/// after [`backoff`]; a success resets that. No name is ever dropped but by [`WorkQueue::forget`].
#[derive(Debug, Default)]
pub struct WorkQueue {
    keys: HashMap<Arc<str>, QueuedKey>,
    due: BTreeSet<(Duration, Arc<str>)>,
}

impl WorkQueue {
    /// Asks for a pass over `key` now.
    pub fn trigger(&mut self, key: &str, now: Duration) {
        self.schedule(&key.into(), now, now, false);
    }

    /// The key is due at the earlier of what it was and `at`.
    fn schedule(&mut self, key: &Arc<str>, at: Duration, now: Duration, timed: bool) {
        let queued = self.keys.entry(key.clone()).or_default();
        if queued.running {
            queued.again |= at <= now;
            return;
        }
        if queued.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(old) = queued.due.replace(at) {
            self.due.remove(&(old, key.clone()));
        }
        queued.timed = timed;
        self.due.insert((at, key.clone()));
    }

    /// Hands out the first name that is due, or says when there will be one.
    pub fn take(&mut self, now: Duration) -> Result<Work, Option<Duration>> {
        let Some((at, key)) = self.due.first().cloned() else { return Err(None) };
        if at > now {
            return Err(Some(at));
        }
        self.due.remove(&(at, key.clone()));
        let timed = self.keys.get_mut(&key).is_some_and(|queued| {
            queued.due = None;
            queued.running = true;
            queued.again = false;
            queued.timed
        });
        Ok(Work { key, waited: now.saturating_sub(at), timed })
    }

    /// Puts a name back after its pass. `spread` in `[0, 1)` spreads backoffs.
    pub fn done(&mut self, key: &Arc<str>, end: End, now: Duration, spread: f64) {
        let Some(queued) = self.keys.get_mut(key) else { return };
        queued.running = false;
        let mut at = match end {
            End::Success(at) => {
                queued.failures = 0;
                queued.conflicts = 0;
                at
            }
            End::Again => {
                queued.conflicts = queued.conflicts.saturating_add(1);
                if queued.conflicts < CONFLICTS_BEFORE_BACKOFF {
                    now
                } else {
                    now.saturating_add(backoff(queued.conflicts - CONFLICTS_BEFORE_BACKOFF, spread))
                }
            }
            End::Failed(retry_after) => {
                let wait = backoff(queued.failures, spread).max(retry_after.unwrap_or_default());
                queued.failures = queued.failures.saturating_add(1);
                now.saturating_add(wait)
            }
        };
        if std::mem::take(&mut queued.again) && !matches!(end, End::Failed(_)) {
            at = now;
        }
        let timed = at > now && matches!(end, End::Success(_));
        self.schedule(key, at, now, timed);
    }

    /// Drops a name whose object is gone, unless it was triggered meanwhile.
    pub fn forget(&mut self, key: &Arc<str>, now: Duration) {
        let Some(mut queued) = self.keys.remove(key) else { return };
        if let Some(due) = queued.due.take() {
            self.due.remove(&(due, key.clone()));
        }
        if queued.again {
            self.schedule(key, now, now, false);
        }
    }

    /// How many names are due now.
    pub fn depth(&self, now: Duration) -> usize {
        self.due.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// Whether nothing is kept of any name.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The name that is handed out at this second, how many seconds after its time, and whether by the clock alone.
    fn taken(queue: &mut WorkQueue, seconds: u64) -> Option<(Arc<str>, u64, bool)> {
        queue.take(at(seconds)).ok().map(|work| (work.key, work.waited.as_secs(), work.timed))
    }

    /// The second at which the next name is due, where none is now.
    fn next(queue: &mut WorkQueue, seconds: u64) -> Option<f64> {
        queue.take(at(seconds)).err().flatten().map(|due| due.as_secs_f64())
    }

    fn key(name: &str) -> Arc<str> {
        name.into()
    }

    #[test]
    fn a_name_is_handed_out_once_and_the_earliest_first() {
        let mut queue = WorkQueue::default();
        assert_eq!(queue.take(at(0)), Err(None));
        queue.trigger("b", at(10));
        queue.trigger("a", at(12));
        queue.trigger("b", at(13));
        assert_eq!((queue.depth(at(11)), queue.depth(at(13))), (1, 2));
        assert_eq!(taken(&mut queue, 15), Some((key("b"), 5, false)));
        assert_eq!(taken(&mut queue, 15), Some((key("a"), 3, false)));
        assert_eq!(queue.take(at(15)), Err(None), "both are worked on");
        assert!(!queue.is_empty());
        for name in ["a", "b"] {
            queue.forget(&key(name), at(15));
        }
        assert!(queue.is_empty());
    }

    #[test]
    fn after_a_success_it_is_due_at_its_time_or_by_a_trigger_before() {
        let mut queue = WorkQueue::default();
        queue.trigger("a", at(0));
        taken(&mut queue, 0).unwrap();
        queue.done(&key("a"), End::Success(at(300)), at(1), 0.0);
        assert_eq!(next(&mut queue, 299), Some(300.0));
        assert_eq!(taken(&mut queue, 300), Some((key("a"), 0, true)), "by the clock alone");
        queue.done(&key("a"), End::Success(at(600)), at(301), 0.0);
        queue.trigger("a", at(400));
        assert_eq!(taken(&mut queue, 400), Some((key("a"), 0, false)));
        queue.done(&key("a"), End::Success(at(401)), at(401), 0.0);
        assert_eq!(taken(&mut queue, 401), Some((key("a"), 0, false)), "due at once, so nobody waited for the clock");
        queue.done(&key("a"), End::Success(at(900)), at(402), 0.0);
        assert_eq!((next(&mut queue, 600), queue.depth(at(899))), (Some(900.0), 0), "no earlier time is left over");
    }

    #[test]
    fn what_is_triggered_while_it_is_worked_on_is_due_once_more() {
        let mut queue = WorkQueue::default();
        for (end, due) in [(End::Success(at(300)), 2.0), (End::Again, 2.0), (End::Failed(None), 2.5)] {
            queue.trigger("a", at(0));
            taken(&mut queue, 0).unwrap();
            queue.trigger("a", at(1));
            assert_eq!(queue.take(at(1)), Err(None), "never by two workers at a time");
            queue.done(&key("a"), end, at(2), 0.0);
            let is_now = queue.take(at(2)).map(|work| work.timed);
            if due > 2.0 {
                assert_eq!(
                    is_now,
                    Err(Some(Duration::from_secs_f64(due))),
                    "a failure backs off, whatever happens meanwhile"
                );
            } else {
                assert_eq!(is_now, Ok(false), "{end:?}");
                queue.done(&key("a"), End::Success(at(300)), at(3), 0.0);
                assert_eq!(next(&mut queue, 3), Some(300.0), "{end:?}: only once more");
            }
            queue.forget(&key("a"), at(3));
            assert!(queue.is_empty());
        }
    }

    /// `min(1 s · 2ⁿ, 2 min)` with its lower half at a spread of 0 (§8).
    #[test]
    fn failures_back_off_and_a_success_resets_that() {
        let mut queue = WorkQueue::default();
        let mut now = 0;
        let mut fails = |queue: &mut WorkQueue, end: End, after: f64| {
            queue.trigger("a", at(now));
            taken(queue, now).unwrap();
            queue.done(&key("a"), end, at(now), 0.0);
            if after > 0.0 {
                assert_eq!(next(queue, now), Some(at(now).as_secs_f64() + after));
            }
            now += 1_000;
        };
        for after in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            fails(&mut queue, End::Failed(None), after);
        }
        fails(&mut queue, End::Failed(Some(at(90))), 90.0);
        fails(&mut queue, End::Failed(Some(at(30))), 60.0);
        fails(&mut queue, End::Success(at(1_000_000)), 0.0);
        fails(&mut queue, End::Failed(None), 0.5);
    }

    #[test]
    fn conflicts_are_tried_again_at_once_and_back_off_from_the_fifth_on() {
        let mut queue = WorkQueue::default();
        queue.trigger("a", at(0));
        for _ in 0..2 {
            for after in [0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 2.0] {
                assert_eq!(taken(&mut queue, 1_000).map(|(_, _, timed)| timed), Some(false));
                queue.done(&key("a"), End::Again, at(1_000), 0.0);
                if after > 0.0 {
                    assert_eq!(next(&mut queue, 1_000), Some(1_000.0 + after));
                    queue.trigger("a", at(1_000));
                }
            }
            taken(&mut queue, 1_000).unwrap();
            queue.done(&key("a"), End::Success(at(1_000)), at(1_000), 0.0);
        }
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_unless_it_was_triggered_meanwhile() {
        let mut queue = WorkQueue::default();
        queue.trigger("a", at(0));
        queue.forget(&key("a"), at(1));
        assert!(queue.is_empty());
        queue.trigger("a", at(2));
        taken(&mut queue, 2).unwrap();
        queue.trigger("a", at(3));
        queue.forget(&key("a"), at(4));
        assert_eq!(taken(&mut queue, 4), Some((key("a"), 0, false)));
        queue.done(&key("b"), End::Again, at(4), 0.0);
        queue.forget(&key("b"), at(4));
        queue.forget(&key("a"), at(5));
        assert!(queue.is_empty());
    }
}
