//! What belongs to no rotation, and what only looks like it.

use std::sync::Arc;

use noderotation_rotation::announcement::Announcement;
use noderotation_rotation::orphans::{Inventory, Orphan, orphans};
use noderotation_rotation::placeholder;
use noderotation_rotation::step::Write;
use noderotation_shared::keys;
use noderotation_shared::objects::{Annotations, Placeholder};

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
