//! Reads, before a verdict, what the watch may not have reported yet (§10 *What was just admitted*).

use std::time::Duration;

pub use futures::future::BoxFuture;
use futures::future::join_all;
use noderotation_cluster::api::Api;
use noderotation_cluster::error::{Error, with_causes};
use noderotation_shared::kind::Kind;
use tokio::time::{sleep, timeout};

use crate::admitted::Concern;
use crate::caches::Caches;

/// The time for all that is read for one review.
const WITHIN: Duration = Duration::from_millis(300);

/// The pauses before each attempt: the second and third are for what was admitted, and is being stored.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(40)];

/// The most objects that are read at a time for one review. What is not read counts for nothing.
const MOST: usize = 8;

/// Reads an object from the API server. Tests count.
pub trait LiveReader: Send + Sync {
    /// The object in JSON; `None` where the API server has none of this kind and name.
    fn read<'a>(&'a self, kind: Kind, name: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>>;
}

impl LiveReader for Api {
    fn read<'a>(&'a self, kind: Kind, name: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>> {
        Box::pin(async move {
            match self.get(kind.named(name)).await {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

/// Reads every object that was admitted a moment ago and matters to the verdict, so that the caches know what is stored of it.
/// What cannot be read in time counts for nothing: the webhook is early warning, and the controller decides by itself.
pub async fn settle(caches: &Caches, concern: &Concern, live: &dyn LiveReader) {
    let attempts = async {
        for pause in PAUSES {
            sleep(pause).await;
            let unsettled = caches.unsettled(concern);
            if unsettled.is_empty() {
                return;
            }
            join_all(unsettled.iter().take(MOST).map(|(kind, name)| observe(caches, live, *kind, name))).await;
        }
    };
    if timeout(WITHIN, attempts).await.is_err() {
        tracing::warn!(within = ?WITHIN, "the API server did not show in time what was just admitted; judging by what the watches have told");
    }
}

async fn observe(caches: &Caches, live: &dyn LiveReader, kind: Kind, name: &str) {
    let before = caches.uid(kind, name);
    let observed = match live.read(kind, name).await {
        Ok(found) => {
            caches.observe(kind, name, before.as_deref(), found.as_deref()).map_err(|error| with_causes(&error))
        }
        Err(error) => Err(with_causes(&error)),
    };
    if let Err(error) = observed {
        tracing::warn!(object = %kind.named(name), error, "what was just admitted cannot be read; judging without it");
    }
}

#[cfg(test)]
mod tests {
    use noderotation_cluster::objects::Cached as _;
    use noderotation_shared::objects::PolicyObject;
    use tokio::time::Instant;

    use super::*;

    /// An API server that accepts and never answers.
    struct Silent;

    impl LiveReader for Silent {
        fn read<'a>(&'a self, _: Kind, _: &'a str) -> BoxFuture<'a, Result<Option<String>, Error>> {
            Box::pin(futures::future::pending())
        }
    }

    /// The API server gives up on a webhook after `timeoutSeconds`, and refuses the write: a review must not wait that long.
    #[tokio::test(start_paused = true)]
    async fn a_silent_api_server_holds_a_review_for_300_ms_at_most() {
        let caches = Caches::default();
        let text = r#"{"metadata":{"name":"a","uid":"a"},"spec":{"nodePoolSelector":{}}}"#;
        let admitted = PolicyObject::read(text).unwrap().parsed;
        caches.remember_policy(&admitted);
        let concern = Concern { selectors: admitted.selector.iter().cloned().collect(), ..Concern::default() };
        let began = Instant::now();
        settle(&caches, &concern, &Silent).await;
        assert_eq!(began.elapsed(), Duration::from_millis(300));
        settle(&caches, &Concern::default(), &Silent).await;
        assert_eq!(began.elapsed(), Duration::from_millis(300), "what does not matter is not read");
    }
}
