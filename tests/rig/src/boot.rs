//! Boots the control plane on loopback, and waits until the health endpoint of each process answers.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::pki::{Authority, Credential, kubeconfig};
use crate::process::{Process, RunFolder};
use crate::programs::{self, Programs};

/// The range of ClusterIPs. They are loopback addresses, so that a process on this machine can be the endpoint of a Service.
const SERVICES: &str = "127.96.0.0/16";
const FIRST_SERVICE: Ipv4Addr = Ipv4Addr::new(127, 96, 0, 1);

/// Which parts to boot. By default all of them, without an audit log.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Boot etcd and the API server only: no controllers, no scheduler, no nodes.
    pub bare: bool,
    /// Boot everything but Karpenter, and install none of its CRDs.
    pub without_karpenter: bool,
    /// Let the API server log every write, and every read by the accounts of the namespace `noderotation`, for [`Rig::audit`].
    pub audit: bool,
}

/// A running control plane. Dropping it ends its processes and removes its folder.
pub struct Rig {
    /// A client with the rights of a cluster administrator.
    pub client: kube::Client,
    /// The folders of the programs and of the data that they ship.
    pub programs: Programs,
    url: String,
    // in the order in which they are ended
    extra: Vec<Process>,
    parts: Vec<Process>,
    folder: RunFolder,
}

/// How often a boot is tried again because a port was taken meanwhile.
const PORT_ATTEMPTS: usize = 3;

/// The ports of one run.
struct Ports {
    api: u16,
    etcd: u16,
    etcd_peer: u16,
    controller_manager: u16,
    scheduler: u16,
    kwok: u16,
    karpenter_metrics: u16,
    karpenter_health: u16,
}

impl Ports {
    fn free() -> anyhow::Result<Self> {
        Ok(Self {
            api: free_port()?,
            etcd: free_port()?,
            etcd_peer: free_port()?,
            controller_manager: free_port()?,
            scheduler: free_port()?,
            kwok: free_port()?,
            karpenter_metrics: free_port()?,
            karpenter_health: free_port()?,
        })
    }
}

/// Ports that servers of a rig listen on: below the range from which the kernel takes ports for outgoing connections.
const PORT_RANGE: std::ops::Range<u32> = 12_000..30_000;

/// A port of 127.0.0.1 that nothing listens on and that no other call in this process gets. An error where none is left.
pub fn free_port() -> anyhow::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = PORT_RANGE.end - PORT_RANGE.start;
    // processes that run at the same time begin far apart
    let first = std::process::id().wrapping_mul(2_654_435_761) % span;
    for _ in 0..span {
        let port = PORT_RANGE.start + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % span;
        let port = u16::try_from(port)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port of 127.0.0.1 in {PORT_RANGE:?}")
}

