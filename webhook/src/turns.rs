//! Turns for what only a few requests may do at a time, shared fairly between peers.
//!
//! Turns go round the peers, so a peer waits for one turn of each other peer at most, however many connections and requests
//! those have.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A fixed number of turns.
pub struct Turns(Arc<Mutex<Queue>>);

struct Queue {
    /// The turns that nobody has.
    free: usize,
    /// Those who wait, by peer. No queue is empty.
    waiting: BTreeMap<IpAddr, VecDeque<oneshot::Sender<Turn>>>,
    /// The peer that got the last turn.
    last: Option<IpAddr>,
}

/// A turn, until it is dropped.
pub struct Turn(Arc<Mutex<Queue>>);

impl Turns {
    /// So many turns at a time, at least one.
    pub fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue { free: at_a_time.max(1), waiting: BTreeMap::new(), last: None })))
    }

    /// Waits for a turn. Whoever stops waiting loses nothing for the others.
    pub async fn take(&self, peer: IpAddr) -> Turn {
        let waiting = {
            let mut queue = self.0.lock();
            if queue.free > 0 {
                queue.free -= 1;
                queue.last = Some(peer);
                return Turn(self.0.clone());
            }
            let (sender, receiver) = oneshot::channel();
            queue.waiting.entry(peer).or_default().push_back(sender);
            receiver
        };
        // senders are dropped only with the queue, which this reference keeps
        waiting.await.unwrap_or_else(|_| Turn(self.0.clone()))
    }
}

impl Queue {
    /// The first who waits of the next peer after the last one.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let after = self.last.map_or(Unbounded, Excluded);
        let peer = self.waiting.range((after, Unbounded)).next().or_else(|| self.waiting.iter().next())?.0;
        let peer = *peer;
        let queue = self.waiting.get_mut(&peer)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&peer);
        }
        self.last = Some(peer);
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.0.lock();
            let next = queue.next();
            if next.is_none() {
                queue.free += 1;
            }
            next
        };
        if let Some(sender) = next {
            // if the receiver is gone, the turn comes back as an error, and is dropped: the next one's turn
            let _ = sender.send(Turn(self.0.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    /// Lets every task run until all of them wait.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn turns_go_round_the_peers() {
        let turns = Arc::new(Turns::new(1));
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = turns.take(peer(9)).await;
        let mut tasks = tokio::task::JoinSet::new();
        for (n, count) in [(1, 50), (2, 3), (3, 1)] {
            for _ in 0..count {
                let (turns, order) = (turns.clone(), order.clone());
                tasks.spawn(async move {
                    let _turn = turns.take(peer(n)).await;
                    order.lock().push(n);
                });
                settle().await;
            }
        }
        drop(first);
        while tasks.join_next().await.is_some() {}
        let order = order.lock().clone();
        assert_eq!(order.len(), 54);
        assert_eq!(order.get(..8), Some([1, 2, 3, 1, 2, 1, 2, 1].as_slice()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_takes_no_turn_along() {
        let turns = Turns::new(2);
        let (one, two) = (turns.take(peer(1)).await, turns.take(peer(1)).await);
        for n in 0..3 {
            let waited = tokio::time::timeout(Duration::from_secs(1), turns.take(peer(n))).await;
            assert!(waited.is_err());
        }
        drop((one, two));
        let again = (turns.take(peer(1)).await, turns.take(peer(2)).await);
        assert!(tokio::time::timeout(Duration::from_secs(1), turns.take(peer(3))).await.is_err());
        drop(again);
        assert_eq!(turns.0.lock().free, 2);
    }

    /// A turn that was handed to somebody who is gone by then goes on to the next.
    #[tokio::test]
    async fn a_turn_on_its_way_is_not_lost() {
        let turns = Turns::new(1);
        let first = turns.take(peer(1)).await;
        let mut waits = Box::pin(turns.take(peer(2)));
        assert!(poll_once(&mut waits).await.is_none());
        drop(first);
        drop(waits);
        turns.take(peer(3)).await;
    }

    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! { biased; value = future => Some(value), () = std::future::ready(()) => None }
    }
}
