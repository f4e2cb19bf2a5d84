//! One pass over one NodePool: observe, decide, look or apply, announce, again (§8).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use noderotation_rotation::reason::Reason;
use noderotation_rotation::step::{Act, Step};
use noderotation_rotation::world::{Settings, World};
use noderotation_rotation::{Decision, decide};
use noderotation_shared::feasibility::{self, Lifespan};
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::objects::Freeze;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::announce::announce;
use crate::apply::apply;
use crate::event_dedup::EventDedup;
use crate::events::Recorder;
use crate::leader::Term;
use crate::metrics::{Metrics, PoolReport};
use crate::observe::observe;
use crate::queue::{End, MAX_CONFLICTS, Queue, Work};
use crate::read::read;
use crate::sweep;
use crate::watch::Caches;
use noderotation_cluster::api::{Api, Outcome};
use noderotation_cluster::backoff::random_fraction;

/// No sleep is longer; this heals a stepped clock.
const SAFETY_NET: Duration = Duration::from_secs(300);

/// A pass ends after so many steps, whatever they are: a backstop, a whole rotation has fewer.
const MAX_STEPS: usize = 40;

/// What every pass needs.
pub struct Reconciler {
    /// The API server.
    pub api: Api,
    /// The caches.
    pub caches: Arc<Caches>,
    /// The names to work on.
    pub queue: Arc<Queue>,
    /// The leader's term; checked before every write.
    pub term: Term,
    /// For placeholders.
    pub settings: Arc<Settings>,
    /// Where signals go.
    pub metrics: Arc<Metrics>,
    /// Where Events go.
    pub recorder: Recorder,
    /// What was noticed last.
    pub event_dedup: EventDedup,
    /// Set when the process is to stop: the request in flight ends, no other begins.
    pub stop: CancellationToken,
}

/// How a pass ended, before it goes back into the queue.
enum ReconcileEnd {
    Clean(Option<Timestamp>),
    Conflict,
    Failed(Option<Duration>),
    /// The pool is not there.
    Absent,
}

