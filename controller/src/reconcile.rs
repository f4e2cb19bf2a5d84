//! Works NodePools off the queue: one pass at a time per pool, each request performed for [`Pass`] (§8).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::backoff::jittered;
use noderotation_cluster::error::with_causes;
use noderotation_rotation::Pass;
use noderotation_rotation::event_dedup::{EventAbout, EventDedup, Notice, notices};
use noderotation_rotation::event_reason::EventReason;
use noderotation_rotation::pass::{Next, PassEnd, PassResult, Written};
use noderotation_rotation::step::Act;
use noderotation_rotation::work_queue::{End, Work};
use noderotation_rotation::world::Settings;
use noderotation_shared::kind::Kind;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::announce::{announce, tell};
use crate::apply::apply;
use crate::events::Recorder;
use crate::leader::Term;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::read::read;
use crate::sweep;
use crate::watch::Caches;

/// No sleep is longer; this heals a stepped clock.
const SAFETY_NET: Duration = Duration::from_secs(300);

/// Reconciles NodePools: what all workers share.
pub struct Reconciler {
    /// The API server, rate limited.
    pub api: Api,
    /// The slim caches that the reflectors feed.
    pub caches: Arc<Caches>,
    /// The names of the NodePools to reconcile.
    pub queue: Arc<Queue>,
    /// This leader's term; checked before every write.
    pub term: Term,
    /// Namespace, class and image of placeholders.
    pub settings: Arc<Settings>,
    /// Counters, gauges and histograms.
    pub metrics: Arc<Metrics>,
    /// Takes the Events to be written.
    pub recorder: Recorder,
    /// What was told last, so that nothing is told twice.
    pub event_dedup: Mutex<EventDedup>,
    /// Set when the process is to stop: the request in flight ends, no other begins.
    pub stop: CancellationToken,
}

/// How the work on a name ended.
enum Worked {
    /// A pass ended. The duration is how long the API server asks us to wait.
    Ended(Box<PassEnd>, Option<Duration>),
    /// The process is stopping, so the pass was left where it was.
    Stopped,
    /// There is no such NodePool.
    NoPool,
}

