//! What the tests against a real API server share: the product installed as users install it, and the world that they
//! rotate.
//!
//! The chart is installed by helm, unmodified. Its Pods "run" on kwok's nodes; the real controller runs beside them on
//! this machine, as the chart's own service account and nothing else.

#![allow(clippy::indexing_slicing, reason = "test support: a wrong index fails the test that made it")]

pub mod ask;
pub mod audit;
pub mod bench;
pub mod demo;
pub mod gate;
pub mod product;
pub mod values;
pub mod world;

pub use product::{Controller, Product, Webhook};

/// What a program ends with: fine, or the error in a sentence.
pub fn exit(result: anyhow::Result<()>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
