//! The union of all entries in all their time zones; overlapping and touching occurrences are merged (§5.1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use super::entry::{SteadyOffset, days_from};
use super::{Entry, Occurrence};
use crate::instant::{minus, plus};

/// Entries in several time zones that are open together for this long are open for ever: clock changes repeat within a
/// year. (Entries of one zone that cover the week are recognised as always open without any search.)
const FOR_EVER: SignedDuration = SignedDuration::from_hours(24 * 400);

/// How far before an instant to begin in order to find the true opening of its occurrence: enough for windows of every day,
/// for a few weeks of windows that touch, and in the end for as long as [`FOR_EVER`]. Few steps, since each begins anew.
const BACK: [SignedDuration; 3] =
    [SignedDuration::from_hours(24 * 5), SignedDuration::from_hours(24 * 40), SignedDuration::from_hours(24 * 410)];

/// No occurrence of one entry is longer than this: a day, a clock change at each end, and a date that the zone skips.
const LONGEST_ENTRY: SignedDuration = SignedDuration::from_hours(24 * 4);

/// The iterator that [`super::Schedule::recurring`] returns.
pub struct Union<'a> {
    entries: &'a [Entry],
    /// For each entry, how far it has been examined.
    cursors: Vec<Cursor>,
    heap: BinaryHeap<Reverse<(Timestamp, Timestamp, usize)>>,
    always: bool,
    /// The first occurrence to return, which was found while looking for the starting point.
    first: Option<Occurrence>,
}

#[cfg(test)]
std::thread_local! {
    /// How many dates of entries were examined.
    pub(super) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How far an entry has been examined.
struct Cursor {
    /// The next date to examine.
    date: Date,
    /// The offset of the entry's zone on this and later dates; `None` while it is not known, or a clock change is near.
    steady: Option<SteadyOffset>,
}

impl Cursor {
    /// The entry's next occurrence; `None` at the end of the calendar.
    fn next(&mut self, entry: &Entry) -> Option<Occurrence> {
        for _ in 0..7 {
            let found = self.occurrence_today(entry);
            let tomorrow = self.date.tomorrow();
            self.date = tomorrow.clone().unwrap_or(self.date);
            if found.is_some() || tomorrow.is_err() {
                return found;
            }
        }
        None
    }

    fn occurrence_today(&mut self, entry: &Entry) -> Option<Occurrence> {
        #[cfg(test)]
        EXAMINED.set(EXAMINED.get() + 1);
        if self.steady.is_none_or(|steady| !steady.covers(self.date)) {
            self.steady = entry.steady_from(self.date);
        }
        match self.steady {
            Some(steady) => entry.on_steady(self.date, steady),
            None => entry.on(self.date),
        }
    }
}

impl<'a> Union<'a> {
    /// The merged occurrences that close after `from`, each with its true opening.
    pub(super) fn new(entries: &'a [Entry], always: bool, from: Timestamp) -> Self {
        // The occurrence at `from` may be merged with earlier ones, so begin early enough to find its true opening: further
        // back as long as an occurrence before the beginning can touch it.
        let mut union = Self::starting(entries, always, from);
        for back in BACK {
            let begin = minus(from, back);
            union = Self::starting(entries, always, begin);
            union.first = union.by_ref().find(|o| o.close > from);
            let certain = always || union.first.is_none_or(|o| o.open > plus(begin, LONGEST_ENTRY));
            if certain {
                return union;
            }
        }
        // no opening within that time: it was always open
        union.first = union.first.map(|o| Occurrence { open: Timestamp::MIN, ..o });
        union
    }

    fn starting(entries: &'a [Entry], always: bool, begin: Timestamp) -> Self {
        let mut union = Self {
            entries,
            cursors: Vec::with_capacity(entries.len()),
            heap: BinaryHeap::with_capacity(entries.len()),
            always,
            first: None,
        };
        if !always {
            for (i, entry) in entries.iter().enumerate() {
                let mut cursor = Cursor { date: days_from(entry.local_date(begin), -1), steady: None };
                let first = cursor.next(entry);
                union.cursors.push(cursor);
                union.heap.extend(first.map(|o| Reverse((o.open, o.close, i))));
            }
        }
        union
    }

    fn pop(&mut self) -> Option<Occurrence> {
        let mut earliest = self.heap.peek_mut()?;
        let Reverse((open, close, i)) = *earliest;
        let next = self.entries.get(i).zip(self.cursors.get_mut(i)).and_then(|(entry, cursor)| cursor.next(entry));
        match next {
            Some(next) => *earliest = Reverse((next.open, next.close, i)),
            None => drop(PeekMut::pop(earliest)),
        }
        Some(Occurrence { open, close })
    }

    fn peek_open(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((open, ..))| *open)
    }
}

impl Iterator for Union<'_> {
    type Item = Occurrence;

    fn next(&mut self) -> Option<Occurrence> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.always {
            self.always = false;
            return Some(Occurrence { open: Timestamp::MIN, close: Timestamp::MAX });
        }
        let mut merged = self.pop()?;
        while let Some(open) = self.peek_open()
            && open <= merged.close
        {
            if merged.length() >= FOR_EVER {
                self.heap.clear();
                return Some(Occurrence { close: Timestamp::MAX, ..merged });
            }
            if let Some(next) = self.pop() {
                merged.close = merged.close.max(next.close);
            }
        }
        Some(merged)
    }
}
