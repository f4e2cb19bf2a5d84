//! Whoever reaches the webhook can send a review of something that nobody stores. It changes no verdict on anybody else's
//! objects, and costs ordinary reviews no request to the API server (§10 *What was just admitted*).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use noderotation_cluster::error::Error;
use noderotation_shared::kind::Kind;
use noderotation_webhook::handlers::{Endpoint, Handlers};
use noderotation_webhook::live::{BoxFuture, LiveReader, settle};
use noderotation_webhook::request::AdmissionRequest;
use noderotation_webhook::response::AdmissionResponse;
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::{handlers, options, policy, pool, resource_of, review};

/// An API server that holds these objects, and counts how often it is asked.
#[derive(Clone, Default)]
struct Stored {
    objects: Arc<Mutex<BTreeMap<(Kind, String), Value>>>,
    version: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    is_down: bool,
}

impl Stored {
    fn store(&self, kind: Kind, object: &Value) {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!((10 + self.version.fetch_add(1, Ordering::Relaxed)).to_string());
        self.objects.lock().insert((kind, object["metadata"]["name"].as_str().unwrap().to_owned()), object);
    }

    fn reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }
}

impl LiveReader for Stored {
    fn read<'a>(&'a self, kind: Kind, name: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let found = self.objects.lock().get(&(kind, name.to_owned())).map(Value::to_string);
        let is_down = self.is_down;
        Box::pin(async move { if is_down { std::future::pending().await } else { Ok(found) } })
    }
}

struct World {
    handlers: Handlers,
    stored: Stored,
}

/// A cluster with the NodePool `api` (w: api, team: a), governed by the policy `w-api`, and the webhook's view of it.
fn world() -> World {
    let (policies, pools) = ([policy("w-api", &json!({"w": "api"}))], [pool("api", &json!({"w": "api", "team": "a"}))]);
    let stored = Stored::default();
    stored.store(Kind::RotationPolicy, &policies[0]);
    stored.store(Kind::NodePool, &pools[0]);
    World { handlers: handlers(&policies, &pools, options()), stored }
}

impl World {
    /// Sends a review, which may be forged: nothing is stored.
    async fn review(&self, endpoint: Endpoint, operation: &str, object: &Value, old: &Value) -> AdmissionResponse {
        let body = review(resource_of(endpoint), operation, object, old).to_string();
        let request = AdmissionRequest::read(body.as_bytes()).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        if let Some(concern) = self.handlers.unsettled(endpoint, &request, now) {
            settle(&self.handlers.caches, &concern, &self.stored).await;
        }
        self.handlers.handle(endpoint, &request, now)
    }

    async fn create(&self, policy: &Value) -> AdmissionResponse {
        self.review(Endpoint::ValidatePolicy, "CREATE", policy, &Value::Null).await
    }
}

fn refusal(response: &AdmissionResponse) -> &str {
    response.rejection.as_ref().map_or("", |rejection| rejection.message.as_str())
}

