//! Where a reflector stands in the history of its kind (§8): from where it watches next, what a cut initial state is
//! worth, and when a server that closes its watches is left alone for a while.
//!
//! It does no I/O and knows no clock. `noderotation_cluster::watch` performs what it says; the simulator does the same on
//! its own server.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use crate::objects::Meta;

/// Without an event or a bookmark for this long, a watch is opened anew.
pub const SILENCE: Duration = Duration::from_secs(200);

/// A view in which some watch has been silent for longer than this is stale: nothing is started on it.
pub const STALE_AFTER: Duration = Duration::from_secs(300);

/// A watch that ended sooner than this did not go well, however it ended.
const SHORT: Duration = Duration::from_secs(10);

/// What to ask the API server for next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// The initial state page by page, since the server cannot stream it.
    List,
    /// A watch that begins with the initial state.
    Stream,
    /// A watch from this resourceVersion.
    From(String),
}

/// How a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The server closed it, as it does every few minutes.
    Closed,
    /// 410: the resourceVersion is too old, so the initial state is needed again.
    Expired,
    /// The server cannot stream the initial state (422).
    CannotStream,
    /// Something failed: a broken connection, a silence, a refusal.
    Failed,
}

/// The position of one reflector.
#[derive(Debug)]
pub struct WatchCursor {
    /// From where the next watch resumes; `None` until the initial state is complete.
    version: Option<String>,
    /// The UIDs of the initial state, while it arrives.
    initial: Option<HashSet<Box<str>>>,
    can_stream: bool,
    /// Watches in a row that ended too soon.
    short: u32,
}

impl Default for WatchCursor {
    fn default() -> Self {
        Self { version: None, initial: None, can_stream: true, short: 0 }
    }
}

impl WatchCursor {
    /// What to ask for now. A list or a stream begins a new initial state.
    pub fn open(&mut self) -> Open {
        if let Some(version) = &self.version {
            return Open::From(version.clone());
        }
        self.initial = Some(HashSet::new());
        if self.can_stream { Open::Stream } else { Open::List }
    }

    /// An object was listed, added or changed. Its version counts only once the initial state is complete: from a cut one
    /// nothing can be resumed.
    pub fn applied(&mut self, object: &Meta) {
        match &mut self.initial {
            Some(uids) => {
                uids.insert(object.uid.clone());
            }
            None => self.version = Some(object.version.to_string()),
        }
    }

    /// An object was deleted; this is its last state, whose version is that of the deletion.
    pub fn deleted(&mut self, object: &Meta) {
        match &mut self.initial {
            Some(uids) => {
                uids.remove(&object.uid);
            }
            None => self.version = Some(object.version.to_string()),
        }
    }

    /// A bookmark, which ends a streamed initial state where it says so. Returns the UIDs of the initial state that is
    /// complete with it.
    pub fn bookmark(&mut self, version: String, ends_initial: bool) -> Option<HashSet<Box<str>>> {
        if self.initial.is_some() && !ends_initial {
            return None; // before the end of the initial state there is nothing to resume from
        }
        self.version = Some(version);
        self.initial.take()
    }

    /// The last page of a list has arrived, and this is the list's version. Returns the UIDs of the initial state.
    pub fn listed(&mut self, version: String) -> HashSet<Box<str>> {
        self.version = Some(version);
        self.initial.take().unwrap_or_default()
    }

    /// A watch, or the list before it, has ended after this time. Returns the exponent of the backoff before the next one
    /// (`noderotation_shared::backoff`); `None`: at once.
    pub fn ended(&mut self, end: WatchEnd, lasted: Duration) -> Option<u32> {
        let was_cut = mem::take(&mut self.initial).is_some() && end == WatchEnd::Closed;
        match end {
            WatchEnd::Expired => self.version = None,
            WatchEnd::CannotStream => self.can_stream = false,
            WatchEnd::Closed | WatchEnd::Failed => {}
        }
        self.short = if lasted < SHORT { self.short.saturating_add(1) } else { 0 };
        // a first 410 or an early close is ordinary; a server that goes on like that is not asked without pause
        match (end == WatchEnd::Failed || was_cut, self.short) {
            (false, 0 | 1) => None,
            (false, n) => Some((n - 2).min(5)),
            (true, n) => Some(n.saturating_sub(1).min(5)),
        }
    }

    /// Whether the initial state is under way.
    pub fn is_initial(&self) -> bool {
        self.initial.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(240);

    fn object(uid: &str, version: &str) -> Meta {
        Meta { uid: uid.into(), version: version.into(), ..Meta::default() }
    }

    fn uids(uids: &[&str]) -> Option<HashSet<Box<str>>> {
        Some(uids.iter().map(|uid| Box::from(*uid)).collect())
    }

    #[test]
    fn a_complete_initial_state_is_resumed_from_what_came_last() {
        let mut cursor = WatchCursor::default();
        assert_eq!(cursor.open(), Open::Stream);
        cursor.applied(&object("a", "7"));
        cursor.applied(&object("b", "3"));
        cursor.deleted(&object("b", "8"));
        assert_eq!(cursor.bookmark("9".into(), true), uids(&["a"]));
        assert_eq!((cursor.ended(WatchEnd::Closed, LONG), cursor.open()), (None, Open::From("9".into())));
        cursor.applied(&object("c", "12"));
        assert_eq!(cursor.bookmark("15".into(), false), None);
        cursor.deleted(&object("c", "17"));
        assert_eq!((cursor.ended(WatchEnd::Failed, LONG), cursor.open()), (Some(0), Open::From("17".into())));
    }

    #[test]
    fn from_a_cut_initial_state_nothing_is_resumed() {
        let mut cursor = WatchCursor::default();
        for end in [WatchEnd::Closed, WatchEnd::Failed, WatchEnd::Expired] {
            assert_eq!(cursor.open(), Open::Stream);
            cursor.applied(&object("a", "7"));
            assert_eq!(cursor.bookmark("8".into(), false), None);
            cursor.ended(end, LONG);
        }
        assert_eq!(cursor.open(), Open::Stream);
        assert_eq!(cursor.bookmark("9".into(), true), uids(&[]), "what a cut one had shown does not count");
    }

    #[test]
    fn an_expired_version_and_a_server_that_cannot_stream_begin_anew() {
        let mut cursor = WatchCursor::default();
        cursor.open();
        assert_eq!(cursor.ended(WatchEnd::CannotStream, Duration::ZERO), None);
        assert_eq!(cursor.open(), Open::List);
        cursor.applied(&object("a", "3"));
        assert_eq!(cursor.listed("5".into()), uids(&["a"]).unwrap());
        assert_eq!(cursor.open(), Open::From("5".into()));
        cursor.ended(WatchEnd::Expired, LONG);
        assert_eq!(cursor.open(), Open::List);
    }

    /// The waits of §8: at once after one early end, from the second in a row on 1 s, 2 s … 32 s.
    #[test]
    fn a_server_that_goes_on_closing_is_left_alone_for_a_while() {
        let mut cursor = WatchCursor::default();
        let waits: Vec<_> = (0..9).map(|_| cursor.ended(WatchEnd::Closed, Duration::ZERO)).collect();
        let n = Some;
        assert_eq!(waits, [None, n(0), n(1), n(2), n(3), n(4), n(5), n(5), n(5)]);
        assert_eq!(cursor.ended(WatchEnd::Closed, LONG), None);
        let waits: Vec<_> = (0..4).map(|_| cursor.ended(WatchEnd::Failed, Duration::ZERO)).collect();
        assert_eq!(waits, [n(0), n(1), n(2), n(3)]);
    }
}
