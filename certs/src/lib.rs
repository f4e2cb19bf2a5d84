//! The webhook's certificate (§10): from an authority of its own in a Secret, or from files that somebody else keeps.
//!
//! ```text
//!   own:    watch Secret, webhook configurations ──▶ data ──▶ plan ──▶ issue ──▶ one conditional write
//!                                                       │           (pure)
//!                                                       ├──▶ serving   the next handshake has it
//!                                                       └──▶ bundle    caBundle put right wherever it differs
//!   files:  read every few seconds ─────────────────────────▶ serving
//! ```
//!
//! An authority's rollover never breaks a request, whichever replica or API server is slow: the next one is trusted
//! everywhere before it signs, and the previous one stays trusted until nothing that it signed can be valid any more.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod cert_resolver;
pub mod files;
pub mod issue;
pub mod manager;
pub mod objects;
pub mod plan;
pub mod secret_data;
