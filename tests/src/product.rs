//! The product under test: the chart, installed by helm, and its programs as processes on this machine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use noderotation_rig::process::Process;
use noderotation_rig::{Options, Rig, free_port, objects, repository};
use serde_json::Value;

/// The namespace in which the chart is installed.
pub const NAMESPACE: &str = "noderotation";

/// The name of the controller's service account, and of its Deployment.
pub const ACCOUNT: &str = "noderotation-controller";

/// The name of the webhook's service account, and of its Deployment.
pub const WEBHOOK_ACCOUNT: &str = "noderotation-webhook";

/// A rig with the chart installed. Dropping it ends everything.
pub struct Product {
    /// The control plane.
    pub rig: Rig,
    /// The webhook behind the chart's Service; `None` where none was started.
    pub webhook: Option<Webhook>,
    controller: PathBuf,
    address: ServiceAddress,
    started: std::cell::Cell<u32>,
}

/// A running webhook; dropping it kills it.
pub struct Webhook {
    /// The process.
    pub process: Process,
    /// The port on 127.0.0.1 of its health endpoints and `/metrics`.
    pub port: u16,
    /// The address on which it serves admission.
    pub listen: SocketAddr,
    /// When the process was started.
    pub spawned: std::time::Instant,
}

/// ClusterIP and port for the chart's webhook Service. The address is a loopback address, so that the API server reaches a
/// process on this machine there.
#[derive(Clone, Copy, Debug)]
pub struct ServiceAddress {
    address: Ipv4Addr,
    port: u16,
}

impl ServiceAddress {
    /// The chart's values that give the Service this address.
    pub fn values(&self) -> [String; 2] {
        [format!("webhook.service.clusterIP={}", self.address), format!("webhook.service.port={}", self.port)]
    }

    /// A free address; on port 443, as in a cluster, where this user may bind it.
    pub fn free() -> anyhow::Result<Self> {
        let mut seed = std::process::id().wrapping_mul(7919) ^ nanoseconds();
        for _ in 0..1_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [a, b, ..] = (seed >> 8).to_be_bytes().map(|byte| byte.clamp(2, 250));
            let address = Ipv4Addr::new(127, 96, a, b);
            for port in [443, 9443] {
                if TcpListener::bind((address, port)).is_ok() {
                    return Ok(Self { address, port });
                }
            }
        }
        bail!("no free address of 127.96.0.0/16 was found for the webhook's Service");
    }
}

fn nanoseconds() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos())
}

/// A running controller; dropping it kills it.
pub struct Controller {
    /// The process.
    pub process: Process,
    /// The port on 127.0.0.1 of its health endpoints and `/metrics`.
    pub port: u16,
}

impl Product {
    /// Boots a rig with an audit log, installs the chart and starts the webhook.
    pub async fn install() -> anyhow::Result<Self> {
        Self::install_on(Rig::start(Options { audit: true, ..Options::default() }).await?).await
    }

    /// Installs the chart on a rig and starts the webhook.
    pub async fn install_on(rig: Rig) -> anyhow::Result<Self> {
        let mut product = Self::install_home(rig, &[])?;
        product.webhook = Some(product.start_webhook().await?);
        Ok(product)
    }

    /// Boots a rig with an audit log and installs the chart without the webhook, for states that the webhook would refuse.
    pub async fn install_without_webhook() -> anyhow::Result<Self> {
        let rig = Rig::start(Options { audit: true, ..Options::default() }).await?;
        Self::install_home(rig, &["--set", "webhook.enabled=false"])
    }

