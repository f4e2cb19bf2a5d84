//! What reads bytes of strangers, as one function each that takes any bytes and panics where a promise is broken: never a
//! panic, always a bounded answer, and what is read can be written and read again.
//!
//! ```text
//!   corpus/<target>/ ──┬──▶ tests/fuzz.rs   generated and mutated inputs, time-boxed (`make fuzz`) ──┬──▶ targets
//!                      └──▶ libfuzzer/      guided by coverage, with a nightly toolchain (`make libfuzzer`) ┘
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a target panics where a promise is broken"
)]

pub mod generator;
pub mod targets;

#[allow(missing_docs, reason = "the helpers of the webhook's own tests")]
#[path = "../../webhook/tests/support/mod.rs"]
mod support;
