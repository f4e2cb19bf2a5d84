//! The state machine on a small cluster in memory: patches are applied as the API server would, deletions drain at once
//! or not at all, and a pass may be cut short after any request.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::reason::Reason;
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::{Announcement, LiveRead, ObjectKind, Patch, Step, Write};
use noderotation_rotation::world::{Evidence, GoverningPolicy, Reapable, Settings, World};
use noderotation_rotation::{Decision, decide, placeholder};
use noderotation_shared::feasibility::Cadence;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::{Annotations, Meta, Node, NodeClaim, NodePool, Placeholder};
use noderotation_shared::policy::Policy;
use noderotation_shared::quantity::{Quantity, Resources};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A Friday, an hour into the window of `spec()`.
const NOW: &str = "2026-12-04T18:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn spec() -> Value {
    json!({
        "nodePoolSelector": {},
        "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Wed", "Sat"], "start": "02:00", "end": "06:00"}],
        "surge": {"readyTimeout": "15m", "cooldownAfter": "10m", "retryBackoff": "30m"},
    })
}

/// The cluster: what is stored, and how it answers.
struct Cluster {
    now: Timestamp,
    pool: NodePool,
    claims: BTreeMap<String, NodeClaim>,
    nodes: BTreeMap<String, Node>,
    placeholder: Option<Placeholder>,
    policy: Arc<Policy>,
    lost: Option<Ungoverned>,
    stale: bool,
    version: u64,
    told: Vec<Announcement>,
    /// Names of the requests that landed.
    done: Vec<&'static str>,
    /// A new node takes the placeholder at once.
    provisions: bool,
    load: NodeLoad,
}

fn meta(name: &str, created: &str) -> Meta {
    Meta {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        version: "1".into(),
        created: at(created),
        ..Meta::default()
    }
}

