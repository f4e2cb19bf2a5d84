//! The programs of the control plane. Go builds them once, from the versions that the modules under `tools/` pin.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::progress;

/// A Go module under `tools/`, and the programs that are built from it.
struct Module {
    name: &'static str,
    /// Name of the program and path of its Go package.
    programs: &'static [(&'static str, &'static str)],
    flags: fn(&Path) -> anyhow::Result<String>,
}

/// What a control plane consists of.
const CONTROL_PLANE: [Module; 5] = [
    Module { name: "etcd", programs: &[("etcd", "go.etcd.io/etcd/server/v3")], flags: |_| Ok(String::new()) },
    Module {
        name: "kube",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        flags: kubernetes_flags,
    },
    Module { name: "kwok", programs: &[("kwok", "sigs.k8s.io/kwok/cmd/kwok")], flags: |_| Ok(String::new()) },
    Module {
        name: "karpenter",
        programs: &[("karpenter-kwok", "sigs.k8s.io/karpenter/kwok")],
        flags: |dir| {
            Ok(format!("-X sigs.k8s.io/karpenter/pkg/operator.Version={}", version(dir, "sigs.k8s.io/karpenter")?))
        },
    },
    Module { name: "helm", programs: &[("helm", "helm.sh/helm/v3/cmd/helm")], flags: helm_flags },
];

/// The minor versions of Kubernetes that the chart supports, each with a validator ([`crate::validator`]).
pub const KUBERNETES_MINORS: std::ops::RangeInclusive<u32> = 30..=36;

/// The validators of [`KUBERNETES_MINORS`]: one source, `tools/validate`, with the code of one Kubernetes version each.
const VALIDATORS: [Module; 7] = [
    validator("validate-1.30", &[("validate-1.30", VALIDATE)]),
    validator("validate-1.31", &[("validate-1.31", VALIDATE)]),
    validator("validate-1.32", &[("validate-1.32", VALIDATE)]),
    validator("validate-1.33", &[("validate-1.33", VALIDATE)]),
    validator("validate-1.34", &[("validate-1.34", VALIDATE)]),
    validator("validate-1.35", &[("validate-1.35", VALIDATE)]),
    validator("validate-1.36", &[("validate-1.36", VALIDATE)]),
];

const VALIDATE: &str = "example.invalid/noderotation/rig/validate";

const fn validator(name: &'static str, programs: &'static [(&'static str, &'static str)]) -> Module {
    // the version that is linked in decides which CEL an API server offers
    Module { name, programs, flags: kubernetes_flags }
}

/// The oldest Go that can build everything: the `go` line of Karpenter's go.mod.
const LEAST_GO: (u32, u32) = (1, 26);

/// The free space that a build needs: one gigabyte for the programs, six for Go's caches.
const LEAST_FREE_MIB: u64 = 8 * 1024;

/// The folders of the built programs and of the data that they ship.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The folder of the binaries.
    pub bin: PathBuf,
    /// The folder of Karpenter's CRDs (`crds`) and kwok's stages (`stages`).
    pub share: PathBuf,
}

impl Programs {
    /// The path of one program.
    pub fn path(&self, program: &str) -> PathBuf {
        self.bin.join(program)
    }
}

/// The folder for built programs and for runs: `$XDG_CACHE_HOME/noderotation-rig` or `~/.cache/noderotation-rig`.
pub fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache");
    base.unwrap_or_else(home).join("noderotation-rig")
}

/// Builds what is missing of the control plane, and shows progress on standard error. If `NODEROTATION_RIG_BIN` is set, nothing is
/// built: it names a folder of binaries, whose sibling folder `share` holds their data.
pub fn build() -> anyhow::Result<Programs> {
    if let Some(bin) = std::env::var_os("NODEROTATION_RIG_BIN").map(PathBuf::from) {
        return ready_made(bin);
    }
    let programs = in_cache()?;
    let _only_one = Lock::take(&cache().join("build.lock"))?;
    build_missing(&CONTROL_PLANE, &programs)?;
    if !programs.share.join("crds").exists() {
        copy_data(&programs)?;
    }
    Ok(programs)
}

