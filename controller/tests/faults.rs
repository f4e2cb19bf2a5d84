//! Passes against an API server with faults: what lands is told once, what does not is not told, and a lost answer is
//! neither.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use jiff::Timestamp;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;
use noderotation_controller::events::{Event, Recorder};
use noderotation_controller::leader::Term;
use noderotation_controller::metrics::Metrics;
use noderotation_controller::queue::Queue;
use noderotation_controller::reconcile::Reconciler;
use noderotation_controller::sweep::sweep;
use noderotation_controller::watch::Caches;
use noderotation_rotation::event_reason::EventReason;
use noderotation_rotation::world::Settings;
use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder, PolicyObject};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use support::{body_of, response, status};

const POOL: &str = "/apis/karpenter.sh/v1/nodepools/api";
const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/old";
const NODE: &str = "/api/v1/nodes/node-old";
const MOVING: &str = "/api/v1/namespaces/shop/pods/web-0";
const POD: &str = "/api/v1/namespaces/shop/pods/db-0";
const BUDGETS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
const ORPHAN: &str = "/api/v1/namespaces/ns/pods/surge-old";

/// What goes wrong with the next write whose path and body contain these.
#[derive(Clone, Debug)]
struct Fault {
    path: &'static str,
    body: &'static str,
    what: What,
    times: usize,
}

#[derive(Clone, Debug)]
enum What {
    /// Answers this code without doing anything.
    Code(u16),
    /// Does it, and the answer is lost.
    LostAnswer,
    /// Somebody else writes this annotation first.
    Overtaken(&'static str, &'static str),
    /// The object goes first.
    Vanishes,
    /// Answers this code and this `Retry-After` without doing anything.
    Busy(u16, u64),
}

#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    version: u64,
    faults: Vec<Fault>,
    writes: Vec<String>,
    /// The PodDisruptionBudgets of the namespace `shop`; `None`: they may not be listed.
    budgets: Option<Vec<Value>>,
    /// How often those were listed.
    budget_lists: usize,
    /// The `Retry-After` of the answer at hand.
    retry_after: Option<u64>,
}

impl Server {
    fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object);
    }

    fn annotate(&mut self, path: &str, key: &str, value: &str) {
        let mut object = self.objects[path].clone();
        object["metadata"]["annotations"][key] = value.into();
        self.put(path, object);
    }

    fn annotation(&self, path: &str, key: &str) -> Option<String> {
        self.objects[path]["metadata"]["annotations"][format!("noderotation.io/{key}")].as_str().map(str::to_owned)
    }

    /// The Pods that a list with this query finds.
    fn pods(&self, query: &str) -> Vec<&Value> {
        let node = query.split('&').find_map(|p| p.strip_prefix("fieldSelector=spec.nodeName%3D"));
        let pods = self.objects.iter().filter(|(path, _)| path.contains("/pods/")).map(|(_, pod)| pod);
        pods.filter(|pod| node.is_none_or(|node| pod["spec"]["nodeName"] == node)).collect()
    }

    fn answer(&mut self, method: &str, path: &str, query: &str, body: &Value) -> (u16, Value) {
        if method == "GET" && path == BUDGETS {
            self.budget_lists += 1;
            return match &self.budgets {
                Some(budgets) => (200, json!({"metadata": {}, "items": budgets})),
                None => (403, status(403, "Scripted")),
            };
        }
        if method == "GET" {
            return match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None if path == "/api/v1/pods" => (200, json!({"metadata": {}, "items": self.pods(query)})),
                None => (404, status(404, "Scripted")),
            };
        }
        self.writes.push(format!("{method} {path}"));
        let text = body.to_string();
        let hit = self.faults.iter().position(|f| f.times > 0 && path.contains(f.path) && text.contains(f.body));
        let fault = hit.map(|i| {
            self.faults[i].times -= 1;
            self.faults[i].what.clone()
        });
        match fault {
            Some(What::Code(code)) => return (code, status(code, "Scripted")),
            Some(What::Busy(code, seconds)) => {
                self.retry_after = Some(seconds);
                return (code, status(code, "Scripted"));
            }
            Some(What::LostAnswer) => {
                self.write(method, path, body);
                return (500, status(500, "Scripted"));
            }
            Some(What::Overtaken(key, value)) => self.annotate(path, key, value),
            Some(What::Vanishes) => {
                self.objects.remove(path);
            }
            None => {}
        }
        self.write(method, path, body)
    }

    fn write(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        if method == "POST" {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{path}/{name}");
            let mut object = body.clone();
            object["metadata"]["uid"] = "uid-pod".into();
            object["status"] = json!({"phase": "Pending"});
            self.put(&path, object);
            return (201, self.objects[&path].clone());
        }
        let Some(object) = self.objects.get(path).cloned() else { return (404, status(404, "Scripted")) };
        if method == "DELETE" {
            let differs =
                |key| body["preconditions"][key].as_str().is_some_and(|seen| object["metadata"][key] != *seen);
            if differs("uid") || differs("resourceVersion") {
                return (409, status(409, "Scripted"));
            }
            self.objects.remove(path);
            return (200, object);
        }
        if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return (409, status(409, "Scripted"));
        }
        let mut object = object;
        merge(&mut object, body);
        self.put(path, object);
        (200, self.objects[path].clone())
    }
}

