//! The effective window: the union minus the exclusions (§5.1).

use jiff::Timestamp;

use super::{Occurrence, Union};

/// The effective occurrences that close after an instant, in order.
pub struct Occurrences<'a> {
    union: Union<'a>,
    excluded: &'a [Occurrence],
    /// What is left of the union's current occurrence.
    rest: Option<Occurrence>,
    from: Timestamp,
}

impl<'a> Occurrences<'a> {
    pub(super) fn new(union: Union<'a>, excluded: &'a [Occurrence], from: Timestamp) -> Self {
        Self { union, excluded, rest: None, from }
    }

    /// Takes the first piece that no exclusion covers off `rest`.
    fn piece(&mut self, rest: Occurrence) -> Option<Occurrence> {
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
            if let Some(piece) = self.piece(rest)
                && piece.close > self.from
            {
                return Some(piece);
            }
        }
    }
}
