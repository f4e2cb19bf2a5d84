//! Whatever arrives over TLS gets a bounded answer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use jiff::{SignedDuration, Timestamp};
use noderotation_certs::cert_resolver::CertResolver;
use noderotation_certs::issue;
use noderotation_webhook::metrics::Metrics;
use noderotation_webhook::serve::{LARGEST_BODY, Service, routes, serve};
use serde_json::{Value, json};
use support::{handlers, options, policy, pool, review};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longer than any bound of the server's; an answer that does not come by then never does.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    tls: TlsConnector,
    metrics: Arc<Metrics>,
    handle: Handle<SocketAddr>,
}

impl Server {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let now = Timestamp::now();
        let authority = issue::authority(now, SignedDuration::from_hours(1)).unwrap();
        let leaf = issue::leaf(&authority, &["webhook".into()], now, SignedDuration::from_hours(1)).unwrap();
        let resolver = Arc::new(CertResolver::default());
        resolver.set(leaf.certified().unwrap(), leaf.certificate.not_after);
        let handlers =
            handlers(&[policy("w-api", &json!({"w": "api"}))], &[pool("api", &json!({"w": "api"}))], options());
        let metrics = Arc::new(Metrics::new(Arc::default()));
        let service = Service::new(handlers, metrics.clone());
        let handle = Handle::new();
        let server = serve("127.0.0.1:0".parse().unwrap(), routes(service), resolver, handle.clone());
        tokio::spawn(async move { server.await.unwrap() });
        let address = handle.listening().await.unwrap();
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject;
        roots
            .add(rustls::pki_types::CertificateDer::from_pem_slice(authority.certificate.pem.as_bytes()).unwrap())
            .unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Self { address, tls: TlsConnector::from(Arc::new(config)), metrics, handle }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.tls.connect("webhook".try_into().unwrap(), stream).await.unwrap()
    }

    /// Sends these bytes and reads until the server closes or has said all.
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
    assert!(all.is_ok(), "neither an answer nor an end");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    (code, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

const POLICIES: &str = "/validate/rotationpolicies";
const JSON: &str = "application/json";

#[tokio::test(flavor = "multi_thread")]
async fn every_malformed_request_gets_a_bounded_answer() {
    let server = Server::start().await;
    let good = review("rotationpolicies", "CREATE", &policy("x", &json!({"w": "x"})), &Value::Null);
    let (code, body) = server.post(POLICIES, JSON, &good.to_string()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (code, &answer["response"]["allowed"], &answer["response"]["uid"]),
        (200, &json!(true), &good["request"]["uid"])
    );
    assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("AdmissionReview"), &json!("admission.k8s.io/v1")));

    // where the UID can be read: 200 and a review that says why
    let changed = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for (what, content, body, why) in [
        ("wrong version", JSON, changed("/apiVersion", json!("admission.k8s.io/v1beta1")), "send admission.k8s.io/v1"),
        ("wrong kind", JSON, changed("/kind", json!("Pod")), "send admission.k8s.io/v1"),
        ("wrong content type", "text/plain", good.to_string(), "not application/json"),
        ("no content type", "", good.to_string(), "not application/json"),
        ("missing object", JSON, changed("/request/object", Value::Null), "request.object: is missing"),
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
            "huge object",
            JSON,
            changed("/request/object/spec/maintenanceWindows", json!("x".repeat(1024 * 1024))),
            "KiB are accepted",
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

    // where it cannot: a plain status
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
    // and it is as well as before
    assert_eq!(server.post(POLICIES, JSON, &whole).await.0, 200);
    server.handle.shutdown();
}

/// Bodies that are begun and not ended take their share of the room; what finds none is told so in time, and the room comes
/// back.
#[tokio::test(flavor = "multi_thread")]
async fn many_slow_bodies_neither_fill_memory_nor_stop_the_server() {
    let server = Server::start().await;
    let head = format!(
        "POST {POLICIES} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{{",
        LARGEST_BODY - 1
    );
    let mut slow = Vec::new();
    for _ in 0..12 {
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    for stream in &mut slow {
        assert_eq!(answer(stream).await.0, 408);
    }
    let good = review("rotationpolicies", "CREATE", &policy("x", &json!({"w": "x"})), &Value::Null);
    assert_eq!(server.post(POLICIES, JSON, &good.to_string()).await.0, 200);
}