fn claim(name: &str, created: &str) -> NodeClaim {
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

fn node(name: &str) -> Node {
    Node {
        meta: meta(name, "2026-11-01T00:00:00Z"),
        pool: "api".into(),
        hostname: name.into(),
        ready: true,
        initialized: true,
        ..Node::default()
    }
}

fn cpu(amount: &str) -> Resources {
    [("cpu".to_owned(), Quantity::parse(amount).unwrap())].into_iter().collect()
}

impl Cluster {
    /// Two claims, `old` due since days, `young` not.
    fn new(spec: &Value) -> Self {
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
            policy: Arc::new(Policy::from_json(spec).unwrap()),
            lost: None,
            stale: false,
            version: 1,
            told: Vec::new(),
            done: Vec::new(),
            provisions: true,
            load: NodeLoad { moving: cpu("1"), pods: 1, allocatable: Some(cpu("4")), ..NodeLoad::default() },
        }
    }

    fn world(&self) -> World {
        let anchored = self.pool.anchor().and_then(|name| self.claims.get(name)).cloned().map(Arc::new);
        let governance = match &self.lost {
            Some(loss) => Err(loss.clone()),
            None => Ok(GoverningPolicy {
                name: "p".into(),
                policy: self.policy.clone(),
                cadence: Cadence::of(&self.policy, self.now),
            }),
        };
        World {
            pool: self.pool.clone(),
            governance,
            claims: self.claims.values().filter(|c| *c.pool == *"api").cloned().map(Arc::new).collect(),
            placeholder: anchored
                .as_ref()
                .and(self.placeholder.clone())
                .or_else(|| self.pool.anchor().and(self.placeholder.clone()))
                .map(Arc::new),
            anchored,
            nodes: self.nodes.iter().map(|(name, n)| (name.as_str().into(), Arc::new(n.clone()))).collect(),
            stale: self.stale,
            evidence: Evidence::default(),
            settings: Arc::new(Settings { namespace: "ns".into(), priority_class: "pc".into(), image: "pause".into() }),
        }
    }

    fn decide(&self) -> Decision {
        decide(&self.world(), self.now)
    }

    /// One pass; `requests` limits how many land before the process dies.
    fn pass(&mut self, requests: usize) -> Decision {
        let mut evidence = Evidence::default();
        for _ in 0..50 {
            let mut world = self.world();
            world.evidence = evidence.clone();
            let decision = decide(&world, self.now);
            match &decision.step {
                None => return decision,
                Some(Step::Read(read)) => self.read(read, &mut evidence),
                Some(Step::Do(act)) => {
                    if self.done.len() >= requests {
                        return decision;
                    }
                    let is_claims = matches!(&act.request, Write::Patch(Patch { kind: ObjectKind::NodeClaim, .. }));
                    self.apply(&act.request, &mut evidence);
                    evidence.claim_confirmed |= is_claims;
                    self.done.push(act.name);
                    self.told.extend(act.announce.clone());
                }
            }
        }
        panic!("a pass without end: {:?}", self.done);
    }

    fn run(&mut self) -> Decision {
        self.pass(usize::MAX)
    }

    fn read(&self, wanted: &LiveRead, evidence: &mut Evidence) {
        match wanted {
            LiveRead::NodeClaim(name) => match self.claims.get(name) {
                Some(_) => evidence.claim_confirmed = true,
                None => evidence.claim_gone = true,
            },
            LiveRead::NodeLoad { claim, .. } => {
                evidence.loads.insert(claim.clone(), self.load.clone());
            }
            LiveRead::Surge { .. } => evidence.surge_confirmed = true,
            LiveRead::Nomination { .. } => {
                evidence.nominated = Some(self.claims.contains_key("new").then(|| "new".into()));
            }
            LiveRead::SurgeClaim(name) => {
                evidence.surge_claim = Some(match self.claims.get(name) {
                    Some(c) if c.meta.deleted.is_none() => {
                        Reapable::Exists { uid: c.meta.uid.to_string(), created: c.meta.created, strangers: Vec::new() }
                    }
                    _ => Reapable::Gone,
                });
            }
        }
    }

    fn next_version(&mut self) -> Box<str> {
        self.version += 1;
        self.version.to_string().into()
    }

    fn apply(&mut self, request: &Write, evidence: &mut Evidence) {
        let version = self.next_version();
        match request {
            Write::Patch(patch) => {
                let meta = match patch.kind {
                    ObjectKind::NodePool => &mut self.pool.meta,
                    ObjectKind::NodeClaim => &mut self.claims.get_mut(&patch.name).unwrap().meta,
                    ObjectKind::Node => {
                        let node = self.nodes.get_mut(&patch.name).unwrap();
                        node.unschedulable = patch.unschedulable.unwrap_or(node.unschedulable);
                        &mut node.meta
                    }
                };
                assert_eq!(&*meta.version, patch.version, "a write that is not conditional on what was seen");
                meta.annotations = merged(&meta.annotations, patch);
                meta.version = version;
            }
            Write::Create(pod) => {
                assert!(self.placeholder.is_none());
                let name = pod["metadata"]["name"].as_str().unwrap();
                let claim = pod["metadata"]["annotations"][keys::SURGE_FOR].as_str().unwrap();
                assert_eq!(name, placeholder::name(claim));
                let mut meta = meta(name, NOW);
                meta.annotations = Annotations::of([(keys::SURGE_FOR, claim)]);
                self.placeholder = Some(Placeholder { meta, phase: "Pending".into(), ..Placeholder::default() });
                if self.provisions {
                    self.provide();
                }
            }
            Write::DeletePlaceholder { uid, .. } => {
                assert_eq!(&*self.placeholder.take().unwrap().meta.uid, uid);
            }
            Write::DeleteClaim { name, uid, .. } => {
                let now = self.now;
                let claim = self.claims.get_mut(name).unwrap();
                assert_eq!(&*claim.meta.uid, uid);
                claim.meta.deleted = Some(now);
                claim.meta.version = version;
                if name == "new" {
                    evidence.surge_claim = Some(Reapable::Gone);
                }
            }
        }
    }

    /// Karpenter launches a node for the placeholder, and it runs there.
    fn provide(&mut self) {
        let mut new = claim("new", NOW);
        new.meta.created = self.now + SignedDuration::from_secs(1);
        self.claims.insert("new".into(), new);
        self.nodes.insert("node-new".into(), node("node-new"));
        let placeholder = self.placeholder.as_mut().unwrap();
        placeholder.node = "node-new".into();
        placeholder.phase = "Running".into();
    }

    /// The drain of a claim ends.
    fn drained(&mut self, name: &str) {
        let claim = self.claims.remove(name).unwrap();
        assert!(claim.meta.deleted.is_some(), "{name} was never deleted");
        self.nodes.remove(&*claim.node);
    }

    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn mark(&self, claim: &str, key: &str) -> Option<String> {
        self.claims[claim].meta.annotations.get(key).map(str::to_owned)
    }

    fn set_pool(&mut self, key: &'static str, value: &str) {
        self.pool.meta.annotations = with(&self.pool.meta.annotations, key, value);
    }

    fn set_claim(&mut self, name: &str, key: &'static str, value: &str) {
        let meta = &mut self.claims.get_mut(name).unwrap().meta;
        meta.annotations = with(&meta.annotations, key, value);
    }

    /// Nothing of a rotation is left anywhere, whichever way it ended.
    fn assert_clean(&self) {
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

fn with(annotations: &Annotations, key: &'static str, value: &str) -> Annotations {
    let patch = Patch {
        kind: ObjectKind::NodePool,
        name: String::new(),
        version: String::new(),
        annotations: [(key, Some(value.to_owned()))].into(),
        unschedulable: None,
    };
    merged(annotations, &patch)
}

fn merged(annotations: &Annotations, patch: &Patch) -> Annotations {
    let mut all: BTreeMap<&str, String> =
        keys::ALL.iter().filter_map(|k| Some((k.name, annotations.get(k.name)?.to_owned()))).collect();
    for (key, value) in &patch.annotations {
        match value {
            Some(value) => all.insert(key, value.clone()),
            None => all.remove(key),
        };
    }
    Annotations::of(all.iter().map(|(k, v)| (*k, v.as_str())))
}

const WHOLE_PATH: [&str; 12] = [
    "stamp-window",
    "anchor",
    "pending",
    "freeze",
    "placeholder",
    "surge-claim",
    "freeze-host",
    "mirror",
    "draining",
    "drain-placeholder",
    "delete-claim",
    "release",
];

#[test]
fn the_path_of_one_rotation() {
    let mut c = Cluster::new(&spec());
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"));
    assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some("provisioned"));
    assert_eq!(c.nodes["node-new"].meta.annotations.get(keys::SURGE_FOR), Some("old"));
    c.after(600).drained("old");
    c.run();
    let mut names = c.done.clone();
    names.retain(|n| *n != "unfreeze");
    assert_eq!(names, WHOLE_PATH);
    assert_eq!(c.done.len(), 13, "writes of one rotation: {:?}", c.done);
    c.assert_clean();
    assert_eq!(c.pool.meta.annotations.get(keys::LAST_ROTATION_AT), Some("2026-12-04T18:10:00Z"));
    let Some(Announcement::Completed { mode, surge_path, surge_wait, drain, .. }) = c.told.last() else {
        panic!("{:?}", c.told)
    };
    assert_eq!((*mode, surge_path.as_deref()), ("surge", Some("provisioned")));
    assert_eq!((*surge_wait, *drain), (Some(SignedDuration::ZERO), Some(SignedDuration::from_mins(10))));
    // an unchanged world: nothing more to write, and the next look is when time changes something
    let before = c.done.len();
    let decision = c.run();
    assert_eq!(c.done.len(), before);
    assert!(decision.wake_at.is_some_and(|at| at > c.now));
}

/// After a crash behind any request, the next pass goes on; one claim is deleted, everything is told at most once.
#[test]
fn a_crash_after_any_request_loses_nothing() {
    for crash in 0..14 {
        let mut c = Cluster::new(&spec());
        c.pass(crash);
        let told_before = c.told.len();
        c.run();
        if c.claims.get("old").is_some_and(|o| o.meta.deleted.is_some()) {
            c.after(60).drained("old");
        }
        c.pass(crash.max(c.done.len() + 1));
        c.run();
        c.assert_clean();
        assert!(!c.claims.contains_key("old") && c.claims.contains_key("new"), "crash after {crash}");
        let count = |wanted: fn(&Announcement) -> bool| c.told.iter().filter(|a| wanted(a)).count();
        assert_eq!(count(|a| matches!(a, Announcement::Completed { .. })), 1, "crash after {crash}");
        assert_eq!(count(|a| matches!(a, Announcement::DrainStarted { .. })), 1, "crash after {crash}");
        assert_eq!(
            count(|a| matches!(a, Announcement::CandidateSelected { .. })),
            1,
            "crash after {crash} ({told_before} told)"
        );
    }
}

#[test]
fn a_surge_that_never_comes_is_rolled_back() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.run();
    let note = |d: &Decision| d.notes.iter().any(|n| matches!(n, Reason::AwaitingSurge { .. }));
    let decision = c.after(60).run();
    assert!(note(&decision));
    assert_eq!(decision.wake_at, Some(at("2026-12-04T18:15:00.000000001Z")), "exactly when readyTimeout is over");
    // a claim was launched and never registered
    let mut launched = claim("new", "2026-12-04T18:00:02Z");
    launched.node = "".into();
    c.claims.insert("new".into(), launched);
    c.now = decision.wake_at.unwrap();
    c.run();
    c.assert_clean();
    assert!(c.claims["new"].meta.deleted.is_some(), "what was launched for us is taken back");
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
    assert_eq!(c.mark("old", keys::RETRY_COUNT).as_deref(), Some("1"));
    assert_eq!((c.mark("old", keys::STARTED_AT), c.mark("old", keys::SURGE_CLAIM)), (None, None));
    assert_eq!(c.pool.meta.annotations.get(keys::LAST_FAILURE_AT), Some("2026-12-04T18:15:00Z"));
    let order: Vec<_> = c.done.iter().skip_while(|n| **n != "rollback-placeholder").copied().collect();
    assert_eq!(order, ["rollback-placeholder", "reap", "unfreeze", "failed", "release-failed"]);
    let Some(Announcement::AttemptFailed { retry_count, next_attempt_at, .. }) =
        c.told.iter().find(|a| matches!(a, Announcement::AttemptFailed { .. }))
    else {
        panic!("{:?}", c.told)
    };
    assert_eq!((*retry_count, *next_attempt_at), (1, Some(at("2026-12-04T18:45:00Z"))));
    // and tried again when its backoff is over
    c.claims.remove("new");
    c.provisions = true;
    let decision = c.run();
    assert_eq!(decision.counts.in_backoff, 1);
    c.now = at("2026-12-04T18:45:00Z");
    c.run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("draining"));
}