    fn install_home(rig: Rig, flags: &[&str]) -> anyhow::Result<Self> {
        objects::system_node(&rig)?;
        // the only values set: a node of their own keeps the chart's Pods off the NodePools under test
        let mut home = vec!["--wait", "--timeout", "2m"];
        let there: Vec<String> = ["controller", "webhook"]
            .iter()
            .flat_map(|part| {
                [
                    format!(r#"{part}.tolerations=[{{"key":"rig/system","operator":"Exists"}}]"#),
                    format!(r#"{part}.nodeSelector={{"rig/system":"true"}}"#),
                ]
            })
            .collect();
        for value in &there {
            home.extend(["--set-json", value]);
        }
        Self::install_with(rig, &[&home, flags].concat())
    }

    /// Installs the chart without the webhook on a bare rig, where no Pod of it ever runs.
    pub fn install_bare(rig: Rig) -> anyhow::Result<Self> {
        Self::install_with(rig, &["--set", "webhook.enabled=false"])
    }

    /// Installs the chart with these flags of helm on a bare rig, where no Pod of it ever runs; starts no webhook.
    pub fn install_bare_with(rig: Rig, values: &[&str]) -> anyhow::Result<Self> {
        Self::install_with(rig, values)
    }

    /// Boots a bare rig with Karpenter's CRDs, installs the chart with these flags of helm, and starts the webhook.
    pub async fn install_bare_with_webhook(audit: bool, values: &[&str]) -> anyhow::Result<Self> {
        let rig = Rig::start(Options { bare: true, audit, ..Options::default() }).await?;
        rig.install_karpenter_kinds()?;
        let mut product = Self::install_with(rig, values)?;
        product.webhook = Some(product.start_webhook().await?);
        Ok(product)
    }

    fn install_with(rig: Rig, flags: &[&str]) -> anyhow::Result<Self> {
        let controller = binary("noderotation-controller")?;
        let address = ServiceAddress::free()?;
        let chart = chart();
        let [ip, port] = address.values();
        let install = [
            "install",
            "noderotation",
            &chart,
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--set",
            &ip,
            "--set",
            &port,
        ];
        rig.helm(&[&install, flags].concat())?;
        Ok(Self { rig, webhook: None, controller, address, started: 0.into() })
    }

    /// Takes over a rig on which the test itself installs the chart, with the webhook's Service at this address.
    pub fn adopt(rig: Rig, address: ServiceAddress) -> anyhow::Result<Self> {
        Ok(Self { rig, webhook: None, controller: binary("noderotation-controller")?, address, started: 0.into() })
    }

    /// The address of the chart's webhook Service.
    pub fn service(&self) -> SocketAddr {
        SocketAddr::from((self.address.address, self.address.port))
    }

    /// Starts the webhook behind the chart's Service and waits until it is ready.
    pub async fn start_webhook(&self) -> anyhow::Result<Webhook> {
        self.start_webhook_with(&[]).await
    }

    /// Like [`Product::start_webhook`], with further flags.
    pub async fn start_webhook_with(&self, flags: &[&str]) -> anyhow::Result<Webhook> {
        let mut webhook = self.spawn_webhook(self.service(), flags).await?;
        self.wait_webhook_ready(&mut webhook).await?;
        Ok(webhook)
    }

    /// Starts a webhook behind the chart's Service; also the time from its start until it is ready.
    pub async fn time_webhook(&self) -> anyhow::Result<(Webhook, Duration)> {
        let mut webhook = self.spawn_webhook(self.service(), &["--log-level", "info"]).await?;
        while !webhook.is_ready().await {
            webhook.process.check()?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let took = webhook.spawned.elapsed();
        Ok((webhook, took))
    }

    /// Waits until a webhook is ready. An error, with the last lines of its log, after a minute.
    pub async fn wait_webhook_ready(&self, webhook: &mut Webhook) -> anyhow::Result<()> {
        self.rig
            .wait("a webhook to be ready", Duration::from_secs(60), async || {
                webhook.process.check()?;
                Ok(webhook.is_ready().await.then_some(()))
            })
            .await
            .with_context(|| format!("the last lines of the webhook's log:\n{}", webhook.process.tail(20)))
    }

    /// Starts a webhook with the chart's service account and arguments, listening on `listen`; does not wait.
    pub async fn spawn_webhook(&self, listen: SocketAddr, flags: &[&str]) -> anyhow::Result<Webhook> {
        let kubeconfig = self.rig.kubeconfig_for(NAMESPACE, WEBHOOK_ACCOUNT).await?;
        let n = self.started.get();
        self.started.set(n + 1);
        let port = free_port()?;
        let mut command = Command::new(binary("noderotation-webhook")?);
        command
            .env_clear()
            .env("RUST_BACKTRACE", "0")
            .args(self.chart_args(WEBHOOK_ACCOUNT).await?)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["--listen", &listen.to_string(), "--health-listen", &format!("127.0.0.1:{port}")])
            .args(flags);
        let spawned = std::time::Instant::now();
        Ok(Webhook { process: self.rig.spawn(&format!("webhook-{n}"), command)?, port, listen, spawned })
    }

    /// The arguments that the chart gives a program, as its Pods would have them.
    async fn chart_args(&self, deployment: &str) -> anyhow::Result<Vec<String>> {
        let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{deployment}");
        let object = self.rig.get(&path).await?;
        let args =
            object.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array).context("no args")?;
        let text = |arg: &Value| arg.as_str().unwrap_or_default().replace("$(POD_NAMESPACE)", NAMESPACE);
        Ok(args.iter().map(text).collect())
    }

    /// A client with the identity of the controller.
    pub async fn controller_client(&self) -> anyhow::Result<kube::Client> {
        Rig::client_of(&self.rig.kubeconfig_for(NAMESPACE, ACCOUNT).await?).await
    }

    /// Starts a controller with the log level of production, for measurements, and waits until it leads.
    pub async fn start_leader_quietly(&self) -> anyhow::Result<Controller> {
        self.start_leader_with(&["--log-level", "info"]).await
    }

    /// Starts a controller with the chart's service account and arguments; does not wait.
    pub async fn start_controller(&self) -> anyhow::Result<Controller> {
        self.start_controller_with(&[]).await
    }

    /// Like [`Product::start_controller`], with further flags.
    pub async fn start_controller_with(&self, flags: &[&str]) -> anyhow::Result<Controller> {
        let kubeconfig = self.rig.kubeconfig_for(NAMESPACE, ACCOUNT).await?;
        let n = self.started.get();
        self.started.set(n + 1);
        let port = free_port()?;
        let mut command = Command::new(&self.controller);
        command
            .env_clear()
            .env("RUST_BACKTRACE", "0")
            .args(self.chart_args(ACCOUNT).await?)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["--identity", &format!("controller-{n}"), "--listen", &format!("127.0.0.1:{port}")])
            .args(["--log-level", "debug"])
            .args(flags);
        Ok(Controller { process: self.rig.spawn(&format!("controller-{n}"), command)?, port })
    }

