//! What a client may take of the webhook.

use std::time::Duration;

/// Limits of time and number. The defaults are those of the program; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time for the TLS handshake, and for the head of a request from its first byte on.
    pub head: Duration,
    /// How long a connection may be idle: before its first request, and between two.
    ///
    /// It must be longer than that of the client, who otherwise sends a request into a connection that is just being closed.
    /// The API server's client keeps idle connections for 90 s (`IdleConnTimeout` in apimachinery's `util/net/http.go`), and it
    /// may keep one that it has opened and not used yet.
    pub idle: Duration,
    /// The time for the body of a request, without the time that it waits for room.
    pub body: Duration,
    /// The time from the head of a request to its response (§10: within 1 s).
    pub answer: Duration,
    /// The open connections. Beyond, one of the peer that has most of them is closed.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            body: Duration::from_millis(500),
            answer: Duration::from_secs(1),
            connections: 256,
        }
    }
}
