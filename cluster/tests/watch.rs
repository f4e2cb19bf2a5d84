//! Watches against a scripted API server within the process: without sockets, a paused clock stands still while an answer is
//! under way, so waits are measured to the millisecond.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "support/logs.rs"]
mod logs;

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use noderotation_cluster::api::Api;
use noderotation_cluster::metrics::{ClientMetrics, page};
use noderotation_cluster::watch::{EventHandler, Freshness, ListWatch, reflect};
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Node, Placeholder};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use logs::Logs;

/// A part of an answer's body.
#[derive(Clone)]
enum Part {
    Text(String),
    Silence(u64),
}

use Part::{Silence, Text};

/// A status and a body, at whose end the connection ends.
type Answer = (u16, Vec<Part>);

fn whole(code: u16, body: &Value) -> Answer {
    (code, vec![Text(body.to_string())])
}

fn refused(code: u16) -> Answer {
    whole(code, &status(code))
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": format!("scripted {code}")})
}

fn node(name: &str, version: u32) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

/// The type comes first, as in every API server's answer: Go writes fields in their order.
fn event(kind: &str, object: &Value) -> Part {
    Text(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

fn added(name: &str, version: u32) -> Part {
    event("ADDED", &node(name, version))
}

fn error(code: u16) -> Part {
    event("ERROR", &status(code))
}

/// The bookmark at the end of a streamed initial state.
fn complete(version: u32) -> Part {
    let meta = json!({"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}});
    event("BOOKMARK", &json!({"apiVersion": "v1", "kind": "Node", "metadata": meta}))
}

/// Sends on what a reflector tells.
struct Teller(UnboundedSender<String>);

impl Teller {
    fn tell(&self, what: String) {
        self.0.send(what).unwrap();
    }
}

impl<K: noderotation_cluster::objects::Cached> EventHandler<K> for Teller {
    fn apply(&self, object: K) {
        self.tell(format!("apply {}@{}", object.meta().name, object.meta().version));
    }

    fn delete(&self, object: &K) {
        self.tell(format!("delete {}@{}", object.meta().name, object.meta().version));
    }

    fn init_done(&self, uids: &HashSet<Box<str>>) {
        let mut uids: Vec<&str> = uids.iter().map(|uid| &**uid).collect();
        uids.sort_unstable();
        self.tell(format!("complete {}", uids.join(" ")));
    }
}

/// A server with these answers, whose client is returned; what it is asked is sent on. After the last answer it says nothing.
fn serve(answers: Vec<Answer>, told: UnboundedSender<String>, metrics: Arc<ClientMetrics>) -> Api {
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let routes = Router::new().fallback(async move |uri: Uri| -> Response {
        told.send(uri.to_string()).unwrap();
        let next = answers.lock().pop_front();
        let Some((code, parts)) = next else { return std::future::pending().await };
        let texts = stream::iter(parts).filter_map(async |part| match part {
            Text(text) => Some(Ok::<_, Infallible>(text)),
            Silence(seconds) => {
                sleep(Duration::from_secs(seconds)).await;
                None
            }
        });
        (StatusCode::from_u16(code).unwrap(), Body::from_stream(texts)).into_response()
    });
    Api::new(kube::Client::new(routes, "default"), 1_000, 1_000, metrics)
}

/// What a request for nodes asks for, in a word.
fn in_short(uri: &str) -> String {
    let Some(query) = uri.strip_prefix("/api/v1/nodes?") else { return uri.to_owned() };
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    match (value("watch"), value("sendInitialEvents"), value("continue")) {
        (Some("true"), Some("true"), None) => "stream".into(),
        (Some("true"), None, None) => format!("from {}", value("resourceVersion").unwrap()),
        (None, None, None) => "list".into(),
        (None, None, Some(token)) => format!("list at {token}"),
        _ => panic!("{uri}"),
    }
}

/// A reflector of nodes.
struct Watched {
    logs: Logs,
    told: UnboundedReceiver<String>,
    metrics: Arc<ClientMetrics>,
    fresh: Arc<Freshness>,
}

impl Watched {
    fn start(answers: Vec<Answer>) -> Self {
        let logs = Logs::start();
        let (teller, told) = unbounded_channel();
        let (metrics, fresh) = (Arc::<ClientMetrics>::default(), Arc::<Freshness>::default());
        let api = serve(answers, teller.clone(), metrics.clone());
        let handler = Arc::new(Teller(teller));
        tokio::spawn(reflect::<Node>(api, ListWatch::all(), handler, fresh.clone(), metrics.clone()));
        Self { logs, told, metrics, fresh }
    }

    /// Expects these next, the first of them after a time in milliseconds and the others at once.
    async fn expect(&mut self, after: RangeInclusive<u128>, expected: &[&str]) {
        let began = Instant::now();
        for (i, expected) in expected.iter().enumerate() {
            let told = timeout(Duration::from_secs(3_600), self.told.recv()).await;
            let told = in_short(&told.unwrap_or_else(|_| panic!("waited in vain for {expected}")).unwrap());
            assert_eq!(&told, expected);
            let waited = began.elapsed().as_millis();
            assert!(after.contains(&waited), "{expected}, the {i}th of {after:?}, after {waited} ms");
        }
    }

    /// Complete lists so far, by reason.
    fn lists(&self) -> Vec<String> {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let shown = page(&registry);
        let prefix = r#"watch_lists_total{resource="nodes",reason=""#;
        let mut lists: Vec<String> =
            shown.lines().filter_map(|line| Some(line.strip_prefix(prefix)?.replace("\"}", ""))).collect();
        lists.sort();
        lists
    }
}

/// At the same instant, but for the tick of the clock.
const AT_ONCE: RangeInclusive<u128> = 0..=2;
/// After the wait that follows a first failure: half a second to a second.
const SOON: RangeInclusive<u128> = 500..=1_003;
/// After the 20 s of the script: a watch that lasted for longer than ten seconds went well.
const LATER: RangeInclusive<u128> = 20_000..=20_003;
/// Twenty seconds of the script, and the wait after a first failure.
const LATER_AND_SOON: RangeInclusive<u128> = 20_500..=21_003;

#[tokio::test(start_paused = true)]
async fn each_end_of_a_watch_leads_to_what_it_asks_for() {
    let mut w = Watched::start(vec![
        (200, vec![added("a", 3)]),
        (200, vec![added("a", 3), added("b", 5), complete(7), Silence(20)]),
        (200, vec![Silence(20)]),
        (200, vec![Silence(20), error(500)]),
        (200, vec![Silence(20), error(410)]),
        (200, vec![added("b", 5), complete(21), Silence(20)]),
        refused(422),
        (200, vec![event("DELETED", &node("b", 25)), Silence(20), error(410)]),
        (200, vec![complete(30), Silence(3_600)]),
    ]);
    w.expect(AT_ONCE, &["stream", "apply a@3"]).await;
    assert_eq!(w.lists(), ["start 1"]);
    // cut off: nothing is taken for complete, and nothing resumed
    w.expect(SOON, &["stream", "apply a@3", "apply b@5", "complete uid-a uid-b"]).await;
    assert_eq!(w.lists(), ["start 2"]);
    w.expect(LATER, &["from 7"]).await;
    w.expect(LATER, &["from 7"]).await;
    // any other error than 410 leaves the version good
    w.expect(LATER_AND_SOON, &["from 7"]).await;
    assert_eq!(w.lists(), ["start 2"], "what goes on from a version lists nothing");
    w.expect(LATER, &["stream", "apply b@5", "complete uid-b"]).await;
    assert_eq!(w.lists(), ["expired 1", "start 2"]);
    w.expect(LATER, &["from 21"]).await;
    // 422 to a request that does not ask for a stream does not mean that the server cannot stream
    w.expect(SOON, &["from 21", "delete b@25"]).await;
    w.expect(LATER, &["stream", "complete "]).await;
    assert_eq!(w.lists(), ["expired 2", "start 2"]);
    let failures = w.logs.with("watch failed");
    let sentences = ["closed before the initial state was complete", "scripted 500", "422: scripted 422"];
    assert_eq!(failures.len(), sentences.len(), "{failures:?}");
    for (line, sentence) in failures.iter().zip(sentences) {
        assert!(line.contains(&format!("error=\"{sentence}\"")), "{line}");
    }
}

/// Its failure is another one than that of an initial state which was cut off.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_closed_again_and_again_is_said_to_end_at_once() {
    let closed = (200, vec![]);
    let mut w = Watched::start(vec![(200, vec![complete(7)]), closed.clone(), closed]);
    w.expect(AT_ONCE, &["stream", "complete ", "from 7"]).await;
    w.expect(SOON, &["from 7"]).await;
    w.expect(1_000..=2_003, &["from 7"]).await;
    let failures = w.logs.with("watch failed");
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(failures.iter().all(|line| line.contains("error=\"the watch ended at once\"")), "{failures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_version_expires_between_two_pages_is_begun_anew() {
    let page = |items: &[Value], next: &str| {
        whole(200, &json!({"metadata": {"resourceVersion": "30", "continue": next}, "items": items}))
    };
    let mut w = Watched::start(vec![
        refused(422),
        page(&[node("a", 3)], "t"),
        refused(410),
        page(&[node("b", 4)], ""),
        (200, vec![Silence(20), error(410)]),
        refused(500),
        page(&[node("b", 4), node("c", 5)], ""),
    ]);
    w.expect(AT_ONCE, &["stream", "list", "apply a@3", "list at t"]).await;
    assert_eq!(w.lists(), ["start 2"]);
    w.expect(SOON, &["list", "apply b@4", "complete uid-b", "from 30"]).await;
    assert_eq!(w.lists(), ["expired 1", "start 2"]);
    // it lists from now on, without another attempt to stream
    w.expect(LATER, &["list"]).await;
    w.expect(SOON, &["list", "apply b@4", "apply c@5", "complete uid-b uid-c", "from 30"]).await;
    assert_eq!(w.lists(), ["expired 3", "start 2"]);
}

/// A list that fails is no list that has expired.
#[tokio::test(start_paused = true)]
async fn a_list_that_fails_keeps_its_reason() {
    let mut w = Watched::start(vec![refused(422), refused(500)]);
    w.expect(AT_ONCE, &["stream", "list"]).await;
    // the second end in a row that came too soon
    w.expect(1_000..=2_003, &["list"]).await;
    assert_eq!(w.lists(), ["start 3"]);
    let failures = w.logs.with("watch failed");
    assert!(failures.len() == 1 && failures[0].contains("error=\"scripted 500\""), "{failures:?}");
}

/// §8: without an event or a bookmark for 200 s, the connection may be dead without either side having noticed.
#[tokio::test(start_paused = true)]
async fn a_silence_ends_the_watch_and_what_comes_makes_it_fresh() {
    let mut w = Watched::start(vec![
        (200, vec![complete(7), Silence(150), added("a", 9), Silence(3_600)]),
        (200, vec![Silence(3_600)]),
    ]);
    w.expect(AT_ONCE, &["stream", "complete "]).await;
    w.expect(150_000..=150_003, &["apply a@9"]).await;
    assert_eq!(w.fresh.ages(), [(Kind::Node, Duration::ZERO)]);
    w.expect(200_500..=201_003, &["from 9"]).await;
    let age = w.fresh.ages()[0].1.as_millis();
    assert!((200_500..=201_003).contains(&age), "an opened watch has not delivered anything: {age} ms");
}

#[tokio::test(start_paused = true)]
async fn only_the_objects_that_were_named_are_watched_and_listed() {
    let cases = [
        (ListWatch::named(Some("ns"), "p"), "/namespaces/ns", "fieldSelector=metadata.name%3Dp"),
        (ListWatch::named(None, "p"), "", "fieldSelector=metadata.name%3Dp"),
        (ListWatch::labelled("ns", "k"), "/namespaces/ns", "labelSelector=k"),
    ];
    for (list_watch, namespace, selector) in cases {
        Logs::start();
        let (teller, mut told) = unbounded_channel();
        let api = serve(vec![refused(422)], teller.clone(), Arc::default());
        let handler = Arc::new(Teller(teller));
        tokio::spawn(reflect::<Placeholder>(api, list_watch, handler, Arc::default(), Arc::default()));
        let pods = format!("/api/v1{namespace}/pods");
        let stream = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
        let watch = format!("{pods}?&watch=true&timeoutSeconds=290&{selector}&allowWatchBookmarks=true&{stream}");
        assert_eq!(told.recv().await.unwrap(), watch);
        assert_eq!(told.recv().await.unwrap(), format!("{pods}?&{selector}&limit=200"));
    }
}
