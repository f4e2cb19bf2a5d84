//! One decision about one NodePool (§8): the order of its parts.

use jiff::Timestamp;
use noderotation_shared::selection::Eligibility;

use crate::context::Context;
use crate::reason::{EligibilityCounts, Reason};
use crate::step::Step;
use crate::world::{GoverningPolicy, World};
use crate::{advance, called_off, governance_lost, malformed_annotations, start, window_edge};

/// What was decided.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The next step; `None` when there is nothing to do now.
    pub step: Option<Step>,
    /// A reason for every road not taken.
    pub reasons: Vec<Reason>,
    /// The next instant at which time alone could change the decision; always later than `now`. `None`: no such instant.
    pub wake_at: Option<Timestamp>,
    /// How many claims are eligible, and why the others are not. Empty where no policy governs.
    pub counts: EligibilityCounts,
    /// What time says of each of the world's claims, in their order. Empty where no policy governs.
    pub eligibilities: Vec<Eligibility>,
}

/// Decides the next step for a NodePool. Total: no input panics. Pure: the same input gives the same answer.
pub fn decide(world: &World, now: Timestamp) -> Decision {
    let mut ctx = Context::new(world, now);
    let (step, eligibilities) = match &world.governance {
        Err(ungoverned) => (governance_lost::step(&mut ctx, ungoverned), Vec::new()),
        Ok(governing) => {
            malformed_annotations::report(&mut ctx);
            let eligibilities = ctx.assess_claims(governing);
            (governed(&mut ctx, governing, &eligibilities), eligibilities)
        }
    };
    Decision { step, reasons: ctx.reasons, wake_at: ctx.wake_at, counts: ctx.counts, eligibilities }
}

fn governed(ctx: &mut Context<'_>, governing: &GoverningPolicy, eligibilities: &[Eligibility]) -> Option<Step> {
    ctx.wake_at_calendar_edges(governing);
    if let Some(step) = window_edge::step(ctx, governing) {
        return Some(step);
    }
    if let Some(step) = malformed_annotations::clear_anchor(ctx) {
        return Some(step);
    }
    if let Some(step) = called_off::step(ctx) {
        return Some(step);
    }
    match ctx.world.pool.anchor() {
        Some(name) => advance::step(ctx, governing, name),
        None => start::step(ctx, governing, eligibilities),
    }
}