impl Reconciler {
    /// Works names off until `stop` is set.
    pub async fn work(self: Arc<Self>) {
        loop {
            let work = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                work = self.queue.next() => work,
            };
            self.reconcile(work).await;
        }
    }

    async fn reconcile(&self, work: Work) {
        let pool = &work.key;
        if work.timed {
            self.metrics.woke_late(work.waited);
        } else {
            self.metrics.waited("rotation", work.waited);
        }
        let began = Instant::now();
        let (label, end) = match self.pass(pool).await {
            Worked::NoPool => {
                sweep::orphans_of(self, pool, None).await;
                self.forget(pool);
                self.metrics.reconciled("gone", began.elapsed());
                return;
            }
            Worked::Stopped => ("stopped", End::Success(self.queue.time_of(Instant::now() + SAFETY_NET))),
            Worked::Ended(end, retry_after) => self.ended(*end, retry_after).await,
        };
        self.metrics.reconciled(label, began.elapsed());
        self.queue.done(pool, end);
    }

    fn forget(&self, pool: &Arc<str>) {
        self.metrics.forget_pool(pool);
        self.event_dedup.lock().forget(pool);
        self.queue.forget(pool);
    }

    /// Performs what a pass asks for, until it ends.
    async fn pass(&self, pool: &str) -> Worked {
        let Some(world) = self.caches.world(&self.settings, pool, Timestamp::now()) else { return Worked::NoPool };
        let mut pass = Pass::new(world);
        let mut retry_after = None;
        loop {
            if self.stop.is_cancelled() {
                return Worked::Stopped;
            }
            match pass.next(Timestamp::now()) {
                Next::Done(end) => return Worked::Ended(end, retry_after),
                Next::Read(wanted) => match read(&self.api, &self.caches, &self.settings.namespace, &wanted).await {
                    Ok(answer) => pass.answered(&wanted, answer),
                    Err(error) => {
                        tracing::warn!(nodepool = pool, read = ?wanted, error = with_causes(&error), "read failed");
                        retry_after = error.retry_after();
                        pass.failed();
                    }
                },
                Next::Write(act) => {
                    let (written, wait) = self.perform(&pass, &act).await;
                    retry_after = wait;
                    for announcement in pass.written(written) {
                        announce(&self.metrics, &self.recorder, &pass.world().pool, &announcement);
                    }
                }
            }
        }
    }

    /// Sends one write. The duration is how long the API server asks us to wait.
    async fn perform(&self, pass: &Pass, act: &Act) -> (Written, Option<Duration>) {
        let nodepool = &*pass.world().pool.meta.name;
        if let Err(why) = self.term.check() {
            tracing::warn!(nodepool, step = act.name, %why, "not written");
            return (Written::Failed, None);
        }
        let outcome = apply(&self.api, &self.settings.namespace, &act.write).await;
        self.metrics.wrote(act.name, outcome.label());
        tracing::debug!(nodepool, step = act.name, outcome = outcome.label(), "write");
        match outcome {
            Outcome::Applied(text) => (Written::Applied(self.caches.take_in(&act.write, &text).map(Box::new)), None),
            Outcome::Conflict => (Written::Conflict, None),
            Outcome::NotFound => (Written::NotFound, None),
            Outcome::Unknown(error) => {
                let wait = error.retry_after();
                let error = with_causes(&error);
                tracing::warn!(nodepool, step = act.name, error, "the write may have landed; its object is read again");
                (Written::Unknown, wait)
            }
            Outcome::Throttled(error) => {
                tracing::warn!(nodepool, step = act.name, error = with_causes(&error), "throttled");
                (Written::Failed, error.retry_after())
            }
            Outcome::Rejected(error) => {
                self.rejected(pass, act.name, &with_causes(&error));
                (Written::Failed, None)
            }
        }
    }

    /// The API server rejected a write: told once per message.
    fn rejected(&self, pass: &Pass, step: &str, error: &str) {
        let pool = &pass.world().pool.meta;
        let (kind, name, uid) = (Kind::NodePool, pool.name.to_string(), pool.uid.to_string());
        let reason = EventReason::WriteRefused;
        let notice = Notice {
            topic: reason.to_string(),
            text: format!("the API server rejected the write of step {step}: {error}"),
            is_warning: true,
            event: Some(EventAbout { reason, kind, name, uid }),
        };
        if self.event_dedup.lock().is_new(&pool.name, &notice.topic, &notice.text) {
            tell(&self.recorder, &pool.name, &notice);
        }
    }

    /// Tells what the pass noticed, reports it, cleans up, and says when to look again.
    async fn ended(&self, end: PassEnd, retry_after: Option<Duration>) -> (&'static str, End) {
        let PassEnd { result, report, wake_at } = end;
        let pool = report.pool.clone();
        if result == PassResult::Success {
            let uid = self.caches.lock().pool(&pool).map(|pool| pool.meta.uid.to_string()).unwrap_or_default();
            let claim_uid =
                |claim: &str| self.caches.lock().claim(claim).map(|c| c.meta.uid.to_string()).unwrap_or_default();
            let noticed = notices(&report, &uid, claim_uid);
            for notice in self.event_dedup.lock().transition(&pool, noticed) {
                tell(&self.recorder, &pool, &notice);
            }
        }
        self.metrics.reported(report);
        self.caches.changed.notify_one();
        match result {
            PassResult::Success => {
                if !self.caches.fresh.is_stale() {
                    let anchor = self.caches.lock().pool(&pool).and_then(|pool| pool.anchor().map(str::to_owned));
                    sweep::orphans_of(self, &pool, anchor).await;
                }
                ("success", End::Success(self.queue.time_of(next_pass(wake_at))))
            }
            PassResult::Conflict => ("conflict", End::Again),
            PassResult::Failed => {
                self.metrics.retried("rotation");
                ("error", End::Failed(retry_after))
            }
        }
    }
}

/// The exact instant at which time could change the decision, or the safety net where that is sooner.
fn next_pass(wake_at: Option<Timestamp>) -> Instant {
    let net = jittered(SAFETY_NET);
    let exact = wake_at.map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
    Instant::now() + exact.map_or(net, |exact| exact.min(net))
}
