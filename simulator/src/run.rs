//! One history: the heap of events, the clock, and the loop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use noderotation_shared::instant::plus;
use noderotation_shared::objects::{NodePool, PolicyObject};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::invariants::Signals;
use crate::replica::{self, Replica, WATCHES};
use crate::story::Story;
use crate::{invariants, karpenter, people};

/// What a history is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One seed is one history.
    pub seed: u64,
    /// Whether anything goes wrong and people interfere.
    pub faults: bool,
    /// Nodes at the beginning.
    pub nodes: usize,
    /// How long it lasts before everything is let go.
    pub length: SignedDuration,
    /// How long nodes live.
    pub expire_after: SignedDuration,
    /// Whether the policy wants the forceful fallback.
    pub fallback: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 0,
            faults: true,
            nodes: 4,
            length: SignedDuration::from_hours(48),
            expire_after: SignedDuration::from_hours(12),
            fallback: false,
        }
    }
}

/// How a history ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The invariant that was violated, in a sentence.
    pub violation: Option<String>,
    /// The last lines of the history.
    pub story: Story,
    /// Rotations that were completed.
    pub completed: usize,
    /// Attempts that were rolled back.
    pub failed: usize,
    /// Nodes that Karpenter, or a person, took first.
    pub expired: usize,
    /// Passes.
    pub passes: usize,
    /// Writes that were sent.
    pub writes: usize,
    /// Crashes of the controller.
    pub crashes: usize,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A watch delivers its changes up to a place in the log.
    Watch(usize, usize),
    /// The next request of the pass that is under way.
    Step,
    /// A name of the queue is due.
    Wake,
    /// A controller process starts.
    Restart,
    /// The scheduler and Karpenter's provisioner look.
    Schedule,
    /// A launched node joins.
    Registers(Box<str>),
    /// Karpenter marks a Node initialized.
    Initialized(Box<str>),
    /// A launched node never came.
    LaunchFailed(Box<str>),
    /// A placeholder runs.
    PlaceholderRuns(Box<str>),
    /// Karpenter goes on draining a claim.
    Drains(Box<str>),
    /// Karpenter expires a claim.
    Expires(Box<str>),
    /// A Node is Ready again.
    NodeReady(Box<str>),
    /// Somebody does something.
    Person,
    /// Faults stop and the window closes.
    Calm,
}

/// A history under way.
pub struct Sim {
    /// What it is made of.
    pub plan: Plan,
    /// The clock.
    pub now: Timestamp,
    /// When it began.
    pub began: Timestamp,
    /// The one source of chance.
    pub rng: Rng,
    /// The API server.
    pub cluster: Cluster,
    /// The controller process, while one lives.
    pub replica: Option<Replica>,
    /// What happened.
    pub story: Story,
    /// What was announced.
    pub signals: Signals,
    /// The first violated invariant.
    pub violation: Option<String>,
    /// Until when Karpenter gets no capacity.
    pub no_capacity_until: Timestamp,
    /// Until when PodDisruptionBudgets allow nothing.
    pub pdb_holds_until: Timestamp,
    /// NodeClaims that were launched.
    pub launched: usize,
    /// When the controller wrote last.
    pub last_write: Timestamp,
    /// Passes so far.
    pub passes: usize,
    /// Writes so far.
    pub writes: usize,
    /// Crashes so far.
    pub crashes: usize,
    /// Notices so far.
    pub notices: usize,
    /// Whether faults have stopped.
    pub is_calm: bool,
    heap: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    sequence: u64,
    /// How much of the log the watches have been told of.
    seen_log: usize,
    schedules: bool,
    wakes: Option<Timestamp>,
    /// Until when each watch is busy, so that it never delivers out of order.
    watch_busy: BTreeMap<usize, Timestamp>,
}

/// After the calm everything has to have come to rest within this time.
pub const QUIET_AFTER: SignedDuration = SignedDuration::from_hours(4);

