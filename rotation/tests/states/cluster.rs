//! The cluster: patches are applied as the API server would, deletions drain at once or not at all, and a pass may be cut
//! short after any request.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::drainable::{Obstacle, Remaining};
use noderotation_rotation::pass::{Answer, ApiObject, Next, Pass, PassEnd, PassResult, Written};
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::{LiveRead, Write};
use noderotation_rotation::world::{GoverningPolicy, LiveKnowledge, Reapable, Settings, World};
use noderotation_rotation::{Decision, decide, placeholder};
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Annotations, Meta, Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::policy::Policy;
use noderotation_shared::quantity::{Quantity, Resources};
use serde_json::{Value, json};

/// A Friday, an hour into the window of `spec()`.
pub const NOW: &str = "2026-12-04T18:00:00Z";

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn spec() -> Value {
    json!({
        "nodePoolSelector": {},
        "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
        "surge": {"readyTimeout": "15m", "cooldownAfter": "10m", "retryBackoff": "30m"},
    })
}

/// The cluster: what is stored, and how it answers.
pub struct Cluster {
    pub now: Timestamp,
    pub pool: NodePool,
    pub claims: BTreeMap<String, NodeClaim>,
    pub nodes: BTreeMap<String, Node>,
    pub placeholder: Option<Placeholder>,
    /// The last Pod that was created as a placeholder, as it was sent.
    pub pod: Value,
    pub policy: Arc<Policy>,
    pub lost: Option<Ungoverned>,
    pub stale: bool,
    /// What the cluster does not store of policies.
    pub missing_fields: Arc<[String]>,
    pub version: u64,
    pub told: Vec<Announcement>,
    /// Names of the requests that landed.
    pub done: Vec<&'static str>,
    /// A new node takes the placeholder at once.
    pub provisions: bool,
    pub load: NodeLoad,
    /// Why the drain of a claim's Node would never end, by the claim's name.
    pub obstacles: BTreeMap<&'static str, Obstacle>,
    /// What a drain still has to evict.
    pub remaining: Remaining,
    /// Pods of others that a live read finds on a surge claim's Node.
    pub strangers: Vec<String>,
}

pub fn meta(name: &str, created: &str) -> Meta {
    Meta {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        version: "1".into(),
        created: at(created),
        ..Meta::default()
    }
}

pub fn claim(name: &str, created: &str) -> NodeClaim {
    NodeClaim {
        meta: meta(name, created),
        pool: "api".into(),
        expire_after: Some(SignedDuration::from_hours(14 * 24)),
        termination_grace_period: Some(SignedDuration::from_hours(1)),
        node: format!("node-{name}").into(),
        ready: true,
        capacity: Arc::new(cpu("4")),
        ..NodeClaim::default()
    }
}

pub fn node(name: &str) -> Node {
    Node {
        meta: meta(name, "2026-11-01T00:00:00Z"),
        pool: "api".into(),
        hostname: name.into(),
        ready: true,
        initialized: true,
        ..Node::default()
    }
}

pub fn cpu(amount: &str) -> Resources {
    [("cpu".to_owned(), Quantity::parse(amount).unwrap())].into_iter().collect()
}

impl Cluster {
    /// Two claims, `old` due since days, `young` not.
    pub fn new(spec: &Value) -> Self {
        let claims = [claim("old", "2026-11-22T00:00:00Z"), claim("young", "2026-12-04T00:00:00Z")];
        let nodes = [node("node-old"), node("node-young")];
        Self {
            now: at(NOW),
            pool: NodePool {
                meta: meta("api", "2026-01-01T00:00:00Z"),
                expire_after: Some(SignedDuration::from_hours(14 * 24)),
                termination_grace_period: Some(SignedDuration::from_hours(1)),
                ..NodePool::default()
            },
            claims: claims.into_iter().map(|c| (c.meta.name.to_string(), c)).collect(),
            nodes: nodes.into_iter().map(|n| (n.meta.name.to_string(), n)).collect(),
            placeholder: None,
            pod: Value::Null,
            policy: Arc::new(Policy::from_json(spec).unwrap()),
            lost: None,
            stale: false,
            missing_fields: Arc::default(),
            version: 1,
            told: Vec::new(),
            done: Vec::new(),
            provisions: true,
            obstacles: BTreeMap::new(),
            remaining: Remaining::default(),
            load: NodeLoad { moving: cpu("1"), pods: 1, allocatable: Some(cpu("4")), ..NodeLoad::default() },
            strangers: Vec::new(),
        }
    }

    /// The same with `old` anchored and its placeholder created, for which no node comes yet.
    pub fn pending(spec: &Value) -> Self {
        let mut cluster = Self { provisions: false, ..Self::new(spec) };
        cluster.run();
        cluster
    }