/// Builds the validators that are missing; apart from the control plane, since few tests need them. If
/// `NODEROTATION_RIG_BIN` is set, they are expected there.
pub fn build_validators() -> anyhow::Result<Programs> {
    if let Some(bin) = std::env::var_os("NODEROTATION_RIG_BIN").map(PathBuf::from) {
        require(&VALIDATORS, &bin)?;
        return ready_made(bin);
    }
    let programs = in_cache()?;
    let _only_one = Lock::take(&cache().join("validators.lock"))?;
    build_missing(&VALIDATORS, &programs)?;
    Ok(programs)
}

fn in_cache() -> anyhow::Result<Programs> {
    let programs = Programs { bin: cache().join("bin"), share: cache().join("share") };
    std::fs::create_dir_all(&programs.bin).with_context(|| format!("{} cannot be created", programs.bin.display()))?;
    Ok(programs)
}

fn build_missing(modules: &[Module], programs: &Programs) -> anyhow::Result<()> {
    let todo: Vec<_> = modules.iter().filter(|m| !is_built(m, programs)).collect();
    if todo.is_empty() {
        return Ok(());
    }
    check_go()?;
    check_disk(&programs.bin)?;
    let began = Instant::now();
    for (n, module) in todo.iter().enumerate() {
        eprintln!("rig: building {} ({} of {}, {:.0?} so far)", module.name, n + 1, todo.len(), began.elapsed());
        let started = Instant::now();
        build_module(module, programs)?;
        eprintln!("rig: built {} in {:.0?}", module.name, started.elapsed());
    }
    Ok(())
}

/// An error where the folder lacks one of these modules' programs.
fn require(modules: &[Module], bin: &Path) -> anyhow::Result<()> {
    for program in modules.iter().flat_map(|m| m.programs).map(|(program, _)| program) {
        if !bin.join(program).exists() {
            bail!("NODEROTATION_RIG_BIN={} holds no {program}; unset it to have everything built", bin.display());
        }
    }
    Ok(())
}

fn ready_made(bin: PathBuf) -> anyhow::Result<Programs> {
    require(&CONTROL_PLANE, &bin)?;
    let share = bin.parent().unwrap_or(&bin).join("share");
    if !share.join("crds").exists() {
        bail!(
            "{} holds no crds; NODEROTATION_RIG_BIN needs a sibling folder share as `rig build` makes it",
            share.display()
        );
    }
    Ok(Programs { bin, share })
}

fn tools(module: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools").join(module)
}

fn stamp_path(module: &Module, programs: &Programs) -> PathBuf {
    programs.bin.join(format!(".{}.stamp", module.name))
}

/// To be raised when the flags above change, so that everything is built again.
const FLAGS_REVISION: u32 = 2;

/// Identifies what was built: flags, pinned sources and our own. Another version of Go is no reason to build again.
fn stamp(module: &Module) -> String {
    let read = |folder: &str, file| std::fs::read_to_string(tools(folder).join(file)).unwrap_or_default();
    let uses_ours = module.programs.iter().any(|(_, package)| *package == VALIDATE);
    let ours = if uses_ours { read("validate", "main.go") } else { String::new() };
    format!("{FLAGS_REVISION}\n{}{}{ours}", read(module.name, "go.mod"), read(module.name, "go.sum"))
}

fn is_built(module: &Module, programs: &Programs) -> bool {
    std::fs::read_to_string(stamp_path(module, programs)).is_ok_and(|s| s == stamp(module))
        && module.programs.iter().all(|(program, _)| programs.path(program).exists())
}

fn build_module(module: &Module, programs: &Programs) -> anyhow::Result<()> {
    let dir = tools(module.name);
    let flags = format!("-s -w {}", (module.flags)(&dir)?);
    for (program, package) in module.programs {
        let mut go = go(&dir);
        go.args(["build", "-v", "-trimpath", "-ldflags", flags.trim(), "-o"]).arg(programs.path(program)).arg(package);
        progress::run(go, program)?;
    }
    std::fs::write(stamp_path(module, programs), stamp(module))?;
    Ok(())
}

fn go(dir: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(dir).env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOTOOLCHAIN", "local").stdin(Stdio::null());
    go
}

