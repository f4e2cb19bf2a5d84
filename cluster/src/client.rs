//! The HTTP client, from a kubeconfig or from the Pod's service account.

use std::path::{Path, PathBuf};

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::error::with_causes;

/// Why there is no client. Each message says its causes, so that none is a source: whoever shows the chain would repeat them.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file that `--kubeconfig` names cannot be used.
    #[error("--kubeconfig {}: {}", path.display(), with_causes(error))]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: KubeconfigError,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error("cannot find the API server: {}; name a kubeconfig with --kubeconfig", with_causes(.0))]
    NotConfigured(InferConfigError),
    /// The name of the program cannot be sent as a header.
    #[error("{0:?} is not a valid user agent")]
    UserAgent(String),
    /// The configuration is read, but no client can be made from it (certificates, proxy).
    #[error("{}", with_causes(.0))]
    Client(kube::Error),
}

/// A client that never retries by itself, and says in `agent` which program it is.
pub async fn connect(kubeconfig: Option<&Path>, agent: &str) -> Result<kube::Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            from_file(path).await.map_err(|error| ConnectError::Kubeconfig { path: path.to_owned(), error })?
        }
        None => kube::Config::infer().await.map_err(ConnectError::NotConfigured)?,
    };
    // whether to retry is decided in the work queue; kube would repeat a refused write up to fifteen times
    config.default_retry = false;
    let header = agent.parse().map_err(|_| ConnectError::UserAgent(agent.to_owned()))?;
    config.headers.push((http::header::USER_AGENT, header));
    kube::Client::try_from(config).map_err(ConnectError::Client)
}

async fn from_file(path: &Path) -> Result<kube::Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}
