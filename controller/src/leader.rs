//! Leader election on the Lease API (§8, *Leadership*).
//!
//! The lease saves work; it is not the safety: every write is conditional. A candidate counts from when *it* saw the
//! lease change, on its own monotonic clock, and takes over only against the version it saw. A leader that could not
//! renew within the deadline stops writing at once and ends its process.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::core::WatchEvent;
use noderotation_rotation::lease::{Attempt, Candidacy, HeldLease, Lease, Renewal};
use noderotation_shared::kind::{Kind, ObjectRef};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use noderotation_cluster::api::{Api, Outcome, Selectors};
use noderotation_cluster::backoff::jittered;
use noderotation_cluster::error::{Error, with_causes};

pub use noderotation_rotation::lease::{LostLease, Timing};

/// `metadata.name` of the Lease.
pub const NAME: &str = "noderotation-controller";

/// The term has run out: nothing may be written any more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the lease was not renewed in time")]
pub struct TermOver;

/// The right to write, for as long as renewals succeed.
#[derive(Clone)]
pub struct Term {
    valid_until: Arc<Mutex<Instant>>,
}

impl Term {
    /// A term that runs until this instant, unless it is extended.
    pub fn until(until: Instant) -> Self {
        Self { valid_until: Arc::new(Mutex::new(until)) }
    }

    /// Whether the term still runs; asked before every write.
    pub fn check(&self) -> Result<(), TermOver> {
        if Instant::now() < self.valid_until() { Ok(()) } else { Err(TermOver) }
    }

    fn valid_until(&self) -> Instant {
        *self.valid_until.lock()
    }

    fn extend(&self, until: Instant) {
        *self.valid_until.lock() = until;
    }
}

/// A candidate for the lease.
pub struct Election {
    api: Api,
    namespace: String,
    identity: String,
    timing: Timing,
    /// Where this candidate's time begins.
    epoch: Instant,
}

impl Election {
    /// A candidate; `name` gets a random suffix, so that a restarted Pod is another holder.
    pub fn new(api: &Api, namespace: &str, name: &str, timing: Timing) -> Self {
        Self {
            api: api.unlimited(),
            namespace: namespace.into(),
            identity: format!("{name}_{:016x}", fastrand::u64(..)),
            timing,
            epoch: Instant::now(),
        }
    }

