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
