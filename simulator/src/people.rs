//! What people and machines do at any moment: they freeze, suspend, request, cordon, annotate, delete; nodes die, drift,
//! turn NotReady; permissions and capacity go away.

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use noderotation_shared::instant::{self, plus};
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::selection::RotateRequest;

use crate::chance::Source;
use crate::cluster::{WorkPod, with};
use crate::event::Event;
use crate::karpenter;
use crate::run::Sim;

/// Values that nobody should write, and somebody does.
const NONSENSE: [&str; 9] = [
    "",
    "9000-01-01T00:00:00Z",
    "-1",
    "../x",
    "true",
    "pending",
    "draining",
    "1970-01-01T00:00:00Z",
    "2026-12-07T00:00:00.5+09:00",
];

/// What operators have made of a Node, by their last word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The value of their do-not-disrupt.
    pub do_not_disrupt: Option<String>,
    /// Whether they have cordoned it.
    pub is_cordoned: bool,
}

/// The API server refuses the controller's writes of a kind.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Of this kind.
    pub kind: Kind,
    /// Of this object alone; `None`: of all.
    pub name: Option<Box<str>>,
    /// Until then.
    pub until: Timestamp,
}

/// One thing that somebody does, drawn by seed; not in every case.
pub fn act(sim: &mut Sim) {
    let Some(mut rng) = sim.chance.take(Source::Person, 1) else { return };
    let rng = &mut rng;
    let claim = pick(rng, &sim.cluster.claims.names());
    let node = pick(rng, &sim.cluster.nodes.names());
    let pool = pick(rng, &sim.cluster.pools.names());
    let until = plus(sim.now, SignedDuration::from_mins(rng.i64(1..60)));
    match rng.u8(0..23) {
        0 => {
            freeze(sim, &pool, Some(&instant::format(until)));
            sim.after(until, Event::LetGo(Hold::Freeze(pool)));
        }
        1 => {
            suspend(sim, true);
            sim.after(until, Event::LetGo(Hold::Suspended));
        }
        2 | 3 => request(sim, &claim, pick_text(rng, &["now", "next-window", "cancel"]).unwrap_or("now")),
        4 => cordon(sim, &node, false),
        5 => {
            cordon(sim, &node, true);
            sim.after(until, Event::LetGo(Hold::Cordon(node)));
        }
        6 => {
            mark(sim, &node, pick_text(rng, &["true", "false", "2h"]));
            sim.after(until, Event::LetGo(Hold::Mark(node)));
        }
        7 => {
            sim.tell(|| format!("operator: kubectl delete nodeclaim {claim}"));
            karpenter::delete(sim, &claim);
        }
        8 => {
            sim.tell(|| format!("kubelet: Node {node} is not Ready"));
            sim.cluster.nodes.change(&node, |n| n.ready = false);
            sim.after(until, Event::NodeReady(node));
        }
        9 => sim.no_capacity_until = until,
        10 => sim.pdb_holds_until = until,
        11 => delete_a_placeholder(sim),
        12 => {
            sim.tell(|| format!("cloud: the instance of NodeClaim {claim} is gone"));
            karpenter::vanishes(sim, &claim);
        }
        13 => karpenter::drifts(sim, &claim),
        14 => refuse(sim, rng, until),
        15 => {
            tie(sim, true);
            sim.after(until, Event::LetGo(Hold::Tie));
        }
        16 => {
            policy_is_deleted(sim);
            sim.after(until, Event::LetGo(Hold::NoPolicy));
        }
        17 => pool_is_deleted(sim, rng, &pool, until),
        18 | 19 => protect_a_pod(sim, rng, until),
        20 => sim.cluster.forget_changes(),
        _ => {
            nonsense(sim, rng, &claim, &pool);
            sim.after(until, Event::LetGo(Hold::Freeze(pool)));
        }
    }
}

/// What somebody lets go in the end.
#[derive(Clone, Debug)]
pub enum Hold {
    /// The freeze of a NodePool.
    Freeze(Box<str>),
    /// `suspend: true`.
    Suspended,
    /// An operator's cordon.
    Cordon(Box<str>),
    /// An operator's do-not-disrupt.
    Mark(Box<str>),
    /// A Pod's do-not-disrupt.
    Pod(Box<str>),
    /// The second policy.
    Tie,
    /// The policy that was deleted.
    NoPolicy,
    /// The NodePool that was deleted.
    NoPool(Box<str>),
}

/// Somebody lets go.
pub fn let_go(sim: &mut Sim, hold: Hold) {
    match hold {
        Hold::Freeze(pool) => freeze(sim, &pool, None),
        Hold::Suspended => suspend(sim, false),
        Hold::Cordon(node) => cordon(sim, &node, false),
        Hold::Mark(node) => mark(sim, &node, None),
        Hold::Pod(pod) => {
            if let Some(pod) = sim.cluster.pods.get_mut(&pod) {
                pod.protected_since = None;
            }
        }
        Hold::Tie => tie(sim, false),
        Hold::NoPolicy => {
            sim.tell(|| "operator: applies the policy again".to_owned());
            sim.policy_returns();
        }
        Hold::NoPool(pool) => sim.found_pool(&pool),
    }
}

