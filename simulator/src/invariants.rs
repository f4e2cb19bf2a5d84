//! What must always hold, each with a name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::pass::PassResult;
use noderotation_rotation::step::{Act, Write};
use noderotation_shared::instant::plus;
use noderotation_shared::keys;
use noderotation_shared::objects::{Freeze, Node, NodeClaim, NodePool, SurgePath};
use noderotation_shared::selection::{RotateRequest, RotationState};

use crate::cluster::Cluster;
use crate::karpenter::takes_pods;
use crate::plan::Windows;
use crate::process::Role;
use crate::run::{QUIET_AFTER, Sim};
use crate::server::Request;

/// The invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// At most one claim of a NodePool is in flight, also one that only drains any more.
    Serial,
    /// Nothing starts against a gate.
    Gate,
    /// No drain begins before its replacement was Ready, the fallback apart.
    Surge,
    /// Nothing is taken back that is old or in use.
    Reap,
    /// Each signal is told at most once; exactly once where nothing went wrong.
    Once,
    /// A signal tells only of what happened.
    Phantom,
    /// Where nothing goes wrong no node is lost to its expiry.
    Guarantee,
    /// A pass without a fault does not fail, and requests do not come without pause.
    Bounded,
    /// A wake-up lies ahead, and a change is looked at at once.
    Wake,
    /// At most one process may write at a time, by the lease.
    Leader,
    /// Once faults have stopped nothing of ours is left anywhere.
    Rest,
    /// An unchanged world is not written.
    Quiet,
    /// What operators have set on Nodes is as it was.
    Operators,
    /// A NodePool that cannot be written delays no other.
    Isolation,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A violated invariant.
pub type Violation = (Invariant, String);

/// What was announced and done, by claim.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// `Completed` by claim.
    pub completed: BTreeMap<String, usize>,
    /// `Completed` of Nodes on which nothing had to move.
    pub empty: usize,
    /// `Expired` by claim.
    pub expired: BTreeMap<String, usize>,
    /// `DrainStarted` by claim.
    pub drains: BTreeMap<String, usize>,
    /// `AttemptFailed`.
    pub failed: usize,
    /// Claims that the controller has deleted as old ones.
    pub deleted: BTreeMap<Box<str>, Timestamp>,
    /// Claims that Karpenter has expired, by NodePool.
    pub lost: BTreeMap<Box<str>, usize>,
    /// When a fit host was last there for a claim.
    fit_host: BTreeMap<Box<str>, Timestamp>,
    /// Requests of each process in the current minute.
    requests: BTreeMap<usize, (i64, u32)>,
}

/// How long after a host was last seen fit a drain may be asked for: the time of a few requests, and of a host that turned
/// unfit just then.
const FIT_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// A crossing that is older than this has to be judged again (§8).
const CROSSING_HOLDS: SignedDuration = SignedDuration::from_mins(5);

/// More requests in one minute come from a loop without a pause: three NodePools with four workers need far fewer.
const REQUESTS_PER_MINUTE: u32 = 900;

/// How long a change may wait for the pass before it, which sends a few requests, where nothing goes wrong.
const PROMPTLY: SignedDuration = SignedDuration::from_secs(30);

/// How long a change of a policy may stay unseen: a view this old starts nothing.
const UNSEEN: SignedDuration = SignedDuration::from_mins(6);

/// After every event that has changed something.
pub fn always(sim: &mut Sim) {
    let anchored = sim.cluster.pools.iter().filter_map(|pool| pool.anchor().map(Box::<str>::from));
    let fit: Vec<_> = anchored
        .filter(|anchor| sim.cluster.claims.get(anchor).is_some_and(|claim| has_fit_host(&sim.cluster, claim)))
        .collect();
    let now = sim.now;
    sim.signals.fit_host.extend(fit.into_iter().map(|claim| (claim, now)));
    one_leader(sim);
}

/// Another Node of the pool, Ready and schedulable, that is protected for this claim or bears its placeholder.
fn has_fit_host(cluster: &Cluster, claim: &NodeClaim) -> bool {
    let bears_placeholder = |node: &Node| {
        let mut placeholders = cluster.placeholders_on(&node.meta.name);
        placeholders.any(|p| p.claim() == &*claim.meta.name && &*p.phase == "Running")
    };
    cluster.nodes.iter().any(|node| {
        node.meta.name != claim.node
            && node.pool == claim.pool
            && node.initialized
            && takes_pods(node)
            && (node.meta.annotations.get(keys::SURGE_FOR) == Some(&claim.meta.name) || bears_placeholder(node))
    })
}

