//! A scenario in the simulator.

use noderotation_rotation::step::Write;
use noderotation_shared::kind::Kind;
use noderotation_shared::store::Stored;
use noderotation_simulator::Scenario;
use noderotation_simulator::cluster::Table;
use noderotation_simulator::scenario::OLD_CLAIM;
use serde_json::{Value, json};

use crate::Facts;
use crate::history::{Cast, Change, written};

/// What happens in it, as facts and as a story.
pub fn play(scenario: &Scenario) -> (Facts, String) {
    let played = scenario.play();
    let story = played.story.to_string();
    assert!(played.violation.is_none(), "{:?}\n{story}", played.violation);
    let cluster = &played.cluster;
    let mut changes = changes(&cluster.pools, Change::Pool);
    changes.extend(self::changes(&cluster.claims, Change::Claim));
    changes.extend(self::changes(&cluster.nodes, Change::Node));
    changes.extend(self::changes(&cluster.placeholders, Change::Placeholder));
    changes.sort_by_key(Change::version);
    let old_node =
        cluster.claims.log.iter().find(|logged| &*logged.object.meta.name == OLD_CLAIM).unwrap().object.node.clone();
    let mut cast = Cast::new(OLD_CLAIM, &old_node);
    let happened = cast.facts(&changes);
    let writes = played.writes.iter().map(|landed| {
        let (kind, name) = landed.write.target();
        let part = if kind == Kind::NodePool { "NodePool" } else { &cast.parts[name] };
        let (verb, body) = request(&landed.write);
        written(verb, part, &body)
    });
    (Facts { writes: writes.collect(), happened }, story)
}

fn changes<K: Stored>(table: &Table<K>, change: fn(K, bool) -> Change) -> Vec<Change> {
    table.log.iter().map(|logged| change(K::clone(&logged.object), logged.is_gone)).collect()
}

fn request(write: &Write) -> (&'static str, Value) {
    match write {
        Write::Patch(patch) => ("patch", patch.body()),
        Write::CreatePlaceholder(pod) => ("create", (**pod).clone()),
        Write::DeletePlaceholder { .. } | Write::DeleteClaim { .. } => ("delete", json!({})),
    }
}
