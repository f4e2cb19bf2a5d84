//! Watches against a scripted API server: what a real one does rarely, and never on demand.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use noderotation_cluster::metrics::ClientMetrics;
use noderotation_cluster::watch::{Freshness, ListWatch, reflect};
use noderotation_controller::queue::Queue;
use noderotation_controller::watch::Caches;
use noderotation_shared::objects::Node;
use serde_json::{Value, json};

use support::{response, status};

/// Answers requests with the next of its answers, and remembers what it was asked.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    script.asked.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
    let next = script.answers.lock().unwrap().pop_front();
    match next {
        Some((code, body)) => response(code, body),
        // a watch that has nothing more to say
        None => std::future::pending().await,
    }
}

fn node(name: &str, version: u32, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "labels": {"karpenter.sh/nodepool": "api"}},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    })
}

/// The type comes first, as in every API server's answer: Go writes fields in their order.
fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn bookmark(version: u32, ends_initial: bool) -> String {
    let annotations = if ends_initial { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    event(
        "BOOKMARK",
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}),
    )
}

struct Watched {
    caches: Arc<Caches>,
    queue: Arc<Queue>,
    script: Script,
}

impl Watched {
    /// Starts a watch of nodes on a server with these answers.
    async fn start(answers: Vec<(u16, String)>) -> Self {
        let script = Script { answers: Arc::new(Mutex::new(answers.into())), ..Script::default() };
        let metrics = Arc::new(ClientMetrics::default());
        let routes = Router::new().fallback(answer).with_state(script.clone());
        let api = support::serve(routes, metrics.clone()).await;
        let queue = Arc::new(Queue::default());
        let fresh = Arc::new(Freshness::default());
        let caches = Arc::new(Caches::new(queue.clone(), fresh.clone()));
        let list_watch = ListWatch::all();
        tokio::spawn(reflect::<Node>(api, list_watch, caches.clone(), fresh, metrics));
        Self { caches, queue, script }
    }

    /// Waits for a condition, generously.
    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..2_000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain for {what}; asked: {:?}", self.asked());
    }

    fn asked(&self) -> Vec<String> {
        self.script.asked.lock().unwrap().clone()
    }

    fn names(&self) -> Vec<String> {
        self.caches.lock().nodes().iter().map(|n| n.meta.name.to_string()).collect()
    }
}

#[tokio::test]
async fn the_initial_state_is_streamed_and_the_watch_resumes_from_its_last_version() {
    let first = [
        event("ADDED", &node("a", 3, true)),
        event("ADDED", &node("b", 5, true)),
        bookmark(7, true),
        event("MODIFIED", &node("a", 9, false)),
        bookmark(12, false),
    ]
    .concat();
    let w = Watched::start(vec![(200, first), (200, event("DELETED", &node("b", 14, true)))]).await;
    w.until("b to be deleted", |w| w.names() == ["a"]).await;
    assert!(!w.caches.lock().nodes()[0].ready);
    let asked = w.asked();
    assert!(
        asked[0].contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
            && asked[0].ends_with("&resourceVersion="),
        "{asked:?}"
    );
    assert!(asked[1].contains("resourceVersion=12") && !asked[1].contains("sendInitialEvents"), "{asked:?}");
    assert!(w.queue.depth() > 0, "the pool has to look");
}

/// Bookmarks come once a minute: from the last of them alone, every reconnection would replay what was seen since.
#[tokio::test]
async fn a_watch_resumes_from_its_last_object_where_no_bookmark_came_after_it() {
    let first = [event("ADDED", &node("a", 3, true)), event("ADDED", &node("b", 5, true)), bookmark(7, true)].concat();
    let w = Watched::start(vec![
        (200, [first, event("MODIFIED", &node("a", 9, false))].concat()),
        (200, event("DELETED", &node("b", 14, true))),
        (200, event("ADDED", &node("c", 16, true))),
    ])
    .await;
    w.until("the third watch's object", |w| w.names() == ["a", "c"]).await;
    let asked = w.asked();
    assert!(asked[1].contains("resourceVersion=9") && asked[2].contains("resourceVersion=14"), "{asked:?}");
}