fn merge(into: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        match value {
            Value::Null => {
                if let Some(object) = into.as_object_mut() {
                    object.remove(key);
                }
            }
            Value::Object(_) => merge(&mut into[key], value),
            other => into[key] = other.clone(),
        }
    }
}

async fn answer(State(server): State<Arc<Mutex<Server>>>, request: Request) -> Response {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = body_of(request).await;
    let ((code, answer), retry_after) = {
        let mut server = server.lock().unwrap();
        (server.answer(&method, &path, &query, &body), server.retry_after.take())
    };
    let mut response = response(code, answer.to_string());
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    response
}

struct Scene {
    server: Arc<Mutex<Server>>,
    reconciler: Arc<Reconciler>,
    events: Receiver<Event>,
    told: Vec<EventReason>,
}

impl Scene {
    /// One pool with one old node, on which a Pod runs, always in its window; a worker that waits for a trigger.
    async fn start(faults: Vec<Fault>) -> Self {
        let scene = Self::prepare(faults).await;
        tokio::spawn(scene.reconciler.clone().work());
        scene
    }

    /// The same without a worker.
    async fn prepare(faults: Vec<Fault>) -> Self {
        let mut server = Server { faults, ..Server::default() };
        let labels = json!({"karpenter.sh/nodepool": "api", "kubernetes.io/hostname": "node-old"});
        server.put(POOL, json!({
            "metadata": {"name": "api", "uid": "uid-api", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {}},
            "spec": {"template": {"spec": {"expireAfter": "336h", "terminationGracePeriod": "1h"}}},
        }));
        server.put(CLAIM, claim(335));
        server.put(
            NODE,
            json!({
                "metadata": {"name": "node-old", "uid": "uid-node", "labels": labels, "annotations": {}}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }),
        );
        // without a Pod that has to move nothing would be reserved (§9.8)
        server.put(
            MOVING,
            json!({
                "metadata": {"name": "web-0", "namespace": "shop"},
                "spec": {"nodeName": "node-old", "containers": []}, "status": {"phase": "Running"},
            }),
        );
        let server = Arc::new(Mutex::new(server));
        let metrics = Arc::new(Metrics::new());
        let routes = Router::new().fallback(answer).with_state(server.clone());
        let api = support::serve(routes, metrics.client_metrics.clone()).await;
        let queue = Arc::new(Queue::default());
        let caches = Arc::new(Caches::new(queue.clone(), Arc::default()));
        {
            let server = server.lock().unwrap();
            let text = |path: &str| server.objects[path].to_string();
            caches.apply(NodePool::read(&text(POOL)).unwrap());
            caches.apply(NodeClaim::read(&text(CLAIM)).unwrap());
            caches.apply(Node::read(&text(NODE)).unwrap());
        }
        let all = json!(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]);
        let policy = json!({
            "metadata": {"name": "p", "uid": "uid-p", "resourceVersion": "1", "generation": 1},
            "spec": {"nodePoolSelector": {}, "maintenanceWindows": [{"timezone": "UTC", "days": all, "start": "00:00", "end": "24:00"}]},
        });
        caches.apply(PolicyObject::read(&policy.to_string()).unwrap());
        let (recorder, events) = Recorder::new();
        let reconciler = Arc::new(Reconciler {
            api,
            caches,
            queue,
            term: Term::until(tokio::time::Instant::now() + Duration::from_secs(3600)),
            settings: Arc::new(Settings { namespace: "ns".into(), priority_class: "pc".into(), ..Settings::default() }),
            metrics,
            recorder,
            event_dedup: parking_lot::Mutex::default(),
            stop: CancellationToken::new(),
        });
        Self { server, reconciler, events, told: Vec::new() }
    }

    /// Waits for a condition of the server, generously.
    async fn until(&mut self, what: &str, holds: impl Fn(&Server) -> bool) {
        self.wait(what, |scene| holds(&scene.server.lock().unwrap())).await;
    }

    /// Waits for an event: it follows its write, so it may come after what the server shows.
    async fn until_told(&mut self, reason: EventReason) {
        self.wait(reason.word(), |scene| scene.count(reason) > 0).await;
    }

    async fn wait(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..2_000 {
            while let Ok(event) = self.events.try_recv() {
                self.told.push(event.reason);
            }
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain for {what}; writes: {:?}, told: {:?}", self.server.lock().unwrap().writes, self.told);
    }

    /// An orphaned placeholder of `old`, cached as it is stored.
    fn with_orphan(self) -> Self {
        let pod = json!({
            "metadata": {"name": "surge-old", "uid": "uid-pod", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"noderotation.io/surge-for": "surge-old", "karpenter.sh/nodepool": "api"},
                "annotations": {"noderotation.io/surge-for": "old"}},
            "spec": {}, "status": {"phase": "Pending"},
        });
        let mut server = self.server.lock().unwrap();
        server.put(ORPHAN, pod);
        self.reconciler.caches.apply(Placeholder::read(&server.objects[ORPHAN].to_string()).unwrap());
        drop(server);
        self
    }

    /// A reconciler with the same server and caches, and this term.
    fn reconciler_until(&self, term: Term) -> Reconciler {
        Reconciler {
            api: self.reconciler.api.clone(),
            caches: self.reconciler.caches.clone(),
            queue: Arc::new(Queue::default()),
            term,
            settings: self.reconciler.settings.clone(),
            metrics: Arc::new(Metrics::new()),
            recorder: self.reconciler.recorder.clone(),
            event_dedup: parking_lot::Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    async fn until_reserved(&mut self) {
        self.until("the placeholder", |s| s.objects.keys().any(|k| k.contains("/pods/surge-old"))).await;
    }

    fn count(&self, reason: EventReason) -> usize {
        self.told.iter().filter(|told| **told == reason).count()
    }
}

/// The NodeClaim `old`, this many hours old.
fn claim(hours: i64) -> Value {
    let born = Timestamp::now() - jiff::SignedDuration::from_hours(hours);
    json!({
        "metadata": {
            "name": "old", "uid": "uid-old", "creationTimestamp": born.to_string(), "annotations": {},
            "labels": {"karpenter.sh/nodepool": "api", "kubernetes.io/hostname": "node-old"},
        },
        "spec": {"expireAfter": "336h", "terminationGracePeriod": "1h"},
        "status": {"nodeName": "node-old", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn fault(path: &'static str, body: &'static str, what: What) -> Vec<Fault> {
    vec![Fault { path, body, what, times: 1 }]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_all_lands_and_is_told_once() {
    let mut scene = Scene::start(Vec::new()).await;
    scene.until_reserved().await;
    scene.until_told(EventReason::RotationStarted).await;
    assert_eq!(scene.count(EventReason::RotationStarted), 1);
    let server = scene.server.lock().unwrap();
    assert_eq!(server.annotation(POOL, "active-rotation").as_deref(), Some("old"));
    assert_eq!(server.annotation(CLAIM, "state").as_deref(), Some("pending"));
    assert_eq!(server.objects[NODE]["spec"]["unschedulable"], true);
    assert_eq!(server.writes.len(), 5, "{:?}", server.writes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unrelated_writer_only_costs_a_second_try() {
    let mut scene = Scene::start(fault(POOL, "active-rotation", What::Overtaken("other.example/note", "x"))).await;
    scene.until_reserved().await;
    scene.until_told(EventReason::RotationStarted).await;
    assert_eq!(scene.count(EventReason::RotationStarted), 1);
    assert_eq!(scene.server.lock().unwrap().objects[POOL]["metadata"]["annotations"]["other.example/note"], "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_decided_meanwhile_holds() {
    let mut scene =
        Scene::start(fault(POOL, "active-rotation", What::Overtaken("noderotation.io/freeze", "2099-01-01T00:00:00Z")))
            .await;
    scene.until("the lost race", |s| s.annotation(POOL, "freeze").is_some()).await;
    let metrics = scene.reconciler.metrics.clone();
    scene.until("a clean pass after it", |_| metrics.render().contains("reconcile_total{result=\"success\"} ")).await;
    let server = scene.server.lock().unwrap();
    assert_eq!(server.annotation(POOL, "active-rotation"), None, "anchored although frozen");
    assert_eq!(scene.count(EventReason::RotationStarted), 0, "told what did not happen");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_was_lost_is_gone_on_from_and_not_told() {
    let mut scene = Scene::start(fault(POOL, "active-rotation", What::LostAnswer)).await;
    scene.until_reserved().await;
    assert_eq!(scene.count(EventReason::RotationStarted), 0, "it may have landed: nobody may say so");
    let anchors = scene.server.lock().unwrap().writes.iter().filter(|w| w.ends_with("nodepools/api")).count();
    assert_eq!(anchors, 2, "the stamp and one anchor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_trouble_is_asked_again_after_the_backoff_and_it_is_told_once() {
    let faults = vec![Fault { path: POOL, body: "active-rotation", what: What::Code(500), times: 2 }];
    let mut scene = Scene::start(faults).await;
    scene.until_reserved().await;
    scene.until_told(EventReason::RotationStarted).await;
    assert_eq!(scene.count(EventReason::RotationStarted), 1);
    assert!(scene.reconciler.metrics.render().contains("noderotation_retries_total{loop=\"rotation\"}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_and_nothing_goes_on_without_it() {
    let faults = vec![Fault { path: NODE, body: "cordoned", what: What::Code(403), times: 2 }];
    let mut scene = Scene::start(faults).await;
    scene.until_reserved().await;
    scene.until_told(EventReason::WriteRefused).await;
    assert_eq!(scene.count(EventReason::WriteRefused), 1, "once for a message: {:?}", scene.told);
    let server = scene.server.lock().unwrap();
    let freeze = server.writes.iter().filter(|w| w.ends_with("node-old")).count();
    assert_eq!(freeze, 3, "{:?}", server.writes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_vanishes_under_a_write_ends_as_expired() {
    let mut scene = Scene::start(fault(CLAIM, "pending", What::Vanishes)).await;
    scene.until("the release", |s| s.annotation(POOL, "active-rotation").is_none() && s.writes.len() > 2).await;
    scene.until_told(EventReason::RotationExpired).await;
    assert_eq!(scene.count(EventReason::RotationExpired), 1, "{:?}", scene.told);
    assert!(!scene.server.lock().unwrap().objects.keys().any(|k| k.contains("surge-")));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_term_nothing_is_written() {
    let mut scene = Scene::start(Vec::new()).await;
    scene.until_reserved().await;
    let over = scene.reconciler_until(Term::until(tokio::time::Instant::now()));
    scene.reconciler.stop.cancel();
    scene.server.lock().unwrap().annotate(CLAIM, "noderotation.io/state", "");
    let before = scene.server.lock().unwrap().writes.len();
    let claim = NodeClaim::read(&scene.server.lock().unwrap().objects[CLAIM].to_string()).unwrap();
    over.caches.apply(claim);
    over.queue.trigger("api");
    let (metrics, over) = (over.metrics.clone(), Arc::new(over));
    tokio::spawn(over.work());
    scene.until("the pass to fail", |_| metrics.render().contains("reconcile_total{result=\"error\"} ")).await;
    assert_eq!(scene.server.lock().unwrap().writes.len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_time_gets_it() {
    for code in [429, 503] {
        let mut scene = Scene::start(fault(POOL, "active-rotation", What::Busy(code, 3))).await;
        let refused = |s: &Server| s.writes.iter().filter(|w| w.ends_with("nodepools/api")).count() >= 2;
        scene.until("the stamp and the anchor that did not land", refused).await;
        let began = std::time::Instant::now();
        scene.until_reserved().await;
        // without it the backoff would be a second at most
        assert!(began.elapsed() >= Duration::from_millis(2_500), "{code}: asked again after {:?}", began.elapsed());
        scene.until_told(EventReason::RotationStarted).await;
        assert_eq!(scene.count(EventReason::RotationStarted), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_placeholder_is_as_large_as_the_pods_of_the_candidates_node() {
    let mut scene = Scene::prepare(Vec::new()).await;
    for (name, node, cpu) in [("a", "node-old", "300m"), ("b", "node-old", "200m"), ("c", "node-young", "7")] {
        let requests = json!({"requests": {"cpu": cpu}});
        let spec = json!({"nodeName": node, "containers": [{"name": "main", "resources": requests}]});
        let pod = json!({"metadata": {"name": name, "namespace": "web"}, "spec": spec, "status": {"phase": "Running"}});
        scene.server.lock().unwrap().put(&format!("/api/v1/namespaces/web/pods/{name}"), pod);
    }
    tokio::spawn(scene.reconciler.clone().work());
    scene.until_reserved().await;
    let server = scene.server.lock().unwrap();
    let (_, placeholder) = server.objects.iter().find(|(path, _)| path.contains("/pods/surge-old")).unwrap();
    assert_eq!(placeholder["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "500m"}));
}

/// The sweep's caches are those of a new leader: what it would clean up may have come into use meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_asks_the_pool_itself_whether_an_anchor_names_the_orphan() {
    let scene = Scene::prepare(Vec::new()).await.with_orphan();
    scene.server.lock().unwrap().annotate(POOL, "noderotation.io/active-rotation", "old");
    sweep(&scene.reconciler).await;
    assert_eq!(scene.server.lock().unwrap().writes, Vec::<String>::new());
    let scene = Scene::prepare(Vec::new()).await.with_orphan();
    sweep(&scene.reconciler).await;
    assert_eq!(scene.server.lock().unwrap().writes, [format!("DELETE {ORPHAN}")]);
}

/// An orphan that comes later, as when somebody has cleared an anchor, waits for no new leader.
#[tokio::test(flavor = "multi_thread")]
async fn each_pass_sweeps_what_no_anchor_of_its_pool_references() {
    let mut scene = Scene::prepare(Vec::new()).await.with_orphan();
    {
        let mut server = scene.server.lock().unwrap();
        server.put(CLAIM, claim(1)); // not due
        scene.reconciler.caches.apply(NodeClaim::read(&server.objects[CLAIM].to_string()).unwrap());
    }
    tokio::spawn(scene.reconciler.clone().work());
    scene.until("the orphan to go", |server| !server.objects.contains_key(ORPHAN)).await;
    let window_stamped = format!("PATCH {POOL}");
    assert_eq!(scene.server.lock().unwrap().writes, [window_stamped, format!("DELETE {ORPHAN}")]);
}

/// Nothing is kept of a NodePool that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_gone_leaves_no_series() {
    let mut scene = Scene::start(Vec::new()).await;
    scene.until_told(EventReason::RotationStarted).await;
    let (reconciler, pool) = (scene.reconciler.clone(), scene.server.lock().unwrap().objects[POOL].to_string());
    scene.wait("its series", |_| reconciler.metrics.render().contains(r#"nodepool="api""#)).await;
    EventHandler::<NodePool>::delete(&*reconciler.caches, &NodePool::read(&pool).unwrap());
    scene.wait("its series to go", |_| !reconciler.metrics.render().contains(r#"nodepool="api""#)).await;
    assert!(reconciler.metrics.render().contains(r#"noderotation_reconcile_total{result="gone"} 1"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_term_nothing_is_swept() {
    let scene = Scene::prepare(Vec::new()).await.with_orphan();
    sweep(&scene.reconciler_until(Term::until(tokio::time::Instant::now()))).await;
    assert_eq!(scene.server.lock().unwrap().writes, Vec::<String>::new());
}

/// Its name follows from its claim's, so the name alone does not tell which Pod it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_taken_an_orphans_name_is_not_deleted_in_its_place() {
    let scene = Scene::prepare(Vec::new()).await.with_orphan();
    {
        let mut server = scene.server.lock().unwrap();
        let mut other = server.objects[ORPHAN].clone();
        other["metadata"]["uid"] = "uid-other".into();
        server.put(ORPHAN, other);
    }
    sweep(&scene.reconciler).await;
    let server = scene.server.lock().unwrap();
    assert_eq!(server.writes, [format!("DELETE {ORPHAN}")]);
    assert_eq!(server.objects[ORPHAN]["metadata"]["uid"], "uid-other");
}

/// The watch may tell it much later: until then the caches would offer a claim that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_live_read_did_not_find_leaves_the_caches() {
    let mut scene = Scene::start(fault(CLAIM, "pending", What::Vanishes)).await;
    scene.until_told(EventReason::RotationExpired).await;
    assert!(scene.reconciler.caches.lock().claim("old").is_none());
    assert!(scene.reconciler.caches.lock().claims_of("api").is_empty());
}

/// A scene whose Node runs the Pod `shop/db-0` under these PodDisruptionBudgets; `grace`: the claim's
/// `terminationGracePeriod`.
async fn with_a_pod_under(budgets: Option<Vec<Value>>, grace: Option<&str>) -> Scene {
    let scene = Scene::prepare(Vec::new()).await;
    {
        let mut server = scene.server.lock().unwrap();
        server.budgets = budgets;
        server.put(
            POD,
            json!({
                "metadata": {"name": "db-0", "namespace": "shop", "labels": {"app": "db"}},
                "spec": {"nodeName": "node-old", "containers": []},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            }),
        );
        let mut claim = claim(335);
        claim["spec"]["terminationGracePeriod"] = grace.map_or(Value::Null, Into::into);
        server.put(CLAIM, claim);
        scene.reconciler.caches.apply(NodeClaim::read(&server.objects[CLAIM].to_string()).unwrap());
    }
    tokio::spawn(scene.reconciler.clone().work());
    scene
}

fn budget(max_unavailable: u32) -> Value {
    json!({
        "metadata": {"name": "db", "namespace": "shop", "generation": 1},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": "db"}}},
        "status": {"observedGeneration": 1, "expectedPods": 1, "desiredHealthy": 1_u32.saturating_sub(max_unavailable)},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_would_never_end_is_not_begun_and_is_judged_anew_each_time() {
    let mut scene = with_a_pod_under(Some(vec![budget(0)]), None).await;
    scene.until_told(EventReason::Undrainable).await;
    {
        let mut server = scene.server.lock().unwrap();
        assert_eq!(server.annotation(POOL, "active-rotation"), None);
        assert_eq!(server.objects[CLAIM]["metadata"]["annotations"], json!({}));
        assert_eq!(server.objects[NODE]["spec"], json!({}), "cordoned");
        server.budgets = Some(vec![budget(1)]);
    }
    scene.reconciler.queue.trigger("api");
    scene.until_reserved().await;
    assert_eq!(scene.count(EventReason::Undrainable), 1, "{:?}", scene.told);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_grace_period_no_budget_is_read() {
    let mut scene = with_a_pod_under(None, Some("1h")).await;
    scene.until_reserved().await;
    assert_eq!(scene.server.lock().unwrap().budget_lists, 0);
    assert_eq!(scene.count(EventReason::BudgetsUnreadable), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_list_budgets_the_pass_goes_on_and_says_so() {
    let mut scene = with_a_pod_under(None, None).await;
    scene.until_told(EventReason::BudgetsUnreadable).await;
    let metrics = scene.reconciler.metrics.clone();
    scene.until("a clean pass", |_| metrics.render().contains("reconcile_total{result=\"success\"} ")).await;
    let server = scene.server.lock().unwrap();
    assert_eq!(server.annotation(POOL, "active-rotation"), None);
    assert!(server.budget_lists > 0);
}

/// Of a drain under way only what the Pods themselves say is told then (§13).
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_list_budgets_a_drain_goes_on_and_a_protected_pod_is_told() {
    let mut scene = Scene::prepare(Vec::new()).await;
    {
        let mut server = scene.server.lock().unwrap();
        let now = Timestamp::now().to_string();
        server.put(
            POD,
            json!({
                "metadata": {"name": "db-0", "namespace": "shop", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
                "spec": {"nodeName": "node-old", "containers": []}, "status": {"phase": "Running"},
            }),
        );
        for (key, value) in [("active-rotation", "old"), ("active-rotation-state", "draining"), ("draining-at", &now)] {
            server.annotate(POOL, &format!("noderotation.io/{key}"), value);
        }
        let mut claim = claim(335);
        claim["metadata"]["annotations"] = json!({"noderotation.io/state": "draining"});
        claim["metadata"]["deletionTimestamp"] = now.into();
        server.put(CLAIM, claim);
        scene.reconciler.caches.apply(NodePool::read(&server.objects[POOL].to_string()).unwrap());
        scene.reconciler.caches.apply(NodeClaim::read(&server.objects[CLAIM].to_string()).unwrap());
    }
    tokio::spawn(scene.reconciler.clone().work());
    scene.until_told(EventReason::DrainBlocked).await;
    let metrics = scene.reconciler.metrics.clone();
    scene.until("a clean pass", |_| metrics.render().contains("reconcile_total{result=\"success\"} ")).await;
    assert!(scene.server.lock().unwrap().budget_lists > 0);
}
