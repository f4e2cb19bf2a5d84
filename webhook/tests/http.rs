//! Whatever a client sends over TLS, it gets a response of bounded size within bounded time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_certs::cert_resolver::CertResolver;
use noderotation_certs::issue;
use noderotation_webhook::body::LARGEST_BODY;
use noderotation_webhook::connections;
use noderotation_webhook::limits::Limits;
use noderotation_webhook::metrics::Metrics;
use noderotation_webhook::serve::{Service, routes};
use serde_json::{Value, json};
use support::{Nothing, handlers, options, policy, pool, review};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longer than any time limit of the server; a response that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    tls: TlsConnector,
    metrics: Arc<Metrics>,
    serving: Arc<connections::Server>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let now = Timestamp::now();
        let authority = issue::authority(now, SignedDuration::from_hours(1)).unwrap();
        let leaf = issue::leaf(&authority, &["webhook".into()], now, SignedDuration::from_hours(1)).unwrap();
        let resolver = Arc::new(CertResolver::default());
        resolver.set(leaf.certified().unwrap(), leaf.certificate.not_after);
        let handlers =
            handlers(&[policy("w-api", &json!({"w": "api"}))], &[pool("api", &json!({"w": "api"}))], options());
        let metrics = Arc::new(Metrics::new(Arc::default()));
        let service = Service::new(handlers, Box::new(Nothing), metrics.clone(), limits);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = connections::Server::new(routes(service), limits);
        tokio::spawn(server.clone().serve(listener, resolver));
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject;
        roots
            .add(rustls::pki_types::CertificateDer::from_pem_slice(authority.certificate.pem.as_bytes()).unwrap())
            .unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Self { address, tls: TlsConnector::from(Arc::new(config)), metrics, serving: server }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.tls.connect("webhook".try_into().unwrap(), stream).await.unwrap()
    }

    /// Sends these bytes and reads until the server closes the connection; status and body.
    async fn raw(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await;
        let _ = stream.write_all(request).await;
        answer(&mut stream).await
    }

    async fn post(&self, path: &str, content: &str, body: &str) -> (u16, String) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: webhook\r\ncontent-type: {content}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        self.raw(&[head.as_bytes(), body.as_bytes()].concat()).await
    }
}

