//! Every message as people read it: one snapshot per case in `golden/`. After a change of a message,
//! `INSTA_UPDATE=always cargo test -p noderotation-webhook --test golden` (or `cargo insta review`) rewrites them; then read
//! the diff.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::too_many_lines, missing_docs)]

mod support;

use std::fmt::Write;

use noderotation_shared::admission::StaticPools;
use noderotation_webhook::handlers::{Endpoint, Handlers, VerdictOptions};
use noderotation_webhook::request::AdmissionRequest;
use noderotation_webhook::response::AdmissionResponse;
use serde_json::{Value, json};
use support::{handlers, options, policy, pool, resource_of, review};

fn ask(handlers: &Handlers, endpoint: Endpoint, operation: &str, object: &Value, old: &Value) -> AdmissionResponse {
    ask_of(handlers, endpoint, &review(resource_of(endpoint), operation, object, old))
}

fn ask_of(handlers: &Handlers, endpoint: Endpoint, review: &Value) -> AdmissionResponse {
    let mut review = review.clone();
    review["request"]["dryRun"] = json!(true); // so that no case sees what another admitted
    let body = review.to_string();
    let request = AdmissionRequest::read(body.as_bytes()).unwrap();
    handlers.handle(endpoint, &request, "2026-11-29T12:00:00Z".parse().unwrap())
}

fn shown(response: &AdmissionResponse) -> String {
    let mut text = String::new();
    match &response.rejection {
        None => text.push_str("allowed\n"),
        Some(rejection) => {
            writeln!(text, "refused: {} {}\n{}", rejection.code, rejection.reason, rejection.message).unwrap();
        }
    }
    for warning in &response.warnings {
        writeln!(text, "Warning: {warning}").unwrap();
    }
    for (key, value) in &response.audit {
        writeln!(text, "audit: {key}: {value}").unwrap();
    }
    for operation in &response.patch.0 {
        writeln!(text, "patch: {}", serde_json::to_string(operation).unwrap()).unwrap();
    }
    text
}

fn golden(name: &str, response: &AdmissionResponse) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, shown(response)));
}

/// The object with one field set, given by a JSON pointer such as `/spec/replicas`.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let field = field.replace("~1", "/");
    let parent = parent.split('/').skip(1).fold(&mut object, |at, part| match part.parse::<usize>() {
        Ok(index) => &mut at[index],
        Err(_) => &mut at[part],
    });
    parent[field] = value;
    object
}

fn annotated(object: Value, annotations: Value) -> Value {
    with(object, "/metadata/annotations", annotations)
}

#[test]
fn policies() {
    let api = policy("w-api", &json!({"w": "api"}));
    let existing = handlers(
        std::slice::from_ref(&api),
        &[
            pool("api", &json!({"w": "api", "team": "a"})),
            with(pool("fixed", &json!({"w": "fixed"})), "/spec/replicas", json!(2)),
        ],
        options(),
    );
    let create = |object: &Value| ask(&existing, Endpoint::ValidatePolicy, "CREATE", object, &Value::Null);
    golden("policy-tie", &create(&policy("team-a", &json!({"team": "a"}))));
    golden("policy-possible-tie", &create(&policy("team-b", &json!({"team": "b"}))));
    golden("policy-static-pool", &create(&policy("fixed", &json!({"w": "fixed"}))));
    golden("policy-fine", &create(&policy("other", &json!({"w": "other"}))));
    golden(
        "policy-findings",
        &create(&with(
            policy("team-a", &json!({"team": "a", "w": "api"})),
            "/spec/maintenanceWindows/0/days",
            json!(["Sat"]),
        )),
    );
    golden(
        "policy-inverted-zone",
        &create(&with(
            policy("signs", &json!({"w": "signs"})),
            "/spec/maintenanceWindows/0/timezone",
            json!("Etc/GMT+9"),
        )),
    );
    golden("policy-deletion-leaves-nothing", &ask(&existing, Endpoint::ValidatePolicy, "DELETE", &Value::Null, &api));

    let three = [
        policy("top", &json!({"k": "1", "l": "1"})),
        policy("low-1", &json!({"k": "1"})),
        policy("low-2", &json!({"l": "1"})),
    ];
    let tied = handlers(&three, &[pool("deep", &json!({"k": "1", "l": "1"}))], options());
    golden("policy-deletion-leaves-a-tie", &ask(&tied, Endpoint::ValidatePolicy, "DELETE", &Value::Null, &three[0]));
    let narrowed = policy("top", &json!({"k": "2", "l": "1"}));
    golden("policy-lets-go-of-a-tie", &ask(&tied, Endpoint::ValidatePolicy, "UPDATE", &narrowed, &three[0]));
    let lenient = handlers(
        &[],
        &[with(pool("fixed", &json!({"w": "fixed"})), "/spec/replicas", json!(2))],
        VerdictOptions { static_pools: StaticPools::Warn, ..options() },
    );
    golden(
        "policy-static-pool-warned",
        &ask(&lenient, Endpoint::ValidatePolicy, "CREATE", &policy("fixed", &json!({"w": "fixed"})), &Value::Null),
    );
    let many: Vec<Value> = (0..30).map(|i| pool(&format!("pool-{i:02}"), &json!({"w": "many"}))).collect();
    let crowded = handlers(&[policy("first", &json!({"w": "many"}))], &many, options());
    golden(
        "policy-tie-on-many-pools",
        &ask(&crowded, Endpoint::ValidatePolicy, "CREATE", &policy("second", &json!({"w": "many"})), &Value::Null),
    );
}

