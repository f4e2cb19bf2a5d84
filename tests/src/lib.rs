//! What the tests on a real control plane, the demonstration and the benches share: the product, installed as users install
//! it, and the NodePools and workloads that it rotates.
//!
//! helm installs the unmodified chart. Its Pods are faked by kwok; the real controller and webhook run as processes on this
//! machine, each with the rights of the chart's service account and no others.
//!
//! Nothing here is part of the product; tests that need no control plane are in their own crates.

#![allow(clippy::indexing_slicing, reason = "test support: a wrong index fails the test that made it")]

pub mod ask;
pub mod audit;
pub mod bench;
pub mod demo;
pub mod product;
pub mod stored;
pub mod values;
pub mod world;
pub mod write_block;

pub use product::{Controller, Product, Webhook};

/// Turns the result of `main` into an exit code. An error is printed to standard error on one line, with its causes.
pub fn exit(result: anyhow::Result<()>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