async fn answer(stream: &mut TlsStream<TcpStream>) -> (u16, String) {
    let mut bytes = Vec::new();
    let all = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    assert!(all.is_ok(), "the server neither answered nor closed the connection");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    (code, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

const POLICIES: &str = "/validate/rotationpolicies";
const JSON: &str = "application/json";

#[tokio::test(flavor = "multi_thread")]
async fn every_malformed_request_gets_a_bounded_answer() {
    let server = Server::start(Limits { head: Duration::from_secs(1), ..Limits::default() }).await;
    let good = review("rotationpolicies", "CREATE", &policy("x", &json!({"w": "x"})), &Value::Null);
    let (code, body) = server.post(POLICIES, JSON, &good.to_string()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (code, &answer["response"]["allowed"], &answer["response"]["uid"]),
        (200, &json!(true), &good["request"]["uid"])
    );
    assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("AdmissionReview"), &json!("admission.k8s.io/v1")));

    // where the UID can be read: 200, and a review that refuses the request
    let changed = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let many = format!("[{}0]", "0,".repeat(20_000));
    for (what, content, body, why) in [
        ("wrong version", JSON, changed("/apiVersion", json!("admission.k8s.io/v1beta1")), "send admission.k8s.io/v1"),
        ("wrong kind", JSON, changed("/kind", json!("Pod")), "send admission.k8s.io/v1"),
        ("wrong content type", "text/plain", good.to_string(), "is not application/json"),
        ("no content type", "", good.to_string(), "is not application/json"),
        ("missing object", JSON, changed("/request/object", Value::Null), "request.object: missing"),
        ("object is a number", JSON, changed("/request/object", json!(7)), "spec"),
        ("operation is a map", JSON, changed("/request/operation", json!({})), "cannot be read"),
        ("user is a list", JSON, changed("/request/userInfo", json!([1])), "cannot be read"),
        (
            "deep object",
            JSON,
            good.to_string().replace("\"spec\":{", &format!("\"spec\":{{\"x\":{deep},")),
            "recursion limit",
        ),
        (
            "many values",
            JSON,
            good.to_string().replace("\"spec\":{", &format!("\"spec\":{{\"x\":{many},")),
            "more than 16384 values",
        ),
        (
            "huge object",
            JSON,
            changed("/request/object/spec/maintenanceWindows", json!("x".repeat(1024 * 1024))),
            "reads at most 768 KiB",
        ),
    ] {
        let (code, body) = server.post(POLICIES, content, &body).await;
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{what}: {code} {body}"));
        assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(false)), "{what}");
        assert_eq!(answer["response"]["uid"], good["request"]["uid"], "{what}");
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{what}: {message}");
        assert!(body.len() < 20_000, "{what}: {} bytes", body.len());
    }

    // where it cannot: an HTTP error
    let whole = good.to_string();
    let too_long = "POST /validate/rotationpolicies HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n";
    let chunked = |size: usize| {
        let mut request = b"POST /validate/rotationpolicies HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".to_vec();
        for _ in 0..size / 65_536 {
            request.extend(b"10000\r\n");
            request.extend(vec![b' '; 65_536]);
            request.extend(b"\r\n");
        }
        request.extend(b"0\r\n\r\n");
        request
    };
    for (what, expected, got) in [
        ("empty", 400, server.post(POLICIES, JSON, "").await),
        ("no JSON", 400, server.post(POLICIES, JSON, "{nonsense").await),
        ("truncated", 400, server.post(POLICIES, JSON, &whole[..whole.len() / 2]).await),
        ("a list", 400, server.post(POLICIES, JSON, "[]").await),
        ("no request", 400, server.post(POLICIES, JSON, r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#).await),
        ("no UID", 400, server.post(POLICIES, JSON, &changed("/request/uid", json!(""))).await),
        ("deep", 400, server.post(POLICIES, JSON, &deep).await),
        ("not text", 400, server.raw(b"POST /validate/rotationpolicies HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nconnection: close\r\n\r\n\xff\xfe\xfd").await),
        ("announced too long", 413, server.raw(too_long.as_bytes()).await),
        ("too long", 413, server.raw(&chunked(LARGEST_BODY + 65_536)).await),
        ("no such path", 404, server.post("/validate/everything", JSON, &whole).await),
        ("GET", 405, server.raw(b"GET /validate/nodepools HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await),
        ("no HTTP", 400, server.raw(b"hello\r\n\r\n").await),
        ("huge head", 431, server.raw(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(200_000)).as_bytes()).await),
        ("slow body", 408, server.raw(b"POST /validate/rotationpolicies HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{").await),
    ] {
        assert_eq!(got.0, expected, "{what}: {got:?}");
        assert!(got.1.len() < 1_000, "{what}: {}", got.1.len());
    }
    // a head that never ends, and a handshake that never begins
    let (code, _) = server.raw(b"POST /validate/rotationpolicies HTTP/1.1\r\nhost").await;
    assert!(code == 408 || code == 0, "{code}");
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let closed = tokio::time::timeout(PATIENCE, silent.read(&mut [0; 16])).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");

    let page = server.metrics.render();
    for reason in ["malformed", "large", "slow"] {
        assert!(page.contains(&format!("noderotation_admission_turned_away_total{{reason=\"{reason}\"}}")), "{page}");
    }
    // none of this harms the next request
    assert_eq!(server.post(POLICIES, JSON, &whole).await.0, 200);
    server.serving.close();
    tokio::time::timeout(PATIENCE, server.serving.closed()).await.unwrap();
}

/// A client that is not told so by TLS must take the end of a connection for an attack.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_connection_is_told_by_tls() {
    let server = Server::start(Limits::default()).await;
    let mut stream = server.connect().await;
    let request = format!("POST {POLICIES} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400 "));
}

