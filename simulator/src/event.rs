//! What can happen in a history, and the order in which it does.

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::people::Hold;
use crate::process::Life;
use crate::server::{Request, Response};
use crate::watch::Watched;

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A controller process starts.
    Start(usize),
    /// The election's turn in a process.
    Lease(Life),
    /// A process opens a watch.
    Open(Life, Watched),
    /// A watch delivers its changes up to a place in the log.
    Deliver(Life, Watched, usize),
    /// A watch is closed.
    Closed(Life, Watched),
    /// A bookmark arrives.
    Bookmark(Life, Watched),
    /// A name of the queue is due.
    Wake(Life),
    /// A job goes on.
    Step(Life, u64),
    /// A job's request is answered.
    Answered(Life, u64, Box<Response>),
    /// A request arrives at the API server.
    Arrives(Box<Request>),
    /// The scheduler and Karpenter's provisioner look.
    Schedule,
    /// A launched node joins.
    Registers(Box<str>),
    /// Karpenter marks a Node initialized.
    Initialized(Box<str>),
    /// Karpenter finds a claim Ready.
    Ready(Box<str>),
    /// A launched node never came.
    LaunchFailed(Box<str>),
    /// A placeholder runs.
    PlaceholderRuns(Box<str>),
    /// Karpenter looks whether what runs on a draining Node fits elsewhere.
    Replaces(Box<str>),
    /// Karpenter goes on draining a claim.
    Drains(Box<str>),
    /// Karpenter deletes a claim that it has replaced.
    Deletes(Box<str>),
    /// Karpenter looks whether a node is empty.
    Consolidates(Box<str>),
    /// Karpenter expires a claim.
    Expires(Box<str>),
    /// A Node is Ready again.
    NodeReady(Box<str>),
    /// Somebody does something.
    Person,
    /// Something may befall a process.
    Suffers(usize),
    /// Somebody lets go what he holds.
    LetGo(Hold),
    /// Faults stop and the window closes.
    Calm,
}

impl Event {
    /// The process that it needs to run; `None`: it happens whatever the processes do.
    pub fn needs(&self) -> Option<usize> {
        match self {
            Self::Lease(life)
            | Self::Open(life, _)
            | Self::Deliver(life, ..)
            | Self::Closed(life, _)
            | Self::Bookmark(life, _)
            | Self::Wake(life)
            | Self::Step(life, _)
            | Self::Answered(life, ..) => Some(life.process),
            _ => None,
        }
    }
}

/// An event in the heap: in order of time, then as they were scheduled.
pub struct Scheduled {
    /// When it happens.
    pub at: Timestamp,
    /// Its place among all that were ever scheduled.
    pub sequence: u64,
    /// What happens.
    pub event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}
