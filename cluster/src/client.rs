//! The client, from a kubeconfig or from the Pod's service account.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::api::with_causes;

/// A client that never retries by itself, and says in `agent` which program it is.
pub async fn connect(kubeconfig: Option<&Path>, agent: &str) -> Result<kube::Client, String> {
    let mut config = match kubeconfig {
        Some(path) => {
            let said = |e: &dyn std::error::Error| format!("--kubeconfig {}: {}", path.display(), with_causes(e));
            let text = Kubeconfig::read_from(path).map_err(|e| said(&e))?;
            kube::Config::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await.map_err(|e| said(&e))?
        }
        None => kube::Config::infer().await.map_err(|e| {
            format!("no way to the API server is known: {}; name a file with --kubeconfig", with_causes(&e))
        })?,
    };
    // a retry is a decision, and decisions are made above
    config.default_retry = false;
    let agent = agent.parse().map_err(|_| format!("{agent:?} is no user agent"))?;
    config.headers.push((http::header::USER_AGENT, agent));
    kube::Client::try_from(config).map_err(|e| with_causes(&e))
}