fn one_leader(sim: &mut Sim) {
    let elapsed = sim.elapsed();
    let may_write = |role: &Role| matches!(role, Role::Leads(leader) if elapsed < leader.held.until());
    if sim.processes.iter().filter(|process| may_write(&process.role)).count() > 1 {
        sim.violated(Invariant::Leader, "two processes may write at once");
    }
}

/// A process sends a request.
pub fn sends(sim: &mut Sim, process: usize) {
    let minute = sim.now.as_second() / 60;
    let (counted, requests) = sim.signals.requests.entry(process).or_default();
    if *counted != minute {
        (*counted, *requests) = (minute, 0);
    }
    *requests += 1;
    if *requests > REQUESTS_PER_MINUTE {
        sim.violated(
            Invariant::Bounded,
            format!("controller-{process} sends more than {REQUESTS_PER_MINUTE} requests a minute"),
        );
    }
}

/// A write arrives. What would be wrong if it landed?
pub fn judge(sim: &Sim, request: &Request, act: &Act) -> Option<Violation> {
    match (act.name, &act.write) {
        ("anchor", Write::Patch(patch)) => starts(sim, request, act, &patch.name),
        ("delete-claim", Write::DeleteClaim { name, version, .. }) => drains(sim, request, name, version.as_deref()),
        ("reap", Write::DeleteClaim { name, .. }) => reaps(sim, request, name),
        _ => None,
    }
}

/// A write has landed.
pub fn landed(sim: &mut Sim, act: &Act) {
    match (act.name, &act.write) {
        ("delete-claim", Write::DeleteClaim { name, .. }) => {
            sim.signals.deleted.entry(name.as_str().into()).or_insert(sim.now);
        }
        (step, Write::Patch(patch)) if ENDS_ATTEMPT.contains(&step) => attempt_ended(sim, step, &patch.name),
        _ => {}
    }
}

/// The steps whose write of the claim ends an attempt (§7, §8).
const ENDS_ATTEMPT: [&str; 4] = ["failed", "expired-claim", "lost-claim", "sweep-claim"];

/// The attempt's own annotations go with it, and so does the request that it has answered; an orphan's has no answer yet.
fn attempt_ended(sim: &mut Sim, step: &str, name: &str) {
    let Some(claim) = sim.cluster.claims.get(name) else { return };
    let request = (step != "sweep-claim").then_some(keys::ROTATE);
    let gone = [keys::STARTED_AT, keys::SURGE_CLAIM].into_iter().chain(request);
    let left: Vec<_> = gone.filter(|key| claim.meta.annotations.has(key)).collect();
    if !left.is_empty() {
        sim.violated(Invariant::Rest, format!("step {step} left {} on NodeClaim {name}", left.join(", ")));
    }
}

/// Claims from before the history; no surge claim is one.
fn is_old(claim: &str) -> bool {
    claim.starts_with("old-")
}

/// No start against any gate that is closed for this claim.
fn starts(sim: &Sim, request: &Request, act: &Act, pool_name: &str) -> Option<Violation> {
    let pool = sim.cluster.pools.get(pool_name)?;
    let name = act.announce.iter().find_map(|told| match told {
        Announcement::CandidateSelected { claim, .. } => Some(claim.name.as_str()),
        _ => None,
    })?;
    let claim = sim.cluster.claims.get(name);
    // one that is gone by now may have had a request, and one that has another may have been seen with it
    let was_requested_now = sim.asked_now_until.get(name).is_some_and(|until| plus(*until, UNSEEN) >= request.sent);
    let is_requested_now = was_requested_now || claim.is_none_or(|claim| claim.request() == Some(RotateRequest::Now));
    if let Some(other) = in_flight(sim, pool) {
        return Some((Invariant::Serial, format!("NodeClaim {name} was started while NodeClaim {other} is in flight")));
    }
    if let Some(claim) = claim.filter(|claim| goes_without_a_surge_too_early(act, claim, request.wall)) {
        let name = &claim.meta.name;
        return Some((Invariant::Surge, format!("NodeClaim {name} goes without a surge, with time for one")));
    }
    let closed = if is_frozen(pool, request.wall) {
        "under a freeze"
    } else if pool.is_static {
        "in a static NodePool"
    } else if pool.meta.deleted.is_some() {
        "in a NodePool that is being deleted"
    } else if claim.is_some_and(|claim| would_never_drain(sim, claim, request.sent)) {
        "although its drain would never end"
    } else if sim.is_suspended_since(plus(request.sent, -UNSEEN)) {
        "while its policy was suspended"
    } else if is_requested_now {
        return None;
    } else if within(pool, keys::LAST_ROTATION_AT, request.wall, SignedDuration::from_mins(1)) {
        "during the cooldown"
    } else if within(pool, keys::LAST_FAILURE_AT, request.wall, SignedDuration::from_mins(10)) {
        "during the pause after a failure"
    } else if sim.plan.windows == Windows::Often && !sim.is_open(request.wall) {
        "outside of the window"
    } else {
        return None;
    };
    Some((Invariant::Gate, format!("NodeClaim {name} was started {closed}")))
}