/// Runs one history. The same plan gives the same outcome.
pub fn simulate(plan: &Plan) -> Outcome {
    let began = Timestamp::from_second(1_796_576_400).unwrap_or(Timestamp::UNIX_EPOCH); // 2026-12-06T17:00:00Z
    let mut sim = Sim {
        plan: plan.clone(),
        now: began,
        began,
        rng: Rng::with_seed(plan.seed),
        cluster: Cluster::default(),
        replica: None,
        story: Story::default(),
        signals: Signals::default(),
        violation: None,
        no_capacity_until: began,
        pdb_holds_until: began,
        launched: 0,
        last_write: began,
        passes: 0,
        writes: 0,
        crashes: 0,
        notices: 0,
        is_calm: false,
        heap: BinaryHeap::new(),
        sequence: 0,
        seen_log: 0,
        schedules: false,
        wakes: None,
        watch_busy: BTreeMap::new(),
    };
    sim.found();
    sim.run();
    sim.outcome()
}

impl Sim {
    fn found(&mut self) {
        let meta = self.cluster.new_meta("api", self.now);
        self.cluster.put_pool(NodePool {
            meta,
            expire_after: Some(self.plan.expire_after),
            termination_grace_period: Some(SignedDuration::from_hours(1)),
            ..NodePool::default()
        });
        self.apply_policy(false);
        for i in 0..self.plan.nodes {
            let minutes = self.plan.expire_after.as_mins() / 2;
            let age = SignedDuration::from_mins(self.rng.i64(0..minutes.max(1)));
            karpenter::existing(self, &format!("old-{i}"), age);
        }
        self.after(self.now, Event::Restart);
        if self.plan.faults {
            self.after(plus(self.now, SignedDuration::from_mins(7)), Event::Person);
        }
        self.after(plus(self.now, self.plan.length), Event::Calm);
    }

    /// Writes the policy: always open until the calm, and closed for days from then on.
    pub fn apply_policy(&mut self, suspend: bool) {
        let meta = match self.cluster.policies.get("p") {
            Some(policy) => policy.meta.clone(),
            None => self.cluster.new_meta("p", self.now),
        };
        let generation = self.cluster.policies.get("p").and_then(|p| p.generation).unwrap_or(0) + 1;
        let spec = self.policy_spec(suspend);
        self.cluster.put_policy(PolicyObject::new(meta, Some(generation), &spec, Value::Null));
    }

