//! Before anything else: does the API server serve what we need, and may we read it (§8, *Preflight*)?

use std::time::Duration;

use noderotation_cluster::api::Api;
use noderotation_cluster::backoff::backoff;
use noderotation_cluster::error::{Error, with_causes};
use noderotation_shared::kind::Kind;

/// What is missing; the process ends with this sentence.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// The API server answered 404: the kind does not exist.
    #[error("the API server does not serve {resource}: {advice}")]
    NotServed {
        /// Plural and group, as in RBAC.
        resource: String,
        /// What to install, or to check.
        advice: &'static str,
    },
    /// The API server answered 401 or 403: the account is unknown, or may not list the kind.
    #[error("{resource} cannot be listed: {}; grant this service account get, list and watch", with_causes(error))]
    Forbidden {
        /// Plural and group, as in RBAC.
        resource: String,
        /// What the API server said; its causes are in the message already.
        error: Error,
    },
}

/// Lists each kind with `limit=1`. 404, 401 and 403 are final; anything else is tried again.
pub async fn check(api: &Api) -> Result<(), PreflightError> {
    const KARPENTER: &str = "install Karpenter 1.0 or newer";
    for (kind, advice) in [
        (Kind::NodePool, KARPENTER),
        (Kind::NodeClaim, KARPENTER),
        (Kind::Node, "is this the address of a Kubernetes API server?"),
        (Kind::RotationPolicy, "install the chart's CustomResourceDefinition"),
    ] {
        check_kind(api, kind, advice).await?;
    }
    Ok(())
}

async fn check_kind(api: &Api, kind: Kind, advice: &'static str) -> Result<(), PreflightError> {
    let mut failures = 0;
    loop {
        match api.probe(kind).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_not_found() => {
                return Err(PreflightError::NotServed { resource: kind.resource(), advice });
            }
            Err(error) if error.is_forbidden() => {
                return Err(PreflightError::Forbidden { resource: kind.resource(), error });
            }
            Err(error) => {
                let wait = backoff(failures).min(Duration::from_secs(15));
                failures += 1;
                let error = with_causes(&error);
                tracing::warn!(resource = kind.plural(), error, retry_in = ?wait, "the API server does not answer yet");
                tokio::time::sleep(wait).await;
            }
        }
    }
}
