//! What a pass makes of each answer to a write (§8, *Apply, then announce*): conflict, not found, unknown, failed.

use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::pass::{Answer, ApiObject, MAX_CONFLICTS, Next, Pass, PassResult, Written};
use noderotation_rotation::step::{Act, LiveRead};
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::NodePool;

use crate::cluster::*;

/// A pass over two claims, of which the older is due; its first write is to stamp the window, its second the anchor.
struct Scene {
    cluster: Cluster,
    pass: Pass,
    told: Vec<Announcement>,
}

impl Scene {
    fn new() -> Self {
        let mut cluster = Cluster::new(&spec());
        cluster.set_pool(keys::WINDOW_OPENED_AT, NOW);
        let pass = Pass::new(cluster.world());
        Self { cluster, pass, told: Vec::new() }
    }

    /// Answers reads until the pass wants to write, or has ended.
    fn next_write(&mut self) -> Result<Box<Act>, PassResult> {
        loop {
            match self.pass.next(self.cluster.now) {
                Next::Read(LiveRead::NodePool(_)) => {
                    let pool = Some(self.cluster.pool.clone());
                    self.pass.answered(&LiveRead::NodePool("api".into()), Answer::NodePool(pool));
                }
                Next::Read(read) => {
                    let load = Answer::NodeLoad(self.cluster.load.clone());
                    self.pass.answered(&read, load);
                }
                Next::Write(act) => return Ok(act),
                Next::Done(end) => return Err(end.result),
            }
        }
    }

    fn answer(&mut self, written: Written) {
        self.told.extend(self.pass.written(written));
    }

    /// An unrelated writer changes the pool.
    fn touch(&mut self) {
        let version: u64 = self.cluster.pool.meta.version.parse().unwrap();
        self.cluster.pool.meta.version = (version + 1).to_string().into();
    }

    fn anchored(&self) -> Written {
        let mut pool: NodePool = self.cluster.pool.clone();
        pool.meta.annotations = with(&pool.meta.annotations, keys::ACTIVE_ROTATION, "old");
        pool.meta.version = "100".into();
        Written::Applied(Some(Box::new(ApiObject::NodePool(pool))))
    }
}

#[test]
fn after_a_conflict_the_same_step_is_tried_again_and_announced_once() {
    let mut scene = Scene::new();
    let first = scene.next_write().unwrap();
    assert_eq!(first.name, "anchor");
    scene.touch();
    scene.answer(Written::Conflict);
    let second = scene.next_write().unwrap();
    assert_eq!(second.name, "anchor");
    assert_ne!(first.write, second.write, "the second bears the version that was read since");
    assert_eq!(scene.told, []);
    scene.answer(scene.anchored());
    assert!(matches!(&scene.told[..], [Announcement::CandidateSelected { .. }]), "{:?}", scene.told);
    assert_eq!(scene.next_write().unwrap().name, "pending", "the pass goes on");
}

#[test]
fn after_a_conflict_another_decision_ends_the_pass() {
    let mut scene = Scene::new();
    scene.next_write().unwrap();
    scene.touch();
    scene.cluster.set_pool(keys::ACTIVE_ROTATION, "young");
    scene.answer(Written::Conflict);
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Conflict);
    assert_eq!(scene.told, []);
}

/// Four conflicts in a row are endured, the fifth ends the pass, so that its pool backs off.
#[test]
fn conflicts_without_end_fail_the_pass() {
    let mut scene = Scene::new();
    for _ in 1..MAX_CONFLICTS {
        assert_eq!(scene.next_write().unwrap().name, "anchor");
        scene.touch();
        scene.answer(Written::Conflict);
    }
    assert_eq!(scene.next_write().unwrap().name, "anchor", "{} conflicts were too many", MAX_CONFLICTS - 1);
    scene.answer(Written::Conflict);
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Failed);

    // a write that lands in between ends the row
    let mut scene = Scene::new();
    for _ in 1..MAX_CONFLICTS {
        scene.next_write().unwrap();
        scene.answer(Written::Conflict);
    }
    scene.next_write().unwrap();
    scene.answer(scene.anchored());
    scene.next_write().unwrap();
    scene.answer(Written::Conflict);
    assert!(!matches!(scene.pass.next(scene.cluster.now), Next::Done(_)), "the conflicts before it still count");
}

/// The same object, but another step: somebody else has stamped the window meanwhile.
#[test]
fn after_a_conflict_another_step_on_the_same_object_ends_the_pass() {
    let mut scene = Scene::new();
    scene.cluster = Cluster::new(&spec());
    scene.pass = Pass::new(scene.cluster.world());
    assert_eq!(scene.next_write().unwrap().name, "stamp-window");
    scene.touch();
    scene.cluster.set_pool(keys::WINDOW_OPENED_AT, NOW);
    scene.answer(Written::Conflict);
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Conflict);
}