/// The API server gets its verdict although this replica is being taken away.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_request_that_has_begun() {
    let server = Server::start(Limits::default()).await;
    let good = review("rotationpolicies", "CREATE", &policy("x", &json!({"w": "x"})), &Value::Null).to_string();
    let head = format!(
        "POST {POLICIES} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        good.len()
    );
    let mut stream = server.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut begun = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 100 Continue\r\n\r\n", "it waits for the body");
    server.serving.close();
    assert!(tokio::time::timeout(Duration::from_millis(100), server.serving.closed()).await.is_err());
    stream.write_all(good.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 200);
    tokio::time::timeout(PATIENCE, server.serving.closed()).await.unwrap();
}

/// What was answered is counted, by what Kubernetes knows as operations.
#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_counted_and_an_answer_has_only_what_it_needs() {
    let server = Server::start(Limits::default()).await;
    let object = policy("x", &json!({"w": "x"}));
    let (_, body) =
        server.post(POLICIES, JSON, &review("rotationpolicies", "CREATE", &object, &Value::Null).to_string()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["response"], json!({"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": true}));
    for n in 0..3 {
        server
            .post(
                POLICIES,
                JSON,
                &review("rotationpolicies", &format!("MADE-UP-{n}"), &object, &Value::Null).to_string(),
            )
            .await;
    }
    let page = server.metrics.render();
    let count = |operation: &str| {
        let series = format!(
            r#"noderotation_admission_requests_total{{webhook="validate/rotationpolicies",operation="{operation}",verdict="allowed"}} "#
        );
        page.lines().find_map(|line| line.strip_prefix(series.as_str()).map(str::to_owned))
    };
    assert_eq!((count("CREATE").as_deref(), count("other").as_deref()), (Some("1"), Some("3")), "{page}");
    assert!(page.contains("noderotation_admission_duration_seconds_count 4"), "{page}");
}

/// Unfinished bodies take nothing from anybody: a review is answered while all of them are still under way.
#[tokio::test(flavor = "multi_thread")]
async fn many_slow_bodies_keep_nobody_waiting() {
    let server = Server::start(Limits { body: PATIENCE, answer: PATIENCE, ..Limits::default() }).await;
    let head = format!(
        "POST {POLICIES} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        LARGEST_BODY - 1
    );
    let mut slow = Vec::new();
    for n in 0..60 {
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // some send nothing, some a little, and some nearly all
        let sent = [0, 1_000, LARGEST_BODY - 2][n % 3];
        let sending = tokio::time::timeout(Duration::from_millis(20), stream.write_all(&vec![b' '; sent])).await;
        assert!(!matches!(sending, Ok(Err(_))), "the server has closed the connection");
        slow.push(stream);
    }
    let good = review("rotationpolicies", "CREATE", &policy("x", &json!({"w": "x"})), &Value::Null);
    assert_eq!(server.post(POLICIES, JSON, &good.to_string()).await.0, 200);
    assert!(!server.metrics.render().contains("turned_away_total{"), "none of the others has ended");
}

/// A body that does not come ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_is_turned_away() {
    let server = Server::start(Limits { body: Duration::from_millis(50), ..Limits::default() }).await;
    let head = "POST /validate/nodepools HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{";
    let (code, body) = server.raw(head.as_bytes()).await;
    assert_eq!((code, body.as_str()), (408, "the body did not arrive within 50ms\n"));
}

/// Beyond the most connections, the peer that has most of them loses the one that is idle for longest.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections_cost_the_idle_ones() {
    let server = Server::start(Limits { connections: 8, ..Limits::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(server.connect().await);
    }
    let good = review("rotationpolicies", "CREATE", &policy("x", &json!({"w": "x"})), &Value::Null);
    assert_eq!(server.post(POLICIES, JSON, &good.to_string()).await.0, 200);
    let closed = tokio::time::timeout(PATIENCE, idle[0].read(&mut [0; 16])).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    // the youngest still serves
    let request = format!("POST {POLICIES} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let youngest = idle.last_mut().unwrap();
    youngest.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(answer(youngest).await.0, 400);
}
