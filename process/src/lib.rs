//! What our long-running programs do alike (§13, *Our own programs*): flags for log lines, the sentence at the end, signals,
//! and the endpoints that probes and scrapers ask.
//!
//! It knows nothing of rotation and nothing of a cluster.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod http;
pub mod log;
pub mod tasks;

use std::process::ExitCode;

/// Ends `main`: an error is a sentence for people; where in the program it arose helps nobody who runs it.
pub fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Names the one TLS provider; the first line of every `main`.
pub fn install_tls_provider() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is installed already"))
}
