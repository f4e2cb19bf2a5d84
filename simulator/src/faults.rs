//! What goes wrong, drawn by seed.

use fastrand::Rng;

/// What happens to one request of the controller.
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
    /// The request does not land, and nobody can tell: a 500, or a broken connection.
    Lost,
    /// 429: it did not land.
    Throttled,
    /// Somebody else has changed the object first.
    Overtaken,
}

/// Draws what happens to one request. About one in `rarity` goes wrong; none where that is 0.
pub fn draw(rng: &mut Rng, rarity: u32) -> Fault {
    if rarity == 0 || rng.u32(0..rarity) != 0 {
        return Fault::None;
    }
    match rng.u8(0..6) {
        0 => Fault::CrashBefore,
        1 => Fault::CrashAfter,
        2 => Fault::LostAnswer,
        3 => Fault::Lost,
        4 => Fault::Throttled,
        _ => Fault::Overtaken,
    }
}
