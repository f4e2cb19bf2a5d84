//! What the caches show a pass, and which NodePools each change triggers (§8, *Triggers*). Without a trigger, a pool would
//! wait for the safety net, five minutes.

use std::collections::HashSet;
use std::sync::Arc;

use noderotation_rotation::caches::{CacheOf, Caches};
use noderotation_rotation::world::{Settings, World};
use noderotation_shared::governance::Ungoverned;
use noderotation_shared::keys;
use noderotation_shared::objects::{Annotations, Meta, Node, NodeClaim, NodePool, Placeholder, PolicyObject};
use serde_json::{Value, json};

use crate::cluster::{at, claim, meta, node, spec, with};

fn pool(name: &str) -> NodePool {
    NodePool { meta: meta(name, "2026-01-01T00:00:00Z"), ..NodePool::default() }
}

fn of_pool(name: &str, pool: &str) -> NodeClaim {
    NodeClaim { pool: pool.into(), ..claim(name, "2026-12-01T00:00:00Z") }
}

fn node_of(name: &str, pool: &str) -> Node {
    Node { pool: pool.into(), ..node(name) }
}

fn frozen_for(name: &str, pool: &str, claim: &str) -> Node {
    let mut node = node_of(name, pool);
    node.meta.annotations = Annotations::of([(keys::SURGE_FOR, claim)]);
    node
}

fn placeholder(name: &str, pool: &str, claim: &str) -> Placeholder {
    let mut meta = meta(name, "2026-12-04T18:00:00Z");
    meta.annotations = Annotations::of([(keys::SURGE_FOR, claim)]);
    Placeholder { meta, pool: pool.into(), ..Placeholder::default() }
}

fn policy(name: &str, spec: &Value) -> PolicyObject {
    PolicyObject::new(meta(name, "2026-01-01T00:00:00Z"), Some(1), spec, Value::Null)
}

/// The same object, changed by another writer.
fn newer<K: Clone>(object: &K, meta: impl Fn(&mut K) -> &mut Meta) -> K {
    let mut newer = object.clone();
    let meta = meta(&mut newer);
    meta.version = (meta.version.parse::<u64>().unwrap() + 1).to_string().into();
    meta.annotations = with(&meta.annotations, keys::FREEZE, "2027-01-01T00:00:00Z");
    newer
}

/// Another object of the same name: what was deleted never comes back.
fn recreated<K: Clone>(object: &K, meta: impl Fn(&mut K) -> &mut Meta) -> K {
    let mut recreated = object.clone();
    let meta = meta(&mut recreated);
    (meta.uid, meta.version) = ("recreated".into(), "9".into());
    recreated
}

fn names(triggers: Vec<Box<str>>) -> Vec<String> {
    triggers.into_iter().map(String::from).collect()
}

/// The pools `api` and `web`, a claim of each.
fn caches() -> Caches {
    let mut caches = Caches::default();
    for name in ["api", "web"] {
        caches.apply(pool(name));
        caches.apply(of_pool(&format!("{name}-1"), name));
    }
    caches
}

const NONE: [&str; 0] = [];

#[test]
fn a_change_of_a_node_pool_triggers_it() {
    let mut caches = Caches::default();
    let api = pool("api");
    assert_eq!(names(caches.apply(api.clone())), ["api"]);
    assert_eq!(names(caches.apply(api.clone())), NONE, "nothing has changed");
    let api = newer(&api, |pool| &mut pool.meta);
    assert_eq!(names(caches.apply(api.clone())), ["api"]);
    caches.apply(pool("web"));
    assert_eq!(names(caches.pool_names()), ["api", "web"]);
    assert_eq!(names(CacheOf::<NodePool>::delete(&mut caches, &api)), ["api"]);
    assert_eq!(names(CacheOf::<NodePool>::delete(&mut caches, &api)), NONE);
    assert_eq!(names(CacheOf::<NodePool>::init_done(&mut caches, &HashSet::new())), ["web"]);
    caches.apply(pool("web"));
    assert!(caches.pool("web").is_none(), "the watch is late");
    caches.apply(recreated(&pool("web"), |pool| &mut pool.meta));
    assert_eq!(names(CacheOf::<NodePool>::forget(&mut caches, "web")), ["web"]);
    assert!(caches.pool("web").is_none() && caches.pools().is_empty());
}

