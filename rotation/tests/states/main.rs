//! The state machine on a small cluster in memory ([`cluster`]), by the product's own pass: one file for each phase.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod answers;
mod any_world;
mod caches;
mod called_off;
mod cluster;
mod drain_blocked;
mod empty;
mod event_dedup;
mod fallback;
mod found_by_attack;
mod orphans;
mod pending;
mod retry;
mod stale_view;
mod start;
mod taken_away;
mod undrainable;
mod whole_rotation;
mod window_edge;
mod world;