    /// Starts a controller and waits until it leads.
    pub async fn start_leader(&self) -> anyhow::Result<Controller> {
        self.start_leader_with(&[]).await
    }

    /// Like [`Product::start_leader`], with further flags.
    pub async fn start_leader_with(&self, flags: &[&str]) -> anyhow::Result<Controller> {
        let mut controller = self.start_controller_with(flags).await?;
        self.rig
            .wait("a controller to lead", Duration::from_secs(60), async || {
                controller.process.check()?;
                Ok(controller.leads().await.then_some(()))
            })
            .await?;
        Ok(controller)
    }
}

impl Webhook {
    /// Whether `/readyz` answers 200.
    pub async fn is_ready(&self) -> bool {
        status(self.port, "/readyz").await == Some(200)
    }

    /// The value of a gauge of `/metrics`; 0 where it is missing.
    pub async fn gauge(&self, name: &str) -> f64 {
        samples(&page(self.port).await, name, "").next().unwrap_or_default()
    }

    /// The number of reviews answered so far whose labels contain this text.
    pub async fn reviews_with(&self, labels: &str) -> u64 {
        samples::<u64>(&page(self.port).await, "noderotation_admission_requests_total", labels).sum()
    }

    /// The number of reviews answered so far.
    pub async fn reviews(&self) -> u64 {
        self.reviews_with("").await
    }
}

impl Controller {
    /// The page of `/metrics`; empty while the process does not serve it.
    pub async fn metrics(&self) -> String {
        page(self.port).await
    }

    /// The HTTP status of a path; `None` while the process does not serve.
    pub async fn status(&self, path: &str) -> Option<u16> {
        status(self.port, path).await
    }

    /// Whether it leads and its caches are complete.
    pub async fn leads(&self) -> bool {
        let page = self.metrics().await;
        page.contains("noderotation_leader 1") && page.contains("noderotation_watch_age_seconds")
    }

    /// A sample of `/metrics`, by its name and a part of its labels; `None` where there is none.
    pub async fn sample(&self, name: &str, labels: &str) -> Option<f64> {
        samples(&self.metrics().await, name, labels).next()
    }

    /// Sends SIGTERM and waits until it has exited; its exit code, or `None` where a signal ended it.
    pub fn stop(&mut self) -> anyhow::Result<Option<i32>> {
        self.process.signal("TERM")?;
        self.process.wait(Duration::from_secs(30))
    }
}

async fn page(port: u16) -> String {
    fetch(port, "/metrics").await.map(|(_, body)| body).unwrap_or_default()
}

async fn status(port: u16, path: &str) -> Option<u16> {
    fetch(port, path).await.ok().map(|(code, _)| code)
}

fn samples<'a, T: FromStr>(page: &'a str, name: &'a str, labels: &'a str) -> impl Iterator<Item = T> + use<'a, T> {
    let of_name = move |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
    };
    page.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse().ok())
}

/// The objects of a text with several YAML documents, such as `helm template` prints; empty ones are left out.
pub fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects: Vec<Value> = serde_saphyr::read(&mut text.as_bytes()).collect::<Result<_, _>>()?;
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// The path of the chart.
pub fn chart() -> String {
    repository().join("charts/noderotation").display().to_string()
}

/// Sends an HTTP GET to a port of 127.0.0.1; status and body.
async fn fetch(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let code = text.split(' ').nth(1).and_then(|c| c.parse().ok()).context("no status")?;
    Ok((code, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// Builds a program of this workspace in the profile of the running test; its path.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let profile = own.ancestors().find(|p| p.file_name().is_some_and(|n| n == "debug" || n == "release"));
    let folder = profile.context("the test does not run from cargo's target folder")?.to_owned();
    build(&folder, name)?;
    Ok(folder.join(name))
}

fn build(folder: &Path, name: &str) -> anyhow::Result<()> {
    let package = if name == "kubectl-noderotation" { "noderotation-cli" } else { name };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository()).args(["build", "--quiet", "-p", package, "--bin", name]).stdin(Stdio::null());
    // cargo sets these for the test; passed on, they make ring's build script, and all that depends on it, run again each time
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            cargo.env_remove(name);
        }
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let output = cargo.output().context("cargo cannot be run")?;
    if !output.status.success() {
        bail!("building {name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
