//! The rig: a real Kubernetes with a real Karpenter on this machine, without containers.
//!
//! ```text
//!   programs ─▶ etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok, karpenter, helm
//!   (built once by Go from tools/*/go.mod)      │
//!   pki ──────▶ certificates, kubeconfigs ──────┼─▶ boot ─▶ Rig ─▶ cluster: get, apply, wait, tokens
//!   process ──▶ started by id, ended by id ─────┘            └─▶ objects: NodePools, workloads, policies
//! ```
//!
//! kwok plays the kubelet; everything else is the real thing. A [`Rig`] ends what it started when it is dropped, and the
//! next one ends what a killed run left behind.

#![cfg_attr(test, allow(clippy::unwrap_used))]
#![allow(clippy::indexing_slicing, reason = "test support: a wrong index fails the test that made it")]

pub mod boot;
pub mod cluster;
pub mod objects;
pub mod pki;
pub mod process;
pub mod programs;

pub use boot::{Options, Rig};

/// The repository's root.
pub fn repository() -> std::path::PathBuf {
    std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
