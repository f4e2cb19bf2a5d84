//! Leader election on a scripted Lease: who may take it, when, and when a leader stops.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use noderotation_cluster::metrics::ClientMetrics;
use noderotation_controller::leader::{Election, LostLease, Timing};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use support::{body_of, response, status};

const TIMING: Timing = Timing {
    duration: Duration::from_secs(6),
    renew_deadline: Duration::from_secs(2),
    retry_period: Duration::from_millis(200),
};

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
struct Server {
    lease: Option<Value>,
    version: u64,
    /// Answers every write with 500 and does nothing.
    refuses: bool,
    /// Somebody else renews before the next write lands.
    is_overtaken: bool,
    /// Answers every read with 500.
    is_unreadable: bool,
    /// Watches end at once, without an event.
    ends_watches: bool,
    writes: usize,
    watches: usize,
    reads: usize,
    created: usize,
}

impl Server {
    fn put(&mut self, mut lease: Value) -> (u16, Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease.clone());
        (200, lease)
    }

    fn held_by(&mut self, holder: &str) {
        // a second: long past, if anybody went by the holder's own clock
        let spec =
            json!({"holderIdentity": holder, "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"});
        self.put(json!({"metadata": {"name": "noderotation-controller", "namespace": "ns"}, "spec": spec}));
    }

    fn holder(&self) -> String {
        self.lease.as_ref().unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    }

    fn answer(&mut self, method: &str, body: Value) -> (u16, Value) {
        self.reads += usize::from(method == "GET");
        self.created += usize::from(method == "POST");
        match (method, self.lease.clone()) {
            ("GET", _) if self.is_unreadable => (500, status(500, "Scripted")),
            ("GET", None) => (404, status(404, "Scripted")),
            ("GET", Some(lease)) => (200, lease),
            _ if self.refuses => (500, status(500, "Scripted")),
            ("POST", None) => self.put(body),
            ("POST", Some(_)) => (409, status(409, "Scripted")),
            (_, None) => (404, status(404, "Scripted")),
            (_, Some(mut lease)) => {
                self.writes += 1;
                if std::mem::take(&mut self.is_overtaken) {
                    lease = self.put(lease).1;
                }
                // without a version the API server replaces whatever it has
                let seen = body["metadata"]["resourceVersion"].as_str();
                if seen.is_some_and(|seen| lease["metadata"]["resourceVersion"] != *seen) {
                    return (409, status(409, "Scripted"));
                }
                self.put(body)
            }
        }
    }
}

async fn answer(State(server): State<Arc<Mutex<Server>>>, request: Request) -> Response {
    let method = request.method().to_string();
    if request.uri().query().unwrap_or_default().contains("watch=true") {
        return watched(&server).await;
    }
    let body = body_of(request).await;
    let (code, answer) = server.lock().unwrap().answer(&method, body);
    response(code, answer.to_string())
}

