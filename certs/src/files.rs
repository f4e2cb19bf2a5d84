//! A certificate that somebody else keeps, in files: cert-manager's or the user's Secret, mounted.
//!
//! The kubelet swaps a mounted Secret by a symbolic link, which file watches miss; so the content is compared every few
//! seconds. What does not fit together, as in the middle of a swap, is not served: the last good one is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cert_resolver::CertResolver;
use crate::secret_data::CertificateAndKey;

/// How often the files are read.
const EVERY: Duration = Duration::from_secs(5);

/// Reads `tls.crt` and `tls.key` of a folder.
pub fn read(folder: &Path) -> Result<CertificateAndKey, String> {
    let text = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
    };
    CertificateAndKey::read(&text("tls.crt")?, &text("tls.key")?).map_err(|why| format!("{}: {why}", folder.display()))
}

/// Serves what the folder holds, for ever.
pub async fn run(folder: PathBuf, resolver: Arc<CertResolver>) -> Result<(), String> {
    let mut served: Option<CertificateAndKey> = None;
    let mut told = String::new();
    loop {
        match read(&folder) {
            Ok(pair) if served.as_ref() == Some(&pair) => told.clear(),
            Ok(pair) => {
                resolver.set(pair.certified()?, pair.certificate.not_after);
                tracing::info!(until = %pair.certificate.not_after, "serves this certificate");
                served = Some(pair);
                told.clear();
            }
            Err(why) if why == told => {}
            Err(why) => {
                tracing::warn!(why, "the certificate cannot be read; the last good one is served");
                told = why;
            }
        }
        // a first one is waited for more eagerly
        tokio::time::sleep(if served.is_some() { EVERY } else { EVERY / 10 }).await;
    }
}
