//! Controller processes: they start, stand by, lead, stand still, and die.
//!
//! When a candidate may take the lease and when a leader is none any more is `noderotation_rotation::lease`'s.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::lease::{Attempt, Candidacy, HeldLease, Renewal, Timing};
use noderotation_shared::instant::plus;

use crate::chance::Source;
use crate::event::Event;
use crate::replica::{self, Leader};
use crate::run::Sim;
use crate::watch;

/// Leader election here, slower than the product's own so that two days are not made of renewals.
pub const TIMING: Timing = Timing {
    duration: Duration::from_secs(45),
    renew_deadline: Duration::from_secs(30),
    retry_period: Duration::from_secs(10),
};

/// Which process, and which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The process's place among the replicas.
    pub process: usize,
    /// Counts its starts.
    pub number: u32,
}

/// A controller process.
pub struct Process {
    /// Its current life.
    pub life: Life,
    /// What it is doing.
    pub role: Role,
    /// How far its wall clock is off.
    pub skew: SignedDuration,
    /// Until when it stands still.
    pub paused_until: Timestamp,
    /// Since when it has not been able to do what it had to.
    pub stood_still_since: Option<Timestamp>,
    /// Until when no packet passes between it and the API server.
    pub cut_off_until: Timestamp,
}

/// What a process is doing.
pub enum Role {
    /// It has died and is started again later.
    Down,
    /// It waits for the lease.
    StandsBy(Candidacy),
    /// It leads, or believes so.
    Leads(Box<Leader>),
}

impl Process {
    /// A process that was not started yet.
    pub fn new(process: usize, began: Timestamp, skew: SignedDuration) -> Self {
        Self {
            life: Life { process, number: 0 },
            role: Role::Down,
            skew,
            paused_until: began,
            stood_still_since: None,
            cut_off_until: began,
        }
    }

    /// What it leads with; `None` while it does not lead.
    pub fn leader(&mut self) -> Option<&mut Leader> {
        if let Role::Leads(leader) = &mut self.role { Some(leader) } else { None }
    }

    /// The holder identity of this life.
    fn identity(&self) -> String {
        format!("controller-{}_{}", self.life.process, self.life.number)
    }
}

/// What a life of a process leads with; `None` where it does not, or is over.
pub fn leader_of(processes: &mut [Process], life: Life) -> Option<&mut Leader> {
    processes.get_mut(life.process).filter(|process| process.life == life)?.leader()
}

/// A process starts.
pub fn start(sim: &mut Sim, index: usize) {
    let Some(process) = sim.processes.get_mut(index).filter(|p| matches!(p.role, Role::Down)) else { return };
    process.life.number += 1;
    process.role = Role::StandsBy(Candidacy::new(TIMING));
    let life = process.life;
    sim.tell(|| format!("controller-{index}: starts"));
    sim.after(sim.now, Event::Lease(life));
}

/// Until when a process that is to do something stands still; `None`: it can.
pub fn stands_still(sim: &mut Sim, index: usize) -> Option<Timestamp> {
    let now = sim.now;
    let process = sim.processes.get_mut(index)?;
    if process.paused_until > now {
        process.stood_still_since = process.stood_still_since.or(Some(now));
        return Some(process.paused_until);
    }
    if let Some(since) = process.stood_still_since.take() {
        watch::resumes(sim, index, since);
    }
    None
}

/// A process dies and is started again, as a kubelet does it.
pub fn die(sim: &mut Sim, index: usize, why: &str) {
    let Some(process) = sim.processes.get_mut(index) else { return };
    process.role = Role::Down;
    sim.crashes += 1;
    sim.tell(|| format!("controller-{index}: {why}"));
    let at = plus(sim.now, SignedDuration::from_secs(sim.rng(index).i64(1..90)));
    sim.after(at, Event::Start(index));
}

/// The election's turn: a candidate attempts, a leader renews.
pub fn lease(sim: &mut Sim, life: Life) {
    let index = life.process;
    let (elapsed, is_reachable) = (sim.elapsed(), sim.reaches(index));
    let Some(process) = sim.processes.get_mut(index).filter(|p| p.life == life) else { return };
    let identity = process.identity();
    let stored = sim.cluster.lease.clone();
    match &mut process.role {
        Role::Down => return,
        Role::StandsBy(candidacy) => {
            let mut is_won = false;
            if is_reachable {
                candidacy.read(stored, elapsed);
                is_won = match candidacy.attempt(elapsed) {
                    Attempt::Create => sim.cluster.put_lease(&identity, TIMING.duration, None).is_ok(),
                    Attempt::Take(version) => sim.cluster.put_lease(&identity, TIMING.duration, Some(&version)).is_ok(),
                    Attempt::Wait(_) => false,
                };
            }
            if is_won {
                process.role = Role::Leads(Box::new(Leader::new(HeldLease::new(TIMING, elapsed))));
                sim.tell(|| format!("controller-{index}: leads"));
                replica::begin(sim, index);
            }
        }
        Role::Leads(leader) => {
            let renewal = match stored {
                _ if !is_reachable => Renewal::Failed,
                None => Renewal::Failed,
                Some(lease) if lease.holder != identity => Renewal::Taken(lease.holder),
                Some(lease) => {
                    let put = sim.cluster.put_lease(&identity, TIMING.duration, Some(&lease.version));
                    put.map_or(Renewal::Failed, |()| Renewal::Renewed)
                }
            };
            if let Err(why) = leader.held.answered(renewal, elapsed, elapsed) {
                return die(sim, index, &why.to_string());
            }
        }
    }
    let millis = i64::try_from(TIMING.retry_period.as_millis()).unwrap_or(i64::MAX);
    let at = plus(sim.now, SignedDuration::from_millis(sim.rng(index).i64(millis * 9 / 10..millis * 11 / 10)));
    sim.after(at, Event::Lease(life));
}

/// Something befalls a process as a whole: it stands still, its clock jumps, its network is cut.
pub fn suffer(sim: &mut Sim, index: usize) {
    let rarity = if sim.has_faults() { 12 } else { 0 };
    let Some(mut rng) = sim.chance.take(Source::Process, rarity) else { return };
    let until = plus(sim.now, SignedDuration::from_secs(rng.i64(20..900)));
    let Some(process) = sim.processes.get_mut(index) else { return };
    match rng.u8(0..4) {
        0 => {
            process.paused_until = until;
            sim.tell(|| format!("controller-{index}: stands still until {until:.0}"));
        }
        1 => {
            process.skew = SignedDuration::from_secs(rng.i64(-600..=600));
            let skew = process.skew;
            sim.tell(|| format!("controller-{index}: its clock is {skew:#} off"));
        }
        _ => {
            process.cut_off_until = until;
            sim.tell(|| format!("controller-{index}: no connection to the API server until {until:.0}"));
            replica::cut_off(sim, index, until);
        }
    }
}
