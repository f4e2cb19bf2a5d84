//! A pass over one NodePool (§8): decide, read or write, take the answer into the world, decide again.
//!
//! [`Pass`] holds the whole loop and does no I/O: it says what to read or to write next, and is handed the answers. The
//! controller performs that on a real API server, the tests on a cluster in memory.

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder};

use crate::announcement::Announcement;
use crate::decide::{Decision, decide};
use crate::drainable::Remaining;
use crate::reason::Reason;
use crate::report::PoolReport;
use crate::size::NodeLoad;
use crate::step::{Act, LiveRead, Step, Write};
use crate::world::{Reapable, World};

/// A pass ends after so many steps. A whole rotation has fewer. Reads of what runs on a candidate's Node do not count: there
/// is one for each candidate at most, and a row of candidates that cannot go must not hide one that can.
pub const MAX_STEPS: usize = 40;

/// After so many conflicts in a row a pass ends as if it had failed.
pub const MAX_CONFLICTS: usize = 5;

/// A pass ends after this time, and its NodePool is looked at again at once: what it was given at its beginning is too old
/// by then, as when the process has stood still in the middle of it.
pub const MAX_AGE: SignedDuration = SignedDuration::from_mins(2);

/// What to do next in a pass.
#[derive(Clone, Debug)]
pub enum Next {
    /// Read this live and hand the answer to [`Pass::answered`], or call [`Pass::failed`].
    Read(LiveRead),
    /// Send this and hand the answer to [`Pass::written`].
    Write(Box<Act>),
    /// The pass has ended.
    Done(Box<PassEnd>),
}

/// How a pass ended, and what it found out.
#[derive(Clone, Debug)]
pub struct PassEnd {
    /// How it ended.
    pub result: PassResult,
    /// What it found out.
    pub report: PoolReport,
    /// After a success: the next instant at which time alone could change the decision. `None`: no such instant.
    pub wake_at: Option<Timestamp>,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassResult {
    /// There is nothing more to do now.
    Success,
    /// Somebody else has changed what the pass was about: look again at once.
    Conflict,
    /// Something failed: look again after a backoff.
    Failed,
}

/// The answer to a [`LiveRead`]; `None` is the API server's own 404.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`LiveRead::NodePool`].
    NodePool(Option<NodePool>),
    /// To [`LiveRead::NodeClaim`].
    NodeClaim(Option<NodeClaim>),
    /// To [`LiveRead::Node`].
    Node(Option<Node>),
    /// To [`LiveRead::Placeholder`].
    Placeholder(Option<Placeholder>),
    /// To [`LiveRead::NodeLoad`].
    NodeLoad(NodeLoad),
    /// To [`LiveRead::Drain`].
    Drain(Remaining),
    /// To [`LiveRead::Surge`].
    Surge {
        /// The placeholder.
        placeholder: Option<Placeholder>,
        /// Its host.
        node: Option<Node>,
    },
    /// To [`LiveRead::Nomination`]: the NodeClaim that the event names, if there is one.
    Nomination(Option<String>),
    /// To [`LiveRead::SurgeClaim`].
    SurgeClaim(Reapable),
}

/// The answer to a write.
#[derive(Clone, Debug)]
pub enum Written {
    /// It landed; the object as it is now, or `None` where the answer does not hold it.
    Applied(Option<Box<ApiObject>>),
    /// 409: the object has another version, or exists already.
    Conflict,
    /// 404: there is no such object.
    NotFound,
    /// It may have landed.
    Unknown,
    /// It did not land, and trying again at once would not help.
    Failed,
}

/// An object in the answer to a write.
#[derive(Clone, Debug)]
pub enum ApiObject {
    /// A NodePool.
    NodePool(NodePool),
    /// A NodeClaim.
    NodeClaim(NodeClaim),
    /// A Node.
    Node(Node),
    /// A placeholder.
    Placeholder(Placeholder),
}

/// One pass over one NodePool.
#[derive(Debug)]
pub struct Pass {
    world: World,
    /// The reasons of every decision so far, each once.
    reasons: Vec<Reason>,
    decision: Option<Decision>,
    steps: usize,
    conflicts: usize,
    /// The write whose answer is awaited.
    in_flight: Option<Box<Act>>,
    /// The read that shows what became of a write that did not land, or may have.
    read_back: Option<LiveRead>,
    /// The write that met a conflict: it is tried again only if the decision is still the same.
    conflicted: Option<Box<Act>>,
    /// A write that may have landed. If the decision is still the same it has not, and the server is in trouble.
    unknown: Option<Box<Act>>,
    has_failed: bool,
    /// When it was asked first.
    began: Option<Timestamp>,
}

impl Pass {
    /// Begins a pass over this world.
    pub fn new(world: World) -> Self {
        Self {
            world,
            reasons: Vec::new(),
            decision: None,
            steps: 0,
            conflicts: 0,
            in_flight: None,
            read_back: None,
            conflicted: None,
            unknown: None,
            has_failed: false,
            began: None,
        }
    }

