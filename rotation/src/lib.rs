//! The state machine of a rotation. [`decide::decide`] looks at one NodePool's world and says the next step.
//!
//! ```text
//!   World + now ──▶ decide ──▶ Decision { step, notes, wake_at, counts }
//!                     │
//!      governance lost│──▶ lost       roll back, then clear the anchor                     §8
//!         window edge │──▶ edge       stamp, defer, settled, missed                        §8 (0)
//!              anchor │──▶ advance/   pending ▸ draining ▸ vanished,  failed,  expired     §8 (1), §9
//!           no anchor └──▶ start      gates, pick, headroom, anchor                        §8 (2–6)
//! ```
//!
//! Pure: no client, no runtime, no clock, no logging. A step is at most one request; whoever applies it puts the
//! answer back into the [`world::World`] and asks again, so that a pass may take several steps but never one that the
//! previous did not confirm. What a decision needs to read first it asks for with [`step::Look`].

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

pub mod advance;
pub mod cordon;
pub mod decide;
mod governance_lost;
pub mod headroom;
mod malformed_annotations;
pub mod placeholder;
pub mod reason;
pub mod size;
mod start;
pub mod step;
pub mod surge;
mod window_edge;
pub mod world;

pub use decide::{Decision, decide};
pub use world::World;
