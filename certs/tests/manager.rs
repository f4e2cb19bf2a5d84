//! The keeper of Secret and `caBundle` against an API server within the process, whose answers can be scripted: without sockets,
//! a paused clock stands still while an answer is under way.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "../../cluster/tests/support/logs.rs"]
mod logs;

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use noderotation_certs::cert_resolver::CertResolver;
use noderotation_certs::issue;
use noderotation_certs::manager::{CertificateManager, SecretRef};
use noderotation_certs::objects::{Mutating, SecretObject, Validating, WebhookConfiguration};
use noderotation_certs::plan::CertificateSettings;
use noderotation_certs::secret_data::{CertificateAndKey, SecretData};
use noderotation_cluster::api::Api;
use noderotation_cluster::objects::Cached;
use noderotation_cluster::watch::EventHandler;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use logs::Logs;

const SECRETS: &str = "/api/v1/namespaces/ns/secrets";
const SECRET: &str = "/api/v1/namespaces/ns/secrets/webhook";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/guard";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/policies";
const WATCHED: [&str; 3] = [SECRET, MUTATING, VALIDATING];

/// Objects by path. A write must carry the version that is stored, as the manager's always do.
struct Server {
    objects: Mutex<BTreeMap<String, Value>>,
    /// Beginnings of request lines, and the status that such requests get.
    refused: Mutex<Vec<(String, u16)>>,
    asked: UnboundedSender<(String, Value)>,
}