fn freeze(sim: &mut Sim, pool: &str, until: Option<&str>) {
    sim.tell(|| format!("operator: freezes NodePool {pool} until {until:?}"));
    sim.cluster.pools.change(pool, |p| p.meta.annotations = with(&p.meta.annotations, keys::FREEZE, until));
}

fn suspend(sim: &mut Sim, suspend: bool) {
    sim.tell(|| format!("operator: suspend: {suspend}"));
    sim.apply_policy(suspend);
}

fn request(sim: &mut Sim, claim: &str, word: &'static str) {
    sim.tell(|| format!("operator: rotate {word} on NodeClaim {claim}"));
    annotate(sim, claim, keys::ROTATE, word);
}

/// Annotates a claim. Until when it bore `rotate: now` is remembered: a view may be a little older.
fn annotate(sim: &mut Sim, claim: &str, key: &'static str, value: &str) {
    let had_now = sim.cluster.claims.get(claim).and_then(|c| c.request()) == Some(RotateRequest::Now);
    if key == keys::ROTATE && had_now {
        let now = sim.now;
        sim.asked_now_until.insert(claim.into(), now);
    }
    sim.cluster.claims.change(claim, |c| c.meta.annotations = with(&c.meta.annotations, key, Some(value)));
}

/// `kubectl cordon` and `uncordon`. A cordon over ours does nothing; an uncordon takes ours as well.
fn cordon(sim: &mut Sim, node: &str, is_cordoned: bool) {
    let Some(stored) = sim.cluster.nodes.get(node).cloned() else { return };
    if stored.unschedulable == is_cordoned {
        return;
    }
    sim.tell(|| format!("operator: {} Node {node}", if is_cordoned { "cordons" } else { "uncordons" }));
    // uncordoned while our marker stands: the next pass cordons again and lifts it in the end
    sim.operators.entry(stored.meta.uid.clone()).or_default().is_cordoned = is_cordoned;
    sim.cluster.nodes.change(node, |n| n.unschedulable = is_cordoned);
}

/// An operator's own do-not-disrupt. Whoever changes it while it is ours has it put back to what stood there before.
fn mark(sim: &mut Sim, node: &str, value: Option<&'static str>) {
    let Some(stored) = sim.cluster.nodes.get(node).cloned() else { return };
    if stored.meta.annotations.has(keys::DO_NOT_DISRUPT_OWNED) {
        return;
    }
    sim.tell(|| format!("operator: do-not-disrupt {value:?} on Node {node}"));
    let marks = sim.operators.entry(stored.meta.uid.clone()).or_default();
    marks.do_not_disrupt = value.map(str::to_owned);
    sim.cluster.nodes.change(node, |n| n.meta.annotations = with(&n.meta.annotations, keys::DO_NOT_DISRUPT, value));
}

fn delete_a_placeholder(sim: &mut Sim) {
    if let Some(victim) = sim.cluster.placeholders.names().first() {
        sim.tell(|| format!("operator: deletes placeholder {victim}"));
        sim.cluster.remove_placeholder(victim, sim.now);
    }
}

/// A Pod that nobody may evict; without a grace period the drain of its node would never end.
fn protect_a_pod(sim: &mut Sim, rng: &mut Rng, until: Timestamp) {
    let pod = pick(rng, &sim.cluster.pods.keys().cloned().collect::<Vec<_>>());
    let now = sim.now;
    sim.tell(|| format!("operator: do-not-disrupt on Pod {pod}"));
    if let Some(stored) = sim.cluster.pods.get_mut(&pod) {
        stored.protected_since = stored.protected_since.or(Some(now));
        sim.after(until, Event::LetGo(Hold::Pod(pod)));
    }
}

/// A permission is missing, or an admission webhook refuses: no write of this kind lands.
fn refuse(sim: &mut Sim, rng: &mut Rng, until: Timestamp) {
    let kinds = [Kind::NodePool, Kind::NodeClaim, Kind::Node, Kind::Pod];
    let kind = kinds.get(rng.usize(0..kinds.len())).copied().unwrap_or(Kind::Node);
    // a permission is missing for all of a kind, a webhook may refuse a single object
    let names = match kind {
        Kind::NodePool => sim.cluster.pools.names(),
        Kind::NodeClaim => sim.cluster.claims.names(),
        Kind::Node => sim.cluster.nodes.names(),
        _ => sim.cluster.placeholders.names(),
    };
    let name = Some(pick(rng, &names)).filter(|_| rng.bool());
    sim.tell(|| {
        let what = name.as_ref().map_or_else(|| format!("{kind}s"), |name| format!("{kind} {name}"));
        format!("somebody: the controller may not write {what} until {until:.0}")
    });
    sim.refusal = Some(Refusal { kind, name, until });
}

/// A second policy with the same selector: nobody governs.
fn tie(sim: &mut Sim, is_tied: bool) {
    sim.tell(|| {
        if is_tied {
            "operator: applies a second policy".into()
        } else {
            "operator: deletes the second policy".to_owned()
        }
    });
    sim.set_tie(is_tied);
}

