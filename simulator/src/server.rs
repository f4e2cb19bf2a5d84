//! Requests at the API server: what arrives, what it does, what is answered.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use noderotation_rotation::drainable::{Evictee, Remaining, obstacle};
use noderotation_rotation::pass::{Answer, Written};
use noderotation_rotation::pod_role::Role;
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::{Act, LiveRead, Write};
use noderotation_rotation::world::Reapable;
use noderotation_shared::instant::plus;
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::quantity::{Quantity, Resources};

use crate::cluster::{Cluster, Refused, WorkPod};
use crate::event::Event;
use crate::faults::Fault;
use crate::process::{Life, die};
use crate::run::Sim;
use crate::{invariants, karpenter, people};

/// What a request asks for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A read.
    Read(LiveRead),
    /// A write.
    Write(Box<Act>),
}

/// A request under way.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who has sent it.
    pub life: Life,
    /// The sender's job that waits for the answer.
    pub job: u64,
    /// What it asks for.
    pub asked: Asked,
    /// What happens to it.
    pub fault: Fault,
    /// When it was sent.
    pub sent: Timestamp,
    /// What the sender's clock said then.
    pub wall: Timestamp,
}

/// The answer to a request, as its sender sees it.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "it is boxed on its way")]
pub enum Response {
    /// To a read.
    Answer(LiveRead, Answer),
    /// There is none to a read.
    ReadFailed,
    /// To a write.
    Written(Write, Written),
}

impl Response {
    /// The request did not get through; `written` is what a write's sender makes of it.
    pub fn failure(asked: Asked, written: Written) -> Self {
        match asked {
            Asked::Read(_) => Self::ReadFailed,
            Asked::Write(act) => Self::Written(act.write, written),
        }
    }
}

/// A request arrives at the API server.
pub fn arrives(sim: &mut Sim, request: Request) {
    let response = match &request.asked {
        Asked::Read(read) => Response::Answer(read.clone(), answer(sim, read)),
        Asked::Write(act) => Response::Written(act.write.clone(), write(sim, &request, act)),
    };
    let (life, job) = (request.life, request.job);
    match request.fault {
        Fault::CrashAfter => {
            if sim.leader(life).is_some() {
                die(sim, life.process, "dies before it sees the answer");
            }
        }
        Fault::Late => {} // nobody waits any more
        Fault::LostAnswer => {
            let lost = Response::failure(request.asked, Written::Unknown);
            sim.after(sim.now, Event::Answered(life, job, Box::new(lost)));
        }
        _ => sim.after(sim.now, Event::Answered(life, job, Box::new(response))),
    }
}

fn write(sim: &mut Sim, request: &Request, act: &Act) -> Written {
    let (kind, name) = act.write.target();
    if request.fault == Fault::Overtaken {
        overtake(&mut sim.cluster, kind, name);
    }
    if sim.refuses(&act.write) {
        return Written::Failed;
    }
    let violation = invariants::judge(sim, request, act);
    let now = sim.now;
    let version = sim.cluster.version();
    let result = sim.cluster.write(&act.write, now);
    let word = match &result {
        Ok(_) => "applied",
        Err(Refused::Conflict) => "conflict",
        Err(Refused::NotFound) => "not found",
    };
    let (process, fault) = (request.life.process, request.fault);
    sim.tell(|| {
        let fault = if fault == Fault::None { String::new() } else { format!(" ({fault:?})") };
        format!("controller-{process}: {} {kind} {name}: {word}{fault}", act.name)
    });
    sim.writes += 1;
    match result {
        Ok(object) => {
            if let Some((invariant, what)) = violation {
                sim.violated(invariant, what);
            }
            if sim.cluster.version() > version {
                sim.last_write = now;
            }
            invariants::landed(sim, act);
            sim.facts.landed(now, act);
            if let Write::Patch(patch) = &act.write
                && patch.unschedulable == Some(true)
            {
                sim.cordoned.insert(patch.name.as_str().into(), now);
                people::rolls_out(sim, &patch.name);
            }
            if let Write::DeleteClaim { name, .. } = &act.write {
                sim.after(plus(now, SignedDuration::from_millis(500)), Event::Drains(name.as_str().into()));
            }
            Written::Applied(object.map(Box::new))
        }
        Err(Refused::Conflict) => Written::Conflict,
        Err(Refused::NotFound) => Written::NotFound,
    }
}

