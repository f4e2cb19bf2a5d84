//! One controller process: caches fed by delayed watches, queue, passes, event dedup. All its logic is
//! `noderotation_rotation`'s; this performs the requests on the cluster in memory.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::Pass;
use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::caches::{CacheOf, Caches, Triggers};
use noderotation_rotation::event_dedup::{EventDedup, notices};
use noderotation_rotation::orphans::{Inventory, orphans};
use noderotation_rotation::pass::{Answer, ApiObject, Next, PassEnd, PassResult, Written};
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::{Act, LiveRead, Write};
use noderotation_rotation::work_queue::{End, WorkQueue};
use noderotation_rotation::world::{Reapable, Settings};
use noderotation_shared::instant::plus;
use noderotation_shared::keys;
use noderotation_shared::quantity::{Quantity, Resources};

use crate::cluster::{Change, Refused, with};
use crate::faults::{self, Fault};
use crate::invariants;
use crate::run::{Event, Sim};

/// The safety net between two passes.
const SAFETY_NET: SignedDuration = SignedDuration::from_secs(300);

/// The kinds that are watched, each by a watch of its own.
pub const WATCHES: usize = 5;

/// A controller process.
#[derive(Default)]
pub struct Replica {
    caches: Caches,
    queue: WorkQueue,
    dedup: EventDedup,
    /// How much of the log each watch has delivered.
    delivered: [usize; WATCHES],
    running: Option<(Arc<str>, Box<Pass>)>,
}

impl Replica {
    /// Whether a pass is under way.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }
}

/// Placeholders of the simulated release.
pub fn settings() -> Arc<Settings> {
    Arc::new(Settings { namespace: "noderotation".into(), priority_class: "low".into(), image: "pause".into() })
}

/// A process starts: complete lists, then the sweep, then every pool.
pub fn start(sim: &mut Sim) {
    let mut replica = Replica { delivered: [sim.cluster.log.len(); WATCHES], ..Replica::default() };
    fn list<K: Clone>(caches: &mut Caches, objects: &BTreeMap<Box<str>, K>, uid: impl Fn(&K) -> Box<str>)
    where
        Caches: CacheOf<K>,
    {
        for object in objects.values() {
            caches.apply(object.clone());
        }
        let uids: HashSet<Box<str>> = objects.values().map(uid).collect();
        CacheOf::<K>::init_done(caches, &uids);
    }
    list(&mut replica.caches, &sim.cluster.policies, |o| o.meta.uid.clone());
    list(&mut replica.caches, &sim.cluster.pools, |o| o.meta.uid.clone());
    list(&mut replica.caches, &sim.cluster.claims, |o| o.meta.uid.clone());
    list(&mut replica.caches, &sim.cluster.nodes, |o| o.meta.uid.clone());
    list(&mut replica.caches, &sim.cluster.placeholders, |o| o.meta.uid.clone());
    let names = replica.caches.pool_names();
    let inventory = Inventory::of_all(&replica.caches);
    sim.replica = Some(replica);
    sim.tell("controller: starts");
    clean_up(sim, &inventory);
    trigger(sim, &names);
}

/// A watch delivers what has happened up to this place in the log.
pub fn deliver(sim: &mut Sim, watch: usize, until: usize) {
    let Some(replica) = sim.replica.as_mut() else { return };
    let Some(delivered) = replica.delivered.get_mut(watch) else { return };
    let from = std::mem::replace(delivered, (*delivered).max(until));
    let mut triggers = Triggers::new();
    for change in sim.cluster.log.get(from..until).unwrap_or_default() {
        let caches = &mut replica.caches;
        triggers.extend(match (watch, change) {
            (0, Change::Pool(object, gone)) => tell(caches, object, *gone),
            (1, Change::Claim(object, gone)) => tell(caches, object, *gone),
            (2, Change::Node(object, gone)) => tell(caches, object, *gone),
            (3, Change::Placeholder(object, gone)) => tell(caches, object, *gone),
            (4, Change::Policy(object, gone)) => tell(caches, object, *gone),
            _ => continue,
        });
    }
    trigger(sim, &triggers);
}

