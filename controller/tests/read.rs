//! What live reads make of the API server's answers (§9.1, §9.2, §9.5, §9.7).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use noderotation_cluster::api::Api;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;
use noderotation_controller::read::read;
use noderotation_controller::watch::Caches;
use noderotation_rotation::drainable::Obstacle;
use noderotation_rotation::pass::Answer;
use noderotation_rotation::size::NodeLoad;
use noderotation_rotation::step::LiveRead;
use noderotation_rotation::world::Reapable;
use noderotation_shared::objects::Node;
use noderotation_shared::quantity::Resources;
use serde_json::{Value, json};

use support::{response, serve, status};

/// Answers by path: an object, a list, or a number, which is the code of a failure. Anything else is a 404.
type Script = BTreeMap<&'static str, Value>;

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let failed = |code: u16| response(code, status(code, "Scripted").to_string());
    match script.get(request.uri().path()) {
        None => failed(404),
        Some(Value::Number(code)) => failed(u16::try_from(code.as_u64().unwrap()).unwrap()),
        Some(Value::Array(items)) => response(200, json!({"metadata": {}, "items": items}).to_string()),
        Some(object) => response(200, object.to_string()),
    }
}

async fn asked(script: Script, caches: &Caches, wanted: &LiveRead) -> Result<Answer, String> {
    let api: Api = serve(Router::new().fallback(answer).with_state(Arc::new(script)), Arc::default()).await;
    read(&api, caches, "ns", wanted).await.map_err(|error| error.to_string())
}

fn caches() -> Caches {
    Caches::new(Arc::default(), Arc::default())
}

const NODE: &str = "/api/v1/nodes/n";
const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/old";
const PODS: &str = "/api/v1/pods";
const VOLUME_CLAIM: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
const VOLUME: &str = "/api/v1/persistentvolumes/pv-1";
const BUDGETS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";

fn pod(name: &str, owner: Option<&str>, cpu: &str) -> Value {
    let owners =
        owner.map(|kind| json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true}));
    json!({
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners.into_iter().collect::<Vec<_>>()},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    })
}

/// A candidate with one Pod that moves, with a volume, and one of a DaemonSet.
fn script() -> Script {
    let mut moving = pod("db-0", Some("StatefulSet"), "500m");
    moving["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let zone = |key: &str, operator: &str, value: &str| json!({"key": key, "operator": operator, "values": [value]});
    [
        (NODE, json!({"metadata": {"name": "n", "labels": {"zone": "a"}}})),
        (CLAIM, json!({
            "metadata": {"name": "old"},
            "spec": {"requirements": [
                {"key": "arch", "operator": "In", "values": ["amd64"]}, {"key": "os", "operator": "NotIn", "values": ["windows"]},
            ]},
            "status": {"allocatable": {"cpu": "2"}},
        })),
        (PODS, json!([moving, pod("agent", Some("DaemonSet"), "100m")])),
        (VOLUME_CLAIM, json!({"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1"}})),
        (VOLUME, json!({"metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [zone("topology.kubernetes.io/zone", "In", "a"), zone("topology.kubernetes.io/zone", "NotIn", "c")]},
            {"matchExpressions": [zone("topology.gke.io/zone", "In", "b"), zone("disk", "In", "fast")]},
        ]}}}})),
    ]
    .into()
}

async fn load(script: Script, is_drain_unbounded: bool) -> Result<NodeLoad, String> {
    let wanted = LiveRead::NodeLoad { claim: "old".into(), uid: "u".into(), node: "n".into(), is_drain_unbounded };
    match asked(script, &caches(), &wanted).await? {
        Answer::NodeLoad(load) => Ok(load),
        other => panic!("{other:?}"),
    }
}

fn with(path: &'static str, answer: Value) -> Script {
    let mut script = script();
    script.insert(path, answer);
    script
}

fn without(path: &'static str) -> Script {
    let mut script = script();
    script.remove(path);
    script
}

#[tokio::test]
async fn what_runs_on_a_candidate() {
    let cpu = |amount: &str| Resources::from_json([(&"cpu".to_owned(), &json!(amount))]);
    let expected = NodeLoad {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        requirements: [("arch".to_owned(), vec!["amd64".to_owned()])].into(),
        allocatable: Some(cpu("2")),
        moving: cpu("500m"),
        pods: 1,
        daemons: cpu("100m"),
        volume_zones: vec![("pv-1".to_owned(), vec!["a".to_owned(), "b".to_owned()])],
        obstacle: None,
    };
    assert_eq!(load(script(), false).await.unwrap(), expected);

    // what is not there holds nothing
    let unlabelled = NodeLoad { labels: BTreeMap::new(), ..expected.clone() };
    assert_eq!(load(without(NODE), false).await.unwrap(), unlabelled);
    let free = NodeLoad { volume_zones: Vec::new(), ..expected };
    assert_eq!(load(without(VOLUME_CLAIM), false).await.unwrap(), free);
    assert_eq!(load(without(VOLUME), false).await.unwrap(), free);
    assert_eq!(load(with(VOLUME_CLAIM, json!({"metadata": {"name": "data"}, "spec": {}})), false).await.unwrap(), free);
    assert!(load(with(PODS, json!([])), false).await.unwrap().is_empty());

    // what cannot be read is not taken for absent: the pass fails
    for path in [NODE, CLAIM, PODS, VOLUME_CLAIM, VOLUME] {
        assert!(load(with(path, json!(403)), false).await.is_err(), "{path}");
    }
    assert!(load(without(CLAIM), false).await.is_err(), "nobody knows of such a claim");
}

