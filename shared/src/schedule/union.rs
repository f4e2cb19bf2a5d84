//! The union of all entries in all their time zones; overlapping and touching occurrences are merged (§5.1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use super::entry::days_from;
use super::{Entry, Occurrence};
use crate::instant::{minus, plus};

/// Entries in several time zones that are open together for this long are open for ever: clock changes repeat within a
/// year. (Entries of one zone that cover the week are recognised as always open without any search.)
const FOR_EVER: SignedDuration = SignedDuration::from_hours(24 * 400);

/// No occurrence of one entry is longer than this: a day, a clock change at each end, and a date that the zone skips.
const LONGEST_ENTRY: SignedDuration = SignedDuration::from_hours(24 * 4);

/// The iterator that [`super::Schedule::recurring`] returns.
pub struct Union<'a> {
    entries: &'a [Entry],
    /// For each entry, the next date to examine.
    next_date: Vec<Date>,
    heap: BinaryHeap<Reverse<(Timestamp, Timestamp, usize)>>,
    always: bool,
    /// The first occurrence to return, which was found while looking for the starting point.
    first: Option<Occurrence>,
}

impl<'a> Union<'a> {
    /// The merged occurrences that close after `from`, each with its true opening.
    pub(super) fn new(entries: &'a [Entry], always: bool, from: Timestamp) -> Self {
        // The occurrence at `from` may be merged with earlier ones, so begin early enough to find its true opening:
        // double the distance until no occurrence before the beginning can touch it.
        let mut back = SignedDuration::from_hours(24 * 5);
        loop {
            let begin = minus(from, back);
            let mut union = Self::starting(entries, always, begin);
            union.first = union.by_ref().find(|o| o.close > from);
            let certain = always || union.first.is_none_or(|o| o.open > plus(begin, LONGEST_ENTRY));
            if certain {
                return union;
            }
            if back > FOR_EVER {
                // no opening within that time: it was always open
                union.first = union.first.map(|o| Occurrence { open: Timestamp::MIN, ..o });
                return union;
            }
            back = back.saturating_add(back);
        }
    }

    fn starting(entries: &'a [Entry], always: bool, begin: Timestamp) -> Self {
        let mut union = Self {
            entries,
            next_date: Vec::with_capacity(entries.len()),
            heap: BinaryHeap::with_capacity(entries.len()),
            always,
            first: None,
        };
        if !always {
            for (i, entry) in entries.iter().enumerate() {
                union.next_date.push(days_from(entry.local_date(begin), -1));
                union.refill(i);
            }
        }
        union
    }

    /// Puts the entry's next occurrence on the heap.
    fn refill(&mut self, i: usize) {
        let (Some(entry), Some(date)) = (self.entries.get(i), self.next_date.get_mut(i)) else { return };
        for _ in 0..7 {
            let today = *date;
            *date = days_from(today, 1);
            if let Some(o) = entry.on(today) {
                self.heap.push(Reverse((o.open, o.close, i)));
                return;
            }
            if *date == today {
                return; // the end of the calendar
            }
        }
    }

    fn pop(&mut self) -> Option<Occurrence> {
        let Reverse((open, close, i)) = self.heap.pop()?;
        self.refill(i);
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