#[tokio::test(start_paused = true)]
async fn a_forged_policy_refuses_nobody() {
    let world = world();
    for n in 0..20 {
        let forged = policy(&format!("forged-{n}"), &json!({"k": "v"}));
        assert_eq!(refusal(&world.create(&forged).await), "");
    }
    // it would tie with each of the forged ones if they were stored
    world.stored.store(Kind::NodePool, &pool("k", &json!({"k": "v"})));
    let forged_pool = pool("k", &json!({"k": "v"}));
    world.review(Endpoint::ValidatePool, "CREATE", &forged_pool, &Value::Null).await;
    let legitimate = world.create(&policy("legitimate", &json!({"k": "v"}))).await;
    assert_eq!(refusal(&legitimate), "");
    assert!(!legitimate.warnings.iter().any(|warning| warning.contains("forged")), "{:?}", legitimate.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_forged_change_lets_no_tie_pass() {
    let world = world();
    let (stored, moved) = (policy("w-api", &json!({"w": "api"})), policy("w-api", &json!({"w": "elsewhere"})));
    assert_eq!(refusal(&world.review(Endpoint::ValidatePolicy, "UPDATE", &moved, &stored).await), "");
    // and one that seems to be more specific than both
    assert_eq!(refusal(&world.create(&policy("top", &json!({"w": "api", "team": "a"}))).await), "");
    let tied = world.create(&policy("team-a", &json!({"team": "a"}))).await;
    assert!(
        refusal(&tied).contains("RotationPolicies team-a and w-api would be equally specific for NodePool api"),
        "{tied:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_forged_version_hides_no_real_one() {
    let world = world();
    world.stored.store(Kind::NodePool, &pool("web", &json!({"w": "web"})));
    world.review(Endpoint::ValidatePool, "CREATE", &pool("web", &json!({"w": "web"})), &Value::Null).await;
    let first = policy("first", &json!({"w": "web"}));
    assert_eq!(refusal(&world.create(&first).await), "");
    world.stored.store(Kind::RotationPolicy, &first);
    for n in 0..10 {
        world.create(&policy("first", &json!({"forged": n.to_string()}))).await;
    }
    // the watch has told of neither the NodePool nor the first policy
    let second = world.create(&policy("second", &json!({"w": "web"}))).await;
    assert!(refusal(&second).contains("RotationPolicies first and second"), "{second:?}");
}

/// The API server stores what was admitted while another review is under way.
#[tokio::test(start_paused = true)]
async fn what_is_being_stored_is_waited_for() {
    let world = world();
    let known = pool("b", &json!({"team": "b"})).to_string();
    world.handlers.caches.observe(Kind::NodePool, "b", None, Some(&known)).unwrap();
    let first = policy("first", &json!({"team": "b"}));
    assert_eq!(refusal(&world.create(&first).await), "");
    let (stored, storing) = (world.stored.clone(), first.clone());
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        stored.store(Kind::RotationPolicy, &storing);
    });
    let second = world.create(&policy("second", &json!({"team": "b"}))).await;
    assert!(refusal(&second).contains("RotationPolicies first and second"), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_forged_template_opens_no_guard() {
    let world = world();
    let mut forged = pool("api", &json!({"w": "api", "team": "a"}));
    forged["spec"]["template"]["metadata"] = json!({"annotations": {"noderotation.io/state": "expired"}});
    // as an update of a NodePool that has such a template already, it is only warned of
    let update = world.review(Endpoint::ValidatePool, "UPDATE", &with(&forged, "x"), &forged).await;
    assert_eq!(refusal(&update), "");
    let claim = json!({"metadata": {
        "name": "c", "labels": {"karpenter.sh/nodepool": "api"}, "annotations": {"noderotation.io/state": "expired"},
    }});
    let body = review("nodeclaims", "CREATE", &claim, &Value::Null).to_string();
    let request = AdmissionRequest::read(body.as_bytes()).unwrap();
    let concern = world.handlers.unsettled(Endpoint::Guard, &request, Timestamp::UNIX_EPOCH).unwrap();
    settle(&world.handlers.caches, &concern, &world.stored).await;
    let response = world.handlers.handle(Endpoint::Guard, &request, Timestamp::UNIX_EPOCH);
    assert!(refusal(&response).contains("noderotation.io/state"), "{response:?}");
}

fn with(pool: &Value, weight: &str) -> Value {
    let mut pool = pool.clone();
    pool["spec"]["weight"] = json!(weight);
    pool
}

#[tokio::test(start_paused = true)]
async fn ordinary_reviews_ask_nobody() {
    let world = world();
    let mut last = Value::Null;
    for n in 0..50 {
        // one policy again and again, many that have nothing to do with each other, and a general one beside special ones
        let mut own = policy("own", &json!({"w": "own"}));
        own["spec"]["suspend"] = json!(n % 2 == 0);
        let operation = if last.is_null() { "CREATE" } else { "UPDATE" };
        assert_eq!(refusal(&world.review(Endpoint::ValidatePolicy, operation, &own, &last).await), "");
        last = own;
        assert_eq!(refusal(&world.create(&policy(&format!("p{n}"), &json!({"w": format!("w{n}")}))).await), "");
        let pool = pool(&format!("n{n}"), &json!({"other": format!("x{n}")}));
        world.review(Endpoint::ValidatePool, "CREATE", &pool, &Value::Null).await;
        let claim = json!({"metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "api"}}});
        world.review(Endpoint::Guard, "CREATE", &claim, &Value::Null).await;
    }
    assert_eq!(world.stored.reads(), 0);
}

/// However many forged reviews there are, one review reads a bounded number of objects, and an API server that does not answer
/// delays it by a bounded time.
#[tokio::test(start_paused = true)]
async fn forged_reviews_cost_a_bounded_number_of_reads() {
    let mut world = world();
    for n in 0..1_000 {
        world.create(&policy(&format!("forged-{n}"), &json!({}))).await;
    }
    world.stored.reads();
    assert_eq!(refusal(&world.create(&policy("legitimate", &json!({"w": "api", "team": "a"}))).await), "");
    let reads = world.stored.reads();
    assert!((1..=24).contains(&reads), "{reads} reads");

    world.stored.is_down = true;
    let began = tokio::time::Instant::now();
    assert_eq!(refusal(&world.create(&policy("another", &json!({"w": "api", "team": "a", "x": "y"}))).await), "");
    assert!(began.elapsed() <= std::time::Duration::from_millis(300), "{:?}", began.elapsed());
}
