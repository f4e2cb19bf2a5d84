//! What goes wrong with one request of the controller.

use fastrand::Rng;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing goes wrong.
    None,
    /// The process dies before the request is sent.
    CrashBefore,
    /// The request lands and the process dies before it sees the answer.
    CrashAfter,
    /// The request lands and its answer is lost.
    LostAnswer,
    /// The request does not land, and the client cannot tell: a 500, a 503, or a broken connection.
    Lost,
    /// The client gives up on the request, which lands minutes later.
    Late,
    /// 429: it did not land, and the server says so.
    Throttled,
    /// Somebody else changes the object just before.
    Overtaken,
    /// The process stands still behind the request, for up to ten minutes, and believes that no time has passed.
    Paused,
}

impl Fault {
    /// Draws what goes wrong.
    pub fn draw(rng: &mut Rng) -> Self {
        match rng.u8(0..9) {
            0 => Self::CrashBefore,
            1 => Self::CrashAfter,
            2 => Self::LostAnswer,
            3 => Self::Lost,
            4 => Self::Late,
            5 => Self::Throttled,
            6 => Self::Paused,
            _ => Self::Overtaken,
        }
    }
}