/// Being unschedulable is how a placeholder asks Karpenter for a node; only one that still is after the time in which a
/// node is expected (5m) is told.
#[test]
fn a_placeholder_without_a_node_is_told_when_it_is_late() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.run();
    c.placeholder.as_mut().unwrap().unschedulable = Some("0/3 nodes are available".into());
    let told = |d: &Decision| d.notes.iter().any(|n| matches!(n, Reason::SurgeUnschedulable { .. }));
    let decision = c.after(10).run();
    assert!(!told(&decision));
    assert_eq!(decision.wake_at, Some(at("2026-12-04T18:05:00Z")));
    assert!(told(&c.after(290).run()));
}

#[test]
fn a_foreign_deletion_while_pending_drops_the_placeholder_first() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.run();
    c.claims.get_mut("old").unwrap().meta.deleted = Some(c.now);
    let before = c.done.len();
    c.after(5).run();
    assert_eq!(c.done[before..], ["expired-placeholder", "expired-claim", "unfreeze", "expired-anchor"]);
    c.assert_clean();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("expired"));
    assert!(matches!(
        c.told.iter().rfind(|a| !matches!(a, Announcement::Unfroze { .. })),
        Some(Announcement::Expired { phase: "pending", .. })
    ));
    assert!(
        !c.pool.meta.annotations.has(keys::LAST_ROTATION_AT) && !c.pool.meta.annotations.has(keys::LAST_FAILURE_AT)
    );
}

