//! What people and machines do at any moment: they freeze, suspend, request, uncordon, annotate, delete; nodes die.

use jiff::SignedDuration;
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys;

use crate::cluster::with;
use crate::run::{Event, Sim};

/// Values that nobody should write, and somebody does.
const NONSENSE: [&str; 8] =
    ["", "9000-01-01T00:00:00Z", "-1", "../x", "true", "pending", "draining", "1970-01-01T00:00:00Z"];

/// One thing that somebody does, drawn by seed.
pub fn act(sim: &mut Sim) {
    let claims: Vec<Box<str>> = sim.cluster.claims.keys().cloned().collect();
    let nodes: Vec<Box<str>> = sim.cluster.nodes.keys().cloned().collect();
    let claim = pick(sim, &claims);
    let node = pick(sim, &nodes);
    let minutes = sim.rng.i64(1..60);
    match sim.rng.u8(0..12) {
        0 => {
            let until = instant::format(plus(sim.now, SignedDuration::from_mins(minutes)));
            sim.tell(format!("operator: freezes the pool until {until}"));
            sim.cluster.change_pool("api", |p| {
                p.meta.annotations = with(&p.meta.annotations, keys::FREEZE, Some(&until));
            });
        }
        1 => sim.cluster.change_pool("api", |p| p.meta.annotations = with(&p.meta.annotations, keys::FREEZE, None)),
        2 => suspend(sim, true),
        3 => suspend(sim, false),
        4 => {
            let word = if sim.rng.bool() { "now" } else { "next-window" };
            sim.tell(format!("operator: rotate {word} on {claim}"));
            sim.cluster
                .change_claim(&claim, |c| c.meta.annotations = with(&c.meta.annotations, keys::ROTATE, Some(word)));
        }
        5 => {
            sim.tell(format!("operator: uncordons {node}"));
            sim.cluster.change_node(&node, |n| n.unschedulable = false);
        }
        6 => {
            sim.tell(format!("operator: kubectl delete nodeclaim {claim}"));
            let now = sim.now;
            sim.cluster.delete_claim(&claim, now);
            sim.after(now, Event::Drains(claim));
        }
        7 => {
            sim.tell(format!("kubelet: {node} is not Ready"));
            sim.cluster.change_node(&node, |n| n.ready = false);
            let at = plus(sim.now, SignedDuration::from_mins(minutes));
            sim.after(at, Event::NodeReady(node));
        }
        8 => sim.no_capacity_until = plus(sim.now, SignedDuration::from_mins(minutes)),
        9 => sim.pdb_holds_until = plus(sim.now, SignedDuration::from_mins(minutes)),
        10 => {
            let victims: Vec<Box<str>> = sim.cluster.placeholders.keys().cloned().collect();
            if let Some(victim) = victims.first() {
                sim.tell(format!("operator: deletes placeholder {victim}"));
                sim.cluster.remove_placeholder(victim);
            }
        }
        _ => nonsense(sim, &claim),
    }
}

/// Somebody with break-glass writes one of our annotations.
fn nonsense(sim: &mut Sim, claim: &str) {
    let value = NONSENSE.get(sim.rng.usize(0..NONSENSE.len())).copied().unwrap_or_default();
    let of_claim = [keys::STARTED_AT, keys::FAILED_AT, keys::RETRY_COUNT, keys::SURGE_CLAIM, keys::ROTATE];
    let of_pool = [keys::LAST_ROTATION_AT, keys::LAST_FAILURE_AT, keys::WINDOW_OPENED_AT, keys::FREEZE];
    let i = sim.rng.usize(0..of_claim.len() + of_pool.len());
    if let Some(key) = of_claim.get(i) {
        sim.tell(format!("somebody: {key}={value:?} on {claim}"));
        sim.cluster.change_claim(claim, |c| c.meta.annotations = with(&c.meta.annotations, key, Some(value)));
    } else if let Some(key) = of_pool.get(i - of_claim.len()) {
        sim.tell(format!("somebody: {key}={value:?} on the pool"));
        sim.cluster.change_pool("api", |p| p.meta.annotations = with(&p.meta.annotations, key, Some(value)));
    }
}

fn suspend(sim: &mut Sim, suspend: bool) {
    sim.tell(format!("operator: suspend: {suspend}"));
    sim.apply_policy(suspend);
}

fn pick(sim: &mut Sim, names: &[Box<str>]) -> Box<str> {
    if names.is_empty() {
        return "none".into();
    }
    names.get(sim.rng.usize(0..names.len())).cloned().unwrap_or_default()
}

/// Faults stop: what people hold is let go, so that the world can come to rest.
pub fn calm(sim: &mut Sim) {
    sim.no_capacity_until = sim.now;
    sim.pdb_holds_until = sim.now;
    sim.cluster.change_pool("api", |p| p.meta.annotations = with(&p.meta.annotations, keys::FREEZE, None));
    suspend(sim, false);
    let unready: Vec<_> = sim.cluster.nodes.values().filter(|n| !n.ready).map(|n| n.meta.name.clone()).collect();
    for node in unready {
        sim.cluster.change_node(&node, |n| n.ready = true);
    }
}