/// The next change of the lease, on a line of its own.
async fn watched(server: &Arc<Mutex<Server>>) -> Response {
    let (before, ends) = {
        let mut server = server.lock().unwrap();
        server.watches += 1;
        (server.version, server.ends_watches)
    };
    if ends {
        return response(200, String::new());
    }
    loop {
        {
            let server = server.lock().unwrap();
            if server.version > before {
                return response(200, format!("{}\n", json!({"type": "MODIFIED", "object": server.lease})));
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn candidate(server: &Arc<Mutex<Server>>, timing: Timing) -> Election {
    let routes = Router::new().fallback(answer).with_state(server.clone());
    let api = support::serve(routes, Arc::new(ClientMetrics::default())).await;
    Election::new(&api, "ns", "pod-a", timing)
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_writing_and_then_leading_at_its_deadline() {
    let server = Arc::new(Mutex::new(Server::default()));
    let election = candidate(&server, TIMING).await;
    let began = Instant::now();
    let term = election.win().await;
    assert!(term.check().is_ok());
    server.lock().unwrap().refuses = true;
    let lost = timeout(Duration::from_secs(10), election.hold(&term, &CancellationToken::new())).await;
    assert!(matches!(lost, Ok(Err(LostLease::NotRenewed(_)))), "{lost:?}");
    assert!(term.check().is_err(), "it may still write");
    // another candidate may take the lease six seconds after its last renewal
    assert!((TIMING.renew_deadline..TIMING.duration).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn renewals_extend_the_term_and_a_new_holder_ends_it() {
    let server = Arc::new(Mutex::new(Server::default()));
    let election = candidate(&server, TIMING).await;
    let term = election.win().await;
    let stop = CancellationToken::new();
    let held = timeout(Duration::from_millis(2_500), election.hold(&term, &stop)).await;
    assert!(held.is_err() && term.check().is_ok(), "renewed, it outlasts the deadline of its first renewal");
    server.lock().unwrap().held_by("pod-b");
    let lost = timeout(Duration::from_secs(10), election.hold(&term, &stop)).await;
    assert!(matches!(&lost, Ok(Err(LostLease::Taken(holder))) if holder == "pod-b"), "{lost:?}");
    assert_eq!(server.lock().unwrap().holder(), "pod-b");
}

/// Its own clock counts, from when it saw the lease: what the holder's clock says may be hours off.
#[tokio::test]
async fn a_lease_is_taken_after_its_duration_has_been_watched_and_only_as_it_was_seen() {
    let server = Arc::new(Mutex::new(Server::default()));
    server.lock().unwrap().held_by("pod-b");
    server.lock().unwrap().is_overtaken = true;
    let election = candidate(&server, TIMING).await;
    let began = Instant::now();
    timeout(Duration::from_secs(20), election.win()).await.unwrap();
    assert_eq!(server.lock().unwrap().writes, 2, "the first attempt met a renewal");
    assert!(began.elapsed() >= Duration::from_secs(2), "a whole second each: {:?}", began.elapsed());
    let reads = server.lock().unwrap().reads;
    assert!(reads <= 8, "it waits for a change and does not ask all the time: {reads} reads");
    assert_eq!(server.lock().unwrap().holder(), election.identity());
}

/// Nobody has to wait for the end of a lease that was given up.
#[tokio::test]
async fn a_lease_that_is_given_up_is_taken_at_once() {
    let server = Arc::new(Mutex::new(Server::default()));
    let (first, second) = {
        // neither pauses nor leases are over within the test
        let timing = Timing { duration: Duration::from_secs(60), retry_period: Duration::from_secs(20), ..TIMING };
        (candidate(&server, timing).await, candidate(&server, timing).await)
    };
    let term = first.win().await;
    {
        let lease = server.lock().unwrap().lease.clone().unwrap();
        assert_eq!(
            (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseDurationSeconds"]),
            (&json!(first.identity()), &json!(60))
        );
    }
    let standby = tokio::spawn(async move {
        let _term = second.win().await;
        second.identity().to_owned()
    });
    while server.lock().unwrap().watches == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.lock().unwrap().holder(), first.identity());
    drop(term);
    first.release().await;
    let winner = timeout(Duration::from_secs(5), standby).await.unwrap().unwrap();
    assert_eq!(server.lock().unwrap().holder(), winner);
    // what is another's is not given up
    first.release().await;
    assert_eq!(server.lock().unwrap().holder(), winner);
}

/// An API server in trouble is asked again after a pause, and a lease that cannot be read is not taken for none.
#[tokio::test]
async fn a_server_in_trouble_is_not_asked_without_pause() {
    let server = Arc::new(Mutex::new(Server { is_unreadable: true, ..Server::default() }));
    let election = candidate(&server, TIMING).await;
    assert!(timeout(Duration::from_secs(1), election.win()).await.is_err());
    let asked = |server: &Arc<Mutex<Server>>| {
        let server = server.lock().unwrap();
        (server.reads, server.created)
    };
    let (reads, created) = asked(&server);
    assert!((2..=8).contains(&reads) && created == 0, "{reads} reads, {created} attempts");
    // watches that end at once
    let server = Arc::new(Mutex::new(Server { ends_watches: true, ..Server::default() }));
    server.lock().unwrap().put(json!({
        "metadata": {"name": "noderotation-controller", "namespace": "ns"},
        "spec": {"holderIdentity": "pod-b", "leaseDurationSeconds": 60},
    }));
    let election = candidate(&server, TIMING).await;
    assert!(timeout(Duration::from_secs(1), election.win()).await.is_err());
    let (reads, created) = asked(&server);
    assert!((2..=8).contains(&reads) && created == 0, "{reads} reads, {created} attempts");
}
