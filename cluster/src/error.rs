//! What can go wrong between us and the API server.

use std::time::Duration;

use kube::core::Status;
use noderotation_shared::kind::Kind;

/// Why a request did not give what was asked for. No message repeats its source; whoever shows one shows it with
/// [`with_causes`], or the chain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server answered with a `Status` that is no success.
    #[error("{}", said(status))]
    Status {
        /// The `Status` in its answer.
        status: Box<Status>,
        /// How long it asks clients to wait, by its `Retry-After` header or in the `Status`.
        retry_after: Option<Duration>,
    },
    /// No complete answer came within this time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection could not be made, or broke.
    #[error("{}", with_causes(.0))]
    Transport(kube::Error),
    /// The body of an answer broke off or was larger than any answer that we ask for.
    #[error("the answer's body cannot be read: {0}")]
    Body(String),
    /// The request cannot be built, for example because a name is empty.
    #[error("the request cannot be built")]
    Request(#[from] kube::core::request::Error),
    /// The answer is not an object of the kind that was asked for.
    #[error("the {kind} in the answer cannot be parsed")]
    Parse {
        /// The kind that was asked for.
        kind: Kind,
        /// Where the parser stopped, and why.
        source: serde_json::Error,
    },
}

impl Error {
    /// The HTTP status; `None` where no answer came.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(status.code),
            _ => None,
        }
    }

    /// The API server says that there is no such object, or no such kind.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The account lacks a right, or is not known.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// An admission webhook of the cluster does not answer, so that the API server has stored nothing: it answers 500 then.
    pub fn is_of_admission(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code == 500 && status.message.contains("failed calling webhook"))
    }

    /// How long the API server asks clients to wait before they try again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A `Status` without a message still has a code.
fn said(status: &Status) -> String {
    if status.message.is_empty() { format!("HTTP status {}", status.code) } else { status.message.clone() }
}

/// An error followed by everything that caused it, each part once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
