//! The webhook under load: reviews of RotationPolicies over TLS, with 200 policies and 1,000 NodePools to compare with.
//!
//! The webhook is pinned to one core and the load generator to another.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Figure;
use super::memory::status;
use crate::ask::{Asker, POLICIES, POOLS, policy, pool};
use crate::{Product, Webhook};

const POLICY_COUNT: usize = 200;
const POOL_COUNT: usize = 1_000;
const CONNECTIONS: usize = 64;

/// The number of reviews over which memory should not grow.
const MANY: usize = 1_000_000;

/// The load under which latency is measured: reviews per second, and for how long.
const CALM: (u64, Duration) = (2_000, Duration::from_secs(20));

/// Installs the chart, creates policies and NodePools, and measures the webhook under load.
pub async fn measure() -> anyhow::Result<Vec<Figure>> {
    let mut product = Product::install_bare_with_webhook(false, &[]).await?;
    eprintln!("bench: {POOL_COUNT} NodePools and {POLICY_COUNT} RotationPolicies");
    let admin = Asker::admin(&product.rig);
    fill(&admin).await?;
    let secret = admin.get("/api/v1/namespaces/noderotation/secrets/noderotation-webhook").await.body;
    let trusted = secret["data"]["ca.crt"].as_str().context("no ca.crt")?.to_owned();
    // started again, to measure a start with all objects present
    product.webhook = None;
    let (webhook, started) = product.time_webhook().await?;
    let pinned = pin(webhook.process.id(), 0).is_ok() && pin(std::process::id(), 1).is_ok();
    let result = under_load(&webhook, &trusted, started, pinned).await;
    let _ = Command::new("taskset").args(["-a", "-c", "-p", "0-63", &std::process::id().to_string()]).output();
    result
}

async fn under_load(webhook: &Webhook, trusted: &str, started: Duration, pinned: bool) -> anyhow::Result<Vec<Figure>> {
    let load = Load::new(webhook, trusted)?;
    let at_rest = status(webhook.process.id(), "VmRSS")?;
    load.run(CONNECTIONS, 20_000, None).await?; // warm
    let calm = load.run(CONNECTIONS, usize::try_from(CALM.0 * CALM.1.as_secs())?, Some(CALM.0)).await?;
    let warm = status(webhook.process.id(), "VmRSS")?;
    let full = load.run(CONNECTIONS, MANY, None).await?;
    let after = status(webhook.process.id(), "VmRSS")?;
    let highest = status(webhook.process.id(), "VmHWM")?;
    let mut figures = beside_hostile_callers(&load, webhook).await?;
    let core = if pinned { "one core" } else { "not pinned to a core: taskset is missing" };
    figures.extend([
        Figure {
            what: format!("webhook, {core}, {CONNECTIONS} TLS connections"),
            measured: format!("{:.0}/s, p50 {:.1} ms, p99 {:.1} ms", full.rate, full.p50, full.p99),
            target: ">= 11,000/s",
        },
        Figure {
            what: format!("webhook at {}/s", CALM.0),
            measured: format!("p50 {:.2} ms, p99 {:.2} ms, {:.0}/s sent", calm.p50, calm.p99, calm.rate),
            target: "p99 <= 5 ms",
        },
        Figure {
            what: format!("webhook, resident: at rest, warm, after {MANY} reviews, highest"),
            measured: format!("{at_rest:.1}, {warm:.1}, {after:.1}, {highest:.1} MB"),
            target: "<= 15 MB, flat",
        },
        Figure {
            what: "webhook, start-up to ready".into(),
            measured: format!("{:.0} ms", started.as_secs_f64() * 1_000.0),
            target: "",
        },
    ]);
    Ok(figures)
}

/// Ordinary reviews while others at another address send what costs most.
async fn beside_hostile_callers(load: &Load, webhook: &Webhook) -> anyhow::Result<Vec<Figure>> {
    let announced = [post(LARGEST_BODY).as_bytes(), b"{"].concat();
    let whole = [post(LARGEST_BODY).into_bytes(), vec![b' '; LARGEST_BODY]].concat();
    let mut figures = Vec::new();
    for (what, connections, bytes) in [
        ("12 that send policies of 64 windows and 64 exclusions", 12, largest_policy()),
        ("60 that announce 4 MiB and send one byte", 60, announced),
        ("60 that send 4 MiB", 60, whole),
    ] {
        let run = load.beside(connections, &bytes).await?;
        let highest = status(webhook.process.id(), "VmHWM")?;
        figures.push(Figure {
            what: format!("webhook beside {what}"),
            measured: format!("p50 {:.1} ms, p99 {:.1} ms; highest {highest:.1} MB", run.p50, run.p99),
            target: "p99 <= 500 ms, <= 48 MB",
        });
    }
    Ok(figures)
}

