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
use noderotation_shared::kind::{Kind, ObjectRef};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use noderotation_cluster::api::{Api, Outcome, Selectors};
use noderotation_cluster::backoff::jittered;
use noderotation_cluster::error::{Error, with_causes};

/// `metadata.name` of the Lease.
pub const NAME: &str = "noderotation-controller";

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

/// Why leadership was lost.
#[derive(Debug, thiserror::Error)]
pub enum LostLease {
    /// Another holder has taken the lease.
    #[error("the lease is held by {0:?}")]
    Taken(String),
    /// The API server did not take a renewal in time.
    #[error("the lease could not be renewed for {0:?}")]
    NotRenewed(Duration),
}

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
        if Instant::now() < *self.valid_until.lock() { Ok(()) } else { Err(TermOver) }
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
}

/// The lease as it was seen, and since when.
struct Seen {
    lease: Value,
    at: Instant,
}

impl Election {
    /// A candidate; `name` gets a random suffix, so that a restarted Pod is another holder.
    pub fn new(api: &Api, namespace: &str, name: &str, timing: Timing) -> Self {
        Self {
            api: api.unlimited(),
            namespace: namespace.into(),
            identity: format!("{name}_{:016x}", fastrand::u64(..)),
            timing,
        }
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
        let mut seen: Option<Seen> = None;
        loop {
            if let Err(error) = self.read(&mut seen).await {
                tracing::warn!(error = with_causes(&error), "the lease cannot be read");
                self.pause().await;
                continue;
            }
            let began = Instant::now();
            match self.try_take(seen.as_ref()).await {
                Ok(true) => {
                    tracing::info!(identity = self.identity, "leading");
                    return Term::until(began + self.timing.renew_deadline);
                }
                Ok(false) => self.wait_for_change(seen.as_ref()).await,
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "the lease cannot be taken");
                    self.pause().await;
                }
            }
        }
    }

    /// Renews for ever; returns with the reason when the term is lost, and quietly when `stop` is set.
    pub async fn hold(&self, term: &Term, stop: &CancellationToken) -> Result<(), LostLease> {
        let mut last = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = self.pause() => {}
            }
            let began = Instant::now();
            // a renewal that takes longer than the term has failed
            let renewal = tokio::time::timeout(self.timing.renew_deadline, self.renew()).await;
            match renewal.unwrap_or_else(|_| Err(Renewal::Failed("no answer in time".into()))) {
                Ok(()) => {
                    last = began;
                    term.extend(began + self.timing.renew_deadline);
                }
                Err(Renewal::Lost(holder)) => return Err(LostLease::Taken(holder)),
                Err(Renewal::Failed(why)) => tracing::warn!(why, "the lease was not renewed"),
            }
            if last.elapsed() >= self.timing.renew_deadline {
                return Err(LostLease::NotRenewed(self.timing.renew_deadline));
            }
        }
    }

    /// Gives the lease up, so that another takes over at once. Best effort.
    pub async fn release(&self) {
        let Ok(lease) = self.api.read::<Value>(self.target()).await else { return };
        if holder(&lease) != self.identity {
            return;
        }
        let outcome = self.api.replace(self.target(), &self.lease(&lease, "", 1)).await;
        tracing::info!(outcome = outcome.label(), "lease released");
    }

    async fn pause(&self) {
        tokio::time::sleep(jittered(self.timing.retry_period)).await;
    }

    /// Reads the lease. It counts as changed when its version has changed.
    async fn read(&self, seen: &mut Option<Seen>) -> Result<(), Error> {
        match self.api.read::<Value>(self.target()).await {
            Ok(lease) => {
                if seen.as_ref().is_none_or(|s| version(&s.lease) != version(&lease)) {
                    *seen = Some(Seen { lease, at: Instant::now() });
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                *seen = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the lease, or takes one that is free, or that was not renewed for its whole duration while we watched.
    async fn try_take(&self, seen: Option<&Seen>) -> Result<bool, Error> {
        let outcome = match seen {
            None => {
                let none = json!({"metadata": {"name": NAME, "namespace": self.namespace}});
                self.api.create(Kind::Lease, Some(&self.namespace), &self.lease(&none, &self.identity, 0)).await
            }
            Some(seen) if self.is_free(seen) => {
                self.api.replace(self.target(), &self.lease(&seen.lease, &self.identity, 0)).await
            }
            Some(_) => return Ok(false),
        };
        match outcome {
            Outcome::Applied(_) => Ok(true),
            Outcome::Conflict | Outcome::NotFound => Ok(false),
            Outcome::Unknown(error) | Outcome::Rejected(error) | Outcome::Throttled(error) => Err(error),
        }
    }

    fn is_free(&self, seen: &Seen) -> bool {
        holder(&seen.lease).is_empty() || seen.at.elapsed() >= duration_of(&seen.lease, self.timing.duration)
    }

    /// Waits until the lease changes or may be taken.
    async fn wait_for_change(&self, seen: Option<&Seen>) {
        let Some(seen) = seen else { return self.pause().await };
        let expires = seen.at + duration_of(&seen.lease, self.timing.duration);
        let changed = async {
            let named = Selectors::fields(format!("metadata.name={NAME}"));
            let version = Some(version(&seen.lease));
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

    async fn renew(&self) -> Result<(), Renewal> {
        let lease: Value = self.api.read(self.target()).await.map_err(|error| Renewal::Failed(with_causes(&error)))?;
        if holder(&lease) != self.identity {
            return Err(Renewal::Lost(holder(&lease).to_owned()));
        }
        match self.api.replace(self.target(), &self.lease(&lease, &self.identity, 0)).await {
            Outcome::Applied(_) => Ok(()),
            other => Err(Renewal::Failed(other.to_string())),
        }
    }

    /// `old` with this holder; `seconds` 0 means the configured duration.
    fn lease(&self, old: &Value, holder_identity: &str, seconds: u64) -> Value {
        let now = format!("{:.6}", Timestamp::now());
        let seconds = if seconds == 0 { self.timing.duration.as_secs().max(1) } else { seconds };
        let changes = holder(old) != holder_identity && !holder_identity.is_empty();
        let transitions = old.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
        let acquired =
            old.pointer("/spec/acquireTime").cloned().filter(|_| !changes).unwrap_or_else(|| now.clone().into());
        json!({
            "apiVersion": Kind::Lease.api_version(),
            "kind": Kind::Lease.name(),
            "metadata": old.get("metadata").cloned().unwrap_or_default(),
            "spec": {
                "holderIdentity": holder_identity,
                "leaseDurationSeconds": seconds,
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": transitions + i64::from(changes),
            },
        })
    }
}

enum Renewal {
    Lost(String),
    Failed(String),
}

fn holder(lease: &Value) -> &str {
    lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default()
}

fn version(lease: &Value) -> &str {
    lease.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

fn duration_of(lease: &Value, otherwise: Duration) -> Duration {
    lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64).map_or(otherwise, Duration::from_secs)
}