fn run(mut command: Command, what: &str) -> anyhow::Result<String> {
    let output =
        command.output().with_context(|| format!("{what}: {} cannot be run", command.get_program().display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = text.lines().rev().take(15).collect();
        bail!("{what} failed:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn version(dir: &Path, module: &str) -> anyhow::Result<String> {
    let mut go = go(dir);
    go.args(["list", "-m", "-f", "{{.Version}}", module]);
    run(go, &format!("asking for the version of {module}"))
}

/// The version to be linked in: a control plane that does not know its version refuses to start.
fn kubernetes_flags(dir: &Path) -> anyhow::Result<String> {
    let version = version(dir, "k8s.io/kubernetes")?;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let commit = "0".repeat(40);
    let flags = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!(
            "-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} -X {package}.gitTreeState=clean -X {package}.gitCommit={commit}"
        )
    });
    Ok(flags.join(" "))
}

/// The versions to be linked in: without a cluster, helm renders for the Kubernetes version that it was built with.
fn helm_flags(dir: &Path) -> anyhow::Result<String> {
    let kubernetes = version(&tools("kube"), "k8s.io/kubernetes")?;
    let minor = kubernetes.split('.').nth(1).unwrap_or_default();
    let assumed = "helm.sh/helm/v3/pkg/chartutil";
    Ok(format!(
        "-X helm.sh/helm/v3/internal/version.version={} -X {assumed}.k8sVersionMajor=1 -X {assumed}.k8sVersionMinor={minor}",
        version(dir, "helm.sh/helm/v3")?
    ))
}

fn check_go() -> anyhow::Result<()> {
    let output = Command::new("go").args(["env", "GOVERSION"]).output();
    let Ok(output) = output else { bail!("Go is missing: install Go {}.{} or newer", LEAST_GO.0, LEAST_GO.1) };
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut numbers = text.trim_start_matches("go").split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < LEAST_GO {
        bail!("{text} is too old: install Go {}.{} or newer", LEAST_GO.0, LEAST_GO.1);
    }
    Ok(())
}

fn check_disk(at: &Path) -> anyhow::Result<()> {
    let output = Command::new("df").args(["-Pm"]).arg(at).output().context("df cannot be run")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let free = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)).and_then(|n| n.parse::<u64>().ok());
    match free {
        Some(free) if free < LEAST_FREE_MIB => {
            bail!("{} has {free} MiB free; building the control plane needs {LEAST_FREE_MIB} MiB", at.display())
        }
        _ => Ok(()),
    }
}

/// Copies CRDs and stages from Go's module cache; they are not in this repository.
fn copy_data(programs: &Programs) -> anyhow::Result<()> {
    let module_dir = |tool: &str, module: &str| -> anyhow::Result<PathBuf> {
        let mut download = go(&tools(tool));
        download.args(["mod", "download", module]);
        run(download, &format!("fetching {module}"))?;
        let mut list = go(&tools(tool));
        list.args(["list", "-m", "-f", "{{.Dir}}", module]);
        Ok(run(list, &format!("locating {module}"))?.into())
    };
    let (stages, crds) = (programs.share.join("stages"), programs.share.join("crds.unfinished"));
    std::fs::create_dir_all(&stages)?;
    std::fs::create_dir_all(&crds)?;
    let kwok = module_dir("kwok", "sigs.k8s.io/kwok")?.join("kustomize/stage");
    for file in [
        "node/fast/node-initialize.yaml",
        "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "pod/fast/pod-ready.yaml",
        "pod/fast/pod-complete.yaml",
    ] {
        copy(&kwok.join(file), &stages)?;
    }
    let karpenter = module_dir("karpenter", "sigs.k8s.io/karpenter")?.join("kwok");
    for folder in ["charts/crds", "apis/crds"] {
        for entry in std::fs::read_dir(karpenter.join(folder))? {
            copy(&entry?.path(), &crds)?;
        }
    }
    // last, since the folder of this name says that everything is there
    Ok(std::fs::rename(crds, programs.share.join("crds"))?)
}

/// Copies a file's content without its permissions: Go's module cache is read-only.
fn copy(from: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = from.file_name().context("a file without a name")?;
    let text = std::fs::read(from).with_context(|| format!("{} cannot be read", from.display()))?;
    std::fs::write(folder.join(name), text)?;
    Ok(())
}

/// A lock that is held while building, so that two runs do not build at once. It ends with its process, however that ends.
struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until no other process, and no other test of this one, holds the lock at `path`.
    fn take(path: &Path) -> anyhow::Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        file.lock().with_context(|| format!("{} cannot be locked", path.display()))?;
        Ok(Self { _file: file })
    }
}