impl Reconciler {
    /// Works names off for ever; takes no new one when `stop` is set.
    pub async fn work(self: Arc<Self>) {
        loop {
            let work = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                work = self.queue.next() => work,
            };
            self.work_on(work).await;
        }
    }

    async fn work_on(&self, work: Work) {
        if work.timed {
            self.metrics.woke_late(work.waited);
        } else {
            self.metrics.waited("rotation", work.waited);
        }
        let began = Instant::now();
        let end = self.pass(&work.key).await;
        let (result, end) = match end {
            ReconcileEnd::Absent => {
                sweep::leftovers(self, &work.key, None).await;
                self.metrics.forget_pool(&work.key);
                self.event_dedup.forget(&work.key);
                self.queue.forget(&work.key);
                self.metrics.reconciled("absent", began.elapsed());
                return;
            }
            ReconcileEnd::Clean(wake_at) => ("success", End::Success(next_look(wake_at))),
            ReconcileEnd::Conflict => ("conflict", End::Again),
            ReconcileEnd::Failed(retry_after) => {
                self.metrics.retried("rotation");
                ("error", End::Failed(retry_after))
            }
        };
        self.metrics.reconciled(result, began.elapsed());
        self.queue.done(&work.key, end);
    }

    async fn pass(&self, pool: &str) -> ReconcileEnd {
        let Some(mut world) = observe(&self.caches, &self.settings, pool, Timestamp::now()) else {
            return ReconcileEnd::Absent;
        };
        let mut conflicts = 0;
        let mut last_conflict: Option<Act> = None;
        let mut unknown: Option<Act> = None;
        for _ in 0..MAX_STEPS {
            if self.stop.is_cancelled() {
                return ReconcileEnd::Clean(None);
            }
            let decision = decide(&world, Timestamp::now());
            let act = match &decision.step {
                None => {
                    let end = self.finish(&world, &decision);
                    if !world.stale {
                        sweep::leftovers(self, pool, world.pool.anchor()).await;
                    }
                    return end;
                }
                Some(Step::Read(wanted)) => {
                    if let Err(error) = read(&self.api, &self.caches, &mut world, wanted).await {
                        tracing::warn!(nodepool = pool, read = ?wanted, %error, "read failed");
                        return ReconcileEnd::Failed(None);
                    }
                    continue;
                }
                Some(Step::Do(act)) => act,
            };
            // after a lost race: only if the state we were dispatched from still holds
            if last_conflict.as_ref().is_some_and(|lost| !is_same_step(lost, act)) {
                self.report(&world, &decision);
                return ReconcileEnd::Conflict;
            }
            // it did not land after all: the server is in trouble, and a second try at once would not help it
            if unknown.as_ref().is_some_and(|before| is_same_step(before, act)) {
                return ReconcileEnd::Failed(None);
            }
            match self.perform(&mut world, act).await {
                Performed::Applied => {
                    conflicts = 0;
                    last_conflict = None;
                }
                Performed::Conflict => {
                    conflicts += 1;
                    if conflicts >= MAX_CONFLICTS {
                        return ReconcileEnd::Failed(None);
                    }
                    last_conflict = Some((**act).clone());
                }
                Performed::NotFound => {}
                Performed::Unknown => unknown = Some((**act).clone()),
                Performed::Failed(retry_after) => return ReconcileEnd::Failed(retry_after),
            }
        }
        tracing::error!(nodepool = pool, steps = MAX_STEPS, "a pass took too many steps; it is taken up again");
        ReconcileEnd::Failed(None)
    }

    async fn perform(&self, world: &mut World, act: &Act) -> Performed {
        if let Err(why) = self.term.check() {
            tracing::warn!(step = act.name, why, "not written");
            return Performed::Failed(None);
        }
        let claim_uid = world.anchored.as_ref().map(|c| c.meta.uid.clone()).unwrap_or_default();
        let outcome = match apply(&self.api, &self.caches, world, act).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(step = act.name, %error, "the object of a write could not be read back");
                return Performed::Failed(None);
            }
        };
        self.metrics.wrote(act.name, outcome.word());
        tracing::debug!(nodepool = &*world.pool.meta.name, step = act.name, outcome = outcome.word(), "write");
        match outcome {
            Outcome::Applied(_) => {
                for told in &act.announce {
                    announce(&self.metrics, &self.recorder, &world.pool, &claim_uid, told);
                }
                Performed::Applied
            }
            Outcome::Conflict => Performed::Conflict,
            Outcome::NotFound => Performed::NotFound,
            Outcome::Unknown(why) => {
                tracing::warn!(step = act.name, why, "a write's outcome is unknown; the object was read again");
                Performed::Unknown
            }
            Outcome::Throttled(retry_after, why) => {
                tracing::warn!(step = act.name, why, "throttled");
                Performed::Failed(retry_after)
            }
            Outcome::Rejected(message) => {
                self.event_dedup.refused(&self.recorder, world, act.name, &message);
                Performed::Failed(None)
            }
        }
    }

    /// Nothing more to do: tell what was noticed, report, sleep.
    fn finish(&self, world: &World, decision: &Decision) -> ReconcileEnd {
        let findings = match &world.governance {
            Ok(governing) => {
                let lives = world.claims.iter().map(|c| Lifespan {
                    created: c.meta.created,
                    expire_after: c.expire_after,
                    termination_grace_period: c.termination_grace_period,
                });
                feasibility::findings(&governing.policy, &governing.cadence, &world.facts(), lives)
            }
            Err(_) => Vec::new(),
        };
        self.event_dedup.tell(&self.recorder, world, decision, &findings);
        self.report(world, decision);
        ReconcileEnd::Clean(decision.wake_at)
    }

    fn report(&self, world: &World, decision: &Decision) {
        let now = Timestamp::now();
        let rule = world.governance.as_ref().ok();
        self.metrics.report(PoolReport {
            pool: world.pool.meta.name.to_string(),
            policy: rule.map(|r| r.name.clone()),
            is_blocked: world.governance.as_ref().err().is_some_and(|why| *why != Ungoverned::NoMatch),
            candidates: decision.counts.eligible,
            in_backoff: decision.counts.in_backoff,
            in_progress: world.pool.anchor().is_some(),
            window_active: rule.is_some_and(|r| r.policy.schedule.open_at(now).is_some()),
            next_open: rule.and_then(|r| r.policy.schedule.next_opening(now)).map(|o| o.open),
            frozen_until: match world.pool.freeze() {
                Freeze::Until(until) if until > now => Some(until),
                _ => None,
            },
            drain_stuck: decision.notes.iter().any(|n| matches!(n, Reason::DrainStuck { .. })),
            retry_count: world.anchored.as_ref().map_or(0, |c| c.retry_count()),
            short_lead: decision.counts.short_lead.len(),
            derived: rule.map(|r| world.derived(r)),
        });
        self.caches.changed.notify_one();
    }
}

enum Performed {
    Applied,
    Conflict,
    NotFound,
    Unknown,
    Failed(Option<Duration>),
}

/// The same transition of the same object, whatever its version.
fn is_same_step(a: &Act, b: &Act) -> bool {
    use noderotation_rotation::step::Write;
    let target = |act: &Act| match &act.request {
        Write::Patch(patch) => patch.name.clone(),
        Write::Create(pod) => pod.pointer("/metadata/name").map(ToString::to_string).unwrap_or_default(),
        Write::DeletePlaceholder { name, .. } | Write::DeleteClaim { name, .. } => name.clone(),
    };
    a.name == b.name && target(a) == target(b)
}

/// The exact instant, or the safety net where that is sooner (±10 %, so that pools don't march in step).
fn next_look(wake_at: Option<Timestamp>) -> Instant {
    let net = SAFETY_NET.mul_f64(0.9 + random_fraction() / 5.0);
    let exact = wake_at.map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
    Instant::now() + exact.map_or(net, |exact| exact.min(net))
}
