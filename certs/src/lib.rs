//! The webhook's serving certificate (§10 *Certificate*): either signed by a CA of the webhook's own, both kept in a Secret,
//! or read from files that somebody else keeps.
//!
//! ```text
//!   own:    watch Secret, webhook configurations ──▶ secret_data ──▶ plan ──▶ issue ──▶ one conditional write
//!                                                        │           (pure)
//!                                                        ├──▶ cert_resolver   the next handshake gets it
//!                                                        └──▶ manager         caBundle corrected wherever it differs
//!   files:  read every few seconds ──────────────────────────▶ cert_resolver
//! ```
//!
//! The rollover of the CA never breaks a request, however slow a replica or an API server is: the next CA is in every
//! `caBundle` before it signs, and the previous one stays there until nothing that it signed can still be valid.
//!
//! This crate is not a general CA: it issues leaf certificates for one Service only, revokes nothing, and leaves anything
//! else of the webhook configurations than `caBundle` alone. It does not serve; that is the webhook's part.
//!
//! ```
//! use jiff::{SignedDuration, Timestamp};
//! use noderotation_certs::cert_resolver::CertResolver;
//! use noderotation_certs::issue;
//!
//! # fn main() -> Result<(), noderotation_certs::Error> {
//! let now = Timestamp::now();
//! let ca = issue::authority(now, SignedDuration::from_hours(17_520))?;
//! let names = ["webhook.noderotation.svc".to_owned()];
//! let leaf = issue::leaf(&ca, &names, now, SignedDuration::from_hours(2_160))?;
//! assert!(ca.certificate.signed(&leaf.certificate));
//!
//! let resolver = CertResolver::default(); // given to rustls as the server's certificate resolver
//! resolver.set(leaf.certified()?, leaf.certificate.not_after);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod cert_resolver;
mod error;
pub mod files;
pub mod issue;
pub mod manager;
pub mod objects;
pub mod plan;
pub mod secret_data;

pub use error::Error;
