//! What is judged at all, and what is remembered of it (§10).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use jiff::Timestamp;
use noderotation_webhook::handlers::{Endpoint, Handlers};
use noderotation_webhook::request::AdmissionRequest;
use noderotation_webhook::response::AdmissionResponse;
use serde_json::{Value, json};
use support::{handlers, options, policy, pool, resource_of, review};

/// A cluster with the NodePool `api` and two policies that would tie on a NodePool with both labels.
fn world() -> Handlers {
    let policies = [policy("w-api", &json!({"w": "api"})), policy("team-a", &json!({"team": "a"}))];
    handlers(&policies, &[pool("api", &json!({"w": "api"}))], options())
}

fn handle(handlers: &Handlers, endpoint: Endpoint, review: &Value) -> AdmissionResponse {
    let body = review.to_string();
    let request = AdmissionRequest::read(body.as_bytes()).unwrap();
    handlers.handle(endpoint, &request, "2026-11-29T12:00:00Z".parse().unwrap())
}

fn is_refused(response: &AdmissionResponse) -> bool {
    response.rejection.is_some()
}

/// A NodePool on which the two policies tie.
fn tied() -> Value {
    pool("both", &json!({"w": "api", "team": "a"}))
}

/// Creations and updates of objects that live, and nothing else.
#[test]
fn status_connections_and_what_is_being_deleted_are_not_judged() {
    let pools = Endpoint::ValidatePool;
    let judged = |change: &dyn Fn(&mut Value)| {
        let mut review = review("nodepools", "CREATE", &tied(), &Value::Null);
        change(&mut review["request"]);
        is_refused(&handle(&world(), pools, &review))
    };
    assert!(judged(&|_| {}));
    assert!(!judged(&|request| request["subResource"] = json!("status")));
    assert!(!judged(&|request| request["operation"] = json!("CONNECT")));
    assert!(!judged(&|request| request["object"]["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:00Z")));
    assert!(judged(&|request| request["object"]["metadata"]["deletionTimestamp"] = Value::Null));
}

/// Only what will be stored is looked for by the next review.
#[test]
fn what_was_refused_or_only_tried_is_not_remembered() {
    let remembered = |endpoint: Endpoint, object: &Value, is_dry_run: bool| {
        let world = world();
        let mut review = review(resource_of(endpoint), "CREATE", object, &Value::Null);
        review["request"]["dryRun"] = json!(is_dry_run);
        let refused = is_refused(&handle(&world, endpoint, &review));
        (refused, !world.caches.is_settled())
    };
    let (policies, pools) = (Endpoint::ValidatePolicy, Endpoint::ValidatePool);
    assert_eq!(remembered(policies, &policy("new", &json!({"w": "new"})), false), (false, true));
    assert_eq!(remembered(policies, &policy("new", &json!({"w": "new"})), true), (false, false));
    assert_eq!(remembered(policies, &policy("rival", &json!({"w": "api"})), false), (true, false));
    assert_eq!(remembered(pools, &pool("new", &json!({"w": "new"})), false), (false, true));
    assert_eq!(remembered(pools, &pool("new", &json!({"w": "new"})), true), (false, false));
    assert_eq!(remembered(pools, &tied(), false), (true, false));
}

/// An update that changes none of what is judged is let through whatever the object is like.
#[test]
fn a_pool_is_judged_again_only_when_something_has_changed() {
    let old = tied();
    let judged = |change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new);
        let response = handle(&world(), Endpoint::ValidatePool, &review("nodepools", "UPDATE", &new, &old));
        is_refused(&response) || !response.warnings.is_empty()
    };
    assert!(!judged(&|pool| pool["metadata"]["finalizers"] = json!(["x"])));
    assert!(!judged(&|pool| pool["metadata"]["annotations"] = json!({"example.com/x": "y"})));
    assert!(judged(&|pool| pool["spec"]["weight"] = json!(5)), "what was wrong before is warned of");
    assert!(judged(&|pool| pool["metadata"]["labels"]["x"] = json!("y")));
    assert!(judged(&|pool| pool["metadata"]["annotations"] = json!({"noderotation.io/freeze": "next week"})));
}

/// It is told by the write that sets it, and not by every later one.
#[test]
fn a_freeze_that_has_passed_is_warned_of_once() {
    let pool = |freeze: &str, weight: u32| {
        let mut pool = pool("api", &json!({"w": "api"}));
        pool["metadata"]["annotations"] = json!({"noderotation.io/freeze": freeze});
        pool["spec"]["weight"] = json!(weight);
        pool
    };
    let warned = |new: &Value, old: &Value| {
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        let response = handle(&world(), Endpoint::ValidatePool, &review("nodepools", operation, new, old));
        response.warnings.iter().any(|warning| warning.contains("has passed, so nothing is frozen"))
    };
    let (passed, ahead) = ("2026-11-29T12:00:00Z", "2026-11-29T12:00:01Z");
    assert!(warned(&pool(passed, 1), &Value::Null));
    assert!(warned(&pool(passed, 1), &pool(ahead, 1)));
    assert!(!warned(&pool(passed, 2), &pool(passed, 1)));
    assert!(!warned(&pool(ahead, 1), &Value::Null));
    assert!(!warned(&pool(ahead, 1), &pool(passed, 1)));
}

/// The author learns everything at once.
#[test]
fn a_refusal_comes_with_its_warnings() {
    let mut object = tied();
    object["metadata"]["annotations"] = json!({"noderotation.io/rotate": "now"});
    let response = handle(&world(), Endpoint::ValidatePool, &review("nodepools", "CREATE", &object, &Value::Null));
    assert!(is_refused(&response));
    assert!(response.warnings.iter().any(|warning| warning.contains("has no effect on a NodePool")), "{response:?}");
}

/// What must be known before a review of these is judged.
#[tokio::test(start_paused = true)]
async fn a_review_waits_for_what_matters_to_it() {
    let now = Timestamp::UNIX_EPOCH;
    let waits = |endpoint: Endpoint, operation: &str, object: &Value, old: &Value| {
        let world = world();
        // admitted a moment ago, and not told of by the watch
        let new = policy("new", &json!({"zone": "a"}));
        handle(&world, Endpoint::ValidatePolicy, &review("rotationpolicies", "CREATE", &new, &Value::Null));
        let body = review(resource_of(endpoint), operation, object, old).to_string();
        let request = AdmissionRequest::read(body.as_bytes()).unwrap();
        world.unsettled(endpoint, &request, now).is_some()
    };
    let (policies, pools, none) = (Endpoint::ValidatePolicy, Endpoint::ValidatePool, Value::Null);
    assert!(waits(pools, "CREATE", &pool("x", &json!({"zone": "a"})), &none));
    assert!(waits(pools, "UPDATE", &pool("x", &json!({"zone": "b"})), &pool("x", &json!({"zone": "a"}))), "before");
    assert!(!waits(pools, "CREATE", &pool("x", &json!({"zone": "b"})), &none));
    assert!(waits(policies, "CREATE", &policy("rival", &json!({"zone": "a"})), &none));
    assert!(
        waits(policies, "UPDATE", &policy("r", &json!({"zone": "b"})), &policy("r", &json!({"zone": "a"}))),
        "before"
    );
    assert!(!waits(policies, "CREATE", &policy("other", &json!({"zone": "b"})), &none));
    // a deletion: by what is stored of the policy; the new one is as specific and could select the same NodePool
    assert!(waits(policies, "DELETE", &none, &policy("w-api", &json!({"w": "api"}))));
    assert!(!waits(policies, "DELETE", &none, &policy("unknown", &json!({"w": "api"}))));
}