fn tell<K: Clone>(caches: &mut Caches, object: &K, is_gone: bool) -> Triggers
where
    Caches: CacheOf<K>,
{
    if is_gone { caches.delete(object) } else { caches.apply(object.clone()) }
}

fn trigger(sim: &mut Sim, pools: &Triggers) {
    trigger_only(sim, pools);
    wake(sim);
}

/// Begins the next pass that is due, or asks to be woken when one is.
pub fn wake(sim: &mut Sim) {
    let (elapsed, now) = (sim.elapsed(), sim.now);
    let Some(replica) = sim.replica.as_mut().filter(|replica| !replica.is_busy()) else { return };
    match replica.queue.take(elapsed) {
        Ok(work) => match replica.caches.world(&settings(), &work.key, false, now) {
            Some(world) => {
                replica.running = Some((work.key, Box::new(Pass::new(world))));
                sim.passes += 1;
                step(sim);
            }
            None => {
                replica.queue.forget(&work.key, elapsed);
                replica.dedup.forget(&work.key);
                wake(sim);
            }
        },
        Err(Some(at)) => {
            let at = plus(sim.began, SignedDuration::try_from(at).unwrap_or(SignedDuration::MAX));
            sim.wake_at(at);
        }
        Err(None) => {}
    }
}

/// Performs the next request of the pass that is under way.
pub fn step(sim: &mut Sim) {
    let Some((key, mut pass)) = sim.replica.as_mut().and_then(|replica| replica.running.take()) else { return };
    match pass.next(sim.now) {
        Next::Done(end) => return ended(sim, &key, *end),
        Next::Read(read) => match draw(sim) {
            Fault::CrashBefore | Fault::CrashAfter => return crash(sim),
            Fault::Lost | Fault::LostAnswer | Fault::Throttled => pass.failed(),
            Fault::None | Fault::Overtaken => {
                let answer = answer(sim, &read);
                cache_answer(sim, &read, &answer);
                pass.answered(&read, answer);
            }
        },
        Next::Write(act) => match perform(sim, &act) {
            Some(written) => {
                for announcement in pass.written(written) {
                    announced(sim, &announcement);
                }
            }
            None => return crash(sim),
        },
    }
    if let Some(replica) = sim.replica.as_mut() {
        replica.running = Some((key, pass));
    }
    let at = plus(sim.now, SignedDuration::from_millis(sim.rng.i64(2..60)));
    sim.after(at, Event::Step);
}

/// What happens to the next request.
fn draw(sim: &mut Sim) -> Fault {
    let rarity = sim.rarity();
    faults::draw(&mut sim.rng, rarity)
}

/// Sends one write; `None`: the process died.
fn perform(sim: &mut Sim, act: &Act) -> Option<Written> {
    let fault = draw(sim);
    match fault {
        Fault::CrashBefore => return None,
        Fault::Lost => return Some(Written::Unknown),
        Fault::Throttled => return Some(Written::Failed),
        Fault::Overtaken => overtake(sim, act),
        Fault::None | Fault::CrashAfter | Fault::LostAnswer => {}
    }
    let before = sim.cluster.clone();
    let (now, write) = (sim.now, &act.write);
    let result = sim.cluster.write(write, now);
    let (kind, name) = write.target();
    let word = match &result {
        Ok(_) => "applied",
        Err(Refused::Conflict) => "conflict",
        Err(Refused::NotFound) => "not found",
    };
    sim.tell(format!(
        "controller: {} {kind} {name}: {word} {}",
        act.name,
        if fault == Fault::None { String::new() } else { format!("({fault:?})") }
    ));
    sim.writes += 1;
    if result.is_ok() {
        sim.last_write = sim.now;
        invariants::landed(sim, &before, act);
        if let Write::DeleteClaim { name, .. } = write {
            let at = plus(sim.now, SignedDuration::from_millis(500));
            sim.after(at, Event::Drains(name.as_str().into()));
        }
    }
    match (fault, result) {
        (Fault::CrashAfter, _) => None,
        (Fault::LostAnswer, _) => Some(Written::Unknown),
        (_, Ok(object)) => {
            cache_written(sim, write, object.as_ref());
            Some(Written::Applied(object.map(Box::new)))
        }
        (_, Err(Refused::Conflict)) => Some(Written::Conflict),
        (_, Err(Refused::NotFound)) => Some(Written::NotFound),
    }
}

