//! The start gates (§8, steps 2 to 4): one table, from which a start, a retry and every explanation are made.
//!
//! A new gate is one line of [`GATES`], one function here, and one variant of [`Reason`] with its sentence.

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::blocked::Blocked;
use noderotation_shared::feasibility;
use noderotation_shared::instant::plus;
use noderotation_shared::keys::{LAST_FAILURE_AT, LAST_ROTATION_AT};
use noderotation_shared::selection::{RotateRequest, RotationState};

use crate::reason::Reason;
use crate::world::{GoverningPolicy, World};

/// The reason why a gate is closed, and when it opens by itself; `None` while it is open.
type Check = fn(&World, &GoverningPolicy, Timestamp) -> Option<(Reason, Option<Timestamp>)>;

/// One gate. A retry passes the same gates as a start.
pub struct Gate {
    /// Whether `noderotation.io/rotate: now` passes it even when it is closed.
    pub is_skipped_by_now: bool,
    /// Whether a window that ends while it is closed is settled rather than missed (§8, step 0): the operator or the policy
    /// wants no start.
    pub settles_window: bool,
    /// Whether a rotation that is still `pending` waits for it, too: no placeholder is created, and `draining` is not
    /// entered (§5.4, §8).
    pub holds_pending: bool,
    /// Why it is closed, if it is.
    closed: Check,
}

/// A gate that is closed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Why it is closed.
    pub reason: Reason,
    /// When it opens by itself; `None` where only an event can open it, or an instant that wakes the pass anyway.
    pub opens: Option<Timestamp>,
    /// Whether `noderotation.io/rotate: now` passes it all the same.
    pub is_skipped_by_now: bool,
}

/// Every gate, in the order in which reasons are told.
pub const GATES: &[Gate] = &[
    Gate { is_skipped_by_now: false, settles_window: false, holds_pending: false, closed: pool_deleting },
    Gate { is_skipped_by_now: false, settles_window: false, holds_pending: true, closed: stale_caches },
    Gate { is_skipped_by_now: false, settles_window: false, holds_pending: true, closed: another_claim_draining },
    Gate { is_skipped_by_now: false, settles_window: true, holds_pending: true, closed: old_schema },
    Gate { is_skipped_by_now: false, settles_window: true, holds_pending: false, closed: static_pool },
    Gate { is_skipped_by_now: false, settles_window: true, holds_pending: false, closed: fatal_finding },
    Gate { is_skipped_by_now: false, settles_window: true, holds_pending: true, closed: frozen_or_suspended },
    Gate { is_skipped_by_now: true, settles_window: false, holds_pending: false, closed: window_closed },
    Gate { is_skipped_by_now: true, settles_window: false, holds_pending: false, closed: cooldown },
    Gate { is_skipped_by_now: true, settles_window: false, holds_pending: false, closed: failure_pause },
];

/// The gates that are closed now, in their order.
pub fn closed(world: &World, governing: &GoverningPolicy, now: Timestamp) -> Vec<Closed> {
    GATES
        .iter()
        .filter_map(|gate| {
            let (reason, opens) = (gate.closed)(world, governing, now)?;
            Some(Closed { reason, opens, is_skipped_by_now: gate.is_skipped_by_now })
        })
        .collect()
}

/// Whether a claim with this request may start or be retried while these gates are closed.
pub fn let_through(closed: &[Closed], request: Option<RotateRequest>) -> bool {
    closed.iter().all(|gate| gate.is_skipped_by_now && request == Some(RotateRequest::Now))
}

/// Whether a window that has just ended is settled, whatever it left undone (§8, step 0).
pub fn settle_window(world: &World, governing: &GoverningPolicy, now: Timestamp) -> bool {
    GATES.iter().filter(|gate| gate.settles_window).any(|gate| (gate.closed)(world, governing, now).is_some())
}

/// Why a rotation that is still `pending` may not go on (§5.4, §8); empty where it may.
pub fn hold_pending(world: &World, governing: &GoverningPolicy, now: Timestamp) -> Vec<Reason> {
    let holding = GATES.iter().filter(|gate| gate.holds_pending);
    holding.filter_map(|gate| (gate.closed)(world, governing, now)).map(|(reason, _)| reason).collect()
}

/// When the pauses after the last success and the last failure are over; `None` where they are over now.
pub fn paused_until(world: &World, governing: &GoverningPolicy, now: Timestamp) -> Option<Timestamp> {
    let pauses = [cooldown, failure_pause].map(|pause| pause(world, governing, now).and_then(|(_, until)| until));
    pauses.into_iter().flatten().max()
}

fn pool_deleting(world: &World, _: &GoverningPolicy, _: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    world.pool.meta.deleted.map(|_| (Reason::PoolDeleting, None))
}

fn stale_caches(world: &World, _: &GoverningPolicy, _: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    world.stale.then_some((Reason::StaleView, None))
}

/// At most one claim of a pool drains at a time, also one whose anchor is gone (§8, *Governance lost*), or was overwritten.
fn another_claim_draining(world: &World, _: &GoverningPolicy, _: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    let anchor = world.pool.anchor();
    let draining = world
        .claims
        .iter()
        .find(|claim| claim.state(false) == RotationState::Draining && anchor != Some(&*claim.meta.name))?;
    Some((Reason::DrainUnanchored(draining.meta.name.to_string()), None))
}

/// What the policy says about suspension may have been dropped: as if it were suspended.
fn old_schema(world: &World, _: &GoverningPolicy, _: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    world.old_schema().map(|blocked| (Reason::Blocked(blocked), None))
}

fn static_pool(world: &World, _: &GoverningPolicy, _: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    world.pool.is_static.then_some((Reason::Blocked(Blocked::StaticNodePool), None))
}

fn fatal_finding(world: &World, governing: &GoverningPolicy, _: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    let findings = feasibility::findings(&governing.policy, &governing.cadence, &world.facts(), []);
    Blocked::fatal(&findings).map(|blocked| (Reason::Blocked(blocked), None))
}

fn frozen_or_suspended(
    world: &World,
    governing: &GoverningPolicy,
    now: Timestamp,
) -> Option<(Reason, Option<Timestamp>)> {
    let suspended = || governing.policy.suspend.then_some(Blocked::Suspended);
    Blocked::frozen(&world.pool.freeze(), now).or_else(suspended).map(|blocked| (Reason::Blocked(blocked), None))
}

fn window_closed(_: &World, governing: &GoverningPolicy, now: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    let schedule = &governing.policy.schedule;
    if schedule.open_at(now).is_some() {
        return None;
    }
    let opens = schedule.next_opening(now).map(|occurrence| occurrence.open);
    Some((Reason::WindowClosed { opens }, opens))
}

fn cooldown(world: &World, governing: &GoverningPolicy, now: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    let until = pause(world, LAST_ROTATION_AT, governing.policy.surge.cooldown_after, now)?;
    Some((Reason::Cooldown { until }, Some(until)))
}

fn failure_pause(world: &World, governing: &GoverningPolicy, now: Timestamp) -> Option<(Reason, Option<Timestamp>)> {
    let until = pause(world, LAST_FAILURE_AT, governing.policy.surge.failure_pause, now)?;
    Some((Reason::FailurePause { until }, Some(until)))
}

/// The end of a pause that runs from the instant under this key; `None` when it is over, or never began.
fn pause(world: &World, key: &str, length: SignedDuration, now: Timestamp) -> Option<Timestamp> {
    world.pool.meta.annotations.instant(key, now).map(|from| plus(from, length)).filter(|until| *until > now)
}