#[test]
fn a_change_of_a_claim_triggers_its_pool_and_the_one_it_was_of() {
    let mut caches = Caches::default();
    let old = of_pool("c", "api");
    assert_eq!(names(caches.apply(old.clone())), ["api"]);
    assert_eq!(names(caches.apply(old.clone())), NONE);
    let moved = NodeClaim { pool: "web".into(), ..newer(&old, |claim| &mut claim.meta) };
    assert_eq!(names(caches.apply(moved.clone())), ["api", "web"]);
    let of = |caches: &Caches, pool: &str| {
        caches.claims_of(pool).iter().map(|c| c.meta.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((of(&caches, "api"), of(&caches, "web")), (vec![], vec!["c".to_owned()]));
    let unlabelled = NodeClaim { pool: "".into(), ..newer(&moved, |claim| &mut claim.meta) };
    assert_eq!(names(caches.apply(unlabelled)), ["web"]);
    assert_eq!((of(&caches, "web"), of(&caches, "")), (vec![], vec![]));
    assert_eq!(caches.claims().len(), 1);

    let kept = of_pool("k", "api");
    caches.apply(kept.clone());
    assert_eq!(names(CacheOf::<NodeClaim>::delete(&mut caches, &kept)), ["api"]);
    assert_eq!(
        names(CacheOf::<NodeClaim>::delete(&mut caches, &kept)),
        ["api"],
        "the anchor's release may wait for it"
    );
    assert!(of(&caches, "api").is_empty());
    caches.apply(recreated(&kept, |claim| &mut claim.meta));
    caches.apply(newer(&of_pool("l", "web"), |claim| &mut claim.meta));
    assert_eq!(of(&caches, "web"), ["l"]);
    let left = HashSet::from(["uid-l".into()]);
    assert_eq!(names(CacheOf::<NodeClaim>::init_done(&mut caches, &left)), ["api"]);
    assert_eq!(names(CacheOf::<NodeClaim>::forget(&mut caches, "l")), NONE, "this pass has read it itself");
    assert!(caches.claim("l").is_none() && of(&caches, "web").is_empty());
}

#[test]
fn a_change_of_a_node_triggers_its_pool_and_the_rotation_that_it_is_frozen_for() {
    let mut caches = caches();
    assert_eq!(names(caches.apply(node_of("n", "api"))), ["api"]);
    assert_eq!(names(caches.apply(node_of("n", "api"))), NONE);
    let frozen = newer(&frozen_for("n", "api", "web-1"), |node| &mut node.meta);
    assert_eq!(names(caches.apply(frozen.clone())), ["api", "web"]);
    let of = |caches: &Caches, pool: &str, claim| {
        caches.nodes_for(pool, claim, []).keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of(&caches, "web", Some("web-1")), ["n"]);
    assert_eq!((of(&caches, "web", None), of(&caches, "web", Some("api-1"))), (vec![], vec![]));
    assert_eq!(caches.nodes_for("web", None, ["n", "absent"]).len(), 1, "the host of a placeholder");
    let thawed = Node {
        meta: Meta { annotations: Annotations::default(), ..newer(&frozen, |n| &mut n.meta).meta },
        ..node_of("n", "api")
    };
    assert_eq!(names(caches.apply(thawed)), ["api", "web"]);
    assert_eq!(of(&caches, "web", Some("web-1")), NONE);
    assert_eq!(names(caches.apply(node_of("bare", ""))), NONE);
    assert_eq!(of(&caches, "", None), NONE);

    let gone = frozen_for("m", "api", "web-1");
    caches.apply(gone.clone());
    assert_eq!(names(CacheOf::<Node>::delete(&mut caches, &gone)), ["api", "web"]);
    assert_eq!(names(CacheOf::<Node>::delete(&mut caches, &gone)), ["api", "web"]);
    assert_eq!(of(&caches, "web", Some("web-1")), NONE);
    caches.apply(recreated(&gone, |node| &mut node.meta));
    assert_eq!(names(CacheOf::<Node>::init_done(&mut caches, &HashSet::from(["uid-n".into()]))), ["api", "web"]);
    caches.apply(frozen_for("o", "api", "web-1"));
    assert_eq!(names(CacheOf::<Node>::forget(&mut caches, "o")), NONE);
    assert_eq!(of(&caches, "web", Some("web-1")), NONE);
}

#[test]
fn a_change_of_a_placeholder_triggers_the_pool_of_its_label_and_of_its_claim() {
    let mut caches = caches();
    let labelled = placeholder("surge-a", "api", "gone");
    assert_eq!(names(caches.apply(labelled.clone())), ["api"], "its claim may be gone");
    assert_eq!(names(caches.apply(labelled.clone())), NONE);
    let bare = placeholder("surge-b", "", "web-1");
    assert_eq!(names(caches.apply(bare.clone())), ["web"], "a long name of a pool leaves no label");
    assert_eq!(names(caches.apply(placeholder("surge-c", "api", "web-1"))), ["api", "web"]);
    assert_eq!(caches.placeholders().len(), 3);
    let shown = |caches: &Caches, pool: &str, anchored| {
        caches.placeholders_for(pool, anchored).keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(shown(&caches, "api", None), ["surge-a", "surge-c"]);
    assert_eq!(shown(&caches, "web", None), NONE);
    assert_eq!(shown(&caches, "web", Some("web-1")), ["surge-b", "surge-c"]);
    assert_eq!(names(CacheOf::<Placeholder>::delete(&mut caches, &labelled)), ["api"]);
    assert!(caches.placeholder("surge-a").is_none());
    let left = HashSet::from(["uid-surge-c".into()]);
    assert_eq!(names(CacheOf::<Placeholder>::init_done(&mut caches, &left)), ["web"]);
    assert_eq!(names(CacheOf::<Placeholder>::forget(&mut caches, "surge-c")), NONE);
    assert!(caches.placeholders().is_empty());
}

/// It may alter which policy wins any pool.
#[test]
fn a_change_of_a_policy_triggers_every_pool() {
    let mut caches = caches();
    let first = policy("p", &spec());
    assert_eq!(names(caches.apply(first.clone())), ["api", "web"]);
    assert_eq!(names(caches.apply(first.clone())), NONE);
    assert_eq!(caches.policies().len(), 1);
    let told = PolicyObject { status: json!({"candidates": 1}), ..newer(&first, |policy| &mut policy.meta) };
    let told = PolicyObject { meta: Meta { annotations: first.meta.annotations.clone(), ..told.meta.clone() }, ..told };
    assert_eq!(names(caches.apply(told)), NONE, "its status is what we have written ourselves");
    assert_eq!(caches.policies()[0].status, json!({"candidates": 1}));
    let respecified = PolicyObject { generation: Some(2), ..newer(&newer(&first, |p| &mut p.meta), |p| &mut p.meta) };
    assert_eq!(names(caches.apply(respecified)), ["api", "web"]);
    assert_eq!(names(CacheOf::<PolicyObject>::delete(&mut caches, &first)), ["api", "web"]);
    assert_eq!(names(CacheOf::<PolicyObject>::delete(&mut caches, &first)), NONE);
    caches.apply(recreated(&first, |policy| &mut policy.meta));
    let uids = HashSet::from(["recreated".into()]);
    assert_eq!(names(CacheOf::<PolicyObject>::init_done(&mut caches, &uids)), NONE);
    assert_eq!(names(CacheOf::<PolicyObject>::init_done(&mut caches, &HashSet::new())), ["api", "web"]);
    caches.apply(first);
    assert!(caches.policies().is_empty(), "the watch is late");
    caches.apply(newer(&policy("q", &spec()), |policy| &mut policy.meta));
    assert_eq!(names(CacheOf::<PolicyObject>::forget(&mut caches, "p")), NONE);
    assert_eq!(names(CacheOf::<PolicyObject>::forget(&mut caches, "q")), ["api", "web"]);
    assert_eq!(names(CacheOf::<PolicyObject>::forget(&mut caches, "q")), NONE);
}

type Tell = fn(&mut Caches, &HashSet<Box<str>>);

/// A leader that decided before would take what it has not heard of for gone.
#[test]
fn nothing_is_decided_before_every_kind_has_told_its_initial_state() {
    for missing in 0..=5 {
        let mut caches = Caches::default();
        let none = HashSet::new();
        let tell: [Tell; 5] = [
            |c, none| drop(CacheOf::<NodePool>::init_done(c, none)),
            |c, none| drop(CacheOf::<NodeClaim>::init_done(c, none)),
            |c, none| drop(CacheOf::<Node>::init_done(c, none)),
            |c, none| drop(CacheOf::<Placeholder>::init_done(c, none)),
            |c, none| drop(CacheOf::<PolicyObject>::init_done(c, none)),
        ];
        for (_, tell) in tell.iter().enumerate().filter(|(kind, _)| *kind != missing) {
            tell(&mut caches, &none);
        }
        assert_eq!(caches.is_initialized(), missing == 5);
    }
}

#[test]
fn a_pass_sees_its_pool_and_what_a_rotation_of_it_has_touched() {
    let settings = Arc::new(Settings { namespace: "ns".into(), ..Settings::default() });
    let now = at("2026-12-04T18:00:00Z");
    let world = |caches: &mut Caches, pool: &str, stale| caches.world(&settings, pool, stale, now);
    let mut caches = caches();
    assert!(world(&mut caches, "absent", false).is_none());
    caches.apply(node_of("node-api-1", "api"));
    caches.apply(frozen_for("host", "", "api-1"));
    caches.apply(node_of("node-web-1", "web"));
    let mut surge = placeholder("surge-api-1", "", "api-1");
    surge.node = "elsewhere".into();
    caches.apply(surge);
    caches.apply(node_of("elsewhere", "other"));
    let unanchored = world(&mut caches, "api", false).unwrap();
    let nodes = |world: &World| world.nodes.keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(nodes(&unanchored), ["node-api-1"]);
    assert_eq!(unanchored.governance.map(|g| g.name), Err(Ungoverned::NoMatch));
    assert!(!unanchored.stale && unanchored.placeholders.is_empty() && unanchored.foreign.is_none());

    let mut anchored = newer(&pool("api"), |pool| &mut pool.meta);
    anchored.meta.annotations = with(&anchored.meta.annotations, keys::ACTIVE_ROTATION, "api-1");
    caches.apply(anchored.clone());
    caches.apply(policy("p", &spec()));
    let seen = world(&mut caches, "api", true).unwrap();
    assert_eq!(nodes(&seen), ["elsewhere", "host", "node-api-1"]);
    assert_eq!(seen.claims.iter().map(|c| &*c.meta.name).collect::<Vec<_>>(), ["api-1"]);
    assert_eq!(seen.placeholders.keys().map(|k| &**k).collect::<Vec<_>>(), ["surge-api-1"]);
    assert!(seen.stale && seen.foreign.is_none());
    assert_eq!(&seen.settings.namespace, "ns");
    assert_eq!(seen.governance.map(|g| g.name), Ok("p".to_owned()));

    // the anchor names a claim of another pool
    let mut foreign = newer(&anchored, |pool| &mut pool.meta);
    foreign.meta.annotations = with(&foreign.meta.annotations, keys::ACTIVE_ROTATION, "web-1");
    caches.apply(foreign);
    let seen = world(&mut caches, "api", false).unwrap();
    assert_eq!(seen.foreign.map(|claim| claim.meta.name.clone()).as_deref(), Some("web-1"));

    // nothing selects it; what its template says is a mistake to tell
    let mut meant = newer(&pool("web"), |pool| &mut pool.meta);
    meant.template_labels = [("workload".to_owned(), "web".to_owned())].into();
    let mut labelled = spec();
    labelled["nodePoolSelector"] = json!({"matchLabels": {"workload": "web"}});
    let mut alone = Caches::default();
    alone.apply(meant);
    alone.apply(policy("of-template", &labelled));
    let why = world(&mut alone, "web", false).unwrap().governance.map(|g| g.name);
    assert_eq!(why, Err(Ungoverned::OnlyTemplate("of-template".into())));

    // a policy that is being deleted governs nothing
    let mut going = newer(&policy("p", &spec()), |policy| &mut policy.meta);
    going.meta.deleted = Some(now);
    caches.apply(going);
    assert_eq!(world(&mut caches, "api", false).unwrap().governance.map(|g| g.name), Err(Ungoverned::NoMatch));
}

/// What a week holds is computed once for each version of a policy and each week. Mexico left daylight saving time on Sunday,
/// 2022-10-30: in the year from the Monday before, one day has 25 hours; from the Monday after, none has.
#[test]
fn the_cadence_follows_the_policy_and_the_week() {
    let settings = Arc::new(Settings::default());
    let daily = |start: &str, days: &[&str]| {
        json!({
            "nodePoolSelector": {},
            "maintenanceWindows": [{"timezone": "America/Mexico_City", "days": days, "start": start, "end": "06:00"}],
        })
    };
    let all = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let mut caches = caches();
    let first = policy("p", &daily("03:00", &all));
    caches.apply(first.clone());
    let period = |caches: &mut Caches, now: &str| {
        let world = caches.world(&settings, "api", false, at(now)).unwrap();
        world.governance.unwrap().cadence.measures.p().as_hours()
    };
    for (now, hours) in [
        ("2022-10-24T00:00:00Z", 25),
        ("2022-10-30T23:59:59Z", 25),
        ("2022-10-31T00:00:00Z", 24),
        ("2022-11-06T23:59:59Z", 24),
        ("2022-10-30T23:59:59Z", 25),
    ] {
        assert_eq!(period(&mut caches, now), hours, "{now}");
    }
    let now = "2022-11-01T00:00:00Z";
    assert_eq!(period(&mut caches, now), 24);
    let changed = newer(&policy("p", &daily("03:00", &["Wed"])), |policy| &mut policy.meta);
    caches.apply(PolicyObject { generation: Some(2), ..changed });
    assert_eq!(period(&mut caches, now), 7 * 24, "another version");
    // it is expensive, and computed once: of one generation the API server has one spec
    let same = newer(&newer(&policy("p", &daily("03:00", &all)), |p| &mut p.meta), |p| &mut p.meta);
    caches.apply(PolicyObject { generation: Some(2), ..same });
    assert_eq!(period(&mut caches, "2022-11-06T23:59:59Z"), 7 * 24, "computed again within the week");
    let again = recreated(&policy("p", &daily("03:00", &["Wed", "Sat"])), |policy| &mut policy.meta);
    caches.apply(PolicyObject { generation: Some(2), ..again });
    assert_eq!(period(&mut caches, now), 4 * 24, "another policy of the same name and generation");
}