/// The forceful fallback is for claims whose deadline leaves no time for `readyTimeout`, the grace period and two minutes.
fn goes_without_a_surge_too_early(act: &Act, claim: &NodeClaim, now: Timestamp) -> bool {
    let grace_period = claim.termination_grace_period.unwrap_or(SignedDuration::from_hours(1));
    let surge_ends = plus(plus(now, SignedDuration::from_mins(15 + 2)), grace_period);
    act.announce
        .iter()
        .any(|told| matches!(told, Announcement::ForcefulFallback { deadline, .. } if surge_ends <= *deadline))
}

/// A claim of this pool that is anchored, or that we have deleted and that still drains.
fn in_flight(sim: &Sim, pool: &NodePool) -> Option<Box<str>> {
    pool.anchor().map(Box::from).or_else(|| draining(sim, &pool.meta.name).next().map(|c| c.meta.name.clone()))
}

/// The claims of a pool that we have deleted and that still drain.
fn draining<'a>(sim: &'a Sim, pool: &'a str) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    sim.cluster.claims.iter().filter(move |c| *c.pool == *pool && sim.signals.deleted.contains_key(&c.meta.name))
}

/// Without a grace period, a Pod that may not be evicted and has been there for a while.
fn would_never_drain(sim: &Sim, claim: &NodeClaim, sent: Timestamp) -> bool {
    let before = plus(sent, SignedDuration::from_secs(-60));
    let is_unbounded = claim.termination_grace_period.is_none() && !sim.scheduled_since(&claim.node, before);
    is_unbounded && sim.cluster.protected_pod(&claim.node).is_some_and(|(_, since)| since < before)
}

fn is_frozen(pool: &NodePool, now: Timestamp) -> bool {
    match pool.freeze() {
        Freeze::None => false,
        Freeze::Until(until) => until > now,
        Freeze::Unreadable(_) => true,
    }
}

fn within(pool: &NodePool, key: &str, now: Timestamp, pause: SignedDuration) -> bool {
    pool.meta.annotations.instant(key, now).is_some_and(|from| plus(from, pause) > now)
}

/// No drain before its surge was ready, the fallback apart; never two claims of a pool.
fn drains(sim: &Sim, request: &Request, name: &str, version: Option<&str>) -> Option<Violation> {
    let claim = sim.cluster.claims.get(name)?;
    // the version that the decision saw bears the operator's word
    if claim.is_called_off() && claim.meta.deleted.is_none() && version == Some(&*claim.meta.version) {
        return Some((Invariant::Gate, format!("NodeClaim {name} was deleted although its rotation was called off")));
    }
    if let Some(other) = draining(sim, &claim.pool).find(|c| *c.meta.name != *name) {
        let what = format!("NodeClaim {name} was deleted while NodeClaim {} still drains", other.meta.name);
        return Some((Invariant::Serial, what));
    }
    let pool = sim.cluster.pools.get(&claim.pool);
    if claim.meta.deleted.is_some() || pool.is_some_and(|pool| pool.is_fallback()) {
        return None;
    }
    let crossed = pool.and_then(|pool| pool.meta.annotations.instant(keys::DRAINING_AT, request.wall));
    if crossed.is_some_and(|at| plus(at, CROSSING_HOLDS) < request.wall) {
        return Some((Invariant::Surge, format!("NodeClaim {name} was deleted long after its surge was judged")));
    }
    if pool.is_some_and(|pool| pool.goes_empty()) {
        return drains_in_use(sim, request, claim);
    }
    // also where somebody has overwritten the anchor meanwhile
    let was_fit = has_fit_host(&sim.cluster, claim)
        || sim.signals.fit_host.get(name).is_some_and(|at| plus(*at, FIT_WITHIN) >= request.sent);
    (!was_fit).then(|| (Invariant::Surge, format!("NodeClaim {name} was deleted without a replacement that is Ready")))
}

