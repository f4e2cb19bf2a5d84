//! The API server as every program of noderotation sees it.
//!
//! ```text
//!   client ──▶ api      one request: rate limited, timed, counted; a write's answer is one of a few outcomes
//!         └──▶ watch/   one reflector per kind ──▶ objects (lenient, slim parsers) ──▶ the program's EventHandler
//! ```
//!
//! It is not for deciding anything: the controller, the webhook and its certificates read and write through this, each
//! over its own caches.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod api;
pub mod backoff;
pub mod client;
pub mod error;
pub mod metrics;
pub mod objects;
pub mod watch;
