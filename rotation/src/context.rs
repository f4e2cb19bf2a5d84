//! What the parts of one decision share: the world, the time, and what they have to say beside a step.

use jiff::Timestamp;
use noderotation_shared::instant::earliest;
use noderotation_shared::objects::Freeze;
use noderotation_shared::selection::{self, Eligibility, Ineligible};

use crate::announcement::ClaimId;
use crate::cordon;
use crate::patch::act;
use crate::reason::{EligibilityCounts, Reason};
use crate::step::{Announcement, LiveRead, Step, Write};
use crate::world::{GoverningPolicy, World};

/// One decision in the making.
pub(crate) struct Context<'a> {
    pub world: &'a World,
    pub now: Timestamp,
    /// Why each road was not taken, in the order in which the roads were tried.
    pub reasons: Vec<Reason>,
    pub counts: EligibilityCounts,
    pub wake_at: Option<Timestamp>,
}

impl<'a> Context<'a> {
    pub fn new(world: &'a World, now: Timestamp) -> Self {
        Self { world, now, reasons: Vec::new(), counts: EligibilityCounts::default(), wake_at: None }
    }

    /// Records why a road was not taken.
    pub fn because(&mut self, reason: Reason) {
        self.reasons.push(reason);
    }

    /// Asks for a decision at this instant. An instant that has passed is ignored.
    pub fn wake(&mut self, at: Timestamp) {
        if at > self.now {
            self.wake_at = earliest(self.wake_at, Some(at));
        }
    }

    /// Assesses every claim and counts the reasons; the instants at which a claim's answer changes wake the next pass.
    pub fn assess_claims(&mut self, governing: &GoverningPolicy) -> Vec<Eligibility> {
        let mut all = Vec::with_capacity(self.world.claims.len());
        for claim in &self.world.claims {
            let candidate = claim.candidate(self.world.node_of(claim).map(|node| &**node), self.now);
            let eligibility = selection::assess(&governing.policy, &governing.cadence, &candidate, self.now);
            let failing = selection::ineligible(&candidate, &eligibility);
            match failing.as_slice() {
                [] => self.counts.eligible += 1,
                [Ineligible::InBackoff] => self.counts.in_backoff += 1,
                _ => {}
            }
            let is_unmet =
                candidate.request.is_some() && !failing.is_empty() && !failing.contains(&Ineligible::InFlight);
            if is_unmet {
                let why = failing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", and ");
                self.because(Reason::RequestNotMet { claim: ClaimId::of(claim), why });
            }
            for reason in failing {
                *self.counts.ineligible.entry(reason).or_default() += 1;
            }
            if eligibility.short_lead {
                self.counts.short_lead.push(claim.meta.name.to_string());
            }
            [eligibility.due_at, eligibility.backoff_until].into_iter().flatten().for_each(|at| self.wake(at));
            all.push(eligibility);
        }
        all
    }

    /// The calendar's own instants wake the next pass: the window's edges and the end of a freeze.
    pub fn wake_at_calendar_edges(&mut self, governing: &GoverningPolicy) {
        if let Some(edge) = governing.policy.schedule.next_edge(self.now) {
            self.wake(edge);
        }
        if let Freeze::Until(until) = self.world.pool.freeze() {
            self.wake(until);
        }
    }

    /// Before the first destructive request of a pass the claim's state must be confirmed by a landed write or a live
    /// read (§8). `Some` is the read that is missing.
    pub fn confirm(&self, claim: &str) -> Option<Step> {
        (!self.world.is_confirmed(claim)).then(|| Step::Read(LiveRead::NodeClaim(claim.to_owned())))
    }

    /// Deletes the placeholder of this claim, unless there is none or it is terminating already.
    pub fn delete_placeholder(&self, step: &'static str, claim: &str) -> Option<Step> {
        let placeholder = self.world.placeholder_of(claim).filter(|p| p.meta.deleted.is_none())?;
        let (name, uid) = (placeholder.meta.name.to_string(), placeholder.meta.uid.to_string());
        Some(act(step, Write::DeletePlaceholder { name, uid }, Vec::new()))
    }

    /// The same, once the claim's state is confirmed.
    pub fn withdraw_placeholder(&self, step: &'static str, claim: &str) -> Option<Step> {
        let delete = self.delete_placeholder(step, claim)?;
        Some(self.confirm(claim).unwrap_or(delete))
    }

    /// Removes the protection of the next Node that still bears the markers of this claim's rotation.
    pub fn unprotect_next(&self, claim: &str) -> Option<Step> {
        self.world.protected_for(claim).find_map(|node| {
            let patch = cordon::unprotect(node)?;
            let unprotected = Announcement::Unprotected { node: node.meta.name.to_string() };
            Some(act("unprotect", Write::Patch(patch), vec![unprotected]))
        })
    }
}
