//! A Node on which nothing has to move goes without a replacement, and no other does (§9.8).

use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::pass::{Next, Pass, Written};
use noderotation_rotation::reason::Reason;
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::LiveRead;
use noderotation_shared::keys;
use noderotation_shared::objects::SurgePath;

use crate::cluster::*;

/// `old` is pending, and nothing runs on its Node.
fn empty() -> Cluster {
    let mut c = Cluster::new(&spec());
    c.load = NodeLoad { allocatable: Some(cpu("4")), ..NodeLoad::default() };
    c.run();
    c
}

/// The same, stopped before the crossing.
fn empty_and_cordoned() -> Cluster {
    let mut c = Cluster::new(&spec());
    c.load = NodeLoad::default();
    c.pass(4);
    assert_eq!(c.done, ["stamp-window", "anchor", "pending", "protect"]);
    c
}

fn a_pod_comes(c: &mut Cluster) {
    c.load.pods = 1;
    c.load.moving = cpu("1");
}

#[test]
fn the_path_of_one_rotation_without_a_replacement() {
    let mut c = Cluster::new(&spec());
    // no replacement, so no room for one is needed
    c.pool.limits = cpu("1");
    c.load = NodeLoad { allocatable: Some(cpu("4")), ..NodeLoad::default() };
    let end = c.run();
    assert_eq!(c.done, ["stamp-window", "anchor", "pending", "protect", "mirror", "draining"]);
    assert!(c.nodes["node-old"].unschedulable);
    let told = Reason::NothingToMove { claim: "old".into(), until: at("2026-12-04T18:00:10Z") };
    assert!(end.report.reasons.contains(&told), "{:?}", end.report.reasons);
    assert_eq!(end.wake_at, Some(at("2026-12-04T18:00:10Z")), "the scheduler may still bind what it had placed");
    c.after(9).run();
    assert_eq!(c.done.len(), 6, "{:?}", c.done);
    c.after(1).run();
    assert_eq!(c.done[6..], ["delete-claim"]);
    assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some("empty"));
    assert_eq!(c.pool.meta.annotations.get(keys::SURGE_WAIT), None);
    assert_eq!(c.pool.meta.annotations.get(keys::DRAINING_AT), Some("2026-12-04T18:00:00Z"));
    c.after(60).drained("old");
    c.run();
    c.assert_clean();
    assert_eq!(c.pool.meta.annotations.get(keys::LAST_ROTATION_AT), Some("2026-12-04T18:01:10Z"));
    let crossings = c.told.iter().filter(|told| matches!(told, Announcement::NothingToMove { .. }));
    assert_eq!(crossings.count(), 1);
    let Some(Announcement::Completed { surge_path, surge_wait, drain, .. }) = c.told.last() else {
        panic!("{:?}", c.told)
    };
    assert_eq!((*surge_path, *surge_wait), (Some(SurgePath::Empty), None));
    assert_eq!(drain.map(|drain| drain.as_secs()), Some(70));
}

/// Whoever binds it does so before the scheduler has seen the cordon, or the Pod tolerates it.
#[test]
fn a_pod_that_comes_before_the_deletion_gets_its_replacement() {
    for seconds in [1, 10, 60] {
        let mut c = empty();
        a_pod_comes(&mut c);
        c.after(seconds).run();
        assert_eq!(c.done[6..9], ["back-to-pending", "forget-crossing", "placeholder"], "{seconds} s later");
        assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some("provisioned"));
        assert!(c.pool.meta.annotations.has(keys::SURGE_WAIT));
        assert_eq!(c.done.last(), Some(&"delete-claim"));
    }
}

/// The second of the crossing is not told apart from that of the new attempt: the path says that it was another's.
#[test]
fn a_pod_that_comes_in_the_second_of_the_crossing_gets_its_replacement() {
    let mut c = empty();
    a_pod_comes(&mut c);
    c.run();
    assert_eq!(c.nodes["node-new"].meta.annotations.get(keys::SURGE_FOR), Some("old"));
    assert!(c.nodes["node-new"].ready && c.done.contains(&"placeholder"));
    assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some("provisioned"));
    assert!(c.pool.meta.annotations.has(keys::SURGE_WAIT));
    assert!(c.claims["old"].meta.deleted.is_some());
}

/// The process died between the mirror and the claim's `draining`; then a Pod came.
#[test]
fn a_pod_that_comes_between_mirror_and_claim_gets_its_replacement() {
    let mut c = empty_and_cordoned();
    c.pass(5);
    assert_eq!(c.done.last(), Some(&"mirror"));
    a_pod_comes(&mut c);
    c.after(60).run();
    assert_eq!(c.done[5..7], ["forget-crossing", "placeholder"], "{:?}", c.done);
    assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some("provisioned"));
    assert!(c.pool.meta.annotations.has(keys::SURGE_WAIT));
    assert!(c.claims["old"].meta.deleted.is_some());
}

