//! What the API server holds, kept up to date: one list+watch per kind ([`reflector`]) into slim caches ([`store`]).

pub mod fresh;
pub mod reflector;
pub mod store;

use std::collections::HashSet;

pub use fresh::Freshness;
pub use reflector::{ListWatch, watch};
pub use store::{Change, Store};
use tokio::sync::Notify;

use crate::objects::Cached;

/// Where a watch puts what it hears.
pub trait EventHandler<K: Cached>: Send + Sync {
    /// A new or changed object.
    fn apply(&self, object: K);
    /// A deleted object.
    fn delete(&self, object: &K);
    /// The initial state is complete; what it did not hold has vanished.
    fn init_done(&self, uids: &HashSet<Box<str>>);
}

/// Waits until this holds; looked at again whenever the waiters of `news` are woken.
pub async fn wait_until(news: &Notify, holds: impl Fn() -> bool) {
    loop {
        // before the look, so that news in between are not missed
        let told = news.notified();
        if holds() {
            return;
        }
        told.await;
    }
}
