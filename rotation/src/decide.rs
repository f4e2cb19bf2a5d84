//! One pass over one NodePool (§8): the order of its parts, and what they share.

use jiff::Timestamp;
use noderotation_shared::feasibility::{self, Code, Derived, PoolFacts, Severity};
use noderotation_shared::instant::{earliest, plus};
use noderotation_shared::policy::Policy;
use noderotation_shared::selection::{self, Eligibility, Ineligible};

use crate::reason::{EligibilityCounts, Reason};
use crate::step::{Act, Announcement, LiveRead, Patch, Step, Write};
use crate::world::{GoverningPolicy, World};
use crate::{advance, governance_lost, malformed_annotations, start, window_edge};
use noderotation_shared::objects::{Freeze, NodeClaim};

/// What a pass decided.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The next step; `None`: nothing to do now.
    pub step: Option<Step>,
    /// A reason for every road not taken.
    pub notes: Vec<Reason>,
    /// The next instant at which time alone could change anything; always in the future.
    pub wake_at: Option<Timestamp>,
    /// Who is eligible and why not the others.
    pub counts: EligibilityCounts,
}

/// Decides the next step for a pool. Total: no input panics, and the same input gives the same answer.
pub fn decide(world: &World, now: Timestamp) -> Decision {
    let mut pass = Pass { world, now, notes: Vec::new(), wake_at: None, counts: EligibilityCounts::default() };
    let step = match &world.governance {
        Err(ungoverned) => governance_lost::step(&mut pass, ungoverned),
        Ok(governing) => governed(&mut pass, governing),
    };
    Decision { step, notes: pass.notes, wake_at: pass.wake_at, counts: pass.counts }
}

fn governed(pass: &mut Pass<'_>, governing: &GoverningPolicy) -> Option<Step> {
    malformed_annotations::note(pass);
    let eligibilities = pass.assess_claims(governing);
    pass.watch_calendar(governing);
    if let Some(step) = window_edge::step(pass, governing) {
        return Some(step);
    }
    match pass.world.pool.anchor() {
        Some(name) => advance::step(pass, governing, name),
        None => start::step(pass, governing, &eligibilities),
    }
}

/// What the parts of a pass share.
pub(crate) struct Pass<'a> {
    pub world: &'a World,
    pub now: Timestamp,
    pub notes: Vec<Reason>,
    pub counts: EligibilityCounts,
    wake_at: Option<Timestamp>,
}