/// Somebody else writes the same object just before.
fn overtake(cluster: &mut Cluster, kind: Kind, name: &str) {
    match kind {
        Kind::NodePool => cluster.pools.touch(name),
        Kind::NodeClaim => cluster.claims.touch(name),
        Kind::Node => cluster.nodes.touch(name),
        _ => cluster.placeholders.touch(name),
    }
}

/// What the API server answers to a live read.
fn answer(sim: &Sim, read: &LiveRead) -> Answer {
    let cluster = &sim.cluster;
    match read {
        LiveRead::NodePool(name) => Answer::NodePool(cluster.pools.get(name).map(|o| (**o).clone())),
        LiveRead::NodeClaim(name) => Answer::NodeClaim(cluster.claims.get(name).map(|o| (**o).clone())),
        LiveRead::Node(name) => Answer::Node(cluster.nodes.get(name).map(|o| (**o).clone())),
        LiveRead::Placeholder(name) => Answer::Placeholder(cluster.placeholders.get(name).map(|o| (**o).clone())),
        LiveRead::Surge { placeholder, node } => Answer::Surge {
            placeholder: cluster.placeholders.get(placeholder).map(|o| (**o).clone()),
            node: cluster.nodes.get(node).map(|o| (**o).clone()),
        },
        LiveRead::NodeLoad { node, is_drain_unbounded, .. } => {
            Answer::NodeLoad(load(cluster, node, *is_drain_unbounded))
        }
        LiveRead::Drain { node, .. } => Answer::Drain(remaining(cluster, node)),
        LiveRead::Nomination { placeholder } => {
            Answer::Nomination(sim.nominated.get(placeholder.as_str()).map(ToString::to_string))
        }
        LiveRead::SurgeClaim(name) => Answer::SurgeClaim(reapable(cluster, name)),
    }
}

fn load(cluster: &Cluster, node: &str, is_drain_unbounded: bool) -> NodeLoad {
    let cpu = |milli: i64| -> Resources {
        Quantity::parse(&format!("{milli}m")).map(|q| ("cpu".to_owned(), q)).into_iter().collect()
    };
    NodeLoad {
        moving: cpu(cluster.used_cpu(node)),
        pods: cluster.pods_on(node).count(),
        allocatable: Some(cpu(karpenter::NODE_CPU)),
        obstacle: is_drain_unbounded.then(|| obstacle(&remaining(cluster, node).pods, &[])).flatten(),
        ..NodeLoad::default()
    }
}

/// The Pods of a Node as their annotations say them; the simulated cluster's budgets hold nothing for good.
fn remaining(cluster: &Cluster, node: &str) -> Remaining {
    let evictee = |(name, pod): (&str, &WorkPod)| {
        let protection = pod.protected_since.map(|_| (keys::DO_NOT_DISRUPT.to_owned(), "true".to_owned()));
        let metadata = ObjectMeta {
            namespace: Some("default".into()),
            name: Some(name.to_owned()),
            annotations: Some(protection.into_iter().collect()),
            ..ObjectMeta::default()
        };
        Evictee::of(&Pod { metadata, ..Pod::default() }, Role::Moves)
    };
    Remaining { pods: cluster.pods_on(node).filter_map(evictee).collect(), budgets: Vec::new() }
}

fn reapable(cluster: &Cluster, name: &str) -> Reapable {
    match cluster.claims.get(name) {
        Some(claim) if claim.meta.deleted.is_none() => {
            let strangers = cluster.pods_on(&claim.node).map(|(name, _)| name.to_owned()).collect();
            let (uid, pool) = (claim.meta.uid.to_string(), claim.pool.to_string());
            Reapable::Exists { uid, pool, created: claim.meta.created, strangers }
        }
        _ => Reapable::Gone,
    }
}
