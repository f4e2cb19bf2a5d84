//! The webhook's own certificate (§10 *Certificate*): lifetimes of seconds, several replicas, and a constant load of requests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use noderotation_certs::issue;
use noderotation_certs::secret_data::SecretData;
use noderotation_rig::{Options, Rig, free_port};
use noderotation_tests::ask::{Asker, POLICIES, POOLS, policy, pool};
use noderotation_tests::world::PATIENCE;
use noderotation_tests::{Product, Webhook};
use parking_lot::Mutex;
use serde_json::{Value, json};

const SECRET: &str = "/api/v1/namespaces/noderotation/secrets/noderotation-webhook";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/noderotation";

/// A leaf certificate lives 9 s and is renewed after 6 s; a CA lives 30 s and the next is introduced after 20 s.
const SHORT: [&str; 6] = ["--certificate-lifetime", "9s", "--authority-lifetime", "30s", "--propagation", "3s"];

/// Requests per second through the API server.
const RATE: u64 = 200;

fn decoded(value: &Value) -> String {
    String::from_utf8(STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()).unwrap()
}

fn bundles(configuration: &Value) -> BTreeSet<String> {
    let webhooks = configuration["webhooks"].as_array().unwrap();
    webhooks.iter().map(|w| w["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The number of requests, and the distinct messages of those that failed.
#[derive(Clone, Default)]
struct Failures {
    texts: Arc<Mutex<BTreeSet<String>>>,
    requests: Arc<AtomicU64>,
}

impl Failures {
    fn count(&self, outcome: Result<(), String>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Err(text) = outcome {
            self.texts.lock().insert(text);
        }
    }

    fn texts(&self) -> Vec<String> {
        self.texts.lock().iter().cloned().collect()
    }
}

/// Sends a request that the webhook must allow, or one that its guard must refuse. Either fails if the API server cannot call
/// the webhook.
async fn ask(admin: &Asker, n: u64) -> Result<(), String> {
    if n.is_multiple_of(2) {
        let reply = admin
            .ask("POST", &format!("{POLICIES}?dryRun=All"), "application/json", &policy("probe", &json!({"w": "x"})))
            .await;
        return if reply.code == 201 { Ok(()) } else { Err(format!("policy: {} {}", reply.code, reply.message())) };
    }
    let mark = json!({"metadata": {"annotations": {"noderotation.io/active-rotation": "x"}}});
    let reply = admin.merge(&format!("{POOLS}/api?dryRun=All"), &mark).await;
    let is_refused = reply.code == 403 && reply.message().contains("hold the state of a rotation");
    if is_refused { Ok(()) } else { Err(format!("guard: {} {}", reply.code, reply.message())) }
}

/// Opens a new connection to a replica, trusting the current `caBundle`, as an API server does.
async fn shake_hands(admin: &Asker, replica: SocketAddr) -> Result<(), String> {
    let configuration = admin.get(CONFIGURATION).await.body;
    let bundle = decoded(&configuration["webhooks"][0]["clientConfig"]["caBundle"]);
    let mut config = kube::Config::new(format!("https://{replica}").parse().unwrap());
    let authorities = bundle.split_inclusive("-----END CERTIFICATE-----").filter(|pem| pem.contains("BEGIN"));
    config.root_cert = Some(authorities.map(der).collect());
    config.tls_server_name = Some("noderotation-webhook.noderotation.svc".into());
    config.default_retry = false;
    let client = kube::Client::try_from(config).map_err(|e| e.to_string())?;
    let request = http::Request::get("/").body(kube::client::Body::empty()).unwrap();
    match client.send(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{replica}: {error:?}")),
    }
}

fn der(pem: &str) -> Vec<u8> {
    let lines: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(lines).unwrap()
}

/// The distinct leaf certificates and CAs that the Secret has held.
#[derive(Default)]
struct History {
    certificates: BTreeSet<String>,
    authorities: BTreeSet<String>,
}

impl History {
    async fn observe(&mut self, admin: &Asker) {
        let reply = admin.get(SECRET).await;
        let (leaf, signer) = (reply.body["data"]["tls.crt"].as_str(), reply.body["data"]["signer.crt"].as_str());
        if let (200, Some(leaf), Some(signer)) = (reply.code, leaf, signer) {
            self.certificates.insert(leaf.to_owned());
            self.authorities.insert(signer.to_owned());
        }
    }
}

/// Starts three webhooks at the same moment, when there is no Secret yet; the first is behind the Service.
async fn replicas(product: &Product) -> Vec<Webhook> {
    let local = || (Ipv4Addr::LOCALHOST, free_port().unwrap()).into();
    let mut replicas = Vec::new();
    for listen in [product.service(), local(), local()] {
        replicas.push(product.spawn_webhook(listen, &SHORT).await.unwrap());
    }
    for replica in &mut replicas {
        product.wait_webhook_ready(replica).await.unwrap();
    }
    replicas
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_fails_over_ten_renewals_and_two_rollovers() {
    let rig = Rig::start(Options { bare: true, audit: true, ..Default::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    // a long timeout: this test is about certificates that do not verify, not about a machine that is slow for a moment
    let product = Product::install_bare_with(rig, &["--set", "webhook.timeoutSeconds=10"]).unwrap();
    let replicas = replicas(&product).await;
    let admin = Asker::admin(&product.rig);
    assert_eq!(admin.create(POOLS, &pool("api", &json!({"w": "api"}))).await.code, 201);
    // it takes a moment until the API server uses the first caBundle
    product
        .rig
        .wait("admission", PATIENCE, async || {
            Ok((ask(&admin, 0).await.is_ok() && ask(&admin, 1).await.is_ok()).then_some(()))
        })
        .await
        .unwrap();

    let (failures, stop) = (Failures::default(), Arc::new(AtomicBool::new(false)));
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..8 {
        let (admin, failures, stop) = (admin.clone(), failures.clone(), stop.clone());
        tasks.spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_micros(8 * 1_000_000 / RATE));
            let mut n = lane;
            while !stop.load(Ordering::Relaxed) {
                pace.tick().await;
                failures.count(ask(&admin, n).await);
                n += 1;
            }
        });
    }
    for replica in replicas.iter().map(|replica| replica.listen) {
        let (admin, failures, stop) = (admin.clone(), failures.clone(), stop.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                failures.count(shake_hands(&admin, replica).await);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }

    let mut history = History::default();
    let (mut was_deleted, mut was_spoilt) = (false, false);
    let began = tokio::time::Instant::now();
    while history.certificates.len() < 11 || history.authorities.len() < 3 {
        history.observe(&admin).await;
        assert_eq!(failures.texts(), Vec::<String>::new(), "after {:?}", began.elapsed());
        assert!(
            began.elapsed() < Duration::from_secs(300),
            "{} certificates, {} authorities",
            history.certificates.len(),
            history.authorities.len()
        );
        if history.certificates.len() == 4 && !was_spoilt {
            was_spoilt = true;
            let garbage = json!({"data": {"tls.crt": STANDARD.encode("garbage"), "signer.key": null}});
            assert_eq!(admin.merge(SECRET, &garbage).await.code, 200);
        }
        if history.certificates.len() == 7 && !was_deleted {
            was_deleted = true;
            assert_eq!(admin.delete(SECRET).await.code, 200);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(failures.texts(), Vec::<String>::new());
    let requests = failures.requests.load(Ordering::Relaxed);
    println!(
        "{requests} requests in {:?}: {} certificates, {} authorities",
        began.elapsed(),
        history.certificates.len(),
        history.authorities.len()
    );
    one_winner_each(&product, &history);
    for webhook in &replicas {
        let expiry = webhook.gauge("noderotation_certificate_expiry_timestamp").await;
        let left = expiry - jiff::Timestamp::now().as_duration().as_secs_f64();
        assert!((-1.0..10.0).contains(&left), "{left} s left");
    }
}

/// Asserts that of the writes that three replicas plan at the same moment, one is applied and the others conflict.
fn one_winner_each(product: &Product, history: &History) {
    let mut writes = noderotation_tests::audit::writes(&product.rig).unwrap();
    writes.retain(|w| w.resource == "secrets" && w.user.ends_with(":noderotation-webhook"));
    let landed = writes.iter().filter(|w| w.code < 300).count();
    let lost = writes.iter().filter(|w| w.code == 409).count();
    let created = writes.iter().filter(|w| w.verb == "create" && w.code == 201).count();
    assert_eq!(created, 2, "once at the start, once after it was deleted");
    println!("{landed} writes of the Secret were applied, {lost} conflicted");
    // one for each certificate, two more for each CA (promotion, retirement), and the restorations that the test provokes
    let most = history.certificates.len() + 2 * history.authorities.len() + 6;
    assert!(
        landed <= most,
        "{landed} writes for {} certificates and {} authorities",
        history.certificates.len(),
        history.authorities.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_somebody_overwrites_is_put_right() {
    let product = Product::install_bare_with_webhook(false, &[]).await.unwrap();
    let admin = Asker::admin(&product.rig);
    let secret = admin.get(SECRET).await.body;
    let expected = BTreeSet::from([secret["data"]["ca.crt"].as_str().unwrap().to_owned()]);
    assert_eq!(secret["type"], "kubernetes.io/tls");
    for kind in ["mutating", "validating"] {
        let path = CONFIGURATION.replace("validating", kind);
        assert_eq!(bundles(&admin.get(&path).await.body), expected);
        // as a GitOps tool does that sends the chart's text again, and as one that sends nonsense
        for bundle in [Value::Null, STANDARD.encode("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n").into()]
        {
            let live = admin.get(&path).await.body;
            let patches: Vec<Value> = (0..live["webhooks"].as_array().unwrap().len())
                .map(|i| json!({"op": "add", "path": format!("/webhooks/{i}/clientConfig/caBundle"), "value": bundle}))
                .collect();
            let reply = admin.ask("PATCH", &path, "application/json-patch+json", &json!(patches)).await;
            if reply.code != 200 {
                continue; // the API server itself refuses some nonsense
            }
            product
                .rig
                .wait("caBundle to be corrected", PATIENCE, async || {
                    Ok((bundles(&admin.get(&path).await.body) == expected).then_some(()))
                })
                .await
                .unwrap();
        }
    }
    // nothing else of the configuration was touched: another reconciliation writes nothing
    let before = admin.get(CONFIGURATION).await.body["metadata"]["resourceVersion"].clone();
    product.rig.wait("admission", PATIENCE, async || Ok(ask_once(&admin).await.then_some(()))).await.unwrap();
    assert_eq!(admin.get(CONFIGURATION).await.body["metadata"]["resourceVersion"], before);
}

/// A replica whose clock is two days ahead has written the Secret: first all of it, then a renewed certificate. What API
/// servers would refuse as "not yet valid" is never served, and is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_the_future_is_never_served() {
    let rig = Rig::start(Options { bare: true, audit: true, ..Default::default() }).await.unwrap();
    rig.install_karpenter_kinds().unwrap();
    let product = Product::install_bare_with(rig, &["--set", "webhook.timeoutSeconds=10"]).unwrap();
    let admin = Asker::admin(&product.rig);
    let names = ["noderotation-webhook.noderotation.svc".to_owned()];
    let (ahead, lifetime) = (Timestamp::now() + SignedDuration::from_hours(49), SignedDuration::from_hours(2_160));
    let signer = issue::authority(ahead, lifetime * 8).unwrap();
    let leaf = issue::leaf(&signer, &names, ahead, lifetime).unwrap();
    let all = SecretData { signer, leaf, next: None, previous: None };
    let secret =
        json!({"metadata": {"name": "noderotation-webhook"}, "type": "kubernetes.io/tls", "data": encoded(&all)});
    assert_eq!(admin.create(SECRET.rsplit_once('/').unwrap().0, &secret).await.code, 201);

    let webhook = product.start_webhook().await.unwrap();
    let begun = secret_data(&admin).await;
    assert!(begun.is_usable_at(Timestamp::now()) && begun.signer != all.signer, "{begun:?}");
    assert_eq!(admin.create(POOLS, &pool("api", &json!({"w": "api"}))).await.code, 201);
    product.rig.wait("admission", PATIENCE, async || Ok(ask_once(&admin).await.then_some(()))).await.unwrap();

    let leaf = issue::leaf(&begun.signer, &names, ahead, lifetime).unwrap();
    let renewed_ahead = SecretData { leaf, ..begun.clone() };
    assert_eq!(admin.merge(SECRET, &json!({"data": encoded(&renewed_ahead)})).await.code, 200);
    let renewed = product
        .rig
        .wait("the certificate of the future to be replaced", PATIENCE, async || {
            assert_eq!(ask(&admin, 0).await, Ok(()));
            assert_eq!(shake_hands(&admin, webhook.listen).await, Ok(()));
            let data = secret_data(&admin).await;
            Ok((data.leaf != renewed_ahead.leaf).then_some(data))
        })
        .await
        .unwrap();
    assert!(renewed.is_usable_at(Timestamp::now()) && renewed.leaf != begun.leaf);
    assert_eq!(renewed.trusted(), begun.trusted(), "no API server has to learn of another CA");
}

async fn secret_data(admin: &Asker) -> SecretData {
    let data = admin.get(SECRET).await.body["data"].clone();
    let decoded = data.as_object().unwrap().iter().map(|(key, value)| (key.clone(), decoded(value).into_bytes()));
    SecretData::read(&decoded.collect()).unwrap()
}

fn encoded(data: &SecretData) -> Value {
    data.data()
        .into_iter()
        .map(|(key, value)| (key, json!(STANDARD.encode(value))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

async fn ask_once(admin: &Asker) -> bool {
    ask(admin, 0).await.is_ok()
}
