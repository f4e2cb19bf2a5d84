//! A certificate that somebody else mounts and replaces.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../../cluster/tests/support/logs.rs"]
mod logs;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_certs::cert_resolver::CertResolver;
use noderotation_certs::files;
use noderotation_certs::issue;
use noderotation_certs::secret_data::CertificateAndKey;
use tokio::time::sleep;

use logs::Logs;

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    /// It does not exist yet.
    fn named(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("noderotation-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, certificate: &CertificateAndKey, key: &CertificateAndKey) {
        std::fs::create_dir_all(&self.0).unwrap();
        std::fs::write(self.0.join("tls.crt"), &certificate.certificate.pem).unwrap();
        std::fs::write(self.0.join("tls.key"), &key.key).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn issued(days: i64) -> CertificateAndKey {
    issue::authority(Timestamp::now(), SignedDuration::from_hours(days * 24)).unwrap()
}

/// The clock is paused: time passes by what a test sleeps, and the files are read as often as they would be in it.
#[tokio::test(start_paused = true)]
async fn each_certificate_is_served_and_each_reason_told_once() {
    let logs = Logs::start();
    let told = |text: &str| logs.with(text).len();
    let folder = Folder::named("mounted");
    let resolver = Arc::new(CertResolver::default());
    tokio::spawn(files::run(folder.path().to_owned(), resolver.clone()));
    sleep(Duration::from_secs(20)).await;
    assert_eq!((resolver.not_after(), told("tls.crt cannot be read"), told("WARN")), (None, 1, 1));

    // the webhook is not ready without one, so the first is looked for more often
    let (first, second) = (issued(10), issued(20));
    folder.write(&first, &first);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(resolver.not_after(), Some(first.certificate.not_after));
    sleep(Duration::from_secs(60)).await;
    assert_eq!((told("serving a new certificate"), told("WARN")), (1, 1));

    // in the middle of a swap
    folder.write(&second, &first);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(resolver.not_after(), Some(first.certificate.not_after));
    assert_eq!((told("do not match"), told("WARN")), (1, 2));
    folder.write(&first, &first);
    sleep(Duration::from_secs(20)).await;
    assert_eq!((told("serving a new certificate"), told("WARN")), (1, 2), "it has been served all along");
    // between the two the files were good, so this is a new incident
    folder.write(&second, &first);
    sleep(Duration::from_secs(20)).await;
    assert_eq!((told("do not match"), told("WARN")), (2, 3));

    folder.write(&second, &second);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(resolver.not_after(), Some(second.certificate.not_after));
    assert_eq!((told("serving a new certificate"), told("WARN")), (2, 3));
}
