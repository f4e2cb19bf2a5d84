//! What the controller and the webhook have in common as long-running processes (§13, *Our own programs*): the flags of
//! their log, the endpoints that kubelet and Prometheus ask, the handling of signals, and the supervision of their tasks.
//!
//! It is not the place for anything that knows of rotation or of a Kubernetes API: neither crate nor type of the other
//! crates of this workspace appears here.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use noderotation_process::http::{Health, serve};
//! use noderotation_process::tasks::{Tasks, describe, wait_for_signal};
//! use noderotation_process::{finish, install_tls_provider};
//! use tokio_util::sync::CancellationToken;
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     finish(run().await)
//! }
//!
//! async fn run() -> anyhow::Result<()> {
//!     install_tls_provider()?;
//!     let (stop, mut tasks) = (CancellationToken::new(), Tasks::new());
//!     let health = Health::new(|| "# EOF\n".to_owned());
//!     tasks.spawn(serve("--listen", "[::]:8080".parse()?, health.clone()));
//!     tasks.spawn(wait_for_signal(stop.clone()));
//!     health.set_ready(true);
//!     tokio::select! {
//!         () = stop.cancelled() => Ok(()),
//!         ended = tasks.join_next() => anyhow::bail!(describe(ended)),
//!     }
//! }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod error;
pub mod http;
pub mod log;
pub mod tasks;

use std::process::ExitCode;

pub use error::Error;

/// Turns the result of `main` into an exit code. An error is printed to standard error on one line, with its causes and
/// without a backtrace: where in the program it arose helps nobody who runs the program.
pub fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Installs ring as the TLS provider of the process. Call it first in `main`: rustls panics at the first connection of a
/// process that has none.
pub fn install_tls_provider() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is already installed in this process"))
}