#[tokio::test]
async fn budgets_are_read_where_the_drain_has_no_end() {
    let budget = json!([{"metadata": {"name": "db", "namespace": "shop", "generation": 1}, "spec": {"maxUnavailable": 0, "selector": {}}}]);
    assert_eq!(load(with(BUDGETS, budget.clone()), false).await.unwrap().obstacle, None);
    let held = load(with(BUDGETS, budget), true).await.unwrap().obstacle;
    assert!(matches!(&held, Some(Obstacle::Pod { pod, .. }) if pod == "shop/db-0"), "{held:?}");
    let unreadable = load(with(BUDGETS, json!(403)), true).await.unwrap().obstacle;
    assert!(matches!(unreadable, Some(Obstacle::BudgetsUnreadable(_))), "{unreadable:?}");
    assert!(load(with(BUDGETS, json!(500)), true).await.is_err());
    // of a drain under way only what is known is told
    for (answer, budgets) in [(json!(403), Some(0)), (json!([]), Some(0)), (json!(500), None)] {
        let read = asked(
            with(BUDGETS, answer),
            &caches(),
            &LiveRead::Drain { claim: "old".into(), uid: "u".into(), node: "n".into() },
        )
        .await;
        let found = match read {
            Ok(Answer::Drain(remaining)) => {
                // the DaemonSet's as well: its drain waits for both
                assert_eq!(remaining.pods.len(), 2);
                Some(remaining.budgets.len())
            }
            _ => None,
        };
        assert_eq!(found, budgets);
    }
}

/// Only the API server's own 404 says that an object is gone.
#[tokio::test]
async fn an_object_is_gone_by_a_404_alone() {
    let wanted = LiveRead::Node("n".into());
    let cached = || {
        let caches = caches();
        caches.apply(
            Node::read(&json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}}).to_string()).unwrap(),
        );
        caches
    };
    assert!(matches!(asked(without(NODE), &cached(), &wanted).await, Ok(Answer::Node(None))));
    for code in [401, 403, 429, 500, 503] {
        assert!(asked(with(NODE, json!(code)), &cached(), &wanted).await.is_err(), "{code}");
    }
    let read =
        asked(with(NODE, json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "2"}})), &cached(), &wanted)
            .await;
    assert!(matches!(read, Ok(Answer::Node(Some(node))) if *node.meta.version == *"2"));
}

/// Who uses a surge claim's Node.
#[tokio::test]
async fn strangers_on_a_surge_claim_are_named() {
    let surge = |deleted: bool| {
        let mut claim = json!({
            "metadata": {"name": "new", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-12-01T00:00:00Z", "labels": {"karpenter.sh/nodepool": "api"}},
            "spec": {}, "status": {"nodeName": "n"},
        });
        if deleted {
            claim["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:01:00Z");
        }
        claim
    };
    let wanted = LiveRead::SurgeClaim("new".into());
    let path = "/apis/karpenter.sh/v1/nodeclaims/new";
    let read = async |script: Script| match asked(script, &caches(), &wanted).await.unwrap() {
        Answer::SurgeClaim(reapable) => reapable,
        other => panic!("{other:?}"),
    };
    let exists = Reapable::Exists {
        uid: "u".into(),
        pool: "api".into(),
        created: "2026-12-01T00:00:00Z".parse().unwrap(),
        strangers: vec!["db-0".into()],
    };
    assert_eq!(read(with(path, surge(false))).await, exists);
    assert_eq!(read(with(path, surge(true))).await, Reapable::Gone);
    assert_eq!(read(script()).await, Reapable::Gone);
}

#[tokio::test]
async fn the_newest_nomination_counts() {
    let event = |at: &str, claim: &str| json!({"metadata": {"name": "e"}, "lastTimestamp": at, "message": format!("Pod should schedule on: nodeclaim/{claim}, node/x")});
    let path = "/api/v1/namespaces/ns/events";
    let wanted = LiveRead::Nomination { placeholder: "surge-old".into() };
    let named = async |events: Value| match asked(with(path, events), &caches(), &wanted).await.unwrap() {
        Answer::Nomination(named) => named,
        other => panic!("{other:?}"),
    };
    let events = json!([event("2026-12-01T00:00:02Z", "b"), event("2026-12-01T00:00:01Z", "z"), {"metadata": {"name": "e"}, "message": "x"}]);
    assert_eq!(named(events).await.as_deref(), Some("b"));
    assert_eq!(named(json!([])).await, None);
}
