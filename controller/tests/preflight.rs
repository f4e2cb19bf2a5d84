//! What the controller asks for before anything else, and what it says of what is missing (§8, *Preflight*).
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod support;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use noderotation_controller::preflight::{PreflightError, check};
use serde_json::json;
use tokio::time::Instant;

use support::{response, serve, status};

/// Answers lists of this collection with these codes, one after another and then 200, as it does with all others at once.
struct Script {
    path: &'static str,
    codes: Vec<u16>,
    asked: Vec<String>,
}

async fn answer(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response {
    let mut script = script.lock().unwrap();
    script.asked.push(request.uri().to_string());
    if request.uri().path() == script.path && !script.codes.is_empty() {
        let code = script.codes.remove(0);
        return response(code, status(code, "Scripted").to_string());
    }
    response(200, json!({"metadata": {}, "items": []}).to_string())
}

async fn checked(path: &'static str, codes: &[u16]) -> (Result<(), PreflightError>, Vec<String>) {
    let script = Arc::new(Mutex::new(Script { path, codes: codes.to_vec(), asked: Vec::new() }));
    let api = serve(Router::new().fallback(answer).with_state(script.clone()), Arc::default()).await;
    let result = check(&api).await;
    let asked = script.lock().unwrap().asked.clone();
    (result, asked)
}

const KINDS: [&str; 4] = [
    "/apis/karpenter.sh/v1/nodepools",
    "/apis/karpenter.sh/v1/nodeclaims",
    "/api/v1/nodes",
    "/apis/noderotation.io/v1alpha1/rotationpolicies",
];

#[tokio::test]
async fn each_kind_is_asked_for_and_what_is_missing_is_named() {
    let (fine, asked) = checked("", &[]).await;
    fine.unwrap();
    for kind in KINDS {
        assert!(asked.iter().any(|uri| uri.starts_with(&format!("{kind}?")) && uri.contains("limit=1")), "{asked:?}");
        let plural = kind.rsplit('/').next().unwrap();
        let (missing, _) = checked(kind, &[404]).await;
        let missing = missing.unwrap_err();
        assert!(matches!(missing, PreflightError::NotServed { .. }), "{missing}");
        assert!(missing.to_string().starts_with(&format!("the API server does not serve {plural}")), "{missing}");
        for code in [401, 403] {
            let (forbidden, _) = checked(kind, &[code]).await;
            let forbidden = forbidden.unwrap_err();
            assert!(matches!(forbidden, PreflightError::Forbidden { .. }), "{forbidden}");
            assert!(forbidden.to_string().contains("grant this service account get, list and watch"), "{forbidden}");
        }
    }
}

/// Half of 1, 2 and 4 s at least, at most the whole.
#[tokio::test]
async fn a_server_in_trouble_is_asked_again_after_longer_and_longer_pauses() {
    let began = Instant::now();
    let (fine, asked) = checked("/api/v1/nodes", &[500, 503, 500]).await;
    fine.unwrap();
    assert_eq!(asked.iter().filter(|uri| uri.starts_with("/api/v1/nodes")).count(), 4);
    let waited = began.elapsed().as_secs_f64();
    assert!((3.5..9.0).contains(&waited), "{waited}");
}