/// Somebody else writes the same object just before.
fn overtake(sim: &mut Sim, act: &Act) {
    let (_, name) = act.write.target();
    let name: Box<str> = name.into();
    if sim.cluster.pools.contains_key(&name) {
        sim.cluster.change_pool(&name, |_| ());
    } else if sim.cluster.claims.contains_key(&name) {
        sim.cluster.change_claim(&name, |_| ());
    } else {
        sim.cluster.change_node(&name, |n| {
            n.meta.annotations = with(&n.meta.annotations, keys::BREAK_GLASS, None);
        });
    }
}

fn crash(sim: &mut Sim) {
    sim.tell("controller: dies");
    sim.replica = None;
    sim.crashes += 1;
    let at = plus(sim.now, SignedDuration::from_secs(sim.rng.i64(1..90)));
    sim.after(at, Event::Restart);
}

/// What the API server answers to a live read.
fn answer(sim: &Sim, read: &LiveRead) -> Answer {
    let cluster = &sim.cluster;
    match read {
        LiveRead::NodePool(name) => Answer::NodePool(cluster.pools.get(name.as_str()).cloned()),
        LiveRead::NodeClaim(name) => Answer::NodeClaim(cluster.claims.get(name.as_str()).cloned()),
        LiveRead::Node(name) => Answer::Node(cluster.nodes.get(name.as_str()).cloned()),
        LiveRead::Placeholder(name) => Answer::Placeholder(cluster.placeholders.get(name.as_str()).cloned()),
        LiveRead::Surge { placeholder, node } => Answer::Surge {
            placeholder: cluster.placeholders.get(placeholder.as_str()).cloned(),
            node: cluster.nodes.get(node.as_str()).cloned(),
        },
        LiveRead::NodeLoad { node, .. } => {
            let used = cluster.used_cpu(node);
            let cpu = |milli: i64| -> Resources {
                Quantity::parse(&format!("{milli}m")).map(|q| ("cpu".to_owned(), q)).into_iter().collect()
            };
            let pods = cluster.pods.values().filter(|p| p.node.as_deref() == Some(node.as_str())).count();
            Answer::NodeLoad(NodeLoad {
                moving: cpu(used),
                pods,
                allocatable: Some(cpu(crate::karpenter::NODE_CPU)),
                ..NodeLoad::default()
            })
        }
        LiveRead::Nomination { .. } => {
            let coming = cluster.claims.values().find(|c| !c.ready && c.meta.deleted.is_none());
            Answer::Nomination(coming.map(|c| c.meta.name.to_string()))
        }
        LiveRead::SurgeClaim(name) => Answer::SurgeClaim(match cluster.claims.get(name.as_str()) {
            Some(c) if c.meta.deleted.is_none() => {
                let on_it = cluster.pods.iter().filter(|(_, p)| !c.node.is_empty() && p.node.as_ref() == Some(&c.node));
                let strangers = on_it.map(|(name, _)| name.to_string()).collect();
                Reapable::Exists { uid: c.meta.uid.to_string(), created: c.meta.created, strangers }
            }
            _ => Reapable::Gone,
        }),
    }
}

