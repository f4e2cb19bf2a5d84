//! Annotations of any kind on anything.

use noderotation_rotation::placeholder;
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::{Annotations, Placeholder, RotationMode};
use proptest::prelude::*;

use crate::cluster::*;

/// Annotations of any kind on anything: a decision is made, the same each time, and the next wake-up lies ahead.
#[derive(Clone, Debug)]
enum Mess {
    NodePool(usize, String),
    NodeClaim(usize, String),
    Node(usize, String),
    Deleted(u8),
    Placeholder(String, String),
    Gone(u8),
    Undrainable,
    Empty,
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
        Just(RotationMode::ForcefulFallback.word().to_owned()),
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
        Just(Mess::Undrainable),
        Just(Mess::Empty),
        (0u8..6).prop_map(Mess::Lost),
    ]
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

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
                Mess::Undrainable if c.claims.contains_key("old") => c.never_drains("old"),
                Mess::Empty => c.load.pods = 0,
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
