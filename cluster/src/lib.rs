//! The API server as our programs see it.
//!
//! ```text
//!   connect ──▶ api      one request, timed, counted, rate limited; its answer is one of a few outcomes
//!          └──▶ watch/   list+watch of one kind ──▶ objects (lenient, slim readers) ──▶ a EventHandler of the program's own
//! ```
//!
//! No rule lives here and nothing is decided here: the controller, the webhook and its certificates read and write
//! through this, each over its own caches.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod api;
pub mod backoff;
pub mod client;
pub mod metrics;
pub mod objects;
pub mod watch;
