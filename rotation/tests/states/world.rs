//! What a pass knows, and whether it knows it of the right object.

use noderotation_rotation::World;
use noderotation_shared::objects::NodeClaim;

use crate::cluster::*;

fn names(world: &World) -> Vec<&str> {
    world.claims.iter().map(|claim| &*claim.meta.name).collect()
}

#[test]
fn a_claim_is_found_by_its_own_node() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("young").unwrap().node = "".into();
    let world = c.world();
    let on = |node: &str| world.claim_on(node).map(|claim| claim.meta.name.to_string());
    assert_eq!(on("node-old").as_deref(), Some("old"));
    assert_eq!((on("node-young"), on("absent")), (None, None));
    assert_eq!(on(""), None, "a claim that has no Node yet is on none");
    let node_of = |claim: &str| {
        let claim = world.claims.iter().find(|c| &*c.meta.name == claim).unwrap();
        world.node_of(claim).map(|node| node.meta.name.to_string())
    };
    assert_eq!((node_of("old").as_deref(), node_of("young")), (Some("node-old"), None));
}

/// The answer to a deletion is the claim as it is then, or a mere status.
#[test]
fn only_the_claim_itself_is_learnt_from_the_answer_to_its_deletion() {
    let c = Cluster::new(&spec());
    let deleted = |name: &str| {
        let mut claim = c.claims[name].clone();
        claim.meta.deleted = Some(c.now);
        claim
    };
    let begin = || {
        let mut world = c.world();
        for claim in c.claims.values() {
            world.learn_claim(claim.clone());
        }
        world
    };
    let is_deleted = |world: &World, name: &str| {
        world.claims.iter().find(|claim| &*claim.meta.name == name).is_some_and(|claim| claim.meta.deleted.is_some())
    };
    let mut world = begin();
    world.learn_deleted_claim("old", Some(deleted("old")));
    assert!(is_deleted(&world, "old") && !is_deleted(&world, "young"));
    assert!(world.is_confirmed("old") && world.is_confirmed("young"));
    for nothing in [None, Some(deleted("young"))] {
        let mut world = begin();
        world.learn_deleted_claim("old", nothing);
        assert!(!is_deleted(&world, "old") && !is_deleted(&world, "young"));
        assert!(!world.is_confirmed("old"), "only a live read tells whether it is gone");
        assert!(world.is_confirmed("young"));
    }
}

#[test]
fn a_claim_that_is_learnt_takes_the_place_of_what_was_known_of_it() {
    let mut c = Cluster::new(&spec());
    c.set_pool(noderotation_shared::keys::ACTIVE_ROTATION, "old");
    let mut world = c.world();
    let older = c.claims["old"].clone();
    world.learn_claim(NodeClaim { ready: false, ..older.clone() });
    assert_eq!(names(&world), ["old", "young"]);
    assert!(world.claims.iter().any(|claim| !claim.ready && &*claim.meta.name == "old"));
    assert!(world.foreign.is_none());
    world.learn_claim(claim("new", NOW));
    assert_eq!(names(&world), ["old", "young", "new"]);
    // another pool's by now
    world.learn_claim(NodeClaim { pool: "other".into(), ..older });
    assert_eq!(names(&world), ["young", "new"]);
    assert_eq!(world.foreign.as_ref().map(|claim| &*claim.meta.name), Some("old"));
    world.learn_absent_claim("young");
    assert_eq!(names(&world), ["new"]);
    assert!(world.foreign.is_some() && world.is_absent("young") && !world.is_absent("old"));
    world.learn_absent_claim("old");
    assert!(world.foreign.is_none());
}
