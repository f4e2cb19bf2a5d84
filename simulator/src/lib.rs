//! A cluster in memory on which the product's own passes run: an API server, Karpenter, a scheduler, people, faults, and a
//! clock of its own.
//!
//! ```text
//!   World of events (heap by time) ──▶ replica: caches ▸ queue ▸ rotation::Pass ──▶ cluster (API semantics)
//!        ▲                                ▲                                            │
//!        │                                └────── watch events, delayed, cut ──────────┤
//!        └──── karpenter, scheduler, people, faults ◀──────────────────────────────────┘
//!                                    invariants after every event
//! ```
//!
//! One seed is one history, on every machine. Nothing of a rotation is decided here: caches, queue, pass, orphans and
//! event dedup are `noderotation_rotation`'s, as the controller runs them.
//!
//! It is not a Kubernetes: it has what the controller relies on. That this is as a real API server and a real Karpenter have
//! it is proven on the rig: by a table of operations, and by whole rotations ([`Scenario`]), each played on both.
//!
//! ```
//! use noderotation_simulator::{Plan, simulate};
//!
//! let outcome = simulate(&Plan { seed: 7, faults: false, ..Plan::default() });
//! assert_eq!(outcome.violation, None);
//! assert!(outcome.completed > 0);
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod chance;
pub mod cluster;
pub mod event;
pub mod facts;
pub mod faults;
pub mod invariants;
mod karpenter;
mod people;
pub mod plan;
pub mod process;
pub mod replica;
pub mod run;
pub mod scenario;
pub mod server;
pub mod shrink;
pub mod story;
pub mod watch;

pub use plan::Plan;
pub use run::{Outcome, simulate};
pub use scenario::Scenario;