#[test]
fn each_gate_shuts_and_says_so() {
    let notes = |change: &dyn Fn(&mut Cluster)| {
        let mut c = Cluster::new(&spec());
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        change(&mut c);
        let decision = c.run();
        assert_eq!(c.done, Vec::<&str>::new(), "{:?}", decision.notes);
        (decision.notes, decision.wake_at.map(|t| t.to_string()))
    };
    let (n, wake) = notes(&|c| c.set_pool(keys::FREEZE, "2026-12-04T19:30:00Z"));
    assert_eq!((n, wake.as_deref()), (vec![Reason::Frozen(at("2026-12-04T19:30:00Z"))], Some("2026-12-04T19:30:00Z")));
    let (n, _) = notes(&|c| c.set_pool(keys::FREEZE, "72h"));
    assert_eq!(n, [Reason::FreezeUnreadable("72h".into())]);
    let (n, wake) = notes(&|c| c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T17:55:00Z"));
    assert_eq!(
        (n, wake.as_deref()),
        (vec![Reason::Cooldown { until: at("2026-12-04T18:05:00Z") }], Some("2026-12-04T18:05:00Z"))
    );
    let (n, _) = notes(&|c| c.set_pool(keys::LAST_FAILURE_AT, "2026-12-04T17:55:00Z"));
    assert_eq!(n, [Reason::FailurePause { until: at("2026-12-04T18:05:00Z") }]);
    assert_eq!(notes(&|c| c.pool.is_static = true).0, [Reason::StaticNodePool]);
    assert_eq!(notes(&|c| c.stale = true).0, [Reason::StaleView]);
    assert_eq!(notes(&|c| c.pool.meta.deleted = Some(c.now)).0, [Reason::PoolDeleting]);
    assert_eq!(notes(&|c| c.set_claim("young", keys::STATE, "draining")).0, [Reason::DrainUnanchored("young".into())]);
    let (n, _) = notes(&|c| c.pool.expire_after = Some(SignedDuration::from_hours(24)));
    assert!(matches!(n.as_slice(), [Reason::Fatal(codes)] if codes[0].name() == "ANonPositive"), "{n:?}");
    let (n, wake) = notes(&|c| {
        c.pool.meta.annotations = Annotations::default();
        c.now = at("2026-12-04T16:59:59Z");
    });
    assert_eq!(n, [Reason::WindowClosed { opens: Some(at("2026-12-04T17:00:00Z")) }]);
    assert_eq!(wake.as_deref(), Some("2026-12-04T17:00:00Z"), "the next look is at the opening itself");
    let (n, _) = notes(&|c| {
        c.pool.limits = cpu("8500m");
    });
    assert!(
        matches!(n.as_slice(), [Reason::InsufficientHeadroom { wanted, remaining, .. }] if wanted == "1" && remaining == "500m"),
        "{n:?}"
    );
    let (n, _) = notes(&|c| {
        c.claims.get_mut("old").unwrap().ready = false;
    });
    assert_eq!(n, [Reason::NoCandidate]);
    // a stamp from the future, or unreadable, holds nothing
    let mut c = Cluster::new(&spec());
    c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T18:06:00Z");
    c.set_pool(keys::LAST_FAILURE_AT, "yesterday");
    c.set_claim("young", keys::ROTATE, "today");
    let told: Vec<String> =
        c.decide().notes.iter().filter(|n| matches!(n, Reason::Unreadable { .. })).map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].contains("last-failure-at \"yesterday\"")
            && told[1].contains("lies in the future")
            && told[2].contains("\"today\""),
        "{told:?}"
    );
    c.run();
    assert_eq!(c.pool.anchor(), Some("old"));
}