/// What a live read shows goes into the caches, too.
fn cache_answer(sim: &mut Sim, read: &LiveRead, answer: &Answer) {
    let Some(caches) = sim.replica.as_mut().map(|replica| &mut replica.caches) else { return };
    let triggers = match (read, answer) {
        (_, Answer::NodePool(Some(object))) => caches.apply(object.clone()),
        (_, Answer::NodeClaim(Some(object))) => caches.apply(object.clone()),
        (LiveRead::NodeClaim(name), Answer::NodeClaim(None)) => {
            CacheOf::<noderotation_shared::objects::NodeClaim>::forget(caches, name)
        }
        (_, Answer::Node(Some(object))) => caches.apply(object.clone()),
        (_, Answer::Placeholder(Some(object))) => caches.apply(object.clone()),
        _ => Triggers::new(),
    };
    trigger_only(sim, &triggers);
}

fn cache_written(sim: &mut Sim, write: &Write, object: Option<&ApiObject>) {
    let Some(caches) = sim.replica.as_mut().map(|replica| &mut replica.caches) else { return };
    let triggers = match (write, object) {
        (Write::DeletePlaceholder { name, uid }, _) => {
            caches.placeholder_deleted(name, uid);
            Triggers::new()
        }
        (_, Some(ApiObject::NodePool(object))) => caches.apply(object.clone()),
        (_, Some(ApiObject::NodeClaim(object))) => caches.apply(object.clone()),
        (_, Some(ApiObject::Node(object))) => caches.apply(object.clone()),
        (_, Some(ApiObject::Placeholder(object))) => caches.apply(object.clone()),
        (_, None) => Triggers::new(),
    };
    trigger_only(sim, &triggers);
}

/// Triggers in the middle of a pass, which wait for its end.
fn trigger_only(sim: &mut Sim, pools: &Triggers) {
    let elapsed = sim.elapsed();
    if let Some(replica) = sim.replica.as_mut() {
        for pool in pools {
            replica.queue.trigger(pool, elapsed);
        }
    }
}

fn ended(sim: &mut Sim, key: &Arc<str>, end: PassEnd) {
    let elapsed = sim.elapsed();
    let spread = sim.rng.f64();
    let PassEnd { result, report, wake_at } = end;
    invariants::pass_ended(sim, result, wake_at);
    let Some(replica) = sim.replica.as_mut() else { return };
    let mut inventory = None;
    let end = match result {
        PassResult::Success => {
            let noticed = notices(&report, "", |_| String::new());
            sim.notices += replica.dedup.transition(key, noticed).len();
            let anchor = replica.caches.pool(key).and_then(|pool| pool.anchor().map(str::to_owned));
            inventory = Some(Inventory::of_pool(&replica.caches, key, anchor));
            let next = wake_at.unwrap_or(Timestamp::MAX).min(plus(sim.now, SAFETY_NET));
            let wait = Duration::try_from(next.duration_since(sim.now)).unwrap_or_default();
            End::Success(elapsed.saturating_add(wait))
        }
        PassResult::Conflict => End::Again,
        PassResult::Failed => End::Failed(None),
    };
    if let Some(inventory) = inventory {
        clean_up(sim, &inventory);
    }
    if let Some(replica) = sim.replica.as_mut() {
        replica.queue.done(key, end, elapsed, spread);
        wake(sim);
    }
}

/// Cleans up orphans, each after a live look at its pool's anchor.
fn clean_up(sim: &mut Sim, inventory: &Inventory) {
    for orphan in orphans(inventory, sim.now) {
        let is_anchored =
            sim.cluster.pools.get(orphan.pool.as_str()).is_some_and(|pool| pool.anchor() == Some(&*orphan.claim));
        if is_anchored {
            continue;
        }
        match perform(sim, &orphan.act) {
            Some(Written::Applied(_)) => orphan.act.announce.iter().for_each(|told| announced(sim, told)),
            Some(_) => {}
            None => return crash(sim),
        }
    }
}

fn announced(sim: &mut Sim, announcement: &Announcement) {
    invariants::announced(sim, announcement);
}