/// An empty Node goes without a replacement, and no other does. A Pod that came while the requests were under way, onto a Node that
/// somebody had uncordoned, could not be seen.
fn drains_in_use(sim: &Sim, request: &Request, claim: &NodeClaim) -> Option<Violation> {
    let is_used = sim.cluster.pods_on(&claim.node).next().is_some();
    let came_late = sim.scheduled_since(&claim.node, plus(request.sent, -FIT_WITHIN));
    let what = || format!("NodeClaim {} was deleted as empty although Pods run on its Node", claim.meta.name);
    (is_used && !came_late).then(|| (Invariant::Surge, what()))
}

/// The scheduler binds a Pod to a Node that it does not know yet to be cordoned. Its drain must not have begun.
pub fn bound_past_the_cordon(sim: &mut Sim, node: &str) {
    let goes_empty = |pool: &str| sim.cluster.pools.get(pool).is_some_and(|pool| pool.goes_empty());
    let is_gone = |claim: &&Arc<NodeClaim>| {
        *claim.node == *node && sim.signals.deleted.contains_key(&claim.meta.name) && goes_empty(&claim.pool)
    };
    let gone = sim.cluster.claims.iter().find(is_gone).map(|claim| claim.meta.name.clone());
    if let Some(name) = gone {
        let what = format!("NodeClaim {name} was deleted as empty before the scheduler knew of its cordon");
        sim.violated(Invariant::Surge, what);
    }
}

/// Nothing is taken back that is old or in use. A Pod that came while the request was under way could not be seen.
fn reaps(sim: &Sim, request: &Request, name: &str) -> Option<Violation> {
    let claim = sim.cluster.claims.get(name)?;
    let is_busy = sim.cluster.used_cpu(&claim.node) > 0;
    let was_quick = sim.now.duration_since(request.sent) < SignedDuration::from_secs(1);
    let came_late = sim.scheduled_since(&claim.node, plus(request.sent, SignedDuration::from_secs(-1)));
    (is_old(name) || (is_busy && was_quick && !came_late))
        .then(|| (Invariant::Reap, format!("NodeClaim {name} was taken back although it is old or has Pods of others")))
}

/// An announcement: at most once, and only for what happened.
pub fn announced(sim: &mut Sim, announcement: &Announcement) {
    let mut violation = None;
    let mut count = |by_claim: &mut BTreeMap<String, usize>, claim: &str, word: &str| {
        let n = by_claim.entry(claim.to_owned()).or_default();
        *n += 1;
        if *n > 1 {
            violation = Some((Invariant::Once, format!("{word} was told {n} times of NodeClaim {claim}")));
        }
    };
    match announcement {
        Announcement::Completed { claim, surge_path, .. } => {
            sim.signals.empty += usize::from(*surge_path == Some(SurgePath::Empty));
            count(&mut sim.signals.completed, &claim.name, "completed");
            if sim.cluster.claims.get(&claim.name).is_some() {
                violation = Some((Invariant::Phantom, format!("NodeClaim {claim} was declared rotated and exists")));
            }
        }
        Announcement::Expired { claim, .. } => {
            count(&mut sim.signals.expired, &claim.name, "expired");
            if sim.cluster.claims.get(&claim.name).is_some_and(|c| c.meta.deleted.is_none()) {
                violation = Some((Invariant::Phantom, format!("NodeClaim {claim} was declared expired and lives")));
            }
        }
        Announcement::DrainStarted { claim, .. } => count(&mut sim.signals.drains, &claim.name, "drain started"),
        Announcement::AttemptFailed { .. } => sim.signals.failed += 1,
        _ => {}
    }
    if let Some((invariant, what)) = violation {
        sim.violated(invariant, what);
    }
}

/// A pass has ended.
pub fn pass_ended(sim: &mut Sim, wall: Timestamp, result: PassResult, wake_at: Option<Timestamp>) {
    if result == PassResult::Failed && !sim.plan.faults && sim.plan.refused_pool.is_none() {
        sim.violated(Invariant::Bounded, "a pass failed although nothing went wrong");
    }
    if wake_at.is_some_and(|at| at <= wall) {
        sim.violated(Invariant::Wake, "a wake-up that does not lie ahead");
    }
}

/// A pass begins over a pool that was triggered at `since`. Where nothing goes wrong it only waits for the pass before it.
pub fn looked_at(sim: &mut Sim, pool: &str, since: Timestamp) {
    let is_late = sim.now.duration_since(since) > PROMPTLY;
    if is_late && !sim.plan.faults && sim.plan.refused_pool.is_none() {
        sim.violated(
            Invariant::Wake,
            format!("a change in NodePool {pool} waited longer than {PROMPTLY:#} to be looked at"),
        );
    }
}

