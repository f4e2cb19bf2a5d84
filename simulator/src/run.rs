//! One history: the heap of events, the clock, and the loop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::step::Write;
use noderotation_rotation::world::Settings;
use noderotation_shared::instant::plus;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{NodePool, PolicyObject};
use noderotation_shared::quantity::{Quantity, Resources};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::event::{Event, Scheduled};
use crate::facts::Facts;
use crate::invariants::{Invariant, Signals, Violation};
use crate::people::{Marks, Refusal};
use crate::plan::{Plan, Windows};
use crate::process::{self, Life, Process};
use crate::replica::{self, Leader};
use crate::scenario::Script;
use crate::story::Story;
use crate::{invariants, karpenter, people, server, watch};

/// How a history ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The invariant that was violated, and how.
    pub violation: Option<Violation>,
    /// The last lines of the history, where it was asked for.
    pub story: Story,
    /// The interventions that took place.
    pub interventions: Vec<u32>,
    /// Rotations that were completed.
    pub completed: usize,
    /// Those of Nodes on which nothing had to move.
    pub empty: usize,
    /// Attempts that were rolled back.
    pub failed: usize,
    /// Nodes that Karpenter, or a person, took first.
    pub expired: usize,
    /// Claims that Karpenter has expired, by NodePool.
    pub lost: BTreeMap<Box<str>, usize>,
    /// Passes.
    pub passes: usize,
    /// Writes that were sent.
    pub writes: usize,
    /// Deaths of controller processes, and losses of the lease.
    pub crashes: usize,
    /// Notices that were told.
    pub notices: usize,
}

/// A history under way.
pub struct Sim {
    /// What it is made of.
    pub plan: Plan,
    /// The clock.
    pub now: Timestamp,
    /// When it began.
    pub began: Timestamp,
    /// What goes wrong, and what people do.
    pub chance: Chance,
    /// The API server.
    pub cluster: Cluster,
    /// The controller processes.
    pub processes: Vec<Process>,
    /// What placeholders are made of.
    pub settings: Arc<Settings>,
    /// What happened.
    pub story: Story,
    /// What was announced.
    pub signals: Signals,
    /// The first violated invariant.
    pub violation: Option<Violation>,
    /// Until when Karpenter gets no capacity.
    pub no_capacity_until: Timestamp,
    /// Until when PodDisruptionBudgets allow nothing.
    pub pdb_holds_until: Timestamp,
    /// What the controller may not write.
    pub refusal: Option<Refusal>,
    /// What operators have made of Nodes, by UID.
    pub operators: BTreeMap<Box<str>, Marks>,
    /// Until when claims bore `rotate: now` that bear something else by now.
    pub asked_now_until: BTreeMap<Box<str>, Timestamp>,
    /// When a workload Pod was bound to a Node last, by the Node's name.
    pub scheduled: BTreeMap<Box<str>, Timestamp>,
    /// When the controller cordoned a Node last, by the Node's name.
    pub cordoned: BTreeMap<Box<str>, Timestamp>,
    /// The claim that Karpenter's newest Event names for a placeholder, by Pod name.
    pub nominated: BTreeMap<Box<str>, Box<str>>,
    /// NodeClaims that were launched.
    pub launched: usize,
    /// When the controller wrote last.
    pub last_write: Timestamp,
    /// Passes so far.
    pub passes: usize,
    /// Writes so far.
    pub writes: usize,
    /// Deaths of controller processes so far.
    pub crashes: usize,
    /// Notices so far.
    pub notices: usize,
    /// Whether faults have stopped.
    pub is_calm: bool,
    suspended_since: Option<Timestamp>,
    /// The `spec` of each policy as it was applied last.
    applied: BTreeMap<String, Value>,
    heap: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    seen_version: u64,
    schedules: bool,
    /// What the controller wrote, where it is recorded.
    pub(crate) facts: Facts,
    /// What a scenario has otherwise than a history.
    pub(crate) script: Script,
}

/// After the calm everything has to have come to rest within this time.
pub const QUIET_AFTER: SignedDuration = SignedDuration::from_hours(4);

/// 2027-03-27T17:00:00Z, a Saturday.
const BEGAN: i64 = 1_806_166_800;

/// Where [`Windows::Often`] is in the year 2027, clocks go forward at this second: 2027-03-28T01:00:00Z.
const CLOCK_CHANGE: i64 = 1_806_195_600;

/// Runs one history. The same plan gives the same outcome.
pub fn simulate(plan: &Plan) -> Outcome {
    run(plan, Story::default())
}

/// Runs one history and writes its last lines down.
pub fn tell(plan: &Plan) -> Outcome {
    run(plan, Story::told())
}

