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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Link {
        said: &'static str,
        source: Option<Box<Link>>,
    }

    fn chain(said: &[&'static str]) -> Option<Box<Link>> {
        let (first, rest) = said.split_first()?;
        Some(Box::new(Link { said: first, source: chain(rest) }))
    }

    #[test]
    fn an_error_is_told_with_all_its_causes_and_each_part_once() {
        let told = |said: &[&'static str]| with_causes(&*chain(said).unwrap());
        assert_eq!(told(&["no answer"]), "no answer");
        assert_eq!(
            told(&["no answer", "connection broke", "reset by peer"]),
            "no answer: connection broke: reset by peer"
        );
        // a message that repeats its cause, whose own cause is still told
        assert_eq!(told(&["failed: broken pipe", "broken pipe", "os error 32"]), "failed: broken pipe: os error 32");
        assert_eq!(told(&["a", "b", "b"]), "a: b");
    }

    #[test]
    fn an_answer_that_cannot_be_parsed_says_where() {
        let source = serde_json::from_str::<u8>("[7]").unwrap_err();
        let told = with_causes(&Error::Parse { kind: Kind::NodePool, source });
        assert_eq!(
            told,
            "the NodePool in the answer cannot be parsed: invalid type: sequence, expected u8 at line 1 column 0"
        );
    }
}
