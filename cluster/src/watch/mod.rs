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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::Poll;

    use futures::{FutureExt, poll};

    use super::*;

    #[tokio::test]
    async fn a_wait_ends_when_its_condition_holds_and_not_before() {
        let (changed, holds) = (Notify::new(), Cell::new(false));
        let mut waiting = pin!(wait_until(&changed, || holds.get()));
        assert_eq!(poll!(waiting.as_mut()), Poll::Pending);
        changed.notify_waiters();
        assert_eq!(poll!(waiting.as_mut()), Poll::Pending, "something else has changed");
        holds.set(true);
        assert_eq!(poll!(waiting.as_mut()), Poll::Pending, "it looks only when it is woken");
        changed.notify_waiters();
        assert_eq!(poll!(waiting.as_mut()), Poll::Ready(()));
        assert_eq!(wait_until(&changed, || true).now_or_never(), Some(()), "what holds already");
    }

    #[test]
    fn a_change_during_the_check_is_not_missed() {
        let (changed, checks) = (Notify::new(), Cell::new(0));
        let holds = || {
            checks.set(checks.get() + 1);
            // the waiters are woken just after it has looked
            changed.notify_waiters();
            checks.get() == 2
        };
        assert_eq!(wait_until(&changed, holds).now_or_never(), Some(()));
    }
}
