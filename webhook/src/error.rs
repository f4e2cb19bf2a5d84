//! Why the webhook cannot start, go on, or answer a review with a verdict.

use jiff::SignedDuration;
use noderotation_cluster::error::with_causes;
use noderotation_shared::admission::messages::cut;
use noderotation_shared::duration::format;

use crate::request::{API_VERSION, KIND};

/// Why the webhook cannot start, go on, or answer a review with a verdict. No message repeats its source; whoever shows one
/// shows the chain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A CA would be replaced before it has signed several certificates.
    #[error(
        "--authority-lifetime {} must be at least three times --certificate-lifetime {}: a CA signs several certificates before the next CA takes over",
        format(*authority), format(*certificate)
    )]
    AuthorityLifetime {
        /// `--authority-lifetime`.
        authority: SignedDuration,
        /// `--certificate-lifetime`.
        certificate: SignedDuration,
    },
    /// A certificate could expire while a changed `caBundle` is still on its way.
    #[error(
        "--propagation {} must be at most a third of --certificate-lifetime {}",
        format(*propagation), format(*certificate)
    )]
    Propagation {
        /// `--propagation`.
        propagation: SignedDuration,
        /// `--certificate-lifetime`.
        certificate: SignedDuration,
    },
    /// The value of a flag is not a Go duration above zero.
    #[error("write a Go duration above zero, such as 15s or 2160h")]
    Duration,
    /// The value of a flag is not a name of the IANA time zone database.
    #[error("{why}; write {instead}")]
    TimeZone {
        /// Why the name is not accepted.
        why: String,
        /// What to write instead.
        instead: String,
    },

    /// A watch returned, although it should run until the process stops. Holds the plural of the resource.
    #[error("the watch of {0} ended although it should run until the process stops")]
    WatchEnded(&'static str),
    /// The reconciliation of the certificate returned, although it should run until the process stops.
    #[error("the reconciliation of the certificate ended although it should run until the process stops")]
    ManagerEnded,

    /// The body is JSON that is not an `AdmissionReview`, or no JSON at all.
    #[error("the body cannot be read as {KIND}")]
    Review(#[source] serde_json::Error),
    /// The review has no UID to be echoed.
    #[error("request.uid: found \"\"; send the UID that the response should echo")]
    EmptyUid,
    /// The review is of another version or kind.
    #[error("found {found:?}, which this webhook does not serve; send {API_VERSION} {KIND}")]
    Version {
        /// `apiVersion` and `kind`, as they were sent.
        found: String,
    },
    /// The `Content-Type` header is missing or names something else than JSON.
    #[error("Content-Type is not application/json; send the review as application/json")]
    ContentType,
    /// `object` or `oldObject` is larger than the webhook reads.
    #[error("request.{field}: found {kib} KiB; the webhook reads at most {most_kib} KiB; make the object smaller")]
    ObjectTooLarge {
        /// `object` or `oldObject`.
        field: &'static str,
        /// Its size.
        kib: usize,
        /// The limit.
        most_kib: usize,
    },
    /// `object` or `oldObject` consists of more values than the webhook reads.
    #[error(
        "request.{field}: found more than {most} values; the webhook reads at most so many; make the object smaller"
    )]
    ObjectTooComplex {
        /// `object` or `oldObject`.
        field: &'static str,
        /// The limit.
        most: usize,
    },
    /// `object` or `oldObject` has a shape that cannot be read.
    #[error("request.{field}: cannot be read")]
    Object {
        /// `object` or `oldObject`.
        field: &'static str,
        /// What serde says.
        source: serde_json::Error,
    },
    /// A creation or update without the object.
    #[error("request.object: missing in a review of {operation}; send the object")]
    ObjectMissing {
        /// `CREATE` or `UPDATE`.
        operation: String,
    },
    /// The guard was asked about a resource that carries no keys of ours.
    #[error("request.resource: found {0:?}; the guard serves nodepools, nodeclaims, nodes, pods and bindings")]
    UnknownResource(String),
    /// A default cannot be expressed as a JSON patch.
    #[error("{path} is not a JSON pointer")]
    PatchPath {
        /// The path of the absent field.
        path: String,
        /// What is wrong with it.
        source: json_patch::jsonptr::ParseError,
    },
}

/// The most characters of an error that a client is told: a parser's message may quote all that it was given.
const TOLD: usize = 800;

impl Error {
    /// The error with its causes, as a client is told: 800 characters at most.
    pub fn told(&self) -> String {
        cut(&with_causes(self), TOLD)
    }
}
