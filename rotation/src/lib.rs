//! The state machine of a rotation, and the pass that drives it.
//!
//! ```text
//!   Pass ──▶ World + now ──▶ decide ──▶ Decision { step, reasons, wake_at, counts }
//!    ▲                         │
//!    │          governance lost│──▶ governance_lost   roll back, then clear the anchor                     §8
//!    │             window edge │──▶ window_edge       stamp, defer, settled, missed                        §8 (0)
//!    │                  anchor │──▶ advance/          pending ▸ draining ▸ completed,  failed,  expired    §8 (1), §9
//!    │               no anchor └──▶ start             gates, pick, drain, headroom, anchor                 §8 (2–6)
//!    └── the answer to the one read or write of the step
//! ```
//!
//! Pure: no client, no runtime, no clock, no logging. A step is at most one request. Whoever performs it hands the
//! answer to the [`pass::Pass`], which takes it into the [`world::World`] and decides again; so a pass may take several
//! steps, but never one that the previous one did not confirm.
//!
//! It is not for deciding who governs a NodePool, when a window is open or which claim is due: that is
//! `noderotation_shared`'s, which this crate asks.

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

mod advance;
pub mod announcement;
pub mod caches;
mod called_off;
mod context;
pub mod cordon;
pub mod decide;
pub mod drainable;
pub mod event_dedup;
pub mod event_reason;
pub mod gates;
mod governance_lost;
pub mod headroom;
pub mod lease;
mod malformed_annotations;
pub mod orphans;
pub mod pass;
pub mod patch;
pub mod placeholder;
pub mod pod_role;
pub mod reason;
pub mod report;
pub mod size;
mod start;
pub mod step;
pub mod surge;
mod window_edge;
pub mod work_queue;
pub mod world;

pub use decide::{Decision, decide};
pub use pass::Pass;
pub use world::World;
