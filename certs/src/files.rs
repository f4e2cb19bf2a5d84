//! A certificate that somebody else issues and renews (cert-manager, or the user), mounted into the Pod as files.
//!
//! kubelet replaces the files of a mounted Secret by swapping a symbolic link, which file watches miss; so the contents are
//! compared every few seconds. A certificate and a key that do not match, as in the middle of a swap, are not served: the
//! last good certificate stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use noderotation_cluster::error::with_causes;

use crate::Error;
use crate::cert_resolver::CertResolver;
use crate::secret_data::{Certificate, CertificateAndKey};

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

/// What is wrong with a mounted certificate at `now`; `None` within its validity. It is served all the same: `caBundle` follows
/// whoever mounted it, so the one before may not be trusted any more, and it is our clock that may be wrong.
fn validity_problem(certificate: &Certificate, now: Timestamp) -> Option<String> {
    let Certificate { not_before, not_after, .. } = certificate;
    let problem = if now < *not_before {
        format!(
            "is not valid before {not_before}, and it is {now}; check the clocks of this Pod's node and of the issuer"
        )
    } else if certificate.is_valid_at(now) {
        return None;
    } else {
        format!("expired at {not_after}, and it is {now}; renew it, or check the clock of this Pod's node")
    };
    Some(problem)
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
                if let Some(problem) = validity_problem(&pair.certificate, Timestamp::now()) {
                    let folder = folder.display();
                    tracing::warn!(%folder, problem, "serving a certificate that API servers will refuse");
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn a_mounted_certificate_outside_its_validity_is_told_of() {
        let hour = SignedDuration::from_hours(1);
        let from: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let until = from + hour;
        let certificate = Certificate { pem: String::new(), not_before: from, not_after: until, names: vec![] };
        assert_eq!(validity_problem(&certificate, from), None);
        let early = validity_problem(&certificate, from - hour).unwrap();
        assert!(
            early.starts_with("is not valid before 2026-11-29T12:00:00Z, and it is 2026-11-29T11:00:00Z"),
            "{early}"
        );
        let late = validity_problem(&certificate, until).unwrap();
        assert!(late.starts_with("expired at 2026-11-29T13:00:00Z, and it is 2026-11-29T13:00:00Z"), "{late}");
    }
}
