//! What belongs to no rotation, and what only looks like it.

use std::sync::Arc;

use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::caches::{CacheOf as _, Caches};
use noderotation_rotation::orphans::{Inventory, Orphan, orphans};
use noderotation_rotation::placeholder;
use noderotation_rotation::step::Write;
use noderotation_shared::keys;
use noderotation_shared::objects::{Annotations, Node, NodeClaim, NodePool, Placeholder};

use crate::cluster::*;

/// A rotation of `old` in flight, with or without its anchor.
fn inventory(anchored: bool) -> Inventory {
    let mut meta = meta(&placeholder::name("old"), NOW);
    meta.annotations = Annotations::of([(keys::SURGE_FOR, "old")]);
    let mut frozen = node("node-old");
    frozen.meta.annotations = Annotations::of([(keys::SURGE_FOR, "old"), (keys::CORDONED, "true")]);
    frozen.unschedulable = true;
    let mut operators = node("node-young");
    operators.meta.annotations = Annotations::of([(keys::DO_NOT_DISRUPT, "true")]);
    operators.unschedulable = true;
    let mut old = claim("old", "2026-11-22T00:00:00Z");
    old.meta.annotations = Annotations::of([(keys::STATE, "draining"), (keys::STARTED_AT, NOW)]);
    Inventory {
        anchored: anchored.then(|| "old".to_owned()).into_iter().collect(),
        placeholders: vec![Arc::new(Placeholder { meta, pool: "api".into(), ..Placeholder::default() })],
        nodes: vec![Arc::new(frozen), Arc::new(operators)],
        claims: vec![Arc::new(old)],
    }
}

fn steps(found: &[Orphan]) -> Vec<&'static str> {
    found.iter().map(|orphan| orphan.act.name).collect()
}

#[test]
fn what_an_anchor_names_is_no_orphan_and_an_operators_own_is_none_either() {
    assert_eq!(orphans(&inventory(true), at(NOW)), []);
    let found = orphans(&inventory(false), at(NOW));
    assert_eq!(steps(&found), ["sweep-placeholder", "sweep-node", "sweep-claim"]);
    assert!(found.iter().all(|orphan| orphan.pool == "api" && orphan.claim == "old"), "{found:?}");
    let Write::Patch(unfreeze) = &found[1].act.write else { panic!("{found:?}") };
    assert_eq!((unfreeze.name.as_str(), unfreeze.version.as_str()), ("node-old", "1"));
    let Write::Patch(failed) = &found[2].act.write else { panic!("{found:?}") };
    assert_eq!(failed.version, "1");
    let wanted = [
        (keys::FAILED_AT, Some(NOW.to_owned())),
        (keys::STARTED_AT, None),
        (keys::STATE, Some("failed".to_owned())),
        (keys::SURGE_CLAIM, None),
    ];
    assert_eq!(failed.annotations, wanted.into_iter().collect());
    assert!(matches!(found[2].act.announce.as_slice(), [Announcement::AttemptFailed { retry_count: 0, .. }]));
}

/// It drains, whoever deleted it; and what terminates is on its way already.
#[test]
fn what_is_being_deleted_is_left_alone() {
    let mut inventory = inventory(false);
    inventory.nodes.clear();
    Arc::make_mut(&mut inventory.claims[0]).meta.deleted = Some(at(NOW));
    Arc::make_mut(&mut inventory.placeholders[0]).meta.deleted = Some(at(NOW));
    assert_eq!(orphans(&inventory, at(NOW)), []);
}

/// The sweep looks at everything there is; the pass of a pool at what is of this pool.
#[test]
fn an_inventory_holds_what_there_is_and_what_anchors_name() {
    let mut caches = Caches::default();
    for (name, anchor) in [("api", Some("old")), ("web", None)] {
        let mut pool = NodePool { meta: meta(name, NOW), ..NodePool::default() };
        pool.meta.annotations = Annotations::of(anchor.map(|claim| (keys::ACTIVE_ROTATION, claim)));
        caches.apply(pool);
        caches.apply(NodeClaim { pool: name.into(), ..claim(&format!("{name}-1"), NOW) });
        caches.apply(Node { pool: name.into(), ..node(&format!("node-{name}")) });
        let mut meta = meta(&format!("surge-{name}"), NOW);
        meta.annotations = Annotations::of([(keys::SURGE_FOR, "old")]);
        caches.apply(Placeholder { meta, pool: name.into(), ..Placeholder::default() });
    }
    let shown = |inventory: &Inventory| {
        let anchored = inventory.anchored.iter().cloned();
        let placeholders = inventory.placeholders.iter().map(|p| p.meta.name.to_string());
        let nodes = inventory.nodes.iter().map(|n| n.meta.name.to_string());
        let claims = inventory.claims.iter().map(|c| c.meta.name.to_string());
        anchored.chain(placeholders).chain(nodes).chain(claims).collect::<Vec<_>>().join(" ")
    };
    let all = Inventory::of_all(&caches);
    assert_eq!(shown(&all), "old surge-api surge-web node-api node-web api-1 web-1");
    let of_web = Inventory::of_pool(&caches, "web", Some("web-1".into()));
    assert_eq!(shown(&of_web), "web-1 surge-web node-web web-1");
    assert_eq!(shown(&Inventory::of_pool(&caches, "web", None)), "surge-web node-web web-1");
}

/// Which pool is asked whether its anchor names the claim: the claim's, whatever the placeholder's label says.
#[test]
fn an_orphan_is_checked_with_the_pool_of_its_claim() {
    let mut inventory = inventory(false);
    Arc::make_mut(&mut inventory.placeholders[0]).pool = "other".into();
    assert_eq!(orphans(&inventory, at(NOW))[0].pool, "api");
    inventory.claims.clear();
    assert_eq!(orphans(&inventory, at(NOW))[0].pool, "other", "the claim is gone");
    inventory.claims = vec![Arc::new(NodeClaim { pool: "third".into(), ..claim("else", NOW) })];
    assert_eq!(orphans(&inventory, at(NOW))[0].pool, "other", "that of another claim says nothing");
}