fn policy_is_deleted(sim: &mut Sim) {
    sim.tell(|| "operator: deletes the policy".to_owned());
    sim.cluster.policies.remove("p");
}

/// A NodePool is deleted, and with it all its claims; GitOps brings it back. Rare, since it takes every node.
fn pool_is_deleted(sim: &mut Sim, rng: &mut Rng, pool: &str, until: Timestamp) {
    if rng.u8(0..8) > 0 {
        return;
    }
    sim.tell(|| format!("operator: deletes NodePool {pool}"));
    sim.cluster.pools.remove(pool);
    let claims: Vec<_> = sim.cluster.claims.iter().filter(|c| &*c.pool == pool).map(|c| c.meta.name.clone()).collect();
    for claim in claims {
        karpenter::delete(sim, &claim);
    }
    sim.after(until, Event::LetGo(Hold::NoPool(pool.into())));
}

/// Somebody with break-glass writes one of our annotations.
fn nonsense(sim: &mut Sim, rng: &mut Rng, claim: &str, pool: &str) {
    let value = NONSENSE.get(rng.usize(0..NONSENSE.len())).copied().unwrap_or_default();
    let of_claim = [keys::STARTED_AT, keys::FAILED_AT, keys::RETRY_COUNT, keys::SURGE_CLAIM, keys::ROTATE, keys::STATE];
    let of_pool = [
        keys::LAST_ROTATION_AT,
        keys::LAST_FAILURE_AT,
        keys::WINDOW_OPENED_AT,
        keys::FREEZE,
        keys::ACTIVE_ROTATION,
        keys::SURGE_WAIT,
    ];
    let i = rng.usize(0..of_claim.len() + of_pool.len());
    if let Some(key) = of_claim.get(i) {
        let is_deleting = sim.cluster.claims.get(claim).is_some_and(|claim| claim.meta.deleted.is_some());
        if *key == keys::STATE && is_deleting {
            return; // who says that a claim which we drain is pending says that somebody else has deleted it
        }
        sim.tell(|| format!("somebody: {key}={value:?} on NodeClaim {claim}"));
        annotate(sim, claim, key, value);
    } else if let Some(key) = of_pool.get(i - of_claim.len()) {
        let is_anchored = sim.cluster.pools.get(pool).is_some_and(|pool| pool.anchor().is_some());
        if *key == keys::SURGE_WAIT && !is_anchored {
            return; // it would stay until the next anchor, which takes it away
        }
        // some claim, perhaps of another pool, or not a name at all; one that never was would count as expired
        let anchor = if rng.bool() { claim } else { "../x" };
        let value = if *key == keys::ACTIVE_ROTATION { anchor } else { value };
        sim.tell(|| format!("somebody: {key}={value:?} on NodePool {pool}"));
        sim.cluster.pools.change(pool, |p| p.meta.annotations = with(&p.meta.annotations, key, Some(value)));
    }
}

/// A Node is cordoned just when a Deployment of its NodePool rolls out: a Pod comes, which the scheduler may place by what it knew.
pub fn rolls_out(sim: &mut Sim, node: &str) {
    let rarity = if sim.has_faults() { 6 } else { 0 };
    if sim.chance.take(Source::Person, rarity).is_none() {
        return;
    }
    let Some(pool) = sim.cluster.nodes.get(node).map(|node| node.pool.clone()) else { return };
    let elsewhere = |pod: &&mut WorkPod| pod.pool == pool && pod.node.as_deref().is_some_and(|other| other != node);
    if let Some(pod) = sim.cluster.pods.values_mut().find(elsewhere) {
        pod.node = None;
        sim.tell(|| format!("somebody: a Deployment of NodePool {pool} rolls out"));
        sim.look_for_work();
    }
}

fn pick(rng: &mut Rng, names: &[Box<str>]) -> Box<str> {
    let i = rng.usize(0..names.len().max(1));
    names.get(i).cloned().unwrap_or_else(|| "none".into())
}

fn pick_text(rng: &mut Rng, texts: &[&'static str]) -> Option<&'static str> {
    texts.get(rng.usize(0..texts.len().max(1))).copied()
}

/// Faults stop: what people hold is let go, so that the world can come to rest.
pub fn calm(sim: &mut Sim) {
    let now = sim.now;
    sim.no_capacity_until = now;
    sim.pdb_holds_until = now;
    sim.refusal = None;
    for pod in sim.cluster.pods.values_mut() {
        pod.protected_since = None;
    }
    for process in &mut sim.processes {
        process.cut_off_until = now;
        process.paused_until = now;
        process.skew = SignedDuration::ZERO;
    }
    for pool in sim.plan.pool_names() {
        sim.found_pool(pool);
        sim.cluster.pools.change(pool, |p| p.meta.annotations = with(&p.meta.annotations, keys::FREEZE, None));
    }
    tie(sim, false);
    suspend(sim, false);
    for node in sim.cluster.nodes.names() {
        sim.cluster.nodes.change(&node, |n| n.ready = true);
    }
}
