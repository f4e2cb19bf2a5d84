//! The program that answers admission (§10).
//!
//! ```text
//!   API server ──TLS──▶ serve ──▶ review ──▶ hooks/ ──▶ answer ──▶ API server
//!                        limits    uid,       policies,   refusals,
//!                        timeouts  objects    pools,      warnings,
//!                                  (lenient)  claims,     patch, audit
//!                                             guard
//!                                               │
//!   watch of policies and NodePools ──▶ view ───┘ noderotation_shared::admission decides
//! ```
//!
//! It decides with the controller's own options, writes nothing, and says the same under `dryRun`. It is early warning: what
//! slips through here is found by the controller.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod args;
pub mod caches;
pub mod handlers;
pub mod metrics;
pub mod request;
pub mod response;
pub mod run;
pub mod serve;
