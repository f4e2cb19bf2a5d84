//! Looks whether the CustomResourceDefinition in the cluster stores every field that we know (§6.1, `OldSchema`).

use std::sync::Arc;
use std::time::Duration;

use noderotation_cluster::api::Api;
use noderotation_cluster::error::with_causes;
use noderotation_shared::api::served::missing_fields;
use noderotation_shared::kind::Kind;
use serde_json::Value;

use crate::watch::Caches;

/// It is looked at again after this time: somebody may install another one meanwhile.
const EVERY: Duration = Duration::from_secs(60);

/// Looks once, before the first pass of a leader.
pub async fn look(api: &Api, caches: &Caches) {
    let definition = Kind::CustomResourceDefinition;
    match api.read::<Value>(definition.named(&Kind::RotationPolicy.resource())).await {
        Ok(served) => {
            let missing = missing_fields(&served);
            if caches.set_missing_fields(missing.clone()) && !missing.is_empty() {
                tracing::error!(
                    fields = missing.join(", "),
                    "the CustomResourceDefinition in the cluster is older than this program and drops these fields: nothing starts; install the chart's"
                );
            }
        }
        // what was known holds; without the right, as with an older chart, nothing is known
        Err(error) => {
            let error = with_causes(&error);
            tracing::warn!(error, "the CustomResourceDefinition of RotationPolicies cannot be read");
        }
    }
}

/// Looks again from time to time. Never returns.
pub async fn keep(api: Api, caches: Arc<Caches>) {
    loop {
        tokio::time::sleep(EVERY).await;
        look(&api, &caches).await;
    }
}