#[test]
fn a_request_for_now_skips_window_and_pauses_but_no_freeze() {
    let mut c = Cluster::new(&spec());
    c.now = at("2026-12-03T12:00:00Z"); // closed
    c.set_pool(keys::LAST_ROTATION_AT, "2026-12-03T11:59:00Z");
    c.set_claim("young", keys::ROTATE, "now");
    c.claims.get_mut("young").unwrap().meta.created = at("2026-12-03T00:00:00Z");
    c.set_pool(keys::FREEZE, "2026-12-03T13:00:00Z");
    assert!(c.decide().step.is_none());
    c.now = at("2026-12-03T13:00:00Z");
    c.run();
    assert_eq!(c.pool.anchor(), Some("young"));
}

#[test]
fn a_freeze_holds_what_is_pending_and_not_what_drains() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.run();
    c.set_pool(keys::FREEZE, "2026-12-04T23:00:00Z");
    c.provide();
    c.after(10).run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
    assert_eq!(c.mark("old", keys::SURGE_CLAIM).as_deref(), Some("new"), "what was reserved is still recorded");
    // markers go on being asserted
    c.nodes.get_mut("node-old").unwrap().unschedulable = false;
    c.after(10).run();
    assert!(c.nodes["node-old"].unschedulable);
    // it outlasts readyTimeout: a failure
    c.after(900).run();
    c.assert_clean();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
}

