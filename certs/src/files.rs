//! A certificate that somebody else issues and renews (cert-manager, or the user), mounted into the Pod as files.
//!
//! kubelet replaces the files of a mounted Secret by swapping a symbolic link, which file watches miss; so the contents are
//! compared every few seconds. A certificate and a key that do not match, as in the middle of a swap, are not served: the
//! last good certificate stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use noderotation_cluster::error::with_causes;

use crate::Error;
use crate::cert_resolver::CertResolver;
use crate::secret_data::CertificateAndKey;

/// How often the files are read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// How often the files are read while there is no certificate to serve yet: the webhook is not ready without one.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Reads `tls.crt` and `tls.key` of a folder. An error where one cannot be read, or the key is not the certificate's.
pub fn read(folder: &Path) -> Result<CertificateAndKey, Error> {
    let text = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|source| Error::File { path, source })
    };
    CertificateAndKey::read(&text("tls.crt")?, &text("tls.key")?)
        .map_err(|error| error.at(folder.display().to_string()))
}

/// Serves the certificate of the folder, and every later one, until the task is dropped. A folder that cannot be used is
/// logged once per distinct reason.
pub async fn run(folder: PathBuf, resolver: Arc<CertResolver>) -> Result<(), Error> {
    let mut served: Option<CertificateAndKey> = None;
    let mut last_logged = String::new();
    loop {
        match read(&folder) {
            Ok(pair) if served.as_ref() == Some(&pair) => last_logged.clear(),
            Ok(pair) => {
                resolver.set(pair.certified()?, pair.certificate.not_after);
                tracing::info!(not_after = %pair.certificate.not_after, "serving a new certificate");
                served = Some(pair);
                last_logged.clear();
            }
            Err(error) => {
                let error = with_causes(&error);
                if error != last_logged {
                    tracing::warn!(error, "the mounted certificate cannot be used; still serving the last good one");
                    last_logged = error;
                }
            }
        }
        tokio::time::sleep(if served.is_some() { POLL_INTERVAL } else { FIRST_POLL_INTERVAL }).await;
    }
}