/// Many Pods request nothing: they are Pods all the same.
#[test]
fn a_pod_without_requests_has_to_move_as_well() {
    let mut c = Cluster::new(&spec());
    c.load = NodeLoad { pods: 1, allocatable: Some(cpu("4")), ..NodeLoad::default() };
    c.run();
    assert!(c.done.contains(&"placeholder"), "{:?}", c.done);
    assert_eq!(c.pool.meta.annotations.get(keys::SURGE_PATH), Some("provisioned"));
}

/// The first look of the pass finds nothing; what is read behind the cordon does.
#[test]
fn a_pod_that_comes_while_the_pass_looks_gets_its_replacement() {
    let mut c = empty_and_cordoned();
    let mut pass = Pass::new(c.world());
    let mut reads = Vec::new();
    loop {
        match pass.next(c.now) {
            Next::Read(read) => {
                let answer = c.answer(&read);
                pass.answered(&read, answer);
                if matches!(read, LiveRead::Node(_)) {
                    a_pod_comes(&mut c);
                }
                reads.push(read);
            }
            Next::Write(act) => {
                assert_eq!(act.name, "placeholder");
                break;
            }
            Next::Done(end) => panic!("{end:?}"),
        }
    }
    let is_load = |read: &LiveRead| matches!(read, LiveRead::NodeLoad { .. });
    assert_eq!(reads.iter().map(is_load).collect::<Vec<_>>(), [true, false, true]);
}

/// What was read while the Node could still get Pods says nothing.
#[test]
fn a_cordon_that_was_taken_away_comes_first() {
    let mut c = empty_and_cordoned();
    let cached = c.world();
    c.nodes.get_mut("node-old").unwrap().unschedulable = false;
    let mut pass = Pass::new(cached);
    let mut is_first_look = true;
    let written = loop {
        match pass.next(c.now) {
            Next::Read(read) => {
                let answer = c.answer(&read);
                pass.answered(&read, answer);
                if matches!(read, LiveRead::NodeLoad { .. }) && std::mem::take(&mut is_first_look) {
                    a_pod_comes(&mut c);
                }
            }
            Next::Write(act) if act.name == "placeholder" => break c.done.clone(),
            Next::Write(act) => {
                let object = c.apply(&act.write);
                c.done.push(act.name);
                pass.written(Written::Applied(object.map(Box::new)));
            }
            Next::Done(end) => panic!("{end:?}"),
        }
    };
    assert_eq!(written[4..], ["protect"]);
}

/// A crossing without a host is judged by the Node, as it is now.
#[test]
fn a_node_that_is_no_longer_cordoned_or_no_longer_there_is_not_empty() {
    let mut c = empty();
    c.nodes.get_mut("node-old").unwrap().unschedulable = false;
    c.provisions = false;
    c.after(10).run();
    assert_eq!(c.done[6..9], ["back-to-pending", "forget-crossing", "protect"]);
    let mut c = empty();
    c.nodes.remove("node-old");
    c.after(10).run();
    assert_eq!(c.done[6], "back-to-pending");
    // long after the crossing nothing of it counts
    let mut c = empty();
    c.after(301).run();
    assert_eq!(c.done[6], "back-to-pending");
}

#[test]
fn a_crash_after_any_request_of_it_loses_nothing() {
    for crash in 0..9 {
        let mut c = Cluster::new(&spec());
        c.load = NodeLoad::default();
        c.pass(crash);
        c.run();
        c.after(10).pass(crash);
        c.run();
        c.after(60).drained("old");
        c.run();
        c.assert_clean();
        assert_eq!(c.done.iter().filter(|name| **name == "delete-claim").count(), 1, "{crash}");
        let told = |is: fn(&Announcement) -> bool| c.told.iter().filter(|told| is(told)).count();
        assert!(told(|told| matches!(told, Announcement::NothingToMove { .. })) <= 1, "{crash}");
        assert!(!c.done.contains(&"placeholder"), "{crash}");
    }
}

#[test]
fn what_holds_a_surge_holds_this_as_well() {
    let mut c = empty_and_cordoned();
    c.set_pool(keys::FREEZE, "2026-12-04T18:05:00Z");
    c.after(60).run();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
    c.after(300).run();
    c.after(10).run();
    assert!(c.claims["old"].meta.deleted.is_some());

    let mut c = empty();
    c.set_claim("old", keys::ROTATE, "cancel");
    c.after(5).run();
    c.assert_clean();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"));
}

/// A drain that would never end is one without Pods that must move, too: a DaemonSet's may hold it.
#[test]
fn an_undrainable_node_is_not_started_because_it_is_empty() {
    let mut c = Cluster::new(&spec());
    c.load = NodeLoad::default();
    c.never_drains("old");
    c.run();
    assert_eq!(c.pool.anchor(), None);
}
