//! The admission webhook (§10).
//!
//! ```text
//!   API server ──TLS──▶ connections ──▶ serve ──▶ request ──▶ handlers/ ──▶ response ──▶ API server
//!                        handshake,      body,     UID,        policies,     rejection,
//!                        head, idle      turns     objects     pools,        warnings,
//!                                        (fair)    (lenient)   claims,       patch, audit
//!                                          │                   guard
//!                                          │                     │
//!   what was admitted a moment ago ──▶ live│reads                │ noderotation_shared::admission judges
//!                                          ▼                     │
//!   watches of policies and NodePools ──▶ caches ────────────────┘
//! ```
//!
//! It refuses changes that would break a rotation before they are stored, and warns of what will not work as meant. It judges
//! by the same code as the controller, and gives the same verdict for a dry run. Its only writes are its own certificate and
//! the `caBundle` that belongs to it.
//!
//! It is not the last line of defence: two replicas may admit a tie at the same moment, and nobody may run it at all. So the
//! controller detects everything itself and trusts nothing to have been refused here.
//!
//! ```
//! use std::sync::Arc;
//!
//! use noderotation_webhook::caches::Caches;
//! use noderotation_webhook::handlers::{Endpoint, Handlers, VerdictOptions};
//! use noderotation_webhook::request::AdmissionRequest;
//!
//! let handlers = Handlers { caches: Arc::new(Caches::default()), options: VerdictOptions::default() };
//! let body = br#"{
//!     "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
//!     "request": {
//!         "uid": "1", "operation": "UPDATE", "name": "api-1",
//!         "object": {"metadata": {"name": "api-1", "annotations": {"noderotation.io/rotate": "tomorrow"}}}
//!     }
//! }"#;
//! let request = AdmissionRequest::read(body).unwrap();
//! let response = handlers.handle(Endpoint::ValidateClaim, &request, jiff::Timestamp::now());
//! assert!(response.rejection.unwrap().message.ends_with("write now, next-window or cancel"));
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod admitted;
pub mod args;
pub mod body;
pub mod caches;
pub mod connections;
mod error;
pub mod handlers;
pub mod limits;
pub mod live;
pub mod metrics;
pub mod request;
pub mod response;
pub mod run;
pub mod serve;
pub mod turns;

pub use error::Error;
