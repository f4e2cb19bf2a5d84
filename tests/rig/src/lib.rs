//! The rig: a real Kubernetes control plane with a real Karpenter on this machine, without containers, for tests that need
//! what only a real API server, scheduler or garbage collector does.
//!
//! ```text
//!   programs ─▶ etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok, karpenter, helm
//!   (built once by Go from tools/*/go.mod)      │
//!   pki ──────▶ certificates, kubeconfigs ──────┼─▶ boot ─▶ Rig ─▶ cluster: get, apply, wait, tokens
//!   process ──▶ started and ended by process id ┘            └─▶ objects: NodePools, workloads, budgets
//! ```
//!
//! kwok plays the kubelet; everything else is the real thing. A [`Rig`] ends the processes that it started when it is
//! dropped, and the next one ends what a killed run left behind.
//!
//! It is not for tests of what Pods do: no container runs, so there are no logs, no exec and no network between Pods. It knows
//! nothing of noderotation; what the tests install on it is theirs. `tests/rig/README.md` lists its variables.
//!
//! ```no_run
//! use noderotation_rig::objects::{deployment, node_pool};
//! use noderotation_rig::{Options, Rig};
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     let rig = Rig::start(Options { audit: true, ..Options::default() }).await?;
//!     node_pool("api").apply(&rig)?;
//!     deployment("shop", "api", 3).cpu("1200m").apply(&rig)?;
//!     println!("{}", rig.kubectl(&["get", "nodeclaims"])?);
//!     Ok(()) // dropping the rig ends it
//! }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]
#![allow(clippy::indexing_slicing, reason = "test support: a wrong index fails the test that made it")]

pub mod boot;
pub mod cluster;
pub mod objects;
pub mod pki;
pub mod process;
pub mod programs;
mod progress;
pub mod validator;

pub use boot::{Options, Rig, free_port};

/// The root folder of the repository whose rig this is.
pub fn repository() -> std::path::PathBuf {
    std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
