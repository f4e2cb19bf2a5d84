//! What the API server holds, kept up to date: one reflector per kind ([`reflector`]) feeds slim caches (`noderotation_shared::store`).

pub mod fresh;
pub mod reflector;

use std::collections::HashSet;

pub use fresh::Freshness;
pub use noderotation_shared::store::{Change, Store};
pub use reflector::{ListWatch, Unparsed, reflect};
use tokio::sync::Notify;

use crate::objects::Cached;

/// What a reflector tells its program.
pub trait EventHandler<K: Cached>: Send + Sync {
    /// An object is new or has changed. It may be older than what the program has read or written meanwhile.
    fn apply(&self, object: K);
    /// An object was deleted; this is its last state.
    fn delete(&self, object: &K);
    /// The initial state is complete. Cached objects whose UID is not among `uids` are gone.
    fn init_done(&self, uids: &HashSet<Box<str>>);
}

/// Waits until a condition holds. It is checked at once and whenever the waiters of `changed` are woken.
pub async fn wait_until(changed: &Notify, holds: impl Fn() -> bool) {
    loop {
        // registered before the check, so that a change in between is not missed
        let woken = changed.notified();
        if holds() {
            return;
        }
        woken.await;
    }
}