    fn policy_spec(&self, suspend: bool) -> Value {
        let windows = if self.is_calm {
            // three days ahead, whatever day it is
            let day = plus(self.now, SignedDuration::from_hours(72)).strftime("%a").to_string();
            json!([{"timezone": "UTC", "days": [day], "start": "12:00", "end": "12:30"}])
        } else {
            json!([{"timezone": "UTC", "days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "start": "00:00", "end": "24:00"}])
        };
        json!({
            "nodePoolSelector": {},
            "suspend": suspend,
            "maintenanceWindows": windows,
            "surge": {"readyTimeout": "15m", "cooldownAfter": "1m", "retryBackoff": "15m", "forcefulFallback": {"enabled": self.plan.fallback}},
        })
    }

    /// Schedules an event.
    pub fn after(&mut self, at: Timestamp, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((at.max(self.now), self.sequence, event)));
    }

    /// Schedules the next look at the queue, unless one comes sooner.
    pub fn wake_at(&mut self, at: Timestamp) {
        if self.wakes.is_none_or(|wakes| at < wakes || wakes <= self.now) {
            self.wakes = Some(at);
            self.after(at, Event::Wake);
        }
    }

    /// Time since the beginning, for the queue.
    pub fn elapsed(&self) -> Duration {
        Duration::try_from(self.now.duration_since(self.began)).unwrap_or_default()
    }

    /// One request in so many goes wrong; 0: none does. Some histories are rough, some nearly smooth.
    pub fn rarity(&self) -> u32 {
        const RARITIES: [u32; 4] = [6, 15, 40, 200];
        let of_seed = usize::try_from(self.plan.seed % 4).unwrap_or(0);
        if self.plan.faults && !self.is_calm { RARITIES.get(of_seed).copied().unwrap_or(40) } else { 0 }
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, text: impl Into<String>) {
        let now = self.now;
        self.story.tell(now, text);
    }

    /// Reports the first violation.
    pub fn violated(&mut self, what: impl Into<String>) {
        if self.violation.is_none() {
            let what = what.into();
            self.tell(format!("VIOLATED: {what}"));
            self.violation = Some(what);
        }
    }

    fn run(&mut self) {
        let end = plus(plus(self.began, self.plan.length), QUIET_AFTER);
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            if at > end || self.violation.is_some() {
                break;
            }
            self.now = at;
            self.happens(event);
            invariants::always(self);
            self.feed_watches();
            self.look_for_work();
        }
        if self.violation.is_none() {
            self.now = end;
            invariants::at_rest(self);
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Watch(watch, until) => replica::deliver(self, watch, until),
            Event::Step => replica::step(self),
            Event::Wake => {
                self.wakes = None;
                replica::wake(self);
            }
            Event::Restart => {
                if self.replica.is_none() {
                    replica::start(self);
                }
            }
            Event::Schedule => {
                self.schedules = false;
                karpenter::schedule(self);
            }
            Event::Registers(claim) => karpenter::registers(self, &claim),
            Event::Initialized(node) => self.cluster.change_node(&node, |n| n.initialized = true),
            Event::LaunchFailed(claim) => {
                self.tell(format!("karpenter: NodeClaim {claim} never registered"));
                self.cluster.remove_claim(&claim);
            }
            Event::PlaceholderRuns(pod) => self.cluster.change_placeholder(&pod, |p| p.phase = "Running".into()),
            Event::Drains(claim) => karpenter::drain(self, &claim),
            Event::Expires(claim) => self.expires(&claim),
            Event::NodeReady(node) => self.cluster.change_node(&node, |n| n.ready = true),
            Event::Person => {
                people::act(self);
                if !self.is_calm {
                    let minutes = self.rng.i64(2..60);
                    self.after(plus(self.now, SignedDuration::from_mins(minutes)), Event::Person);
                }
            }
            Event::Calm => {
                self.tell("faults stop, the window closes");
                self.is_calm = true;
                people::calm(self);
            }
        }
    }

    fn expires(&mut self, claim: &str) {
        if self.cluster.claims.get(claim).is_some_and(|c| c.meta.deleted.is_none()) {
            self.tell(format!("karpenter: NodeClaim {claim} has expired"));
            let now = self.now;
            self.cluster.delete_claim(claim, now);
            self.after(now, Event::Drains(claim.into()));
            invariants::expired_by_karpenter(self, claim);
        }
    }

    /// What has been stored since reaches each watch later, in order.
    fn feed_watches(&mut self) {
        let until = self.cluster.log.len();
        if until == self.seen_log {
            return;
        }
        self.seen_log = until;
        for watch in 0..WATCHES {
            let slow = self.rarity() > 0 && self.rng.u8(0..50) == 0;
            let millis = if slow { self.rng.i64(1_000..60_000) } else { self.rng.i64(1..300) };
            let at = plus(self.now, SignedDuration::from_millis(millis));
            let at = self.watch_busy.get(&watch).copied().map_or(at, |busy| busy.max(at));
            self.watch_busy.insert(watch, at);
            self.after(at, Event::Watch(watch, until));
        }
    }

    /// While Pods are Pending somebody looks every few seconds.
    fn look_for_work(&mut self) {
        let is_pending = self.cluster.pods.values().any(|p| p.node.is_none())
            || self.cluster.placeholders.values().any(|p| p.node.is_empty() && p.meta.deleted.is_none());
        if is_pending && !self.schedules {
            self.schedules = true;
            let millis = self.rng.i64(1_000..6_000);
            self.after(plus(self.now, SignedDuration::from_millis(millis)), Event::Schedule);
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            violation: self.violation,
            story: self.story,
            completed: self.signals.completed.values().sum(),
            failed: self.signals.failed,
            expired: self.signals.expired.values().sum(),
            passes: self.passes,
            writes: self.writes,
            crashes: self.crashes,
        }
    }
}
