//! The program that rotates.
//!
//! ```text
//!   watch/ ──▶ view ──▶ observe ──▶ rotation::decide ──▶ apply ──▶ announce
//!   list+watch  slim     World       Step                one        metric, log, event:
//!   per kind    caches   + now       (or a LiveRead)         request    only if it landed
//!      │                    ▲             │
//!      └──▶ queue ──▶ pass ─┘◀── look ◀───┘                          leader, status, http beside it
//! ```
//!
//! No rule of a rotation lives here: what to do, and why not, is `noderotation_rotation`'s. This crate reads, sends and
//! tells.

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
pub mod observe;
pub mod preflight;
pub mod queue;
pub mod read;
pub mod reconcile;
pub mod reports;
pub mod run;
pub mod status;
pub mod sweep;
pub mod watch;