impl Pass<'_> {
    /// Records why a road was not taken.
    pub fn note(&mut self, note: Reason) {
        self.notes.push(note);
    }

    /// Asks to be woken at an instant; past ones are ignored.
    pub fn wake(&mut self, at: Timestamp) {
        if at > self.now {
            self.wake_at = earliest(self.wake_at, Some(at));
        }
    }

    /// Judges every claim and counts the reasons; the claims' own instants wake the next pass.
    fn assess_claims(&mut self, governing: &GoverningPolicy) -> Vec<Eligibility> {
        let mut eligibilities = Vec::with_capacity(self.world.claims.len());
        for claim in &self.world.claims {
            let candidate = claim.candidate(self.world.node_of(claim).map(|node| &**node));
            let eligibility = selection::assess(&governing.policy, &governing.cadence, &candidate, self.now);
            let reasons = selection::ineligible(&candidate, &eligibility);
            match reasons.as_slice() {
                [] => self.counts.eligible += 1,
                [Ineligible::InBackoff] => self.counts.in_backoff += 1,
                _ => {}
            }
            for reason in reasons {
                *self.counts.reasons.entry(reason).or_default() += 1;
            }
            if eligibility.short_lead {
                self.counts.short_lead.push(claim.meta.name.to_string());
            }
            [eligibility.due_at, eligibility.backoff_until].into_iter().flatten().for_each(|at| self.wake(at));
            eligibilities.push(eligibility);
        }
        eligibilities
    }

    /// The calendar's own instants: window edges and the end of a freeze.
    fn watch_calendar(&mut self, governing: &GoverningPolicy) {
        if let Some(edge) = governing.policy.schedule.next_edge(self.now) {
            self.wake(edge);
        }
        if let Freeze::Until(until) = self.world.pool.freeze() {
            self.wake(until);
        }
    }

    /// Why the pool is held, if it is (§5.4).
    pub fn hold(&self, policy: &Policy) -> Option<Reason> {
        match self.world.pool.freeze() {
            Freeze::Unreadable(text) => Some(Reason::FreezeUnreadable(text)),
            Freeze::Until(until) if until > self.now => Some(Reason::Frozen(until)),
            _ if policy.suspend => Some(Reason::Suspended),
            _ => None,
        }
    }

    /// The fatal findings, which stop starts in this pool (§6).
    pub fn fatal(&self, governing: &GoverningPolicy) -> Vec<Code> {
        feasibility::findings(&governing.policy, &governing.cadence, &self.world.facts(), [])
            .into_iter()
            .filter(|f| f.severity() == Severity::Fatal)
            .map(|f| f.code)
            .collect()
    }

    /// The start gates of step 4, a freeze aside: each that is shut is noted, and wakes the pass when it opens.
    pub fn start_gates(&mut self, policy: &Policy) -> bool {
        let mut open = true;
        if policy.schedule.open_at(self.now).is_none() {
            open = false;
            let opens = policy.schedule.next_opening(self.now).map(|o| o.open);
            self.note(Reason::WindowClosed { opens });
        }
        let pool = &self.world.pool;
        let paused = |key, pause| pool.last(key, self.now).map(|at| plus(at, pause)).filter(|until| *until > self.now);
        let cooldown = paused(noderotation_shared::keys::LAST_ROTATION_AT, policy.surge.cooldown_after);
        let failure = paused(noderotation_shared::keys::LAST_FAILURE_AT, policy.surge.failure_pause);
        if let Some(until) = cooldown {
            open = false;
            self.note(Reason::Cooldown { until });
            self.wake(until);
        }
        if let Some(until) = failure {
            open = false;
            self.note(Reason::FailurePause { until });
            self.wake(until);
        }
        open
    }

    /// Before the first destructive request of a pass: the claim's state must be confirmed by a landed write or a live
    /// read. `Some` is the read that is missing.
    pub fn confirm(&self, claim: &str) -> Option<Step> {
        let evidence = &self.world.evidence;
        (!evidence.claim_confirmed && !evidence.claim_gone).then(|| Step::Read(LiveRead::NodeClaim(claim.to_owned())))
    }

    /// Deletes the placeholder, if there is one that is not going already.
    pub fn drop_placeholder(&self, name: &'static str) -> Option<Step> {
        let placeholder = self.world.placeholder.as_ref().filter(|p| p.meta.deleted.is_none())?;
        Some(act(
            name,
            Write::DeletePlaceholder { name: placeholder.meta.name.to_string(), uid: placeholder.meta.uid.to_string() },
            Vec::new(),
        ))
    }

    /// Unfreezes the next node that still bears this rotation's annotations.
    pub fn unfreeze_next(&self, claim: &str) -> Option<Step> {
        self.world.frozen_for(claim).find_map(|node| {
            let patch = crate::cordon::unfreeze(node)?;
            let told = Announcement::Unfroze { node: node.meta.name.to_string() };
            Some(act("unfreeze", Write::Patch(patch), vec![told]))
        })
    }
}

impl World {
    /// What the findings need to know of the pool.
    pub fn facts(&self) -> PoolFacts {
        PoolFacts {
            expire_after: self.pool.expire_after,
            termination_grace_period: self.pool.termination_grace_period,
            claims: i64::try_from(self.claims.len()).unwrap_or(i64::MAX),
        }
    }

    /// The values of §2 for this pool under its governing policy.
    pub fn derived(&self, governing: &GoverningPolicy) -> Derived {
        feasibility::derive(&governing.policy, &governing.cadence, &self.facts())
    }
}

/// A step that does something.
pub(crate) fn act(name: &'static str, request: Write, announce: Vec<Announcement>) -> Step {
    Step::Do(Box::new(Act { name, request, announce }))
}

/// A patch of the pool's annotations.
pub(crate) fn pool_patch(
    world: &World,
    annotations: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Patch {
    Patch {
        kind: crate::step::ObjectKind::NodePool,
        name: world.pool.meta.name.to_string(),
        version: world.pool.meta.version.to_string(),
        annotations: annotations.into_iter().collect(),
        unschedulable: None,
    }
}

/// A patch of a claim's annotations.
pub(crate) fn claim_patch(
    claim: &NodeClaim,
    annotations: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Patch {
    Patch {
        kind: crate::step::ObjectKind::NodeClaim,
        name: claim.meta.name.to_string(),
        version: claim.meta.version.to_string(),
        annotations: annotations.into_iter().collect(),
        unschedulable: None,
    }
}

/// The anchor set, to be removed: only the keys that are there.
pub(crate) fn cleared_anchor(world: &World) -> Vec<(&'static str, Option<String>)> {
    noderotation_shared::keys::ANCHOR_SET
        .into_iter()
        .filter(|key| world.pool.meta.annotations.has(key))
        .map(|key| (key, None))
        .collect()
}
