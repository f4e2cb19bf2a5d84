//! The rules that the controller, the webhook and the CLI share: RotationPolicies, maintenance windows, governance,
//! feasibility, selection and admission.
//!
//! ```text
//!   RotationPolicy (YAML) ──▶ api ──▶ policy::Policy ──┬─▶ schedule    occurrences, P, D, gap      §5
//!          what users write      valid and typed, or   ├─▶ feasibility A, G, C, findings           §6
//!                                every problem in it   ├─▶ selection   who is due, L, backoff      §7
//!   NodePool labels ──▶ governance::govern ────────────┘   (§4: which policy wins)
//! ```
//!
//! Everything here is a pure function of its arguments. `now` is always an argument, all arithmetic saturates, and no
//! input panics.
//!
//! This crate does not talk to Kubernetes, read a clock, files or the environment, or log anything. The steps of a
//! rotation are in `noderotation-rotation`, the Kubernetes client in `noderotation-cluster`.
//!
//! Section numbers (§) refer to `docs/specification.md`; `docs/map.md` maps each section to its files.
//!
//! # Example
//!
//! ```
//! use jiff::SignedDuration;
//! use noderotation_shared::feasibility::{self, Cadence, PoolFacts};
//! use noderotation_shared::{instant, policy::Policy};
//! use serde_json::json;
//!
//! let policy = Policy::from_json(&json!({
//!     "nodePoolSelector": {"matchLabels": {"workload": "api"}},
//!     "maintenanceWindows": [{"timezone": "Asia/Tokyo", "days": ["Sat"], "start": "02:00", "end": "06:00"}],
//! }))?;
//! let now = instant::parse("2026-12-01T00:00:00Z").unwrap();
//!
//! // The next two windows.
//! let opens: Vec<String> = policy.schedule.occurrences(now).take(2).map(|o| instant::format(o.open)).collect();
//! assert_eq!(opens, ["2026-12-04T17:00:00Z", "2026-12-11T17:00:00Z"]);
//!
//! // With one window a week, nodes that live for 14 days cannot be offered two windows.
//! let pool = PoolFacts {
//!     expire_after: Some(SignedDuration::from_hours(14 * 24)),
//!     termination_grace_period: Some(SignedDuration::from_hours(1)),
//!     claims: 10,
//!     is_auto_mode: false,
//! };
//! let findings = feasibility::findings(&policy, &Cadence::of(&policy, now), &pool, []);
//! assert_eq!(findings[0].code.name(), "ANonPositive");
//!
//! // An invalid policy yields every problem, with the field's path and what to write instead.
//! let errors = Policy::from_json(&json!({
//!     "nodePoolSelector": {},
//!     "maintenanceWindows": [{"timezone": "JST", "days": ["Sat"], "start": "2:00", "end": "06:00"}],
//! }))
//! .unwrap_err();
//! assert_eq!(errors.0.len(), 2);
//! # Ok::<(), noderotation_shared::field_error::FieldErrors>(())
//! ```

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
pub mod backoff;
pub mod blocked;
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
pub mod store;
pub mod watch_cursor;
pub mod zone;
