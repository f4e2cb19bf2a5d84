//! The product under test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use noderotation_rig::process::Process;
use noderotation_rig::{Options, Rig, objects, repository};

/// Where the chart is installed.
pub const NAMESPACE: &str = "noderotation";

/// The service account that the chart makes.
pub const ACCOUNT: &str = "noderotation-controller";

/// A rig on which the chart is installed.
pub struct Product {
    /// The control plane.
    pub rig: Rig,
    kubeconfig: PathBuf,
    controller: PathBuf,
    started: std::cell::Cell<u32>,
}

/// A running controller.
pub struct Controller {
    /// The process.
    pub process: Process,
    /// Where it serves /metrics.
    pub port: u16,
}

impl Product {
    /// Boots a rig with an audit log and installs the chart.
    pub async fn install() -> anyhow::Result<Self> {
        Self::install_on(Rig::start(Options { audit: true, ..Options::default() }).await?).await
    }

    /// Installs the chart on a rig.
    pub async fn install_on(rig: Rig) -> anyhow::Result<Self> {
        objects::system_node(&rig)?;
        // where the installed Pods run is the only thing said; a home of their own keeps them off the pools under test
        let home = [
            "--wait",
            "--timeout",
            "2m",
            "--set-json",
            r#"controller.tolerations=[{"key":"rig/system","operator":"Exists"}]"#,
            "--set-json",
            r#"controller.nodeSelector={"rig/system":"true"}"#,
        ];
        Self::install_with(rig, &home).await
    }

    /// Installs the chart on a rig that has nobody to run its Pods.
    pub async fn install_bare(rig: Rig) -> anyhow::Result<Self> {
        Self::install_with(rig, &[]).await
    }

    async fn install_with(rig: Rig, flags: &[&str]) -> anyhow::Result<Self> {
        let controller = binary("noderotation-controller")?;
        let chart = repository().join("charts/noderotation").display().to_string();
        let install = ["install", "noderotation", &chart, "--namespace", NAMESPACE, "--create-namespace"];
        rig.helm(&[&install, flags].concat())?;
        let kubeconfig = rig.kubeconfig_for(NAMESPACE, ACCOUNT).await?;
        Ok(Self { rig, kubeconfig, controller, started: 0.into() })
    }

    /// Starts a leader that logs as it does in production, for measurements.
    pub async fn start_leader_quietly(&self) -> anyhow::Result<Controller> {
        self.start_leader_with(&["--log-level", "info"]).await
    }

    /// Starts a controller as the chart's service account.
    pub fn start_controller(&self) -> anyhow::Result<Controller> {
        self.start_controller_with(&[])
    }

    /// The same with further flags.
    pub fn start_controller_with(&self, flags: &[&str]) -> anyhow::Result<Controller> {
        let n = self.started.get();
        self.started.set(n + 1);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(&self.controller);
        command
            .env_clear()
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", NAMESPACE, "--priority-class", "noderotation-placeholder"])
            .args(["--identity", &format!("controller-{n}"), "--listen", &format!("127.0.0.1:{port}")])
            .env("NODEROTATION_LOG_LEVEL", "debug")
            .args(flags);
        Ok(Controller { process: self.rig.spawn(&format!("controller-{n}"), command)?, port })
    }

    /// Starts a controller and waits until it leads.
    pub async fn start_leader(&self) -> anyhow::Result<Controller> {
        self.start_leader_with(&[]).await
    }

    /// The same with further flags.
    pub async fn start_leader_with(&self, flags: &[&str]) -> anyhow::Result<Controller> {
        let mut controller = self.start_controller_with(flags)?;
        self.rig
            .wait("a controller to lead", Duration::from_secs(60), async || {
                controller.process.check()?;
                Ok(controller.leads().await.then_some(()))
            })
            .await?;
        Ok(controller)
    }
}

impl Controller {
    /// The page of /metrics; empty while it does not serve.
    pub async fn metrics(&self) -> String {
        fetch(self.port, "/metrics").await.map(|(_, body)| body).unwrap_or_default()
    }

    /// The status of an endpoint.
    pub async fn status(&self, path: &str) -> Option<u16> {
        fetch(self.port, path).await.ok().map(|(code, _)| code)
    }

    /// Whether it is the leader and has seen everything.
    pub async fn leads(&self) -> bool {
        let page = self.metrics().await;
        page.contains("noderotation_leader 1") && page.contains("noderotation_watch_age_seconds")
    }

    /// One sample of /metrics, by its name and a part of its labels.
    pub async fn sample(&self, name: &str, labels: &str) -> Option<f64> {
        let page = self.metrics().await;
        let line = page
            .lines()
            .find(|l| l.starts_with(name) && l[name.len()..].starts_with(['{', ' ']) && l.contains(labels))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// Asks it to stop and waits; gives its exit code.
    pub fn stop(&mut self) -> anyhow::Result<Option<i32>> {
        self.process.signal("TERM")?;
        self.process.wait(Duration::from_secs(30))
    }
}

/// A plain HTTP GET on this machine.
async fn fetch(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let code = text.split(' ').nth(1).and_then(|c| c.parse().ok()).context("no status")?;
    Ok((code, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// A program of the workspace, built in the profile of this test.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let profile = own.ancestors().find(|p| p.file_name().is_some_and(|n| n == "debug" || n == "release"));
    let folder = profile.context("not run from cargo's target folder")?.to_owned();
    build(&folder, name)?;
    Ok(folder.join(name))
}

fn build(folder: &Path, name: &str) -> anyhow::Result<()> {
    let package = if name == "kubectl-noderotation" { "noderotation-cli" } else { name };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository()).args(["build", "--quiet", "-p", package, "--bin", name]).stdin(Stdio::null());
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let output = cargo.output().context("cargo cannot be run")?;
    if !output.status.success() {
        bail!("building {name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
