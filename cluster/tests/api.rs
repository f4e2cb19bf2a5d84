//! What is sent for each request, and what is made of each answer: by an HTTP server with scripted answers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use noderotation_cluster::api::{Api, Outcome, Selectors};
use noderotation_cluster::error::Error;
use noderotation_cluster::metrics::{ClientMetrics, page};
use noderotation_shared::kind::Kind;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Answers in order, the last one again and again; keeps what was asked.
#[derive(Default)]
struct Server {
    answers: Mutex<VecDeque<(u16, Option<&'static str>, String)>>,
    /// Method, path with its query, and body.
    asked: Mutex<Vec<(String, String)>>,
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    server.asked.lock().push((line, String::from_utf8(body.to_vec()).unwrap()));
    let mut answers = server.answers.lock();
    let (code, retry_after, text) =
        if answers.len() > 1 { answers.pop_front().unwrap() } else { answers.front().cloned().unwrap() };
    let mut response = (StatusCode::from_u16(code).unwrap(), text).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.parse().unwrap());
    }
    response
}

/// A client of this server, on a port of its own, that retries nothing by itself.
async fn client_of(server: &Arc<Server>) -> kube::Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.default_retry = false;
    let routes = Router::new().fallback(answer).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    kube::Client::try_from(config).unwrap()
}

async fn serve(answers: &[(u16, Option<&'static str>, Value)]) -> (Api, Arc<Server>, Arc<ClientMetrics>) {
    let texts = answers.iter().map(|(code, retry_after, body)| {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        (*code, *retry_after, text)
    });
    let server = Arc::new(Server { answers: Mutex::new(texts.collect()), asked: Mutex::default() });
    let metrics = Arc::<ClientMetrics>::default();
    (Api::new(client_of(&server).await, 1_000, 1_000, metrics.clone()), server, metrics)
}

fn asked(server: &Server) -> Vec<(String, Value)> {
    let asked = server.asked.lock();
    asked.iter().map(|(line, body)| (line.clone(), serde_json::from_str(body).unwrap_or(Value::Null))).collect()
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "Scripted"})
}