impl Rig {
    /// Builds the programs that are missing, then boots. An error shows the last log lines of the process that failed.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for _ in 0..PORT_ATTEMPTS {
            match Self::boot(&options).await {
                Err(error) if format!("{error:#}").contains("address already in use") => {}
                other => return other,
            }
        }
        Self::boot(&options).await
    }

    /// One attempt: between the choice of a port and its use somebody else may take it.
    async fn boot(options: &Options) -> anyhow::Result<Self> {
        let programs = programs::build()?;
        let folder = RunFolder::make(&programs::cache().join("runs"))?;
        let ports = Ports::free()?;
        let url = format!("https://127.0.0.1:{}", ports.api);
        write_pki(folder.path(), &url)?;
        let client = client(&folder.path().join("kubeconfig/admin")).await?;
        let mut rig = Self { client, programs, url, extra: Vec::new(), parts: Vec::new(), folder };
        rig.start_storage(&ports, options).await?;
        if options.bare {
            return Ok(rig);
        }
        rig.start_control_plane(&ports).await?;
        rig.wait_for_account().await?;
        if !options.without_karpenter {
            rig.start_karpenter(&ports).await?;
        }
        Ok(rig)
    }

    /// The folder of this run: logs, certificates, kubeconfigs. It is removed when the rig is dropped.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the API server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The path of the cluster administrator's kubeconfig.
    pub fn admin(&self) -> PathBuf {
        self.folder().join("kubeconfig/admin")
    }

    /// The path of the audit log; the file exists only with [`Options::audit`].
    pub fn audit_log(&self) -> PathBuf {
        self.folder().join("log/audit.log")
    }

    fn pki(&self, file: &str) -> String {
        self.folder().join("pki").join(file).display().to_string()
    }

    fn command(&self, program: &str) -> Command {
        Command::new(self.programs.path(program))
    }

    /// A process of the control plane by its name, such as `kube-apiserver`, for example to stop and continue it.
    pub fn process(&self, name: &str) -> anyhow::Result<&Process> {
        self.parts.iter().find(|p| p.name() == name).with_context(|| format!("the rig runs no process named {name}"))
    }

    /// Starts a process that ends with the rig; its log is `log/<name>.log` in the folder of the run.
    pub fn attach(&mut self, name: &str, command: Command) -> anyhow::Result<&mut Process> {
        let process = Process::start(self.folder.path(), name, command)?;
        self.extra.insert(0, process);
        self.extra.first_mut().context("no process")
    }

    /// Starts a process that ends when the caller drops it; its log is `log/<name>.log` in the folder of the run.
    pub fn spawn(&self, name: &str, command: Command) -> anyhow::Result<Process> {
        Process::start(self.folder.path(), name, command)
    }

    /// Starts a process of the control plane and waits until the URL `probe` answers with success.
    async fn part(&mut self, name: &str, command: Command, probe: &str) -> anyhow::Result<()> {
        self.parts.insert(0, Process::start(self.folder.path(), name, command)?);
        let probe_client = client_at(&self.admin(), probe).await?;
        let path = format!("/{}", probe.splitn(4, '/').nth(3).unwrap_or_default());
        let patience = Instant::now() + Duration::from_secs(120);
        loop {
            let request = kube::client::Body::empty();
            let request = kube_request(&path, request)?;
            if let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_secs(2), probe_client.send(request)).await
                && answer.status().is_success()
            {
                // otherwise a stranger has answered, on a port that this process did not get
                return self.parts.first_mut().context("no process")?.check();
            }
            let process = self.parts.first_mut().context("no process")?;
            process.check()?;
            if Instant::now() > patience {
                bail!("{name} is not ready after two minutes; its log ends:\n{}", process.tail(20));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn start_storage(&mut self, ports: &Ports, options: &Options) -> anyhow::Result<()> {
        let (etcd_url, peer_url) =
            (format!("http://127.0.0.1:{}", ports.etcd), format!("http://127.0.0.1:{}", ports.etcd_peer));
        let mut etcd = self.command("etcd");
        etcd.args(["--name", "rig", "--unsafe-no-fsync", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(self.folder().join("etcd"))
            .args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("rig={peer_url}")]);
        self.part("etcd", etcd, &format!("{etcd_url}/health")).await?;

        let mut api = self.command("kube-apiserver");
        api.arg(format!("--etcd-servers={etcd_url}"))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"])
            .arg(format!("--secure-port={}", ports.api))
            .arg(format!("--service-cluster-ip-range={SERVICES}"))
            .arg(format!("--tls-cert-file={}", self.pki("apiserver.crt")))
            .arg(format!("--tls-private-key-file={}", self.pki("apiserver.key")))
            .arg(format!("--client-ca-file={}", self.pki("ca.crt")))
            .args([
                "--authorization-mode=RBAC",
                "--allow-privileged=true",
                "--profiling=false",
                "--shutdown-delay-duration=0s",
            ])
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", self.pki("sa.pub")))
            .arg(format!("--service-account-signing-key-file={}", self.pki("sa.key")));
        if options.audit {
            let policy = self.folder().join("audit-policy.yaml");
            std::fs::write(&policy, AUDIT_POLICY)?;
            api.arg(format!("--audit-policy-file={}", policy.display()))
                .arg(format!("--audit-log-path={}", self.audit_log().display()));
        }
        let url = self.url.clone();
        self.part("kube-apiserver", api, &format!("{url}/readyz")).await
    }

    async fn start_control_plane(&mut self, ports: &Ports) -> anyhow::Result<()> {
        let access = |rig: &Self, command: &mut Command, user: &str| {
            let path = rig.folder().join("kubeconfig").join(user).display().to_string();
            for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
                command.arg(format!("--{flag}={path}"));
            }
            command.args(["--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"]);
        };
        let mut manager = self.command("kube-controller-manager");
        access(self, &mut manager, "controller-manager");
        manager
            .arg(format!("--secure-port={}", ports.controller_manager))
            .args(["--use-service-account-credentials=true", "--kube-api-qps=200", "--kube-api-burst=400"])
            .arg(format!("--service-account-private-key-file={}", self.pki("sa.key")))
            .arg(format!("--root-ca-file={}", self.pki("ca.crt")))
            .arg("--controllers=*,-horizontal-pod-autoscaler-controller,-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller,-node-ipam-controller");
        self.part(
            "kube-controller-manager",
            manager,
            &format!("https://127.0.0.1:{}/healthz", ports.controller_manager),
        )
        .await?;

        let mut scheduler = self.command("kube-scheduler");
        access(self, &mut scheduler, "scheduler");
        scheduler.arg(format!("--secure-port={}", ports.scheduler));
        self.part("kube-scheduler", scheduler, &format!("https://127.0.0.1:{}/readyz", ports.scheduler)).await?;

        let mut kwok = self.command("kwok");
        kwok.arg("--kubeconfig").arg(self.admin());
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("share/pod-delete.yaml");
        let mut stages: Vec<PathBuf> =
            std::fs::read_dir(self.programs.share.join("stages"))?.flatten().map(|e| e.path()).collect();
        stages.sort();
        for stage in stages.into_iter().chain([own]) {
            kwok.arg("--config").arg(stage);
        }
        kwok.args(["--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake", "--node-ip", "127.0.0.1"])
            // without a lease duration kwok renews none, and every node turns Unknown
            .args(["--node-lease-duration-seconds", "40"])
            .args(["--server-address", &format!("127.0.0.1:{}", ports.kwok)]);
        self.part("kwok", kwok, &format!("http://127.0.0.1:{}/healthz", ports.kwok)).await
    }

    /// Waits for the default service account, without which the API server refuses Pods.
    async fn wait_for_account(&self) -> anyhow::Result<()> {
        self.wait("the default service account", Duration::from_secs(60), async || {
            self.try_get("/api/v1/namespaces/default/serviceaccounts/default").await
        })
        .await
        .map(|_| ())
    }

    async fn start_karpenter(&mut self, ports: &Ports) -> anyhow::Result<()> {
        self.install_karpenter_kinds()?;
        let mut karpenter = self.command("karpenter-kwok");
        karpenter
            .env("KUBECONFIG", self.admin())
            .env("DISABLE_LEADER_ELECTION", "true")
            .env("LOG_LEVEL", "info")
            .env("METRICS_PORT", ports.karpenter_metrics.to_string())
            .env("HEALTH_PROBE_PORT", ports.karpenter_health.to_string())
            .env("BATCH_IDLE_DURATION", "1s")
            .env("BATCH_MAX_DURATION", "3s")
            .env("INSTANCE_TYPES_FILE_PATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("share/instance-types.json"))
            .env("FEATURE_GATES", "NodeRepair=false,StaticCapacity=true");
        self.part("karpenter", karpenter, &format!("http://127.0.0.1:{}/readyz", ports.karpenter_health)).await
    }
}

/// Logs every write with its author; no leases and no reads.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ['system:serviceaccounts:noderotation'], resources: [{group: coordination.k8s.io}]}
- {level: Metadata, userGroups: ['system:serviceaccounts:noderotation'], verbs: [get, list, watch]}
- {level: None, resources: [{group: coordination.k8s.io}]}
- {level: None, verbs: [get, list, watch]}
- level: Request
  resources:
  - {group: '', resources: [pods/status, nodes, nodes/status, pods, pods/eviction, pods/binding]}
  - {group: karpenter.sh}
  - {group: noderotation.io}
- {level: Metadata}
";

fn write_pki(run: &Path, url: &str) -> anyhow::Result<()> {
    let pki = run.join("pki");
    let authority = Authority::make(&pki)?;
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    authority.server("apiserver", &names, &[Ipv4Addr::LOCALHOST, FIRST_SERVICE])?;
    authority.token_keys()?;
    for (file, user, group) in [
        ("admin", "rig-admin", Some("system:masters")),
        ("controller-manager", "system:kube-controller-manager", None),
        ("scheduler", "system:kube-scheduler", None),
    ] {
        authority.user(file, user, group)?;
        let config = kubeconfig(&pki, url, &Credential::Certificate(file));
        std::fs::write(run.join("kubeconfig").join(file), config.to_string())?;
    }
    Ok(())
}

async fn config(kubeconfig: &Path) -> anyhow::Result<kube::Config> {
    let text = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(config)
}

pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(config(kubeconfig).await?)?)
}

/// A client for the health endpoint of a process that signed its certificate itself.
async fn client_at(kubeconfig: &Path, url: &str) -> anyhow::Result<kube::Client> {
    let mut config = config(kubeconfig).await?;
    let base = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    config.cluster_url = base.parse()?;
    config.accept_invalid_certs = true;
    Ok(kube::Client::try_from(config)?)
}

fn kube_request(path: &str, body: kube::client::Body) -> anyhow::Result<http::Request<kube::client::Body>> {
    Ok(http::Request::get(path).body(body)?)
}
