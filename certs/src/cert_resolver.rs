//! The serving certificate, replaceable at any moment: the next handshake gets the new one, open connections stay open.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate that rustls serves. Handshakes fail until [`CertResolver::set`] is called for the first time.
#[derive(Default)]
pub struct CertResolver {
    // one value: a reader never sees the expiry of another certificate
    current: ArcSwapOption<Serving>,
}

struct Serving {
    key: Arc<CertifiedKey>,
    not_after: Timestamp,
}

impl CertResolver {
    /// Serves this certificate from the next handshake on. `not_after` is the end of its validity.
    pub fn set(&self, key: Arc<CertifiedKey>, not_after: Timestamp) {
        self.current.store(Some(Arc::new(Serving { key, not_after })));
    }

    /// The end of the validity of the certificate that is served; `None` until there is one.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.current.load().as_ref().map(|serving| serving.not_after)
    }
}

impl fmt::Debug for CertResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertResolver").field("not_after", &self.not_after()).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load().as_ref().map(|serving| serving.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::issue;

    #[test]
    fn the_end_that_is_told_is_that_of_the_certificate_served_last() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let resolver = CertResolver::default();
        assert_eq!(resolver.not_after(), None);
        let any = issue::authority(now, SignedDuration::from_hours(1)).unwrap().certified().unwrap();
        for until in ["2026-11-29T13:00:00Z", "2027-02-27T12:00:00Z"].map(|at| at.parse().unwrap()) {
            resolver.set(any.clone(), until);
            assert_eq!(resolver.not_after(), Some(until));
        }
    }
}