#[tokio::test]
async fn a_too_old_version_lists_anew_and_what_vanished_is_told() {
    let first = [event("ADDED", &node("a", 3, true)), event("ADDED", &node("b", 5, true)), bookmark(7, true)].concat();
    let gone = event("ERROR", &status(410, "Expired"));
    let second =
        [event("ADDED", &node("b", 5, true)), event("ADDED", &node("c", 20, true)), bookmark(21, true)].concat();
    let w = Watched::start(vec![(200, first), (200, gone), (200, second)]).await;
    w.until("the new list", |w| w.names() == ["b", "c"]).await;
    let asked = w.asked();
    assert!(asked[1].contains("resourceVersion=7") && asked[2].contains("sendInitialEvents=true"), "{asked:?}");
}

#[tokio::test]
async fn a_server_that_cannot_stream_is_listed_in_pages() {
    let page = |items: Vec<Value>, next: &str| {
        json!({"metadata": {"resourceVersion": "30", "continue": next}, "items": items}).to_string()
    };
    let w = Watched::start(vec![
        (422, status(422, "Invalid").to_string()),
        (200, page(vec![node("a", 3, true)], "more")),
        (200, page(vec![node("b", 4, true)], "")),
        (200, event("ADDED", &node("c", 31, true))),
    ])
    .await;
    w.until("the watch after the list", |w| w.names() == ["a", "b", "c"]).await;
    let asked = w.asked();
    assert!(
        asked[1].contains("limit=") && asked[2].contains("continue=more") && asked[3].contains("resourceVersion=30"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn one_malformed_object_never_stops_the_others() {
    let mut bad = node("bad", 4, true);
    bad["metadata"]["labels"] = json!(7);
    let first = [
        event("ADDED", &node("a", 3, true)),
        event("ADDED", &bad),
        event("ADDED", &node("b", 5, true)),
        bookmark(7, true),
    ]
    .concat();
    let w = Watched::start(vec![(200, first)]).await;
    w.until("the others", |w| w.names() == ["a", "b"]).await;
}

#[tokio::test]
async fn a_cut_initial_state_is_begun_anew_and_nothing_is_taken_for_complete() {
    let cut = event("ADDED", &node("a", 3, true));
    let whole = [event("ADDED", &node("a", 3, true)), event("ADDED", &node("b", 4, true)), bookmark(7, true)].concat();
    let w = Watched::start(vec![(200, cut), (500, status(500, "InternalError").to_string()), (200, whole)]).await;
    w.until("the whole state", |w| w.names() == ["a", "b"]).await;
    assert!(w.asked().iter().take(3).all(|q| q.contains("sendInitialEvents=true")), "{:?}", w.asked());
}

/// Deletions within a cut initial state have versions, too; resuming there once left a leader that never synced.
#[tokio::test]
async fn a_deletion_in_a_cut_initial_state_is_nothing_to_resume_from() {
    let cut = [event("ADDED", &node("a", 3, true)), event("DELETED", &node("b", 9, true))].concat();
    let whole = [event("ADDED", &node("a", 3, true)), bookmark(11, true)].concat();
    let w = Watched::start(vec![(200, cut), (200, whole)]).await;
    w.until("the whole state", |w| w.asked().len() >= 2 && w.names() == ["a"]).await;
    assert!(w.asked()[1].contains("sendInitialEvents=true"), "{:?}", w.asked());
}

/// A server that closes every watch at once, or says 410 for ever, is not asked without pause.
#[tokio::test]
async fn a_server_that_ends_every_watch_is_not_asked_without_pause() {
    for answer in [String::new(), event("ERROR", &status(410, "Expired"))] {
        let w = Watched::start(vec![(200, answer); 1_000]).await;
        let began = tokio::time::Instant::now();
        w.until("four requests", |w| w.asked().len() >= 4).await;
        // the second one may come at once; the third waits half a second at least, the fourth a whole one
        assert!(began.elapsed() >= Duration::from_millis(1_500), "four requests in {:?}", began.elapsed());
    }
}