/// The largest body that the webhook reads, in bytes.
const LARGEST_BODY: usize = 4 * 1024 * 1024 - 1;

/// The head of a review of a policy with a body of this length.
fn post(length: usize) -> String {
    format!(
        "POST /validate/rotationpolicies?timeout=2s HTTP/1.1\r\nhost: noderotation-webhook\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// A dry run of the creation of a policy with as many windows and exclusions as it may have, which governs five NodePools.
fn largest_policy() -> Vec<u8> {
    let mut largest = policy("largest", &json!({"workload": "w0"}));
    largest["spec"]["nodePoolSelector"]["matchExpressions"] = json!([{"key": "workload", "operator": "Exists"}]);
    let zones = ["Asia/Tokyo", "Europe/Berlin", "America/New_York", "America/Los_Angeles"];
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let at = |hour: usize, minute: usize| format!("{:02}:{minute:02}", hour % 24);
    let window = |i: usize| json!({"timezone": zones[i % 4], "days": days, "start": at(i / 3, i % 3 * 20), "end": at(i / 3 + 9, i % 3 * 20 + 10)});
    let exclusion = |i: usize| json!({"timezone": zones[i % 4], "from": format!("2027-{:02}-{:02}", 1 + i % 12, 1 + i % 28), "until": "2027-12-31"});
    largest["spec"]["maintenanceWindows"] = (0..64).map(window).collect();
    largest["spec"]["exclusions"] = (0..64).map(exclusion).collect();
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-000000000000", "operation": "CREATE", "name": "largest", "object": largest, "dryRun": true,
        "resource": {"group": "noderotation.io", "version": "v1alpha1", "resource": "rotationpolicies"},
        "userInfo": {"username": "mallory"},
    });
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string();
    [post(body.len()).into_bytes(), body.into_bytes()].concat()
}

async fn fill(admin: &Asker) -> anyhow::Result<()> {
    let made = |reply: noderotation_rig::cluster::Reply| match reply.code {
        201 => Ok(()),
        code => Err(anyhow::anyhow!("{code}: {}", reply.message())),
    };
    let group = |n: usize| json!({"workload": format!("w{}", n % POLICY_COUNT)});
    let pools = stream::iter(0..POOL_COUNT)
        .map(|n| async move { admin.create(POOLS, &pool(&format!("pool-{n}"), &group(n))).await });
    pools.buffer_unordered(8).map(made).try_collect::<Vec<()>>().await?;
    let policies = stream::iter(0..POLICY_COUNT)
        .map(|n| async move { admin.create(POLICIES, &policy(&format!("policy-{n}"), &group(n))).await });
    policies.buffer_unordered(4).map(made).try_collect::<Vec<()>>().await?;
    Ok(())
}