#[test]
fn policies_before_schema_and_cel() {
    let plain = handlers(&[], &[], options());
    let mutate = |handlers: &Handlers, spec: Value| {
        ask(handlers, Endpoint::MutatePolicy, "CREATE", &with(policy("p", &json!({})), "/spec", spec), &Value::Null)
    };
    let window = |w: Value| json!({"nodePoolSelector": {}, "maintenanceWindows": [w]});
    golden(
        "mutate-everything-wrong",
        &mutate(
            &plain,
            json!({
                "nodePoolSelector": {"matchLabels": {"bad key": "v"}}, "minRotationChances": "two", "ageThreshold": "20d",
                "maintenanceWindows": [{"timezone": "JST", "days": "Mon", "start": "2:00", "end": "2:00"}, {"timezone": "UTC+9", "days": [], "start": "01:00", "end": "25:00"}],
                "exclusions": [{"timezone": "Asia/Tokyo", "from": "2026-12-31", "until": "2026-12-01"}],
                "surge": {"maxUnavailable": 2, "readyTimeout": "1d", "cooldownAfter": "-1s"}, "prePull": {"enabled": true}, "suspended": true,
            }),
        ),
    );
    golden("mutate-no-spec", &mutate(&plain, Value::Null));
    golden("mutate-not-a-map", &mutate(&plain, json!("always")));
    golden("mutate-no-zone", &mutate(&plain, window(json!({"days": ["Mon"], "start": "01:00", "end": "02:00"}))));
    let with_zone = handlers(&[], &[], VerdictOptions { default_zone: Some("Asia/Tokyo".into()), ..options() });
    golden(
        "mutate-fills-the-zone",
        &mutate(&with_zone, window(json!({"days": ["Mon"], "start": "01:00", "end": "02:00"}))),
    );
    golden(
        "mutate-leaves-a-zone",
        &mutate(&with_zone, window(json!({"timezone": "UTC", "days": ["Mon"], "start": "01:00", "end": "02:00"}))),
    );
    golden(
        "mutate-fills-nothing-in-the-wrong",
        &mutate(&with_zone, window(json!({"days": "Mon", "start": "01:00", "end": "02:00"}))),
    );
}

#[test]
fn pools() {
    let api = policy("w-api", &json!({"w": "api"}));
    let broken = with(policy("broken", &json!({"w": "broken"})), "/spec/maintenanceWindows", json!("Mon"));
    let existing = handlers(&[api, policy("team-a", &json!({"team": "a"})), broken], &[], options());
    let create = |object: &Value| ask(&existing, Endpoint::ValidatePool, "CREATE", object, &Value::Null);
    let update = |object: &Value, old: &Value| ask(&existing, Endpoint::ValidatePool, "UPDATE", object, old);
    let fine = pool("api", &json!({"w": "api"}));
    golden("pool-fine", &create(&fine));
    golden("pool-tie", &create(&pool("both", &json!({"w": "api", "team": "a"}))));
    golden("pool-static", &update(&with(fine.clone(), "/spec/replicas", json!(2)), &fine));
    golden("pool-under-an-invalid-policy", &create(&pool("x", &json!({"w": "broken"}))));
    golden(
        "pool-template",
        &create(&with(
            fine.clone(),
            "/spec/template/metadata",
            json!({"annotations": {"noderotation.io/rotate": "now"}, "labels": {"noderotation.io/surge-for": "x"}}),
        )),
    );
    golden("pool-freeze-relative", &update(&annotated(fine.clone(), json!({"noderotation.io/freeze": "72h"})), &fine));
    golden(
        "pool-freeze-over",
        &update(&annotated(fine.clone(), json!({"noderotation.io/freeze": "2026-11-01T00:00:00Z"})), &fine),
    );
    golden("pool-rotate-misplaced", &update(&annotated(fine.clone(), json!({"noderotation.io/rotate": "now"})), &fine));
    golden("pool-expire-after", &update(&with(fine.clone(), "/spec/template/spec/expireAfter", json!("96h")), &fine));
    golden(
        "pool-without-grace-period",
        &create(&with(fine.clone(), "/spec/template/spec/terminationGracePeriod", Value::Null)),
    );
    let was_bad = with(fine, "/spec/template/metadata", json!({"labels": {"noderotation.io/x": "y"}}));
    golden("pool-was-wrong-before", &update(&with(was_bad.clone(), "/spec/limits", json!({"cpu": "1"})), &was_bad));
}

