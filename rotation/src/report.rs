//! What a pass found out about its NodePool, for metrics, status and events.

use jiff::Timestamp;
use noderotation_shared::blocked::{Blocked, Situation};
use noderotation_shared::feasibility::{self, Derived, Finding, Lifespan};
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::objects::Freeze;
use noderotation_shared::selection::Eligibility;

use crate::decide::Decision;
use crate::reason::{EligibilityCounts, Reason};
use crate::world::World;
use crate::{gates, headroom};

/// What a pass found out.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a gauge of its own")]
pub struct PoolReport {
    /// The NodePool's name.
    pub pool: String,
    /// The name of the policy that governs it, or why none does.
    pub governance: Result<String, Ungoverned>,
    /// The reasons of every decision of the pass, each once.
    pub reasons: Vec<Reason>,
    /// The findings of §6; empty where no policy governs.
    pub findings: Vec<Finding>,
    /// What keeps the pool from being rotated (§6.1).
    pub blocked: Vec<Blocked>,
    /// How many claims are eligible, and why the others are not.
    pub counts: EligibilityCounts,
    /// The claims that are still to be rotated, in the order in which they come due; empty where no policy governs.
    pub outlook: Vec<Outlook>,
    /// A rotation is in flight.
    pub in_progress: bool,
    /// The window is open.
    pub window_active: bool,
    /// When the window opens next; `None`: never, or no policy governs.
    pub next_open: Option<Timestamp>,
    /// When the pauses after the last success and the last failure are over; `None` where they are.
    pub paused_until: Option<Timestamp>,
    /// Until when the operator holds the pool; `None`: not held.
    pub frozen_until: Option<Timestamp>,
    /// The drain in flight exceeds its bound.
    pub drain_stuck: bool,
    /// Failed attempts of the claim in rotation; 0 without one.
    pub retry_count: i64,
    /// The values of §2; `None` where no policy governs.
    pub derived: Option<Derived>,
}

/// When one claim is to be rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The NodeClaim's name.
    pub claim: Box<str>,
    /// Its Node's name; empty until it has registered.
    pub node: Box<str>,
    /// When it comes due, or came; `None`: never by itself.
    pub due_at: Option<Timestamp>,
    /// When Karpenter ends it; `None`: never.
    pub deadline: Option<Timestamp>,
}

impl PoolReport {
    /// Reports a pass that ended with this world and this decision; `reasons` are those of all its decisions.
    pub fn new(world: &World, decision: &Decision, reasons: Vec<Reason>, now: Timestamp) -> Self {
        let governing = world.governance.as_ref().ok();
        let lifespans = world.claims.iter().map(|claim| Lifespan {
            created: claim.meta.created,
            expire_after: claim.expire_after,
            termination_grace_period: claim.termination_grace_period,
        });
        let schedule = governing.map(|governing| &governing.policy.schedule);
        let findings = governing.map_or_else(Vec::new, |governing| {
            feasibility::findings(&governing.policy, &governing.cadence, &world.facts(), lifespans)
        });
        Self {
            blocked: blocked(world, &findings, now),
            findings,
            pool: world.pool.meta.name.to_string(),
            governance: world.governance.as_ref().map(|governing| governing.name.clone()).map_err(Clone::clone),
            in_progress: world.pool.anchor().is_some(),
            window_active: schedule.is_some_and(|schedule| schedule.open_at(now).is_some()),
            next_open: schedule.and_then(|schedule| schedule.next_opening(now)).map(|occurrence| occurrence.open),
            paused_until: governing.and_then(|governing| gates::paused_until(world, governing, now)),
            frozen_until: match world.pool.freeze() {
                Freeze::Until(until) if until > now => Some(until),
                _ => None,
            },
            drain_stuck: reasons.iter().any(|reason| matches!(reason, Reason::DrainStuck { .. })),
            retry_count: world.anchored().map_or(0, |claim| claim.retry_count()),
            derived: governing.map(|governing| world.derived(governing)),
            counts: decision.counts.clone(),
            outlook: outlook(world, &decision.eligibilities),
            reasons,
        }
    }
}

/// A pass may have learnt of claims after its last decision: those are in the next report.
fn outlook(world: &World, eligibilities: &[Eligibility]) -> Vec<Outlook> {
    let claims = world.claims.iter().zip(eligibilities).filter(|(claim, _)| claim.meta.deleted.is_none());
    let mut outlook: Vec<Outlook> = claims
        .map(|(claim, eligibility)| Outlook {
            claim: claim.meta.name.clone(),
            node: claim.node.clone(),
            due_at: eligibility.due_at,
            deadline: eligibility.deadline,
        })
        .collect();
    let last = |at: Option<Timestamp>| at.unwrap_or(Timestamp::MAX);
    outlook.sort_by(|a, b| {
        (last(a.due_at), last(a.deadline), &a.claim).cmp(&(last(b.due_at), last(b.deadline), &b.claim))
    });
    outlook
}

fn blocked(world: &World, findings: &[Finding], now: Timestamp) -> Vec<Blocked> {
    let governing = match &world.governance {
        Ok(governing) => governing,
        Err(why) => return Blocked::ungoverned(why).into_iter().collect(),
    };
    // the sum over all claims, only where something is limited
    let is_judged = world.pool.anchor().is_none() && !world.pool.limits.0.is_empty();
    let usage = is_judged.then(|| headroom::usage(world));
    let situation = Situation {
        is_static: world.pool.is_static,
        expires: world.pool.expire_after.is_some() || world.claims.iter().any(|claim| claim.expire_after.is_some()),
        freeze: &world.pool.freeze(),
        limits: &world.pool.limits,
        usage: usage.as_ref(),
    };
    world.old_schema().into_iter().chain(Blocked::all(&governing.policy, findings, &situation, now)).collect()
}