fn pin(id: u32, core: usize) -> anyhow::Result<()> {
    let output = Command::new("taskset").args(["-a", "-c", "-p", &core.to_string(), &id.to_string()]).output()?;
    if !output.status.success() {
        bail!("taskset: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The result of a run: requests per second; median and 99th percentile of the latency in milliseconds.
struct Run {
    rate: f64,
    p50: f64,
    p99: f64,
}

/// A load generator: the webhook's address, and serialized requests to be sent in turn.
#[derive(Clone)]
struct Load {
    address: std::net::SocketAddr,
    tls: TlsConnector,
    requests: Arc<Vec<Vec<u8>>>,
}

impl Load {
    fn new(webhook: &Webhook, trusted: &str) -> anyhow::Result<Self> {
        use base64::Engine;
        use rustls::pki_types::pem::PemObject;
        let pem = base64::engine::general_purpose::STANDARD.decode(trusted)?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.map_err(|e| anyhow::anyhow!("{e:?}"))?)?;
        }
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let requests = (0..POLICY_COUNT).map(request).collect();
        Ok(Self { address: webhook.listen, tls: TlsConnector::from(Arc::new(config)), requests: Arc::new(requests) })
    }

    async fn connect(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        self.shake_hands(TcpStream::connect(self.address).await?).await
    }

    async fn shake_hands(&self, stream: TcpStream) -> anyhow::Result<TlsStream<TcpStream>> {
        stream.set_nodelay(true)?;
        Ok(self.tls.connect("noderotation-webhook.noderotation.svc".try_into()?, stream).await?)
    }

    /// Reviews at 50 a second for six seconds, while so many connections from another address send these bytes again and again.
    async fn beside(&self, connections: usize, bytes: &[u8]) -> anyhow::Result<Run> {
        let mut hostile = tokio::task::JoinSet::new();
        let bytes: Arc<[u8]> = bytes.into();
        for _ in 0..connections {
            let (load, bytes) = (self.clone(), bytes.clone());
            hostile.spawn(async move {
                loop {
                    // whatever comes of it
                    let _ = load.pester(&bytes).await;
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let run = self.run(1, 300, Some(50)).await;
        hostile.abort_all();
        while hostile.join_next().await.is_some() {}
        run
    }

    /// Sends these bytes over one connection, each time that something comes back, until it is closed.
    async fn pester(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind("127.0.1.1:0".parse()?)?;
        let mut stream = self.shake_hands(socket.connect(self.address).await?).await?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            stream.write_all(bytes).await?;
            if stream.read(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
    }

    /// Sends `count` requests over `connections` connections: at `rate` per second, or as fast as they are answered.
    async fn run(&self, connections: usize, count: usize, rate: Option<u64>) -> anyhow::Result<Run> {
        let mut lanes = tokio::task::JoinSet::new();
        let began = Instant::now();
        for lane in 0..connections {
            let mut stream = self.connect().await?;
            let requests = self.requests.clone();
            lanes.spawn(async move {
                let mut took = Vec::with_capacity(count / connections + 1);
                let mut buffer = vec![0; 64 * 1024];
                for n in (lane..count).step_by(connections) {
                    // at a rate, a request's time counts from when it was due, whenever it could be sent
                    let due = rate.map(|rate| began + Duration::from_nanos(1_000_000_000 / rate * n as u64));
                    if let Some(due) = due {
                        tokio::time::sleep_until(due).await;
                    }
                    let sent = Instant::now();
                    let request = requests.get(n % requests.len()).context("no request")?;
                    exchange(&mut stream, request, &mut buffer).await?;
                    took.push(sent.elapsed());
                }
                anyhow::Ok(took)
            });
        }
        let mut all = Vec::with_capacity(count);
        while let Some(lane) = lanes.join_next().await {
            all.extend(lane??);
        }
        let seconds = began.elapsed().as_secs_f64();
        all.sort_unstable();
        let at = |share: usize| all.get(all.len() * share / 100).map_or(0.0, |d| d.as_secs_f64() * 1_000.0);
        #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
        Ok(Run { rate: all.len() as f64 / seconds, p50: at(50), p99: at(99) })
    }
}

/// The HTTP request of a review of an update of the n-th policy.
fn request(n: usize) -> Vec<u8> {
    let old = policy(&format!("policy-{n}"), &json!({"workload": format!("w{n}")}));
    let mut new = old.clone();
    new["spec"]["surge"] = json!({"cooldownAfter": "15m"});
    let review: Value = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("705ab4f5-6393-11e8-b7cc-{n:012}"),
            "kind": {"group": "noderotation.io", "version": "v1alpha1", "kind": "RotationPolicy"},
            "resource": {"group": "noderotation.io", "version": "v1alpha1", "resource": "rotationpolicies"},
            "operation": "UPDATE", "name": format!("policy-{n}"),
            "userInfo": {"username": "jane@example.com", "uid": "1", "groups": ["system:authenticated", "platform"]},
            "object": new, "oldObject": old, "dryRun": false, "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    });
    let body = review.to_string();
    [post(body.len()).into_bytes(), body.into_bytes()].concat()
}

/// Sends a request and reads the response. An error unless it allows the update.
async fn exchange(stream: &mut TlsStream<TcpStream>, request: &[u8], buffer: &mut [u8]) -> anyhow::Result<()> {
    stream.write_all(request).await?;
    let mut filled = 0;
    loop {
        let read = stream.read(buffer.get_mut(filled..).unwrap_or_default()).await?;
        if read == 0 {
            bail!("the connection was closed");
        }
        filled += read;
        let text = buffer.get(..filled).unwrap_or_default();
        let Some(head) = text.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let (head, body) = text.split_at(head + 4);
        let head = std::str::from_utf8(head)?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
        if body.len() >= length.trim().parse::<usize>()? {
            if !head.starts_with("HTTP/1.1 200") || !String::from_utf8_lossy(body).contains("\"allowed\":true") {
                bail!("not allowed: {head}{}", String::from_utf8_lossy(body));
            }
            return Ok(());
        }
    }
}