fn run(plan: &Plan, story: Story) -> Outcome {
    let mut sim = new(plan, story);
    sim.found();
    sim.run();
    sim.outcome()
}

/// A history that has not begun.
pub(crate) fn new(plan: &Plan, story: Story) -> Sim {
    let began = Timestamp::from_second(BEGAN).unwrap_or(Timestamp::UNIX_EPOCH);
    Sim {
        plan: plan.clone(),
        now: began,
        began,
        chance: Chance::new(plan.seed, plan.only.as_deref()),
        cluster: Cluster::default(),
        processes: Vec::new(),
        settings: Arc::new(Settings {
            namespace: "noderotation".into(),
            priority_class: "low".into(),
            image: "pause".into(),
            ..Settings::default()
        }),
        story,
        signals: Signals::default(),
        violation: None,
        no_capacity_until: began,
        pdb_holds_until: began,
        refusal: None,
        operators: BTreeMap::new(),
        asked_now_until: BTreeMap::new(),
        scheduled: BTreeMap::new(),
        cordoned: BTreeMap::new(),
        nominated: BTreeMap::new(),
        launched: 0,
        last_write: began,
        passes: 0,
        writes: 0,
        crashes: 0,
        notices: 0,
        is_calm: false,
        suspended_since: None,
        applied: BTreeMap::new(),
        heap: BinaryHeap::new(),
        sequence: 0,
        seen_version: 0,
        schedules: false,
        facts: Facts::default(),
        script: Script::default(),
    }
}

/// The beginning.
impl Sim {
    fn found(&mut self) {
        self.apply_policy(false);
        for pool in self.plan.pool_names() {
            self.found_pool(pool);
            for i in 0..self.plan.nodes {
                let minutes = self.plan.expire_after.as_mins() / 2;
                let age = SignedDuration::from_mins(self.rng((pool, i)).i64(0..minutes.max(1)));
                let pods = if self.rng((pool, i, "idle")).u8(0..5) == 0 { 0 } else { 3 };
                karpenter::existing(self, pool, &format!("old-{pool}-{i}"), age, pods);
            }
        }
        for index in 0..self.plan.replicas {
            let skew = if self.plan.faults { self.rng(index).i64(-20..=20) } else { 0 };
            self.processes.push(Process::new(index, self.now, SignedDuration::from_secs(skew)));
            let at = plus(self.now, SignedDuration::from_secs(self.rng(index).i64(0..30)));
            self.after(at, Event::Start(index));
            if self.plan.faults {
                self.after(plus(at, SignedDuration::from_mins(11)), Event::Suffers(index));
            }
        }
        if self.plan.faults {
            self.after(plus(self.now, SignedDuration::from_mins(7)), Event::Person);
        }
        self.after(plus(self.now, self.plan.length), Event::Calm);
    }

    /// Applies a NodePool, unless it is there.
    pub fn found_pool(&mut self, pool: &str) {
        if self.cluster.pools.get(pool).is_some() {
            return;
        }
        let room = if self.plan.has_room { 1_000 } else { i64::try_from(self.plan.nodes).unwrap_or(0) };
        let meta = self.cluster.new_meta(pool, self.now);
        self.cluster.pools.put(NodePool {
            meta,
            expire_after: Some(self.plan.expire_after),
            termination_grace_period: self.plan.grace_period,
            limits: Resources([("cpu".to_owned(), Quantity::whole(room * karpenter::NODE_CPU / 1_000))].into()),
            is_static: self.plan.is_static(pool),
            ..NodePool::default()
        });
    }

    /// Applies the policy: its window is closed for days once faults have stopped.
    pub fn apply_policy(&mut self, suspend: bool) {
        self.suspended_since = if suspend { self.suspended_since.or(Some(self.now)) } else { None };
        let spec = self.policy_spec(suspend);
        if self.cluster.policies.get("q").is_some() {
            self.put_policy("q", spec.clone());
        }
        self.put_policy("p", spec);
    }

    /// The policy that was deleted is applied as it was.
    pub fn policy_returns(&mut self) {
        self.apply_policy(self.suspended_since.is_some());
    }

    /// A second policy with the same selector ties with the first, or is gone.
    pub fn set_tie(&mut self, is_tied: bool) {
        if is_tied {
            let spec = self.policy_spec(self.suspended_since.is_some());
            self.put_policy("q", spec);
        } else {
            self.cluster.policies.remove("q");
        }
    }

    fn put_policy(&mut self, name: &str, spec: Value) {
        let (meta, generation) = match self.cluster.policies.get(name) {
            Some(_) if self.applied.get(name) == Some(&spec) => return,
            Some(policy) => (policy.meta.clone(), policy.generation.unwrap_or(0) + 1),
            None => (self.cluster.new_meta(name, self.now), 1),
        };
        self.cluster.policies.put(PolicyObject::new(meta, Some(generation), &spec, Value::Null));
        self.applied.insert(name.to_owned(), spec);
    }