#[tokio::test]
async fn each_request_is_what_the_api_server_expects() {
    let (api, server, metrics) =
        serve(&[(200, None, json!({"metadata": {"resourceVersion": "7"}, "items": []}))]).await;
    let patch = json!({"metadata": {"resourceVersion": "3"}});
    let pod = Kind::Pod.in_namespace("ns", "p");
    api.get(Kind::NodePool.named("api")).await.unwrap();
    api.probe(Kind::PodDisruptionBudget).await.unwrap();
    api.list::<Value>(Kind::Pod, Some("ns"), &Selectors::labelled("noderotation.io/surge-for"), |_| ()).await.unwrap();
    api.list::<Value>(Kind::Pod, None, &Selectors::fields("spec.nodeName=a"), |_| ()).await.unwrap();
    assert!(matches!(api.patch(Kind::Node.named("n"), &patch).await, Outcome::Applied(_)));
    assert!(matches!(api.patch_policy_status("p", &patch).await, Outcome::Applied(_)));
    assert!(matches!(api.create(Kind::Pod, Some("ns"), &patch).await, Outcome::Applied(_)));
    assert!(matches!(api.replace(Kind::Lease.in_namespace("ns", "l"), &patch).await, Outcome::Applied(_)));
    assert!(matches!(api.delete(pod, "u", None).await, Outcome::Applied(_)));
    assert!(matches!(api.delete(Kind::NodeClaim.named("c"), "u", Some("9")).await, Outcome::Applied(_)));
    drop(api.watch::<Value>(Kind::Node, None, &Selectors::default(), Some("5")).await.unwrap());
    drop(api.watch::<Value>(Kind::Pod, Some("ns"), &Selectors::labelled("k"), None).await.unwrap());
    drop(api.watch::<Value>(Kind::Pod, None, &Selectors::fields("spec.nodeName=a"), Some("5")).await.unwrap());
    let lines: Vec<String> = asked(&server).into_iter().map(|(line, _)| line).collect();
    let expected = [
        "GET /apis/karpenter.sh/v1/nodepools/api",
        "GET /apis/policy/v1/poddisruptionbudgets?&limit=1",
        "GET /api/v1/namespaces/ns/pods?&labelSelector=noderotation.io%2Fsurge-for&limit=200",
        "GET /api/v1/pods?&fieldSelector=spec.nodeName%3Da&limit=200",
        "PATCH /api/v1/nodes/n?",
        "PATCH /apis/noderotation.io/v1alpha1/rotationpolicies/p/status?",
        "POST /api/v1/namespaces/ns/pods?",
        "PUT /apis/coordination.k8s.io/v1/namespaces/ns/leases/l?",
        "DELETE /api/v1/namespaces/ns/pods/p?",
        "DELETE /apis/karpenter.sh/v1/nodeclaims/c?",
        "GET /api/v1/nodes?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion=5",
        "GET /api/v1/namespaces/ns/pods?&watch=true&timeoutSeconds=290&labelSelector=k&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=",
        "GET /api/v1/pods?&watch=true&timeoutSeconds=290&fieldSelector=spec.nodeName%3Da&allowWatchBookmarks=true&resourceVersion=5",
    ];
    assert_eq!(lines, expected);
    let bodies = asked(&server);
    assert_eq!((&bodies[4].1, &bodies[6].1, &bodies[7].1), (&patch, &patch, &patch));
    assert_eq!(bodies[8].1["preconditions"], json!({"uid": "u"}));
    assert_eq!(bodies[9].1["preconditions"], json!({"uid": "u", "resourceVersion": "9"}));
    let mut registry = prometheus_client::registry::Registry::with_prefix("noderotation");
    metrics.register(&mut registry);
    let shown = page(&registry);
    for line in [
        r#"noderotation_api_requests_total{verb="list",resource="pods",code="200"} 2"#,
        r#"noderotation_api_requests_total{verb="patch",resource="rotationpolicies/status",code="200"} 1"#,
        r#"noderotation_api_requests_total{verb="watch",resource="nodes",code="200"} 1"#,
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let page = |version: &str, token: &str, items: Value| {
        (200, None, json!({"metadata": {"resourceVersion": version, "continue": token}, "items": items}))
    };
    let answers = [page("7", "t/1", json!(["a", "b"])), page("7", "t2", Value::Null), page("8", "", json!(["c"]))];
    let (api, server, _) = serve(&answers).await;
    let mut found: Vec<String> = Vec::new();
    let version = api.list(Kind::Node, None, &Selectors::default(), |item| found.push(item)).await.unwrap();
    assert_eq!((version.as_str(), found.join(" ").as_str()), ("8", "a b c"));
    let lines: Vec<String> = asked(&server).into_iter().map(|(line, _)| line).collect();
    let nodes = "GET /api/v1/nodes?&limit=200";
    assert_eq!(lines, [nodes.to_owned(), format!("{nodes}&continue=t%2F1"), format!("{nodes}&continue=t2")]);
}

/// The `Status` in an answer, or what a proxy in between has to say.
#[tokio::test]
async fn a_refusal_is_told_in_the_servers_own_words() {
    let told = async |code: u16, retry_after: Option<&'static str>, body: Value| {
        let (api, _, _) = serve(&[(code, retry_after, body)]).await;
        let error = api.get(Kind::Node.named("n")).await.unwrap_err();
        (error.code().unwrap(), error.to_string(), error.retry_after().map(|wait| wait.as_secs()))
    };
    assert_eq!(told(403, None, status(403, "not allowed")).await, (403, "not allowed".into(), None));
    assert_eq!(told(403, None, status(403, "")).await, (403, "HTTP status 403".into(), None));
    assert_eq!(told(502, None, "bad gateway".into()).await, (502, "bad gateway".into(), None));
    let of_another = status(404, "somebody else's");
    assert_eq!(told(503, None, of_another.clone()).await, (503, of_another.to_string(), None));
    let long = "x".repeat(1_000);
    assert_eq!(told(500, None, long.as_str().into()).await, (500, long[..200].into(), None));
    // how long to wait: by the header, else by the details
    let mut busy = status(429, "busy");
    assert_eq!(told(429, Some("7"), busy.clone()).await.2, Some(7));
    busy["details"] = json!({"retryAfterSeconds": 3});
    assert_eq!(told(429, None, busy.clone()).await.2, Some(3));
    assert_eq!(told(429, Some("7"), busy.clone()).await.2, Some(7));
    busy["details"] = json!({"retryAfterSeconds": 0});
    assert_eq!(told(429, None, busy).await.2, None);
    assert_eq!(told(429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), status(429, "busy")).await.2, None);
}

