//! The effective window: the union minus the exclusions (§5.1).

use jiff::Timestamp;

use super::{Occurrence, Union};

/// The iterator that [`super::Schedule::occurrences`] returns.
pub struct Occurrences<'a> {
    union: Union<'a>,
    excluded: &'a [Occurrence],
    /// The part of the union's current occurrence that has not been returned yet.
    rest: Option<Occurrence>,
    from: Timestamp,
}

impl<'a> Occurrences<'a> {
    pub(super) fn new(union: Union<'a>, excluded: &'a [Occurrence], from: Timestamp) -> Self {
        Self { union, excluded, rest: None, from }
    }

    /// Returns the beginning of `rest` up to the next exclusion, and keeps what follows; `None` if `rest` begins inside an
    /// exclusion.
    fn take_piece(&mut self, rest: Occurrence) -> Option<Occurrence> {
        let after = self.excluded.partition_point(|e| e.close <= rest.open);
        match self.excluded.get(after) {
            Some(e) if e.open <= rest.open => {
                self.rest = (e.close < rest.close).then_some(Occurrence { open: e.close, close: rest.close });
                None
            }
            Some(e) if e.open < rest.close => {
                self.rest = Some(Occurrence { open: e.open, close: rest.close });
                Some(Occurrence { open: rest.open, close: e.open })
            }
            _ => Some(rest),
        }
    }
}

impl Iterator for Occurrences<'_> {
    type Item = Occurrence;

    fn next(&mut self) -> Option<Occurrence> {
        loop {
            let rest = match self.rest.take() {
                Some(rest) => rest,
                None => self.union.next()?,
            };
            if let Some(piece) = self.take_piece(rest)
                && piece.close > self.from
            {
                return Some(piece);
            }
        }
    }
}