    fn policy_spec(&self, suspend: bool) -> Value {
        let every_day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let entry = |timezone: &str, start: &str, end: &str| json!({"timezone": timezone, "days": every_day, "start": start, "end": end});
        let windows = match self.plan.windows {
            _ if self.is_calm => {
                // three days ahead, whatever day it is
                let day = plus(self.now, SignedDuration::from_hours(72)).strftime("%a").to_string();
                vec![json!({"timezone": "UTC", "days": [day], "start": "12:00", "end": "12:30"})]
            }
            Windows::Always => vec![entry("UTC", "00:00", "24:00")],
            Windows::Often => [("00:00", "02:00"), ("06:00", "08:00"), ("12:00", "14:00"), ("18:00", "20:00")]
                .map(|(start, end)| entry("Europe/Berlin", start, end))
                .to_vec(),
        };
        let mut spec = json!({
            "nodePoolSelector": {},
            "suspend": suspend,
            "maintenanceWindows": windows,
            "surge": {"readyTimeout": "15m", "cooldownAfter": "1m", "retryBackoff": "15m", "forcefulFallback": {"enabled": self.plan.fallback}},
        });
        spec.as_object_mut().into_iter().for_each(|spec| spec.extend(self.script.policy.clone()));
        spec
    }
}

/// What the parts ask.
impl Sim {
    /// Schedules an event.
    pub fn after(&mut self, at: Timestamp, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse(Scheduled { at: at.max(self.now), sequence: self.sequence, event }));
    }

    /// How long something takes: drawn from the seed, this instant, and what it is. So what is left out of a history
    /// does not change how long the rest takes.
    pub fn rng(&self, what: impl Hash) -> Rng {
        let mut hasher = DefaultHasher::new();
        (self.plan.seed, self.now.as_nanosecond(), what).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    /// Time since the beginning, as every monotonic clock has it.
    pub fn elapsed(&self) -> Duration {
        Duration::try_from(self.now.duration_since(self.began)).unwrap_or_default()
    }

    /// What the clock of a process says.
    pub fn wall(&self, process: usize) -> Timestamp {
        self.processes.get(process).map_or(self.now, |process| plus(self.now, process.skew))
    }

    /// Whether a process reaches the API server.
    pub fn reaches(&self, process: usize) -> bool {
        self.processes.get(process).is_some_and(|process| self.now >= process.cut_off_until)
    }

    /// What a life of a process leads with; `None` where it does not, or is over.
    pub fn leader(&mut self, life: Life) -> Option<&mut Leader> {
        process::leader_of(&mut self.processes, life)
    }

    /// Whether faults happen at all, now.
    pub fn has_faults(&self) -> bool {
        self.plan.faults && !self.is_calm
    }

    /// One request in so many goes wrong; 0: none does. Some histories are rough, some nearly smooth.
    pub fn rarity(&self) -> u32 {
        const RARITIES: [u32; 4] = [8, 25, 60, 250];
        let of_seed = usize::try_from(self.plan.seed % 4).unwrap_or(0);
        if self.has_faults() { RARITIES.get(of_seed).copied().unwrap_or(40) } else { 0 }
    }

    /// Whether the API server lets nobody perform this write.
    pub fn refuses(&self, write: &Write) -> bool {
        let (kind, name) = write.target();
        let is_refused = |refused: &Refusal| {
            refused.kind == kind && self.now < refused.until && refused.name.as_deref().is_none_or(|only| only == name)
        };
        self.refusal.as_ref().is_some_and(is_refused)
            || (kind == Kind::NodePool && self.plan.refused_pool.as_deref() == Some(name))
    }

    /// Whether the policy has been suspended since this instant, or longer.
    pub fn is_suspended_since(&self, at: Timestamp) -> bool {
        self.suspended_since.is_some_and(|since| since <= at)
    }

    /// Whether [`Windows::Often`] is open at this instant; reckoned by hand from the one clock change.
    pub fn is_open(&self, at: Timestamp) -> bool {
        let offset = if at.as_second() < CLOCK_CHANGE { 3_600 } else { 7_200 };
        (at.as_second() + offset).rem_euclid(6 * 3_600) < 2 * 3_600
    }

    /// Whether a workload Pod was bound to this Node since.
    pub fn scheduled_since(&self, node: &str, since: Timestamp) -> bool {
        self.scheduled.get(node).is_some_and(|at| *at >= since)
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        self.story.tell(self.now, text);
    }

    /// Reports the first violation.
    pub fn violated(&mut self, invariant: Invariant, what: impl Into<String>) {
        if self.violation.is_none() {
            let what = what.into();
            self.tell(|| format!("VIOLATED: {invariant}: {what}"));
            self.violation = Some((invariant, what));
        }
    }
}