/// A watch that cannot be opened says so as any other request does.
#[tokio::test]
async fn a_watch_that_is_refused_is_an_error() {
    let mut gone = status(429, "busy");
    gone["details"] = json!({"retryAfterSeconds": 3});
    let (api, _, _) = serve(&[(429, None, gone)]).await;
    let Err(error) = api.watch::<Value>(Kind::Node, None, &Selectors::default(), Some("5")).await else {
        panic!("opened")
    };
    assert_eq!((error.code(), error.retry_after()), (Some(429), Some(Duration::from_secs(3))));
}

#[tokio::test]
async fn what_a_write_met_is_an_outcome() {
    for (code, label) in [
        (201, "applied"),
        (404, "not_found"),
        (409, "conflict"),
        (403, "rejected"),
        (429, "throttled"),
        (500, "unknown"),
    ] {
        let (api, _, _) = serve(&[(code, None, status(code, "m"))]).await;
        let outcome = api.patch(Kind::Node.named("n"), &json!({})).await;
        assert_eq!(outcome.label(), label, "{code}");
    }
    // an admission webhook that does not answer: nothing was stored
    let message =
        "Internal error occurred: failed calling webhook \"x.example.com\": failed to call webhook: connection refused";
    for (code, label) in [(500, "rejected"), (503, "unknown")] {
        let (api, _, _) = serve(&[(code, None, status(code, message))]).await;
        assert_eq!(api.patch(Kind::Node.named("n"), &json!({})).await.label(), label, "{code}");
    }
    // it was never sent, so it did not land
    let (api, server, _) = serve(&[(200, None, json!({}))]).await;
    let outcome = api.patch(Kind::Node.named(""), &json!({})).await;
    assert!(matches!(outcome, Outcome::Rejected(Error::Request(_))), "{outcome}");
    assert_eq!(asked(&server), []);
}

/// A right that is missing, or an account that is not known.
#[tokio::test]
async fn only_401_and_403_are_missing_rights() {
    for (code, is_forbidden, is_not_found) in
        [(401, true, false), (403, true, false), (404, false, true), (409, false, false), (500, false, false)]
    {
        let (api, _, _) = serve(&[(code, None, status(code, "m"))]).await;
        let error = api.probe(Kind::Node).await.unwrap_err();
        assert_eq!((error.is_forbidden(), error.is_not_found()), (is_forbidden, is_not_found), "{code}");
    }
    let (api, _, _) = serve(&[(200, None, "no JSON".into())]).await;
    let error = api.read::<Value>(Kind::Node.named("n")).await.unwrap_err();
    assert!(matches!(error, Error::Parse { kind: Kind::Node, .. }), "{error}");
    assert!(error.code().is_none() && !error.is_forbidden() && error.retry_after().is_none());
}

/// The lease must not wait behind a rotation's requests.
#[tokio::test]
async fn the_lease_has_no_rate_limit() {
    let (_, server, _) = serve(&[(200, None, json!({}))]).await;
    let limited = Api::new(client_of(&server).await, 1, 1, Arc::default());
    let free = limited.unlimited();
    let began = std::time::Instant::now();
    for _ in 0..20 {
        free.get(Kind::Node.named("n")).await.unwrap();
    }
    // the limit would let one a second through
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// A page of 200 Nodes has 3 MiB; what has more than 64 MiB is no answer to anything that we ask for.
#[tokio::test]
async fn an_answer_has_64_mib_at_most() {
    const MIB: usize = 1 << 20;
    let answered = async |length: usize| {
        let chunk = Bytes::from(vec![b'x'; MIB]);
        let routes = Router::new().fallback(async move || {
            let whole = vec![chunk.clone(); length / MIB];
            let rest = chunk.slice(..length % MIB);
            Body::from_stream(futures::stream::iter(whole.into_iter().chain([rest]).map(Ok::<_, Infallible>)))
        });
        let api = Api::new(kube::Client::new(routes, "default"), 1_000, 1_000, Arc::default());
        api.get(Kind::Node.named("n")).await.map(|text| text.len())
    };
    for length in [3 * MIB, 64 * MIB] {
        assert_eq!(answered(length).await.unwrap(), length);
    }
    let error = answered(64 * MIB + 1).await.unwrap_err();
    assert!(matches!(error, Error::Body(_)), "{error}");
}
