//! What handshakes are answered with: swapped at any moment, connections that are open stay open.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate that is served; none until the first is set, and then handshakes fail.
#[derive(Default)]
pub struct CertResolver {
    key: RwLock<Option<Arc<CertifiedKey>>>,
    not_after: Mutex<Option<Timestamp>>,
}

impl CertResolver {
    /// From the next handshake on.
    pub fn set(&self, key: Arc<CertifiedKey>, not_after: Timestamp) {
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        *self.not_after.lock().unwrap_or_else(PoisonError::into_inner) = Some(not_after);
    }

    /// When the certificate that is served ends.
    pub fn not_after(&self) -> Option<Timestamp> {
        *self.not_after.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CertResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertResolver until {:?}", self.not_after())
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
