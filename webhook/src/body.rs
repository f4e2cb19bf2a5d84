//! Reads the body of a request. Memory is taken as the bytes arrive, never for what is only announced.

use std::net::IpAddr;

use axum::body::Body;
use http_body_util::BodyExt;
use noderotation_cluster::error::with_causes;
use tokio::time::{Instant, timeout_at};

use crate::limits::Limits;
use crate::turns::{Turn, Turns};

/// The largest body, in bytes: a review with two objects of the largest size that etcd stores.
pub const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// The bytes that every connection may have in flight. Reviews of RotationPolicies, and of most NodePools, are smaller.
const SMALL: usize = 32 * 1024;

/// The bodies larger than [`SMALL`] that are in memory at a time; others wait, and their clients with them.
const LARGE_AT_A_TIME: usize = 2;

/// The room for bodies.
pub struct Room(Turns);

impl Default for Room {
    fn default() -> Self {
        Self(Turns::new(LARGE_AT_A_TIME))
    }
}

/// A body, and the room that it takes.
pub struct Held {
    /// The whole body.
    pub bytes: Vec<u8>,
    _room: Option<Turn>,
}

/// Why a body is not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is larger than [`LARGEST_BODY`], or announced to be.
    #[error("the body is larger than {} MiB", LARGEST_BODY / 1024 / 1024)]
    Large,
    /// It did not arrive within [`Limits::body`].
    #[error("the body did not arrive within {0:?}")]
    Slow(std::time::Duration),
    /// The connection failed, or the body is not as its head says.
    #[error("the body ended early: {0}")]
    Broken(String),
}

impl Room {
    /// Reads a body of a request of `peer`, whose head announced this length. Waits where it is not small and there is no room;
    /// peers get room in turn.
    pub async fn read(
        &self,
        mut body: Body,
        announced: Option<usize>,
        peer: IpAddr,
        limits: &Limits,
    ) -> Result<Held, BodyError> {
        if announced.is_some_and(|length| length > LARGEST_BODY) {
            return Err(BodyError::Large);
        }
        let (mut bytes, mut room) = (Vec::new(), None);
        let mut until = Instant::now() + limits.body;
        while let Some(frame) = timeout_at(until, body.frame()).await.map_err(|_| BodyError::Slow(limits.body))? {
            let frame = frame.map_err(|error| BodyError::Broken(with_causes(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > LARGEST_BODY {
                return Err(BodyError::Large);
            }
            if length > SMALL && room.is_none() {
                let waiting = Instant::now();
                room = Some(self.0.take(peer).await);
                until += waiting.elapsed();
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Held { bytes, _room: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use futures::{StreamExt, stream};
    use std::sync::Arc;
    use std::time::Duration;

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    /// A body of this many bytes, which then ends or never does.
    fn body(bytes: usize, ends: bool) -> Body {
        let chunk = || Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 8 * 1024]));
        let chunks = stream::iter((0..bytes / (8 * 1024)).map(move |_| chunk()));
        if ends { Body::from_stream(chunks) } else { Body::from_stream(chunks.chain(stream::pending())) }
    }

    const LIMITS: Limits = Limits {
        head: Duration::from_secs(5),
        idle: Duration::from_secs(120),
        body: Duration::from_millis(500),
        answer: Duration::from_secs(1),
        connections: 256,
    };

    /// How long it takes until a body of another peer than those that stall is read.
    async fn waits(room: &Room, bytes: usize) -> Duration {
        let began = Instant::now();
        let held = room.read(body(bytes, true), Some(bytes), peer(200), &LIMITS).await.unwrap();
        assert_eq!(held.bytes.len(), bytes);
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_announced_and_not_sent_takes_no_room() {
        let room = Arc::new(Room::default());
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..60 {
            let room = room.clone();
            let sent = [0, SMALL][n % 2];
            tasks.spawn(async move { room.read(body(sent, false), Some(LARGEST_BODY), peer(1), &LIMITS).await.err() });
        }
        tokio::task::yield_now().await;
        assert_eq!(waits(&room, LARGEST_BODY).await, Duration::ZERO);
        while let Some(ended) = tasks.join_next().await {
            assert!(matches!(ended.unwrap(), Some(BodyError::Slow(_))));
        }
    }

    /// Sixty large bodies of two hosts that are nearly there and stall; the fourth part waits for room.
    async fn stalled(room: &Arc<Room>) -> tokio::task::JoinSet<Option<BodyError>> {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..60 {
            let room = room.clone();
            tasks.spawn(async move {
                room.read(body(LARGEST_BODY - 8 * 1024, false), None, peer(n % 2), &LIMITS).await.err()
            });
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        tasks
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_stall_delay_a_large_one_once_and_a_small_one_never() {
        let room = Arc::new(Room::default());
        let mut tasks = stalled(&room).await;
        assert_eq!(waits(&room, SMALL).await, Duration::ZERO);
        assert_eq!(waits(&room, LARGEST_BODY).await, LIMITS.body);
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        assert_eq!(waits(&room, LARGEST_BODY).await, Duration::ZERO, "whoever goes away gives its room back");
    }

    /// The time for a body is its sender's: what it waits for room is added to it.
    #[tokio::test(start_paused = true)]
    async fn waiting_for_room_takes_nothing_of_the_time_to_send() {
        let room = Arc::new(Room::default());
        let _stalled = stalled(&room).await;
        let began = Instant::now();
        let chunk = |size: usize| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; size]));
        let rest = stream::once(async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            chunk(8 * 1024)
        });
        let slow = Body::from_stream(stream::iter([chunk(2 * SMALL)]).chain(rest));
        let held = room.read(slow, None, peer(200), &LIMITS).await.unwrap();
        assert_eq!(held.bytes.len(), 2 * SMALL + 8 * 1024);
        assert_eq!(began.elapsed(), LIMITS.body + Duration::from_millis(400));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_at_most_as_large_as_the_limit() {
        let room = Room::default();
        assert_eq!(waits(&room, LARGEST_BODY).await, Duration::ZERO);
        let more = room.read(body(LARGEST_BODY + 8 * 1024, true), None, peer(1), &LIMITS).await;
        assert!(matches!(more, Err(BodyError::Large)));
        let announced = room.read(body(0, false), Some(LARGEST_BODY + 1), peer(1), &LIMITS).await;
        assert!(matches!(announced, Err(BodyError::Large)));
    }
}