    /// An instant as leader election counts time.
    fn time_of(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.epoch)
    }

    /// The `holderIdentity` of this candidate: its name and a random suffix.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    fn target(&self) -> ObjectRef<'_> {
        Kind::Lease.in_namespace(&self.namespace, NAME)
    }

    /// Stands by until the lease is ours.
    pub async fn win(&self) -> Term {
        let mut candidacy = Candidacy::new(self.timing);
        loop {
            let stored = match self.read().await {
                Ok(stored) => stored,
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "the lease cannot be read");
                    self.pause().await;
                    continue;
                }
            };
            candidacy.read(stored.as_ref().map(as_read), self.time_of(Instant::now()));
            let sent = Instant::now();
            let outcome = match candidacy.attempt(self.time_of(sent)) {
                Attempt::Create => self.create().await,
                Attempt::Take(_) => self.replace(&stored.unwrap_or_default(), &self.identity, self.duration()).await,
                Attempt::Wait(until) => {
                    self.wait_for_change(&stored.unwrap_or_default(), self.epoch + until).await;
                    continue;
                }
            };
            match outcome {
                Outcome::Applied(_) => {
                    tracing::info!(identity = self.identity, "leading");
                    return Term::until(sent + self.timing.renew_deadline);
                }
                // somebody else was first
                Outcome::Conflict | Outcome::NotFound => self.pause().await,
                Outcome::Unknown(error) | Outcome::Rejected(error) | Outcome::Throttled(error) => {
                    tracing::warn!(error = with_causes(&error), "the lease cannot be taken");
                    self.pause().await;
                }
            }
        }
    }

    /// Renews for ever; returns with the reason when the term is lost, and quietly when `stop` is set.
    pub async fn hold(&self, term: &Term, stop: &CancellationToken) -> Result<(), LostLease> {
        let mut held = HeldLease::new(self.timing, self.time_of(term.valid_until() - self.timing.renew_deadline));
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = self.pause() => {}
            }
            let sent = Instant::now();
            // a renewal that takes longer than the term has failed
            let renewal = tokio::time::timeout(self.timing.renew_deadline, self.renew()).await;
            let renewal = renewal.unwrap_or_else(|_| {
                tracing::warn!(why = "no answer in time", "the lease was not renewed");
                Renewal::Failed
            });
            held.answered(renewal, self.time_of(sent), self.time_of(Instant::now()))?;
            term.extend(self.epoch + held.until());
        }
    }

    /// Gives the lease up, so that another takes over at once. Best effort.
    pub async fn release(&self) {
        let Ok(lease) = self.api.read::<Value>(self.target()).await else { return };
        if holder(&lease) != self.identity {
            return;
        }
        let outcome = self.replace(&lease, "", Duration::from_secs(1)).await;
        tracing::info!(outcome = outcome.label(), "lease released");
    }

    async fn pause(&self) {
        tokio::time::sleep(jittered(self.timing.retry_period)).await;
    }

    /// The lease; `None`: there is none.
    async fn read(&self) -> Result<Option<Value>, Error> {
        match self.api.read::<Value>(self.target()).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self) -> Outcome {
        let none = json!({"metadata": {"name": NAME, "namespace": self.namespace}});
        let lease = lease(&none, &self.identity, self.duration());
        self.api.create(Kind::Lease, Some(&self.namespace), &lease).await
    }

    /// Replaces the lease as it was read: its version is the precondition.
    async fn replace(&self, old: &Value, holder: &str, duration: Duration) -> Outcome {
        self.api.replace(self.target(), &lease(old, holder, duration)).await
    }

    fn duration(&self) -> Duration {
        self.timing.duration.max(Duration::from_secs(1))
    }

    /// Waits until the lease changes or may be taken.
    async fn wait_for_change(&self, seen: &Value, expires: Instant) {
        let changed = async {
            let named = Selectors::fields(format!("metadata.name={NAME}"));
            let version = Some(version(seen));
            match self.api.watch::<Value>(Kind::Lease, Some(&self.namespace), &named, version).await {
                Ok(events) => {
                    let first = std::pin::pin!(events).next().await;
                    // a watch that ends at once must not become a busy loop
                    if !matches!(
                        first,
                        Some(Ok(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_)))
                    ) {
                        self.pause().await;
                    }
                }
                Err(error) => {
                    tracing::debug!(error = with_causes(&error), "the lease cannot be watched");
                    self.pause().await;
                }
            }
        };
        tokio::select! { () = changed => {}, () = tokio::time::sleep_until(expires) => {} }
    }

    async fn renew(&self) -> Renewal {
        let failed = |why: String| {
            tracing::warn!(why, "the lease was not renewed");
            Renewal::Failed
        };
        let lease: Value = match self.api.read(self.target()).await {
            Ok(lease) => lease,
            Err(error) => return failed(with_causes(&error)),
        };
        if holder(&lease) != self.identity {
            return Renewal::Taken(holder(&lease).to_owned());
        }
        match self.replace(&lease, &self.identity, self.duration()).await {
            Outcome::Applied(_) => Renewal::Renewed,
            other => failed(other.to_string()),
        }
    }
}

/// `old` with this holder.
fn lease(old: &Value, holder_identity: &str, duration: Duration) -> Value {
    let now = format!("{:.6}", Timestamp::now());
    let changes = holder(old) != holder_identity && !holder_identity.is_empty();
    let transitions = old.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
    let acquired = old.pointer("/spec/acquireTime").cloned().filter(|_| !changes).unwrap_or_else(|| now.clone().into());
    json!({
        "apiVersion": Kind::Lease.api_version(),
        "kind": Kind::Lease.name(),
        "metadata": old.get("metadata").cloned().unwrap_or_default(),
        "spec": {
            "holderIdentity": holder_identity,
            "leaseDurationSeconds": duration.as_secs(),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions + i64::from(changes),
        },
    })
}

fn holder(lease: &Value) -> &str {
    lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default()
}

fn version(lease: &Value) -> &str {
    lease.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

/// What the rules of leader election look at.
fn as_read(lease: &Value) -> Lease {
    Lease {
        holder: holder(lease).to_owned(),
        version: version(lease).to_owned(),
        duration: lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64).map(Duration::from_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_term_is_over_at_its_end() {
        let term = Term::until(Instant::now() + Duration::from_secs(1));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(term.check().is_ok());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(term.check().is_err());
    }

    #[test]
    fn a_lease_says_since_when_and_how_often_it_changed_hands() {
        let none = json!({"metadata": {"name": "x"}});
        let first = lease(&none, "a", Duration::from_secs(15));
        assert_eq!(first["metadata"], none["metadata"]);
        let spec = &first["spec"];
        assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("a"), &json!(15)));
        assert_eq!((&spec["leaseTransitions"], &spec["acquireTime"]), (&json!(1), &spec["renewTime"]));
        let old = json!({"spec": {"holderIdentity": "a", "acquireTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 7}});
        let change = |holder: &str| {
            let spec = lease(&old, holder, Duration::from_secs(1))["spec"].take();
            (spec["leaseTransitions"].as_i64().unwrap(), spec["acquireTime"] == "2026-01-01T00:00:00.000000Z")
        };
        assert_eq!(change("a"), (7, true), "a renewal");
        assert_eq!(change("b"), (8, false), "another holder");
        assert_eq!(change(""), (7, true), "given up");
    }
}