/// The same step, but of another object: somebody else has thawed the first Node meanwhile.
#[test]
fn after_a_conflict_the_same_step_on_another_object_ends_the_pass() {
    let mut scene = Scene::new();
    let c = &mut scene.cluster;
    c.set_pool(keys::ACTIVE_ROTATION, "absent");
    c.lost = Some(Ungoverned::NoMatch);
    for node in ["node-old", "node-young"] {
        c.set_node(node, keys::SURGE_FOR, "absent");
    }
    scene.pass = Pass::new(scene.cluster.world());
    let answered = |scene: &mut Scene| loop {
        match scene.pass.next(scene.cluster.now) {
            Next::Read(LiveRead::NodeClaim(name)) => {
                scene.pass.answered(&LiveRead::NodeClaim(name), Answer::NodeClaim(None));
            }
            Next::Read(LiveRead::Node(name)) => {
                let node = scene.cluster.nodes.get(&name).cloned();
                scene.pass.answered(&LiveRead::Node(name), Answer::Node(node));
            }
            Next::Read(read) => panic!("{read:?}"),
            Next::Write(act) => return Ok(act.write.target().1.to_owned()),
            Next::Done(end) => return Err(end.result),
        }
    };
    let first = answered(&mut scene).unwrap();
    let thawed = scene.cluster.nodes.get_mut(&first).unwrap();
    thawed.meta.annotations = noderotation_shared::objects::Annotations::default();
    scene.answer(Written::Conflict);
    assert_eq!(answered(&mut scene), Err(PassResult::Conflict));
}

/// Whatever is written may be gone by then: the answer to the read behind it says so, and the pass goes on.
#[test]
fn a_write_to_a_node_or_a_placeholder_that_is_gone_is_gone_on_from() {
    let begin = |lost: bool| {
        let mut cluster = Cluster::new(&spec());
        cluster.provisions = false;
        cluster.run();
        cluster.lost = lost.then_some(Ungoverned::NoMatch);
        let pass = Pass::new(cluster.world());
        (cluster, pass)
    };
    // what each write meets, by the name of its step
    let drive = |cluster: &mut Cluster, pass: &mut Pass, meets: &dyn Fn(&mut Cluster, &Act) -> Option<Written>| {
        let mut steps = Vec::new();
        loop {
            match pass.next(cluster.now) {
                Next::Done(end) => return (steps, end.result),
                Next::Read(read) => {
                    let answer = cluster.answer(&read);
                    pass.answered(&read, answer);
                }
                Next::Write(act) => {
                    steps.push(act.name);
                    let written = meets(cluster, &act)
                        .unwrap_or_else(|| Written::Applied(cluster.apply(&act.write).map(Box::new)));
                    pass.written(written);
                }
            }
        }
    };
    let (mut cluster, mut pass) = begin(true);
    let (steps, result) = drive(&mut cluster, &mut pass, &|cluster, act| {
        match act.name {
            "lost-placeholder" => cluster.placeholder = None,
            "unprotect" => drop(cluster.nodes.remove("node-old")),
            _ => return None,
        }
        Some(Written::NotFound)
    });
    assert_eq!(
        (steps, result),
        (vec!["lost-placeholder", "unprotect", "lost-claim", "lost-anchor"], PassResult::Success)
    );
    cluster.assert_clean();

    // another replica has created it: a conflict, and it is taken for ours
    let (mut cluster, _) = begin(false);
    cluster.placeholder = None;
    let mut pass = Pass::new(cluster.world());
    let (steps, result) = drive(&mut cluster, &mut pass, &|cluster, act| {
        (act.name == "placeholder").then(|| {
            cluster.apply(&act.write);
            Written::Conflict
        })
    });
    assert_eq!((steps, result), (vec!["placeholder"], PassResult::Success));
}

#[test]
fn an_unknown_write_that_has_landed_is_not_sent_again_and_not_announced() {
    let mut scene = Scene::new();
    scene.next_write().unwrap();
    scene.cluster.set_pool(keys::ACTIVE_ROTATION, "old");
    scene.answer(Written::Unknown);
    assert_eq!(scene.next_write().unwrap().name, "pending");
    assert_eq!(scene.told, []);
}

#[test]
fn an_unknown_write_that_has_not_landed_fails_the_pass() {
    let mut scene = Scene::new();
    scene.next_write().unwrap();
    scene.answer(Written::Unknown);
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Failed);
}

#[test]
fn a_write_that_was_refused_or_a_read_that_failed_ends_the_pass() {
    let mut scene = Scene::new();
    scene.next_write().unwrap();
    scene.answer(Written::Failed);
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Failed);
    let mut scene = Scene::new();
    assert!(matches!(scene.pass.next(scene.cluster.now), Next::Read(_)));
    scene.pass.failed();
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Failed);
}

/// The pool is gone: its object is read again, and there is nothing left to decide.
#[test]
fn a_write_to_what_is_gone_is_followed_by_a_look_at_it() {
    let mut scene = Scene::new();
    scene.next_write().unwrap();
    scene.answer(Written::NotFound);
    let Next::Read(read) = scene.pass.next(scene.cluster.now) else { panic!("it is not read again") };
    assert_eq!(read, LiveRead::NodePool("api".into()));
    scene.pass.answered(&read, Answer::NodePool(None));
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Failed);
}

/// An answer to something else says nothing about what was asked.
#[test]
fn an_answer_to_another_question_fails_the_pass() {
    let mut scene = Scene::new();
    let Next::Read(read) = scene.pass.next(scene.cluster.now) else { panic!("nothing is read") };
    scene.pass.answered(&read, Answer::Nomination(None));
    assert_eq!(scene.next_write().unwrap_err(), PassResult::Failed);
}

/// The process stood still behind a write, or its clock was set back: nothing more is decided on what the pass was given.
#[test]
fn a_pass_that_is_too_old_ends_and_its_pool_is_looked_at_again() {
    for (seconds, ends) in [(119, false), (120, false), (121, true), (-1, true)] {
        let mut scene = Scene::new();
        scene.next_write().unwrap();
        scene.answer(scene.anchored());
        scene.cluster.after(seconds);
        let next = scene.next_write().map(|act| act.name);
        assert_eq!(next, if ends { Err(PassResult::Conflict) } else { Ok("pending") }, "{seconds} s");
    }
}
