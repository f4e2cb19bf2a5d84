//! What every program of noderotation agrees on: the user's words and the calendar.
//!
//! ```text
//!   RotationPolicy (YAML) ──▶ api ──▶ policy::Policy ──┬─▶ schedule    occurrences, P, D, gap      §5
//!          what users wrote      parsed once, every    ├─▶ feasibility A, G, C, findings           §6
//!                                problem collected     ├─▶ selection   who is due, L, backoff      §7
//!   NodePool labels ──▶ governance::govern ────────────┘   (§4: which policy wins)
//! ```
//!
//! Everything here is a pure function of its arguments: no client, no runtime, no clock, no environment, no
//! logging. `now` is always an argument. All arithmetic saturates and no input panics.
//!
//! Section numbers (§) refer to `docs/specification.md`; `docs/map.md` leads from each section to its file.

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

pub mod admission;
pub mod api;
pub mod duration;
pub mod feasibility;
pub mod field_error;
pub mod governance;
pub mod instant;
pub mod keys;
pub mod kind;
pub mod objects;
pub mod policy;
pub mod quantity;
pub mod schedule;
pub mod selection;
pub mod zone;