impl Server {
    fn answer(&self, line: &str, body: &Value) -> (u16, Value) {
        if let Some((_, code)) = self.refused.lock().iter().find(|(prefix, _)| line.starts_with(prefix)) {
            return (*code, Value::Null);
        }
        let mut objects = self.objects.lock();
        let (method, path) = line.split_once(' ').unwrap();
        if method == "POST" {
            let mut object = body.clone();
            object["metadata"]["uid"] = "uid-created".into();
            object["metadata"]["resourceVersion"] = "1".into();
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            assert!(objects.insert(path, object.clone()).is_none(), "exists");
            return (201, object);
        }
        let Some(object) = objects.get_mut(path) else { return (404, Value::Null) };
        if method == "PATCH" {
            let seen =
                |object: &Value| (object["metadata"]["uid"].clone(), object["metadata"]["resourceVersion"].clone());
            if seen(object) != seen(body) {
                return (409, Value::Null);
            }
            json_patch::merge(object, body);
            let version: u32 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            object["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        }
        (200, object.clone())
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri().path());
    let bytes = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let (code, answer) = server.answer(&line, &body);
    server.asked.send((line, body)).unwrap();
    (StatusCode::from_u16(code).unwrap(), answer.to_string()).into_response()
}

/// A manager, and the server that it writes to. Nobody tells it of its own writes: it must know them from their answers.
struct World {
    logs: Logs,
    server: Arc<Server>,
    asked: UnboundedReceiver<(String, Value)>,
    resolver: Arc<CertResolver>,
    manager: Arc<CertificateManager>,
}

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

fn settings() -> CertificateSettings {
    CertificateSettings {
        names: vec!["webhook.ns.svc".into()],
        leaf: days(90),
        authority: days(730),
        propagation: SignedDuration::from_secs(30),
    }
}

fn leaf(signer: &CertificateAndKey, now: Timestamp) -> CertificateAndKey {
    issue::leaf(signer, &settings().names, now, settings().leaf).unwrap()
}

/// A CA and a leaf certificate, issued so many days ago.
fn issued(ago: i64) -> SecretData {
    let then = Timestamp::now() - days(ago);
    let signer = issue::authority(then, settings().authority).unwrap();
    SecretData { leaf: leaf(&signer, then), signer, next: None, previous: None }
}

fn encoded(text: &str) -> Value {
    STANDARD.encode(text).into()
}

fn read(secret: &Value) -> SecretData {
    SecretData::read(&SecretObject::read(&secret.to_string()).unwrap().data).unwrap()
}

fn secret(version: u32, data: &SecretData) -> Value {
    let entries = data.data().into_iter().map(|(key, value)| (key, encoded(std::str::from_utf8(&value).unwrap())));
    json!({
        "metadata": {"name": "webhook", "namespace": "ns", "uid": "uid-secret", "resourceVersion": version.to_string()},
        "data": entries.collect::<serde_json::Map<_, _>>(),
    })
}

fn configuration(name: &str, webhooks: &Value) -> Value {
    let metadata = json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": "5"});
    json!({"metadata": metadata, "webhooks": webhooks})
}

fn webhook(name: &str, bundle: &Value) -> Value {
    json!({"name": name, "clientConfig": {"service": {"name": "webhook"}, "caBundle": bundle}, "timeoutSeconds": 10})
}

/// The same instant, but for the tick of the clock.
const AT_ONCE: RangeInclusive<u128> = 0..=2;

impl World {
    /// Secret, if any, and both configurations as a server holds them whose bundles are these.
    fn new(data: Option<&SecretData>, bundle: &Value) -> Self {
        let logs = Logs::start();
        let (sender, asked) = unbounded_channel();
        let mut objects = BTreeMap::from([
            (MUTATING.to_owned(), configuration("guard", &json!([webhook("a", bundle), webhook("b", bundle)]))),
            (VALIDATING.to_owned(), configuration("policies", &json!([webhook("c", bundle), {"name": "bare"}]))),
        ]);
        objects.extend(data.map(|data| (SECRET.to_owned(), secret(5, data))));
        let server = Arc::new(Server { objects: Mutex::new(objects), refused: Mutex::default(), asked: sender });
        let routes = Router::new().fallback(answer).with_state(server.clone());
        let api = Api::new(kube::Client::new(routes, "default"), 1_000, 1_000, Arc::default());
        let resolver = Arc::new(CertResolver::default());
        let labels = vec![("app.kubernetes.io/name".to_owned(), "noderotation".to_owned())];
        let secret_ref = SecretRef { namespace: "ns".into(), secret: "webhook".into(), labels };
        let manager = CertificateManager::new(api, secret_ref, settings(), resolver.clone());
        tokio::spawn(manager.clone().run());
        Self { logs, server, asked, resolver, manager }
    }

    /// The watch of this kind tells of its object, if there is one.
    fn change<K: Cached>(&self, path: &str) -> HashSet<Box<str>>
    where
        CertificateManager: EventHandler<K>,
    {
        let object = self.server.objects.lock().get(path).map(|object| K::read(&object.to_string()).unwrap());
        let uids = object.iter().map(|object| object.meta().uid.clone()).collect();
        if let Some(object) = object {
            self.manager.apply(object);
        }
        uids
    }

    /// The watch of this kind tells its initial state; its end comes when what the object has woken is over.
    async fn begin<K: Cached>(&self, path: &str)
    where
        CertificateManager: EventHandler<K>,
    {
        let uids = self.change::<K>(path);
        sleep(Duration::from_secs(1)).await;
        EventHandler::<K>::init_done(&*self.manager, &uids);
    }

    async fn begin_at(&self, path: &str) {
        match path {
            SECRET => self.begin::<SecretObject>(path).await,
            MUTATING => self.begin::<WebhookConfiguration<Mutating>>(path).await,
            _ => self.begin::<WebhookConfiguration<Validating>>(path).await,
        }
    }

    async fn begin_all(&self) {
        for path in WATCHED {
            self.begin_at(path).await;
        }
    }

    fn refuse(&self, requests: &[(&str, u16)]) {
        *self.server.refused.lock() = requests.iter().map(|(line, code)| ((*line).to_owned(), *code)).collect();
    }

    /// Expects this request next, after a time in milliseconds. Returns its body.
    async fn expect(&mut self, after: RangeInclusive<u128>, method: &str, path: &str) -> Value {
        let began = Instant::now();
        let (line, body) = timeout(Duration::from_secs(3_600), self.asked.recv())
            .await
            .unwrap_or_else(|_| panic!("waited in vain for {method} {path}"))
            .unwrap();
        assert_eq!(line, format!("{method} {path}"));
        let waited = began.elapsed().as_millis();
        assert!(after.contains(&waited), "{line} after {waited} ms and not {after:?}");
        body
    }

    /// Nothing is asked for ten minutes, in which it is looked ten times whether something is due.
    async fn expect_nothing(&mut self) {
        if let Ok(asked) = timeout(Duration::from_secs(600), self.asked.recv()).await {
            panic!("{asked:?}");
        }
    }

    fn stored(&self, path: &str) -> Value {
        self.server.objects.lock()[path].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_all_three_watches_know_their_state() {
    for late in WATCHED {
        let mut w = World::new(None, &Value::Null);
        for path in WATCHED.into_iter().filter(|path| *path != late) {
            w.begin_at(path).await;
        }
        w.expect_nothing().await;
        w.begin_at(late).await;
        w.expect(AT_ONCE, "POST", SECRETS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_start_creates_the_secret_and_fills_every_bundle() {
    let mut w = World::new(None, &"b2xk".into());
    w.begin_all().await;
    let created = w.expect(AT_ONCE, "POST", SECRETS).await;
    let labels = json!({"app.kubernetes.io/name": "noderotation"});
    assert_eq!(created["metadata"], json!({"name": "webhook", "namespace": "ns", "labels": labels}));
    let kind = (&created["apiVersion"], &created["kind"], &created["type"]);
    assert_eq!(kind, (&"v1".into(), &"Secret".into(), &"kubernetes.io/tls".into()));
    let keys: Vec<&str> = created["data"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["ca.crt", "signer.crt", "signer.key", "tls.crt", "tls.key"]);
    let bundle = &created["data"]["ca.crt"];
    assert_eq!(bundle, &created["data"]["signer.crt"], "there is only one CA");

    w.expect(AT_ONCE, "GET", SECRET).await;
    for path in [MUTATING, VALIDATING] {
        let body = w.expect(AT_ONCE, "PATCH", path).await;
        assert_eq!(body["metadata"], json!({"uid": w.stored(path)["metadata"]["uid"], "resourceVersion": "5"}));
    }
    // the answers are enough: nothing is written a second time
    w.expect_nothing().await;
    assert_eq!(w.stored(MUTATING)["webhooks"], json!([webhook("a", bundle), webhook("b", bundle)]));
    assert_eq!(w.stored(VALIDATING)["webhooks"], json!([webhook("c", bundle), {"name": "bare"}]));
    assert!(w.manager.is_ready());
    let left = w.resolver.not_after().unwrap().duration_since(Timestamp::now());
    assert!((days(90) - SignedDuration::from_mins(5)..=days(90)).contains(&left), "{left}");
    assert_eq!((w.logs.with("serving a new certificate").len(), w.logs.with("WARN").len()), (1, 0));
}

/// The waits of every retry: half to the whole of 1 s, 2 s … 64 s, and a minute at most.
#[tokio::test(start_paused = true)]
async fn a_certificate_is_not_ready_before_it_is_trusted_and_refusals_are_met_with_growing_patience() {
    let data = issued(1);
    let mut w = World::new(Some(&data), &"b2xk".into());
    w.refuse(&[("PATCH", 403)]);
    w.begin_all().await;
    let mut wait = AT_ONCE;
    for full in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 120_000, 120_000] {
        w.expect(wait, "GET", SECRET).await;
        w.expect(AT_ONCE, "PATCH", MUTATING).await;
        assert_eq!((w.resolver.not_after(), w.manager.is_ready()), (Some(data.leaf.certificate.not_after), false));
        wait = (full / 2)..=(full.min(60_000) + 3);
    }
    let warnings = w.logs.with("WARN");
    assert!(warnings.len() >= 8, "{warnings:?}");
    let sentence = "caBundle of MutatingWebhookConfiguration guard cannot be written";
    assert!(warnings.iter().all(|line| line.contains(sentence)), "{warnings:?}");
    w.refuse(&[]);
    w.expect(wait, "GET", SECRET).await;
    w.expect(AT_ONCE, "PATCH", MUTATING).await;
    w.expect(AT_ONCE, "PATCH", VALIDATING).await;
    w.expect_nothing().await;
    assert!(w.manager.is_ready());
}

/// A Secret that the cache still shows was deleted, which its watch will tell at any moment; another error is a failure.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_gone_is_looked_for_again_and_one_that_cannot_be_read_is_a_failure() {
    let mut w = World::new(Some(&issued(1)), &Value::Null);
    w.begin_all().await;
    w.refuse(&[("GET", 404)]);
    w.expect(AT_ONCE, "GET", SECRET).await;
    for _ in 0..5 {
        w.expect(500..=502, "GET", SECRET).await;
    }
    assert_eq!(w.logs.with("WARN"), [""; 0]);
    w.refuse(&[("GET", 500)]);
    w.expect(500..=502, "GET", SECRET).await;
    w.expect(500..=1_003, "GET", SECRET).await;
    w.expect(1_000..=2_003, "GET", SECRET).await;
    w.expect(2_000..=4_003, "GET", SECRET).await;
    let warnings = w.logs.with("Secret ns/webhook cannot be read from the API server");
    assert!(warnings.len() >= 3, "{warnings:?}");
}

/// A CA that signs too early is refused by every API server that does not know it yet.
#[tokio::test(start_paused = true)]
async fn the_next_ca_signs_when_every_bundle_has_held_it_for_as_long_as_it_takes_to_spread() {
    let now = Timestamp::now();
    let mut data = issued(500);
    data.leaf = leaf(&data.signer, now - days(10));
    let next = issue::authority(now, settings().authority).unwrap();
    data.next = Some((next.clone(), now - SignedDuration::from_hours(1)));
    let mut w = World::new(Some(&data), &encoded(&data.trusted()));
    w.begin_all().await;
    let body = w.expect(30_000..=30_003, "PATCH", SECRET).await;
    assert_eq!(body["metadata"], json!({"uid": "uid-secret", "resourceVersion": "5"}));
    let written = &body["data"];
    assert_eq!(
        (&written["next.crt"], &written["next.key"], &written["next.since"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert!(written.as_object().unwrap().contains_key("next.since"), "only what is null is removed by a merge patch");
    assert_eq!(written["signer.crt"], encoded(&next.certificate.pem));
    assert_eq!(written["previous.crt"], encoded(&data.signer.certificate.pem));
    assert_eq!(written["ca.crt"], encoded(&data.trusted()), "a change of roles is no change of trust");
    w.expect_nothing().await;
    let stored = read(&w.stored(SECRET));
    assert!(next.certificate.signed(&stored.leaf.certificate));
    assert_ne!(stored.leaf.certificate.not_after, data.leaf.certificate.not_after);
    assert_eq!(w.resolver.not_after(), Some(stored.leaf.certificate.not_after));
    assert!(w.manager.is_ready());
}

/// A bundle that somebody spoils and mends begins to spread anew.
#[tokio::test(start_paused = true)]
async fn a_bundle_that_was_spoilt_has_to_spread_again() {
    let now = Timestamp::now();
    let mut data = issued(500);
    data.leaf = leaf(&data.signer, now - days(10));
    data.next = Some((issue::authority(now, settings().authority).unwrap(), now - SignedDuration::from_hours(1)));
    let bundle = encoded(&data.trusted());
    let mut w = World::new(Some(&data), &bundle);
    w.begin_all().await;
    sleep(Duration::from_secs(20)).await;
    assert!(w.manager.is_ready());
    {
        let mut objects = w.server.objects.lock();
        let spoilt = objects.get_mut(VALIDATING).unwrap();
        spoilt["webhooks"][0]["clientConfig"]["caBundle"] = Value::Null;
        spoilt["metadata"]["resourceVersion"] = "6".into();
    }
    w.refuse(&[("PATCH", 403)]);
    w.change::<WebhookConfiguration<Validating>>(VALIDATING);
    w.expect(AT_ONCE, "GET", SECRET).await;
    w.expect(AT_ONCE, "PATCH", VALIDATING).await;
    assert!(!w.manager.is_ready());
    w.refuse(&[]);
    w.expect(500..=1_003, "GET", SECRET).await;
    w.expect(AT_ONCE, "PATCH", VALIDATING).await;
    assert_eq!(w.stored(VALIDATING)["webhooks"][0], webhook("c", &bundle));
    w.expect(30_000..=30_003, "PATCH", SECRET).await;
}

#[tokio::test(start_paused = true)]
async fn what_another_replica_writes_is_served_and_each_certificate_once() {
    let mut data = issued(20);
    let mut w = World::new(Some(&data), &encoded(&data.trusted()));
    w.begin_all().await;
    w.expect_nothing().await;
    assert_eq!(w.resolver.not_after(), Some(data.leaf.certificate.not_after));
    data.leaf = leaf(&data.signer, Timestamp::now() - days(10));
    w.server.objects.lock().insert(SECRET.into(), secret(6, &data));
    w.change::<SecretObject>(SECRET);
    w.expect_nothing().await;
    assert_eq!(w.resolver.not_after(), Some(data.leaf.certificate.not_after));
    assert_eq!(w.logs.with("serving a new certificate").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_has_expired_is_replaced_and_never_served() {
    let data = issued(100);
    let mut w = World::new(Some(&data), &encoded(&data.trusted()));
    w.refuse(&[("PATCH", 403)]);
    w.begin_all().await;
    w.expect(AT_ONCE, "PATCH", SECRET).await;
    w.expect(500..=1_003, "PATCH", SECRET).await;
    assert_eq!((w.resolver.not_after(), w.manager.is_ready()), (None, false));
    assert!(!w.logs.with("is not valid now and will be replaced").is_empty());
    w.refuse(&[]);
    w.expect(1_000..=2_003, "PATCH", SECRET).await;
    w.expect_nothing().await;
    let renewed = read(&w.stored(SECRET)).leaf;
    assert!(data.signer.certificate.signed(&renewed.certificate));
    assert_eq!((w.resolver.not_after(), w.manager.is_ready()), (Some(renewed.certificate.not_after), true));
}