#[test]
fn readiness_is_judged_on_the_host() {
    let reason = |change: &dyn Fn(&mut Cluster)| {
        let mut c = Cluster::new(&spec());
        c.provisions = false;
        c.run();
        c.provide();
        change(&mut c);
        let decision = c.after(5).run();
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "crossed: {:?}", decision.notes);
        decision
            .notes
            .iter()
            .find_map(|n| if let Reason::AwaitingSurge { why, .. } = n { Some(why.clone()) } else { None })
            .unwrap_or_default()
    };
    let host = |c: &mut Cluster, change: &dyn Fn(&mut Node)| change(c.nodes.get_mut("node-new").unwrap());
    assert!(reason(&|c| host(c, &|n| n.ready = false)).contains("not Ready"));
    assert!(reason(&|c| host(c, &|n| n.initialized = false)).contains("not initialized"));
    assert!(reason(&|c| host(c, &|n| n.unschedulable = true)).contains("unschedulable"));
    assert!(reason(&|c| host(c, &|n| n.disrupted = true)).contains("disrupted"));
    assert!(reason(&|c| host(c, &|n| n.pool = "other".into())).contains("another NodePool"));
    assert!(reason(&|c| c.placeholder.as_mut().unwrap().phase = "Pending".into()).contains("is Pending"));
    assert!(reason(&|c| c.placeholder.as_mut().unwrap().node = "node-old".into()).contains("candidate's own"));
}

#[test]
fn an_absorbed_host_is_told_and_never_reaped() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.run();
    let placeholder = c.placeholder.as_mut().unwrap();
    placeholder.node = "node-young".into();
    placeholder.phase = "Running".into();
    let mut timed_out = Cluster { told: Vec::new(), done: Vec::new(), ..c };
    timed_out.nodes.get_mut("node-young").unwrap().ready = false;
    timed_out.after(901).run();
    assert!(timed_out.claims["young"].meta.deleted.is_none(), "an older node was reaped");
    timed_out.assert_clean();
}

#[test]
fn the_forceful_fallback_goes_without_a_surge_only_when_it_is_late() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    let mut c = Cluster::new(&spec);
    c.run();
    assert!(!c.pool.is_fallback(), "there was time");
    let mut c = Cluster::new(&spec);
    // deadline 2026-12-04T19:10Z, t_rot 1h17m
    c.claims.get_mut("old").unwrap().meta.created = at("2026-11-20T19:10:00Z");
    c.run();
    assert_eq!(c.done, ["stamp-window", "anchor", "draining", "delete-claim"]);
    assert!(c.told.iter().any(|a| matches!(a, Announcement::ForcefulFallback { .. })));
    c.after(60).drained("old");
    c.run();
    c.assert_clean();
    assert!(matches!(c.told.last(), Some(Announcement::Completed { mode: "forceful-fallback", surge_wait: None, .. })));
}