    /// What the caches show when they are up to date.
    pub fn world(&self) -> World {
        let governance = match &self.lost {
            Some(why) => Err(why.clone()),
            None => Ok(GoverningPolicy {
                name: "p".into(),
                policy: self.policy.clone(),
                cadence: Cadence::of(&self.policy, self.now),
            }),
        };
        let (claims, others): (Vec<_>, Vec<_>) =
            self.claims.values().cloned().map(Arc::new).partition(|c| *c.pool == *"api");
        World {
            pool: self.pool.clone(),
            governance,
            claims,
            foreign: others.into_iter().find(|c| self.pool.anchor() == Some(&*c.meta.name)),
            placeholders: self.placeholder.iter().map(|p| (p.meta.name.clone(), Arc::new(p.clone()))).collect(),
            nodes: self.nodes.iter().map(|(name, n)| (name.as_str().into(), Arc::new(n.clone()))).collect(),
            stale: self.stale,
            missing_fields: self.missing_fields.clone(),
            live: LiveKnowledge::default(),
            settings: Arc::new(Settings {
                namespace: "ns".into(),
                priority_class: "pc".into(),
                image: "pause".into(),
                ..Settings::default()
            }),
        }
    }

    pub fn decide(&self) -> Decision {
        decide(&self.world(), self.now)
    }

    /// Passes until one has nothing to write, as the watches would trigger them; the process dies once `requests` have
    /// landed in all.
    pub fn pass(&mut self, requests: usize) -> Option<PassEnd> {
        for _ in 0..10 {
            let before = self.done.len();
            let end = self.one_pass(requests)?;
            if self.done.len() == before {
                return Some(end);
            }
        }
        panic!("passes without end: {:?}", self.done);
    }

    /// One pass, driven as the controller drives it.
    pub fn one_pass(&mut self, requests: usize) -> Option<PassEnd> {
        self.pass_over(self.world(), requests)
    }

    /// One pass that begins with what the caches show, which may be older than what is stored.
    pub fn pass_over(&mut self, cached: World, requests: usize) -> Option<PassEnd> {
        let mut pass = Pass::new(cached);
        loop {
            match pass.next(self.now) {
                Next::Done(end) => {
                    assert_eq!(end.result, PassResult::Success, "{:?}", self.done);
                    return Some(*end);
                }
                Next::Read(read) => {
                    let answer = self.answer(&read);
                    pass.answered(&read, answer);
                }
                Next::Write(_) if self.done.len() >= requests => return None,
                Next::Write(act) => {
                    let object = self.apply(&act.write);
                    self.done.push(act.name);
                    self.told.extend(pass.written(Written::Applied(object.map(Box::new))));
                }
            }
        }
    }

    /// A whole pass: what it found out, and when it wants to look again.
    pub fn run(&mut self) -> PassEnd {
        self.pass(usize::MAX).unwrap()
    }

    /// What the API server answers to a live read.
    pub fn answer(&self, read: &LiveRead) -> Answer {
        let placeholder = || self.placeholder.clone();
        match read {
            LiveRead::NodePool(_) => Answer::NodePool(Some(self.pool.clone())),
            LiveRead::NodeClaim(name) => Answer::NodeClaim(self.claims.get(name).cloned()),
            LiveRead::Node(name) => Answer::Node(self.nodes.get(name).cloned()),
            LiveRead::Placeholder(name) => Answer::Placeholder(placeholder().filter(|p| *p.meta.name == **name)),
            LiveRead::NodeLoad { claim, is_drain_unbounded, .. } => {
                let obstacle = self.obstacles.get(claim.as_str()).filter(|_| *is_drain_unbounded).cloned();
                Answer::NodeLoad(NodeLoad { obstacle, ..self.load.clone() })
            }
            LiveRead::Drain { .. } => Answer::Drain(self.remaining.clone()),
            LiveRead::Surge { placeholder: name, node } => Answer::Surge {
                placeholder: placeholder().filter(|p| *p.meta.name == **name),
                node: self.nodes.get(node).cloned(),
            },
            LiveRead::Nomination { .. } => Answer::Nomination(self.claims.contains_key("new").then(|| "new".into())),
            LiveRead::SurgeClaim(name) => Answer::SurgeClaim(match self.claims.get(name) {
                Some(c) if c.meta.deleted.is_none() => Reapable::Exists {
                    uid: c.meta.uid.to_string(),
                    pool: c.pool.to_string(),
                    created: c.meta.created,
                    strangers: self.strangers.clone(),
                },
                _ => Reapable::Gone,
            }),
        }
    }

    fn next_version(&mut self) -> Box<str> {
        self.version += 1;
        self.version.to_string().into()
    }