/// Without faults no node is lost to Karpenter's expiry.
pub fn expired_by_karpenter(sim: &mut Sim, claim: &NodeClaim) {
    *sim.signals.lost.entry(claim.pool.clone()).or_default() += 1;
    let is_refused = sim.plan.refused_pool.as_deref() == Some(&*claim.pool);
    let may_expire = is_refused || sim.plan.is_static(&claim.pool);
    if sim.plan.faults || sim.is_calm || may_expire || !sim.plan.has_room {
        return;
    }
    let name = &claim.meta.name;
    let invariant = if sim.plan.refused_pool.is_some() { Invariant::Isolation } else { Invariant::Guarantee };
    sim.violated(invariant, format!("NodeClaim {name} expired although nothing went wrong"));
}

/// After the calm: nothing of ours is left anywhere, and nothing is written any more.
pub fn at_rest(sim: &mut Sim) {
    let left = left_behind(sim);
    if !left.is_empty() {
        sim.violated(Invariant::Rest, format!("left behind: {}", left.join(", ")));
    }
    if sim.now.duration_since(sim.last_write) < QUIET_AFTER / 8 {
        sim.violated(Invariant::Quiet, "the controller still writes to an unchanged world");
    }
    let changed = operators_marks(sim);
    if !changed.is_empty() {
        sim.violated(Invariant::Operators, changed.join(", "));
    }
    if !sim.plan.faults {
        exactly_once(sim);
    }
}

fn left_behind(sim: &Sim) -> Vec<String> {
    let mut left = Vec::new();
    for pool in sim.cluster.pools.iter().filter(|pool| sim.plan.refused_pool.as_deref() != Some(&*pool.meta.name)) {
        let set = keys::ANCHOR_SET.into_iter().chain([keys::WINDOW_OPENED_AT]);
        let here = set.filter(|key| pool.meta.annotations.has(key));
        left.extend(here.map(|key| format!("{key} on NodePool {}", pool.meta.name)));
    }
    left.extend(sim.cluster.placeholders.iter().map(|p| format!("placeholder {}", p.meta.name)));
    for node in sim.cluster.nodes.iter() {
        let ours = [keys::SURGE_FOR, keys::DO_NOT_DISRUPT_OWNED, keys::CORDONED];
        let here = ours.into_iter().filter(|key| node.meta.annotations.has(key));
        left.extend(here.map(|key| format!("{key} on Node {}", node.meta.name)));
    }
    for claim in sim.cluster.claims.iter() {
        let state = claim.state(false);
        let is_refused = sim.plan.refused_pool.as_deref() == Some(&*claim.pool);
        if claim.is_called_off() && claim.meta.deleted.is_none() && !is_refused {
            left.push(format!("rotate: cancel on NodeClaim {}", claim.meta.name));
        }
        if matches!(state, RotationState::Pending | RotationState::Draining) {
            left.push(format!("state {:?} on NodeClaim {}", state.word(), claim.meta.name));
        }
    }
    left
}

/// Each Node's cordon and do-not-disrupt are what operators have made of them.
fn operators_marks(sim: &Sim) -> Vec<String> {
    let mut changed = Vec::new();
    for node in sim.cluster.nodes.iter() {
        let marks = sim.operators.get(&node.meta.uid).cloned().unwrap_or_default();
        let found = node.meta.annotations.get(keys::DO_NOT_DISRUPT);
        if found != marks.do_not_disrupt.as_deref() {
            let text = format!(
                "do-not-disrupt on Node {} is {found:?}, operators wrote {:?}",
                node.meta.name, marks.do_not_disrupt
            );
            changed.push(text);
        }
        if node.unschedulable != marks.is_cordoned {
            let is = if node.unschedulable { "is" } else { "is not" };
            changed.push(format!("Node {} {is} cordoned, against what operators did last", node.meta.name));
        }
    }
    changed
}

/// Where nothing went wrong each claim that we deleted was declared rotated once, and its drain as well.
fn exactly_once(sim: &mut Sim) {
    let told = |by_claim: &BTreeMap<String, usize>, claim: &str| by_claim.get(claim).copied().unwrap_or(0);
    let signals = &sim.signals;
    let wrong = signals.drains.keys().find(|claim| told(&signals.completed, claim) != 1).cloned();
    if let Some(claim) = wrong {
        sim.violated(Invariant::Once, format!("the rotation of NodeClaim {claim} was not declared complete"));
    }
}