/// The loop.
impl Sim {
    fn run(&mut self) {
        let end = plus(plus(self.began, self.plan.length), QUIET_AFTER);
        self.run_until(end);
        if self.violation.is_none() {
            self.now = end;
            invariants::at_rest(self);
        }
    }

    /// Lets everything happen that happens up to this instant, unless an invariant is violated.
    pub(crate) fn run_until(&mut self, end: Timestamp) {
        while let Some(Reverse(Scheduled { at, event, .. })) = self.heap.pop() {
            if at > end || self.violation.is_some() {
                break;
            }
            self.now = at;
            if let Some(until) = event.needs().and_then(|process| process::stands_still(self, process)) {
                self.after(until, event);
                continue;
            }
            let was_scheduled = matches!(event, Event::Schedule);
            self.happens(event);
            let has_changed = self.cluster.version() != self.seen_version;
            if has_changed {
                self.seen_version = self.cluster.version();
                invariants::always(self);
                watch::feed(self);
            }
            if has_changed || was_scheduled {
                self.look_for_work();
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Start(index) => process::start(self, index),
            Event::Lease(life) => process::lease(self, life),
            Event::Open(life, watched) => watch::open(self, life, watched),
            Event::Deliver(life, watched, until) => watch::deliver(self, life, watched, until),
            Event::Closed(life, watched) => watch::closed(self, life, watched),
            Event::Bookmark(life, watched) => watch::bookmark(self, life, watched),
            Event::Wake(life) => replica::wake(self, life),
            Event::Step(life, job) => replica::step(self, life, job),
            Event::Answered(life, job, response) => replica::answered(self, life, job, *response),
            Event::Arrives(request) => server::arrives(self, *request),
            Event::Schedule => {
                self.schedules = false;
                karpenter::schedule(self);
            }
            Event::Registers(claim) => karpenter::registers(self, &claim),
            Event::Initialized(node) => karpenter::initialized(self, &node),
            Event::Ready(claim) => self.cluster.claims.change(&claim, |c| c.ready = true),
            Event::LaunchFailed(claim) => {
                self.tell(|| format!("karpenter: NodeClaim {claim} never registered"));
                karpenter::delete(self, &claim);
            }
            Event::PlaceholderRuns(pod) => self.cluster.placeholders.change(&pod, |p| p.phase = "Running".into()),
            Event::Replaces(node) => karpenter::replaces(self, &node),
            Event::Drains(claim) => karpenter::drain(self, &claim),
            Event::Deletes(claim) => karpenter::delete(self, &claim),
            Event::Consolidates(claim) => karpenter::consolidates(self, &claim),
            Event::Expires(claim) => karpenter::expires(self, &claim),
            Event::NodeReady(node) => self.cluster.nodes.change(&node, |n| n.ready = true),
            Event::Person if !self.is_calm => {
                people::act(self);
                let most = if self.rarity() < 30 { 60 } else { 400 };
                let minutes = self.rng("people").i64(2..most);
                self.after(plus(self.now, SignedDuration::from_mins(minutes)), Event::Person);
            }
            Event::Suffers(index) if !self.is_calm => {
                process::suffer(self, index);
                self.after(plus(self.now, SignedDuration::from_mins(17)), Event::Suffers(index));
            }
            Event::Person | Event::Suffers(_) => {}
            Event::LetGo(hold) => people::let_go(self, hold),
            Event::Calm => {
                self.tell(|| "faults stop, the window closes".to_owned());
                self.is_calm = true;
                people::calm(self);
            }
        }
    }

    /// While Pods are Pending somebody looks every few seconds.
    pub(crate) fn look_for_work(&mut self) {
        let is_pending = !self.schedules
            && (self.cluster.pods.values().any(|p| p.node.is_none())
                || self.cluster.placeholders.iter().any(|p| p.node.is_empty() && p.meta.deleted.is_none()));
        if is_pending {
            self.schedules = true;
            let millis = self.rng("scheduler").i64(1_000..6_000);
            self.after(plus(self.now, SignedDuration::from_millis(millis)), Event::Schedule);
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            violation: self.violation,
            story: self.story,
            interventions: self.chance.taken,
            completed: self.signals.completed.values().sum(),
            empty: self.signals.empty,
            failed: self.signals.failed,
            expired: self.signals.expired.values().sum(),
            lost: self.signals.lost,
            passes: self.passes,
            writes: self.writes,
            crashes: self.crashes,
            notices: self.notices,
        }
    }
}