#[test]
fn claims() {
    let existing = handlers(&[], &[], options());
    let claim = json!({"metadata": {"name": "api-1", "labels": {"karpenter.sh/nodepool": "api"}}});
    let update = |annotations: Value| {
        ask(&existing, Endpoint::ValidateClaim, "UPDATE", &annotated(claim.clone(), annotations), &claim)
    };
    golden("claim-rotate-unknown", &update(json!({"noderotation.io/rotate": "tomorrow"})));
    golden("claim-rotate", &update(json!({"noderotation.io/rotate": "next-window"})));
    golden("claim-freeze-misplaced", &update(json!({"noderotation.io/freeze": "2027-01-01T00:00:00Z"})));
}

#[test]
fn guarded_keys() {
    let template = with(
        pool("api", &json!({})),
        "/spec/template/metadata",
        json!({"annotations": {"noderotation.io/state": "expired"}}),
    );
    let existing = handlers(&[], &[template], options());
    let plain = json!({"metadata": {"name": "api", "labels": {}}});
    let guard = |resource: &str, operation: &str, object: &Value, old: &Value| {
        ask_of(&existing, Endpoint::Guard, &review(resource, operation, object, old))
    };
    let anchored = annotated(
        plain.clone(),
        json!({"noderotation.io/active-rotation": "api-1", "noderotation.io/window-opened-at": "2026-11-28T17:00:00Z"}),
    );
    golden(
        "guard-added",
        &guard("nodeclaims", "UPDATE", &annotated(plain.clone(), json!({"noderotation.io/state": "failed"})), &plain),
    );
    golden(
        "guard-changed",
        &guard(
            "nodepools",
            "UPDATE",
            &annotated(
                plain.clone(),
                json!({"noderotation.io/active-rotation": "api-2", "noderotation.io/window-opened-at": "2026-11-28T17:00:00Z"}),
            ),
            &anchored,
        ),
    );
    golden("guard-removed", &guard("nodepools", "UPDATE", &plain, &anchored));
    let history = annotated(plain.clone(), json!({"noderotation.io/last-rotation-at": "2026-11-28T17:00:00Z"}));
    golden("guard-cleared-without-a-rotation", &guard("nodepools", "UPDATE", &plain, &history));
    let break_glass = annotated(plain.clone(), json!({"noderotation.io/break-glass": "INC-7: the controller is gone"}));
    golden("guard-break-glass", &guard("nodepools", "UPDATE", &break_glass, &anchored));
    golden(
        "guard-claim-of-a-marked-template",
        &guard(
            "nodeclaims",
            "CREATE",
            &json!({"metadata": {"name": "api-9", "labels": {"karpenter.sh/nodepool": "api"}, "annotations": {"noderotation.io/state": "expired"}}}),
            &Value::Null,
        ),
    );
    let mut impersonated =
        review("nodes", "UPDATE", &annotated(plain.clone(), json!({"noderotation.io/cordoned": "true"})), &plain);
    impersonated["request"]["userInfo"] = json!({"username": support::CONTROLLER});
    golden("guard-impersonated", &ask_of(&existing, Endpoint::Guard, &impersonated));
    impersonated["request"]["userInfo"]["uid"] = json!("u");
    golden("guard-the-controller-itself", &ask_of(&existing, Endpoint::Guard, &impersonated));
    let many: serde_json::Map<String, Value> =
        (0..40).map(|i| (format!("noderotation.io/k{i:02}"), json!("v".repeat(200)))).collect();
    golden("guard-many-keys", &guard("nodes", "UPDATE", &annotated(plain.clone(), many.into()), &plain));
    golden("guard-unknown-resource", &guard("secrets", "UPDATE", &plain, &plain));
}

#[test]
fn reviews_without_objects() {
    let existing = handlers(&[], &[], options());
    golden("review-without-object", &ask(&existing, Endpoint::ValidatePolicy, "CREATE", &Value::Null, &Value::Null));
    let huge = with(policy("p", &json!({})), "/spec/maintenanceWindows", json!(["x".repeat(800 * 1024)]));
    golden("review-of-a-huge-object", &ask(&existing, Endpoint::ValidatePolicy, "CREATE", &huge, &Value::Null));
}
