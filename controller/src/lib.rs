//! The program that rotates.
//!
//! ```text
//!   reflectors ──▶ watch ──▶ queue ──▶ reconcile ──▶ World ──▶ rotation::Pass ──▶ announce
//!   one per kind   slim      names     one pass      from        ▲    │           metric, log line, Event:
//!                  caches              per name      the caches  │    ▼           only what has landed
//!                     ▲                                        read / apply
//!                     └────────────── answers ────────────────────┘            leader, status, http beside it
//! ```
//!
//! It is not for rules: what to do, and why not, is `noderotation_rotation`'s. This crate reads, sends and tells.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::needless_pass_by_value
    )
)]

pub mod announce;
pub mod apply;
pub mod args;
pub mod cleanup;
pub mod events;
pub mod leader;
pub mod metrics;
pub mod preflight;
pub mod queue;
pub mod read;
pub mod reconcile;
pub mod reports;
pub mod run;
pub mod schema;
pub mod status;
pub mod sweep;
pub mod trial_write;
pub mod watch;
