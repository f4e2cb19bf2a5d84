//! Events as they are written (§11).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use noderotation_controller::events::{Event, Recorder, write};
use noderotation_rotation::event_reason::EventReason;
use noderotation_shared::kind::Kind;
use serde_json::{Value, json};

use support::{body_of, response, serve, status};

type Written = Arc<Mutex<Vec<(String, Value)>>>;

/// Refuses the first.
async fn answer(State(written): State<Written>, request: Request) -> Response {
    let target = format!("{} {}", request.method(), request.uri().path());
    let body = body_of(request).await;
    let mut written = written.lock().unwrap();
    written.push((target, body.clone()));
    if written.len() == 1 {
        response(500, status(500, "Scripted").to_string())
    } else {
        response(201, body.to_string())
    }
}

#[tokio::test]
async fn each_event_is_written_once_and_a_refused_one_holds_up_none() {
    let written = Written::default();
    let api = serve(Router::new().fallback(answer).with_state(written.clone()), Arc::default()).await;
    let (recorder, events) = Recorder::new();
    let about = |kind, name: &str, reason, note: &str| Event {
        kind,
        name: name.into(),
        uid: "u".into(),
        reason,
        note: note.into(),
    };
    recorder.record(about(Kind::NodePool, "lost", EventReason::DrainStuck, "x"));
    recorder.record(about(Kind::NodePool, "api", EventReason::RotationStarted, "rotating"));
    recorder.record(about(Kind::Node, "n", EventReason::DrainBlocked, &"y".repeat(2_000)));
    drop(recorder);
    write(api, events, "pod-a".into()).await;
    let written = written.lock().unwrap();
    assert_eq!(written.len(), 3);
    assert!(written.iter().all(|(target, _)| target == "POST /apis/events.k8s.io/v1/namespaces/default/events"));
    let (started, blocked) = (&written[1].1, &written[2].1);
    assert_eq!(
        (&started["type"], &started["reason"], &started["action"], &started["note"], &started["reportingInstance"]),
        (&json!("Normal"), &json!("RotationStarted"), &json!("Rotate"), &json!("rotating"), &json!("pod-a"))
    );
    assert_eq!(
        started["regarding"],
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "api", "uid": "u"})
    );
    assert_eq!((&blocked["type"], &blocked["regarding"]["apiVersion"]), (&json!("Warning"), &json!("v1")));
    assert_eq!(blocked["note"].as_str().unwrap().len(), 1_024);
    let name = |event: &Value| event["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(started).starts_with("api.") && name(blocked).starts_with("n.") && name(started) != name(blocked));
}
