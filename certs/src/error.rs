//! Why a certificate cannot be read, issued or kept.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;
use x509_parser::error::X509Error;
use x509_parser::nom;

use crate::plan::Action;

/// Why a certificate cannot be read, issued or kept. No message repeats its source; whoever shows one shows the chain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text holds no PEM block of the kind that is needed.
    #[error("no {expected} in PEM")]
    Pem {
        /// `certificate` or `private key`.
        expected: &'static str,
        /// What rustls says.
        source: pem::Error,
    },
    /// The PEM block is not an X.509 certificate.
    #[error("not an X.509 certificate")]
    Certificate(#[source] nom::Err<X509Error>),
    /// A certificate's validity lies outside of the years that can be represented.
    #[error("the validity of the certificate is out of range")]
    Validity(#[source] jiff::Error),
    /// The private key belongs to another certificate, or is of an unknown algorithm.
    #[error("certificate and private key do not match")]
    Mismatch(#[source] rustls::Error),
    /// A new key or certificate cannot be made.
    #[error("a certificate cannot be issued")]
    Issue(#[source] rcgen::Error),
    /// An entry of the Secret's data is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An entry of the Secret's data is not UTF-8.
    #[error("{0} is not UTF-8 text")]
    NotText(&'static str),
    /// An entry of the Secret's data is not an RFC 3339 instant.
    #[error("{key} is not an instant")]
    Instant {
        /// The entry's key.
        key: &'static str,
        /// What jiff says.
        source: jiff::Error,
    },
    /// Entries of the Secret's data, or files, hold something else than they should.
    #[error("{place}")]
    At {
        /// The entries or the folder.
        place: String,
        /// What is wrong there.
        source: Box<Error>,
    },
    /// `tls.crt` is signed by a CA that is not in the Secret, so no `caBundle` would trust it.
    #[error("tls.crt is signed by none of the CA certificates in the Secret")]
    UnknownSigner,
    /// A mounted file cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// An action was asked for that the observed state does not allow.
    #[error("{0:?} needs certificates that are not there")]
    Impossible(Action),
    /// The API server did not answer a read with an object.
    #[error("{object} cannot be read from the API server")]
    Read {
        /// Kind and name.
        object: String,
        /// What it answered.
        source: noderotation_cluster::error::Error,
    },
    /// The API server refused a write, or its outcome is not known.
    #[error("{object} cannot be written")]
    Write {
        /// Kind and name, or path.
        object: String,
        /// What the API server answered.
        source: noderotation_cluster::error::Error,
    },
    /// The API server sent an object that cannot be understood.
    #[error("{object}, as the API server sent it, cannot be understood")]
    Unreadable {
        /// Kind and name, or path.
        object: String,
        /// Where the parser stopped.
        source: serde_json::Error,
    },
}

impl Error {
    /// This error, found at a place: entries of the Secret's data, or a folder.
    pub(crate) fn at(self, place: impl Into<String>) -> Self {
        Self::At { place: place.into(), source: Box::new(self) }
    }
}