#[test]
fn governance_lost_rolls_back_and_tells_once() {
    for loss in
        [Ungoverned::NoMatch, Ungoverned::Conflict(vec!["a".into(), "b".into()]), Ungoverned::InvalidPolicy("a".into())]
    {
        let mut c = Cluster::new(&spec());
        c.provisions = false;
        c.run();
        let before = c.done.len();
        c.lost = Some(loss);
        c.after(5).run();
        assert_eq!(c.done[before..], ["lost-placeholder", "unfreeze", "lost-claim", "lost-anchor"]);
        c.assert_clean();
        assert_eq!(c.mark("old", keys::STATE), None);
        assert!(!c.pool.meta.annotations.has(keys::WINDOW_OPENED_AT));
        assert!(matches!(c.told.last(), Some(Announcement::GovernanceLost { .. })));
        let before = c.done.len();
        c.run();
        assert_eq!(c.done.len(), before);
    }
}

#[test]
fn a_window_that_closes_with_work_undone_is_told_once() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().ready = false;
    c.run();
    assert_eq!(c.done, ["stamp-window"]);
    c.claims.get_mut("old").unwrap().ready = true;
    c.now = at("2026-12-04T21:00:00Z");
    c.run();
    assert!(
        matches!(c.told.as_slice(), [Announcement::WindowMissed { eligible: 1, in_backoff: 0, .. }]),
        "{:?}",
        c.told
    );
    c.run();
    assert_eq!(c.done, ["stamp-window", "close-window"]);
    // settled: a success within, a frozen pool, or nothing outstanding
    for change in [
        &|c: &mut Cluster| c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T18:30:00Z") as (),
        &|c: &mut Cluster| c.set_pool(keys::FREEZE, "2026-12-05T00:00:00Z"),
        &|c: &mut Cluster| c.claims.get_mut("old").unwrap().ready = false,
    ] as [&dyn Fn(&mut Cluster); 3]
    {
        let mut c = Cluster::new(&spec());
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        change(&mut c);
        c.now = at("2026-12-04T21:00:00Z");
        c.run();
        assert_eq!((c.done.as_slice(), c.told.len()), (["close-window"].as_slice(), 0));
    }
}

#[test]
fn an_anchor_to_a_foreign_claim_never_touches_it() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().pool = "other".into();
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    let before = c.claims["old"].clone();
    c.run();
    assert_eq!(c.claims["old"], before);
    assert_eq!(c.pool.anchor(), None);
}

#[test]
fn a_pool_that_is_being_deleted_is_not_written() {
    let mut c = Cluster::new(&spec());
    c.provisions = false;
    c.run();
    c.pool.meta.deleted = Some(c.now);
    c.claims.get_mut("old").unwrap().meta.deleted = Some(c.now);
    let pool = c.pool.clone();
    c.after(5).run();
    assert_eq!(c.pool, pool);
    assert!(c.placeholder.is_none());
    c.drained("old");
    c.run();
    assert_eq!(c.pool, pool);
    assert!(!c.told.iter().any(|a| matches!(a, Announcement::Completed { .. })));
}

#[test]
fn two_volumes_in_two_zones_are_refused_and_another_claim_goes() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("young").unwrap().meta.created = at("2026-11-23T00:00:00Z");
    c.load.volume_zones = vec![("v1".into(), vec!["a".into()]), ("v2".into(), vec!["b".into()])];
    let decision = c.run();
    let conflicts = decision.notes.iter().filter(|n| matches!(n, Reason::SurgeZoneConflict { .. })).count();
    assert_eq!((conflicts, c.done.as_slice()), (2, ["stamp-window"].as_slice()));
}