    /// What the API server does with a write; the object as it is then.
    pub fn apply(&mut self, write: &Write) -> Option<ApiObject> {
        let version = self.next_version();
        match write {
            Write::Patch(patch) => {
                let meta = match patch.kind {
                    Kind::NodePool => &mut self.pool.meta,
                    Kind::NodeClaim => &mut self.claims.get_mut(&patch.name).unwrap().meta,
                    _ => {
                        let node = self.nodes.get_mut(&patch.name).unwrap();
                        node.unschedulable = patch.unschedulable.unwrap_or(node.unschedulable);
                        &mut node.meta
                    }
                };
                assert_eq!(&*meta.version, patch.version, "a write that is not conditional on what was seen");
                let changes = patch.annotations.iter().map(|(key, value)| (*key, value.as_deref()));
                meta.annotations = meta.annotations.patched(changes);
                meta.version = version;
                Some(match patch.kind {
                    Kind::NodePool => ApiObject::NodePool(self.pool.clone()),
                    Kind::NodeClaim => ApiObject::NodeClaim(self.claims[&patch.name].clone()),
                    _ => ApiObject::Node(self.nodes[&patch.name].clone()),
                })
            }
            Write::CreatePlaceholder(pod) => {
                self.pod = (**pod).clone();
                let name = pod["metadata"]["name"].as_str().unwrap();
                // an orphan of another claim may be there; the sweep's business
                assert!(self.placeholder.as_ref().is_none_or(|p| *p.meta.name != *name));
                let claim = pod["metadata"]["annotations"][keys::SURGE_FOR].as_str().unwrap();
                assert_eq!(name, placeholder::name(claim));
                let mut meta = meta(name, NOW);
                meta.annotations = Annotations::of([(keys::SURGE_FOR, claim)]);
                self.placeholder = Some(Placeholder { meta, phase: "Pending".into(), ..Placeholder::default() });
                let created = self.placeholder.clone().map(ApiObject::Placeholder);
                if self.provisions {
                    self.provide();
                }
                created
            }
            Write::DeletePlaceholder { uid, .. } => {
                assert_eq!(&*self.placeholder.take().unwrap().meta.uid, uid);
                None
            }
            Write::DeleteClaim { name, uid, version: seen } => {
                let now = self.now;
                let claim = self.claims.get_mut(name).unwrap();
                assert_eq!(&*claim.meta.uid, uid);
                // the candidate's state decides; of a surge claim only its identity does
                let wanted = (self.pool.anchor() == Some(name)).then_some(&*claim.meta.version);
                assert_eq!(seen.as_deref(), wanted, "a deletion that is not conditional on what was seen");
                claim.meta.deleted = Some(now);
                claim.meta.version = version;
                Some(ApiObject::NodeClaim(claim.clone()))
            }
        }
    }

    /// Karpenter launches a node for the placeholder, and it runs there.
    pub fn provide(&mut self) {
        let mut new = claim("new", NOW);
        new.meta.created = self.now + SignedDuration::from_secs(1);
        self.claims.insert("new".into(), new);
        self.nodes.insert("node-new".into(), node("node-new"));
        let placeholder = self.placeholder.as_mut().unwrap();
        placeholder.node = "node-new".into();
        placeholder.phase = "Running".into();
    }

    /// A Pod on this claim's Node would never leave, and the claim has no `terminationGracePeriod`.
    pub fn never_drains(&mut self, name: &'static str) {
        let (pod, why) = ("shop/db-0".to_owned(), "PodDisruptionBudget shop/db allows no disruption".to_owned());
        self.obstacles.insert(name, Obstacle::Pod { pod, why, remedy: "let it allow one" });
        self.claims.get_mut(name).unwrap().termination_grace_period = None;
    }

    /// The drain of a claim ends.
    pub fn drained(&mut self, name: &str) {
        let claim = self.claims.remove(name).unwrap();
        assert!(claim.meta.deleted.is_some(), "{name} was never deleted");
        self.nodes.remove(&*claim.node);
    }

    pub fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    pub fn mark(&self, claim: &str, key: &str) -> Option<String> {
        self.claims[claim].meta.annotations.get(key).map(str::to_owned)
    }

    pub fn set_pool(&mut self, key: &'static str, value: &str) {
        self.pool.meta.annotations = with(&self.pool.meta.annotations, key, value);
    }

    pub fn set_claim(&mut self, name: &str, key: &'static str, value: &str) {
        let meta = &mut self.claims.get_mut(name).unwrap().meta;
        meta.annotations = with(&meta.annotations, key, value);
    }

    pub fn set_node(&mut self, name: &str, key: &'static str, value: &str) {
        let meta = &mut self.nodes.get_mut(name).unwrap().meta;
        meta.annotations = with(&meta.annotations, key, value);
    }

    /// Nothing of a rotation is left anywhere, whichever way it ended.
    pub fn assert_clean(&self) {
        assert_eq!(self.pool.anchor(), None);
        for key in keys::ANCHOR_SET {
            assert!(!self.pool.meta.annotations.has(key), "{key} is left on the pool");
        }
        assert!(self.placeholder.is_none(), "the placeholder is left");
        for node in self.nodes.values() {
            for key in [keys::SURGE_FOR, keys::DO_NOT_DISRUPT, keys::DO_NOT_DISRUPT_OWNED, keys::CORDONED] {
                assert!(!node.meta.annotations.has(key), "{key} is left on {}", node.meta.name);
            }
            assert!(!node.unschedulable);
        }
    }
}

pub fn with(annotations: &Annotations, key: &'static str, value: &str) -> Annotations {
    annotations.patched([(key, Some(value))])
}
