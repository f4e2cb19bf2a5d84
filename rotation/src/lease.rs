//! The rules of leader election on a Lease (§8, *Leadership*): when a candidate may take it, and when a leader is none any
//! more.
//!
//! Time is what the caller says it is: a duration since some beginning, by the process's own clock that never goes back.
//! What the holder's clock wrote into the Lease is never compared with it.

use std::time::Duration;

/// The durations of leader election.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long the lease lasts after its last renewal.
    pub duration: Duration,
    /// A leader that could not renew for this long stops leading.
    pub renew_deadline: Duration,
    /// The pause between two renewals, and between two attempts.
    pub retry_period: Duration,
}

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `spec.holderIdentity`; empty if nobody holds it.
    pub holder: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// `spec.leaseDurationSeconds`; `None` if it is not set.
    pub duration: Option<Duration>,
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Create the Lease: there is none.
    Create,
    /// Replace the Lease of this resourceVersion: it is free, or was not renewed for its whole duration while we watched.
    Take(String),
    /// Wait for a change of the Lease, until this time at most.
    Wait(Duration),
}

/// A candidate for the lease: what it has seen of it.
#[derive(Debug)]
pub struct Candidacy {
    timing: Timing,
    /// The Lease, and when it was first seen in this version.
    seen: Option<(Lease, Duration)>,
}

impl Candidacy {
    /// A candidate that has seen nothing yet.
    pub fn new(timing: Timing) -> Self {
        Self { timing, seen: None }
    }

    /// The Lease was read; `None`: there is none. It counts as changed when its version has changed.
    pub fn read(&mut self, lease: Option<Lease>, now: Duration) {
        let Some(lease) = lease else {
            self.seen = None;
            return;
        };
        if self.seen.as_ref().is_none_or(|(seen, _)| seen.version != lease.version) {
            self.seen = Some((lease, now));
        }
    }

    /// What to do next.
    pub fn attempt(&self, now: Duration) -> Attempt {
        let Some((lease, since)) = &self.seen else { return Attempt::Create };
        let expires = since.saturating_add(lease.duration.unwrap_or(self.timing.duration));
        if lease.holder.is_empty() || now >= expires {
            Attempt::Take(lease.version.clone())
        } else {
            Attempt::Wait(expires)
        }
    }
}

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It landed.
    Renewed,
    /// Another holder has the lease.
    Taken(String),
    /// It did not land, or nobody knows.
    Failed,
}

/// Why leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostLease {
    /// Another holder has taken the lease.
    #[error("the lease is held by {0:?}")]
    Taken(String),
    /// The API server did not take a renewal in time.
    #[error("the lease could not be renewed for {0:?}")]
    NotRenewed(Duration),
}

/// A lease that is held: until when its holder may write, which each renewal extends.
#[derive(Clone, Copy, Debug)]
pub struct HeldLease {
    renew_deadline: Duration,
    /// When the last renewal that landed was sent.
    renewed: Duration,
}

impl HeldLease {
    /// The lease was taken by a request that was sent at this time.
    pub fn new(timing: Timing, sent: Duration) -> Self {
        Self { renew_deadline: timing.renew_deadline, renewed: sent }
    }

    /// Until when the leader may write. It lies before the end of the lease, so that nobody else leads by then.
    pub fn until(&self) -> Duration {
        self.renewed.saturating_add(self.renew_deadline)
    }

    /// A renewal that was sent at `sent` has been answered at `now`.
    pub fn answered(&mut self, renewal: Renewal, sent: Duration, now: Duration) -> Result<(), LostLease> {
        match renewal {
            Renewal::Renewed => self.renewed = sent,
            Renewal::Taken(holder) => return Err(LostLease::Taken(holder)),
            Renewal::Failed => {}
        }
        if now >= self.until() { Err(LostLease::NotRenewed(self.renew_deadline)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn lease(holder: &str, version: &str, duration: Option<u64>) -> Option<Lease> {
        Some(Lease { holder: holder.into(), version: version.into(), duration: duration.map(seconds) })
    }

    #[test]
    fn a_lease_is_taken_once_it_was_watched_for_its_whole_duration() {
        let mut candidate = Candidacy::new(TIMING);
        candidate.read(None, seconds(0));
        assert_eq!(candidate.attempt(seconds(0)), Attempt::Create);
        candidate.read(lease("b", "7", Some(15)), seconds(100));
        assert_eq!(candidate.attempt(seconds(100)), Attempt::Wait(seconds(115)));
        candidate.read(lease("b", "7", Some(15)), seconds(114));
        assert_eq!(candidate.attempt(seconds(114)), Attempt::Wait(seconds(115)), "the same version is no renewal");
        assert_eq!(candidate.attempt(seconds(115)), Attempt::Take("7".into()));
        candidate.read(lease("b", "8", Some(15)), seconds(115));
        assert_eq!(candidate.attempt(seconds(115)), Attempt::Wait(seconds(130)));
        candidate.read(lease("", "9", Some(15)), seconds(116));
        assert_eq!(candidate.attempt(seconds(116)), Attempt::Take("9".into()), "released");
        candidate.read(lease("c", "10", Some(60)), seconds(117));
        assert_eq!(candidate.attempt(seconds(118)), Attempt::Wait(seconds(177)), "the holder's own duration counts");
        candidate.read(lease("c", "11", None), seconds(118));
        assert_eq!(candidate.attempt(seconds(118)), Attempt::Wait(seconds(133)));
        candidate.read(None, seconds(119));
        assert_eq!(candidate.attempt(seconds(119)), Attempt::Create);
    }

    #[test]
    fn a_term_ends_when_it_was_not_renewed_and_counts_from_when_the_request_was_sent() {
        let mut held = HeldLease::new(TIMING, seconds(0));
        assert_eq!(held.until(), seconds(10));
        assert_eq!(held.answered(Renewal::Renewed, seconds(2), seconds(5)), Ok(()));
        assert_eq!(held.until(), seconds(12));
        assert_eq!(held.answered(Renewal::Failed, seconds(7), seconds(11)), Ok(()));
        let lost = Err(LostLease::NotRenewed(seconds(10)));
        assert_eq!(held.answered(Renewal::Failed, seconds(11), seconds(12)), lost);
        let mut held = HeldLease::new(TIMING, seconds(0));
        assert_eq!(held.answered(Renewal::Renewed, seconds(1), seconds(11)), lost, "its answer came too late");
        let mut held = HeldLease::new(TIMING, seconds(0));
        let taken = Renewal::Taken("b".into());
        assert_eq!(held.answered(taken, seconds(2), seconds(3)), Err(LostLease::Taken("b".into())));
    }
}