/// Annotations of any kind on anything: a decision is made, the same each time, and the next wake-up lies ahead.
#[derive(Clone, Debug)]
enum Mess {
    NodePool(usize, String),
    NodeClaim(usize, String),
    Node(usize, String),
    Deleted(u8),
    Placeholder(String, String),
    Gone(u8),
    Lost(u8),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("old".to_owned()),
        Just("young".to_owned()),
        Just("pending".to_owned()),
        Just("draining".to_owned()),
        Just("failed".to_owned()),
        Just("expired".to_owned()),
        Just("true".to_owned()),
        Just(String::new()),
        Just("2026-12-04T17:30:00Z".to_owned()),
        Just("2026-12-04T18:30:00Z".to_owned()),
        Just("forceful-fallback".to_owned()),
        Just("now".to_owned()),
        Just("7".to_owned()),
        Just("node-young".to_owned()),
        Just("Running".to_owned()),
        Just("Failed".to_owned()),
        "\\PC{0,8}",
    ]
}

fn mess() -> impl Strategy<Value = Mess> {
    prop_oneof![
        (0..keys::ALL.len(), text()).prop_map(|(k, t)| Mess::NodePool(k, t)),
        (0..keys::ALL.len(), text()).prop_map(|(k, t)| Mess::NodeClaim(k, t)),
        (0..keys::ALL.len(), text()).prop_map(|(k, t)| Mess::Node(k, t)),
        (0u8..4).prop_map(Mess::Deleted),
        (text(), text()).prop_map(|(n, p)| Mess::Placeholder(n, p)),
        (0u8..3).prop_map(Mess::Gone),
        (0u8..6).prop_map(Mess::Lost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_world_is_bearable_and_comes_to_rest(messes in prop::collection::vec(mess(), 0..8), seconds in 0i64..20_000) {
        let mut c = Cluster::new(&spec());
        for mess in messes {
            match mess {
                Mess::NodePool(k, t) => c.set_pool(keys::ALL[k].name, &t),
                Mess::NodeClaim(k, t) if c.claims.contains_key("old") => c.set_claim("old", keys::ALL[k].name, &t),
                Mess::Node(k, t) if c.nodes.contains_key("node-old") => {
                    let node = c.nodes.get_mut("node-old").unwrap();
                    node.meta.annotations = with(&node.meta.annotations, keys::ALL[k].name, &t);
                }
                Mess::Deleted(0) => c.pool.meta.deleted = Some(c.now),
                Mess::Deleted(1) => if let Some(o) = c.claims.get_mut("old") { o.meta.deleted = Some(c.now) },
                Mess::Deleted(_) => if let Some(n) = c.nodes.get_mut("node-old") { n.meta.deleted = Some(c.now) },
                Mess::Placeholder(n, p) => {
                    let mut meta = meta(&placeholder::name("old"), NOW);
                    meta.annotations = Annotations::of([(keys::SURGE_FOR, "old")]);
                    c.placeholder = Some(Placeholder { meta, node: n.into(), phase: p.into(), ..Placeholder::default() });
                }
                Mess::Gone(0) => { c.claims.remove("old"); }
                Mess::Gone(_) => { c.nodes.remove("node-old"); }
                Mess::Lost(0) => c.lost = Some(Ungoverned::NoMatch),
                _ => {}
            }
        }
        c.after(seconds);
        let first = c.decide();
        prop_assert_eq!(&first.step, &c.decide().step, "not the same twice");
        prop_assert!(first.wake_at.is_none_or(|at| at > c.now));
        // passes come to rest: every write is conditional, and after a few passes nothing more is written
        for _ in 0..4 {
            c.run();
        }
        let before = c.done.len();
        c.run();
        prop_assert_eq!(c.done.len(), before, "{:?}", c.done);
        // never more than one claim of the pool deleted by us
        let deleted = c.done.iter().filter(|n| **n == "delete-claim").count();
        prop_assert!(deleted <= 1, "{:?}", c.done);
    }
}
