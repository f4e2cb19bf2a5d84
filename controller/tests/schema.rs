//! The look at the CustomResourceDefinition, against a scripted API server (§6.1, `OldSchema`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use noderotation_controller::queue::Queue;
use noderotation_controller::schema;
use noderotation_controller::watch::Caches;
use noderotation_shared::api::crd;
use serde_json::Value;

use support::{response, status};

type Answers = Arc<Mutex<VecDeque<(u16, Value)>>>;

async fn answer(State(answers): State<Answers>) -> Response {
    let (code, body) = answers.lock().unwrap().pop_front().unwrap();
    response(code, body.to_string())
}

/// An API server in trouble says nothing about the definition: what was held goes on being held.
#[tokio::test]
async fn what_is_known_of_an_older_definition_holds_until_another_one_is_read() {
    let ours = serde_json::to_value(crd()).unwrap();
    let mut older = ours.clone();
    let spec = older.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").unwrap();
    spec.as_object_mut().unwrap().remove("suspend").unwrap();
    let failures = [500, 403, 404].map(|code| (code, status(code, "Scripted")));
    let answers: Answers = Arc::default();
    answers.lock().unwrap().extend([(200, older)].into_iter().chain(failures).chain([(200, ours)]));
    let api = support::serve(Router::new().fallback(answer).with_state(answers.clone()), Arc::default()).await;
    let caches = Caches::new(Arc::new(Queue::default()), Arc::default());
    let missing = || vec!["spec.suspend".to_owned()];
    for _ in 0..4 {
        schema::look(&api, &caches).await;
        assert!(!caches.set_missing_fields(missing()), "it was known, and is");
    }
    schema::look(&api, &caches).await;
    assert!(!caches.set_missing_fields(Vec::new()), "nothing is missing any more");
    assert!(answers.lock().unwrap().is_empty());
}