    /// The world as far as this pass knows it.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What to do next. To be called again after each answer, until it says [`Next::Done`].
    pub fn next(&mut self, now: Timestamp) -> Next {
        if self.has_failed || self.steps >= MAX_STEPS {
            return self.end(PassResult::Failed, now);
        }
        let age = now.duration_since(*self.began.get_or_insert(now));
        if age > MAX_AGE || age.is_negative() {
            return self.end(PassResult::Conflict, now);
        }
        self.steps += 1;
        if let Some(read) = self.read_back.take() {
            return Next::Read(read);
        }
        match self.decide(now) {
            None => self.end(PassResult::Success, now),
            Some(Step::Read(read)) => {
                self.steps -= usize::from(matches!(read, LiveRead::NodeLoad { .. }));
                Next::Read(read)
            }
            Some(Step::Write(act)) if self.conflicted.as_ref().is_some_and(|lost| !is_same_step(lost, &act)) => {
                self.end(PassResult::Conflict, now)
            }
            Some(Step::Write(act)) if self.unknown.as_ref().is_some_and(|sent| is_same_step(sent, &act)) => {
                self.end(PassResult::Failed, now)
            }
            Some(Step::Write(act)) => {
                self.in_flight = Some(act.clone());
                Next::Write(act)
            }
        }
    }

    fn decide(&mut self, now: Timestamp) -> Option<Step> {
        let decision = decide(&self.world, now);
        for reason in &decision.reasons {
            if !self.reasons.contains(reason) {
                self.reasons.push(reason.clone());
            }
        }
        let step = decision.step.clone();
        self.decision = Some(decision);
        step
    }

    /// Ends the pass as failed: a read failed, or a write must not be sent.
    pub fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Takes the answer to a read into the world.
    pub fn answered(&mut self, read: &LiveRead, answer: Answer) {
        let world = &mut self.world;
        match (read, answer) {
            (_, Answer::NodePool(Some(pool))) => world.learn_pool(pool),
            (_, Answer::NodeClaim(Some(claim))) => world.learn_claim(claim),
            (LiveRead::NodeClaim(name), Answer::NodeClaim(None)) => world.learn_absent_claim(name),
            (_, Answer::Node(Some(node))) => world.learn_node(node),
            (LiveRead::Node(name), Answer::Node(None)) => world.learn_absent_node(name),
            (_, Answer::Placeholder(Some(placeholder))) => world.learn_placeholder(placeholder),
            (LiveRead::Placeholder(name), Answer::Placeholder(None)) => world.learn_absent_placeholder(name),
            (LiveRead::NodeLoad { claim, uid, .. }, Answer::NodeLoad(load)) => world.learn_load(claim, uid, load),
            (LiveRead::Drain { claim, uid, .. }, Answer::Drain(remaining)) => world.learn_drain(claim, uid, remaining),
            (LiveRead::Surge { placeholder: pod_name, node: node_name }, Answer::Surge { placeholder, node }) => {
                match placeholder {
                    Some(placeholder) => world.learn_placeholder(placeholder),
                    None => world.learn_absent_placeholder(pod_name),
                }
                match node {
                    Some(node) => world.learn_node(node),
                    None => world.learn_absent_node(node_name),
                }
                world.learn_surge(pod_name, node_name);
            }
            (LiveRead::Nomination { placeholder }, Answer::Nomination(nominated)) => {
                world.learn_nomination(placeholder, nominated);
            }
            (LiveRead::SurgeClaim(name), Answer::SurgeClaim(reapable)) => world.learn_reapable(name, reapable),
            // the pool is gone, and the watch says so, too: nothing is left to decide here. Or the answer is to something else,
            // and says nothing about what was asked
            _ => self.has_failed = true,
        }
    }

    /// Takes the answer to a write into the world. Returns what has to be announced now: only what has landed.
    pub fn written(&mut self, written: Written) -> Vec<Announcement> {
        let Some(act) = self.in_flight.take() else { return Vec::new() };
        match written {
            Written::Applied(object) => {
                self.conflicts = 0;
                self.conflicted = None;
                self.landed(&act.write, object.map(|object| *object));
                return act.announce;
            }
            Written::Conflict => {
                self.conflicts += 1;
                self.has_failed |= self.conflicts >= MAX_CONFLICTS;
                self.read_back = Some(act.write.read_back());
                self.conflicted = Some(act);
            }
            Written::NotFound => self.read_back = Some(act.write.read_back()),
            Written::Unknown => {
                self.read_back = Some(act.write.read_back());
                self.unknown = Some(act);
            }
            Written::Failed => self.has_failed = true,
        }
        Vec::new()
    }

    fn landed(&mut self, write: &Write, object: Option<ApiObject>) {
        let world = &mut self.world;
        match (write, object) {
            (Write::DeletePlaceholder { name, .. }, _) => world.learn_absent_placeholder(name),
            (Write::DeleteClaim { name, .. }, Some(ApiObject::NodeClaim(claim))) => {
                world.learn_deleted_claim(name, Some(claim));
            }
            (Write::DeleteClaim { name, .. }, _) => world.learn_deleted_claim(name, None),
            (_, Some(ApiObject::NodePool(pool))) => world.learn_pool(pool),
            (_, Some(ApiObject::NodeClaim(claim))) => world.learn_claim(claim),
            (_, Some(ApiObject::Node(node))) => world.learn_node(node),
            (_, Some(ApiObject::Placeholder(placeholder))) => world.learn_placeholder(placeholder),
            (_, None) => self.read_back = Some(write.read_back()),
        }
    }

    fn end(&mut self, result: PassResult, now: Timestamp) -> Next {
        // a pass that fails before its first decision has something to report all the same
        let decision = self.decision.take().unwrap_or_else(|| decide(&self.world, now));
        let report = PoolReport::new(&self.world, &decision, std::mem::take(&mut self.reasons), now);
        let wake_at = decision.wake_at.filter(|_| result == PassResult::Success);
        Next::Done(Box::new(PassEnd { result, report, wake_at }))
    }
}

/// The same transition of the same object, whatever its version.
fn is_same_step(a: &Act, b: &Act) -> bool {
    a.name == b.name && a.write.target() == b.write.target()
}
