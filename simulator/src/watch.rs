//! The watches of a leader: opened, delivered late, cut, expired, silent. Where each resumes is
//! `noderotation_shared::watch_cursor`'s.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::caches::{CacheOf, Caches, Triggers};
use noderotation_shared::backoff::backoff;
use noderotation_shared::instant::plus;
use noderotation_shared::store::Stored;
use noderotation_shared::watch_cursor::{Open, SILENCE, STALE_AFTER, WatchCursor, WatchEnd};

use crate::chance::Source;
use crate::cluster::{Cluster, Table};
use crate::event::Event;
use crate::process::{Life, leader_of};
use crate::replica;
use crate::run::Sim;

/// The kinds that are watched, each by a watch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// NodePools.
    Pools,
    /// NodeClaims.
    Claims,
    /// Nodes.
    Nodes,
    /// Placeholders.
    Placeholders,
    /// RotationPolicies.
    Policies,
}

impl Watched {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Pools, Self::Claims, Self::Nodes, Self::Placeholders, Self::Policies];
}

/// One watch of a leader.
#[derive(Debug, Default)]
pub struct Watch {
    cursor: WatchCursor,
    /// The place in the log up to which it has delivered, while it is connected.
    connected: Option<usize>,
    /// When it was opened.
    opened: Timestamp,
    /// Since when nothing arrives, though the connection looks alive.
    silent_since: Option<Timestamp>,
    /// Until when it is busy, so that it never delivers out of order.
    busy: Timestamp,
    /// How much of the log is on its way.
    sent: usize,
}

impl Watch {
    /// Whether it has been silent for longer than a start allows.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        let since = self.silent_since;
        since
            .is_some_and(|since| Duration::try_from(now.duration_since(since)).is_ok_and(|silent| silent > STALE_AFTER))
    }

    /// It is connected, and has delivered up to this place in the log.
    fn connects(&mut self, place: usize) {
        self.connected = Some(place);
        self.sent = place;
    }

    /// Whether changes up to this place in the log have to be sent to it.
    fn lacks(&self, until: usize) -> bool {
        self.connected.is_some() && self.silent_since.is_none() && self.sent < until
    }

    /// The network is gone: what was connected is silent from now on.
    pub fn falls_silent(&mut self, now: Timestamp) {
        self.silent_since = self.silent_since.or(Some(now));
    }
}

/// Runs `$do` with the table of a kind, called `$table`.
macro_rules! with_table {
    ($watched:expr, $cluster:expr, |$table:ident| $do:expr) => {
        with_table!($watched, $cluster, $table, $do, Pools pools, Claims claims, Nodes nodes, Placeholders placeholders, Policies policies)
    };
    ($watched:expr, $cluster:expr, $table:ident, $do:expr, $($kind:ident $field:ident),+) => {
        match $watched {
            $(Watched::$kind => {
                let $table = &$cluster.$field;
                $do
            })+
        }
    };
}

/// How long the log of a kind is.
pub fn log_length(cluster: &Cluster, watched: Watched) -> usize {
    with_table!(watched, cluster, |table| table.log.len())
}

/// A watch is opened: it resumes, or begins with the initial state.
pub fn open(sim: &mut Sim, life: Life, watched: Watched) {
    let (now, is_reachable) = (sim.now, sim.reaches(life.process));
    let fault = if sim.has_faults() { sim.chance.take(Source::Watch, 25) } else { None };
    let streams = sim.plan.streams;
    let cluster = &sim.cluster;
    let Some(leader) = leader_of(&mut sim.processes, life) else { return };
    let Some(watch) = leader.watches.get_mut(watched as usize) else { return };
    watch.opened = now;
    let mut triggers = Triggers::new();
    let end = match watch.cursor.open() {
        _ if !is_reachable => {
            watch.falls_silent(now);
            Some(WatchEnd::Failed)
        }
        Open::From(_) if fault.is_some() => Some(WatchEnd::Expired),
        Open::From(version) => resume(watch, cluster, watched, &version),
        Open::Stream if !streams => Some(WatchEnd::CannotStream),
        initial @ (Open::Stream | Open::List) => {
            // a cut one arrives in part, and nothing tells which part
            let part = fault.map(|mut rng| rng.usize(0..8));
            with_table!(watched, cluster, |table| list(table, part, watch, &mut leader.caches, &mut triggers));
            match part {
                Some(_) => Some(WatchEnd::Closed),
                None => {
                    triggers.extend(complete(watch, &mut leader.caches, cluster, watched, &initial));
                    None
                }
            }
        }
    };
    let recovered = end.is_none() && watch.is_stale(now);
    if end.is_none() {
        watch.silent_since = None;
        watch.busy = now;
    }
    replica::triggered(sim, life, &triggers);
    match end {
        Some(end) => ended(sim, life, watched, end),
        None => {
            replica::watches_are_open(sim, life, recovered);
            feed(sim);
        }
    }
}

/// Goes on behind this resourceVersion; or not, where the server has forgotten what came next.
fn resume(watch: &mut Watch, cluster: &Cluster, watched: Watched, version: &str) -> Option<WatchEnd> {
    let version = version.parse().unwrap_or(0);
    let missed = with_table!(watched, cluster, |table| table.changes_since(version).map(<[_]>::len));
    let Some(missed) = missed else { return Some(WatchEnd::Expired) };
    watch.connects(log_length(cluster, watched).saturating_sub(missed));
    None
}

/// The whole initial state has arrived, by a list or a stream.
fn complete(watch: &mut Watch, caches: &mut Caches, cluster: &Cluster, watched: Watched, initial: &Open) -> Triggers {
    let version = cluster.version().to_string();
    let uids = match initial {
        Open::List => watch.cursor.listed(version),
        _ => watch.cursor.bookmark(version, true).unwrap_or_default(),
    };
    watch.connects(log_length(cluster, watched));
    with_table!(watched, cluster, |table| init_done(table, caches, &uids))
}

/// Applies a list, or the first part of it.
fn list<K: Stored>(
    table: &Table<K>,
    part: Option<usize>,
    watch: &mut Watch,
    caches: &mut Caches,
    triggers: &mut Triggers,
) where
    Caches: CacheOf<K>,
{
    for object in table.iter().take(part.unwrap_or(usize::MAX)) {
        watch.cursor.applied(object.meta());
        triggers.extend(caches.apply(K::clone(object)));
    }
}

/// Tells the caches that the initial state of this table's kind is complete.
fn init_done<K>(_: &Table<K>, caches: &mut Caches, uids: &HashSet<Box<str>>) -> Triggers
where
    Caches: CacheOf<K>,
{
    CacheOf::<K>::init_done(caches, uids)
}

/// A watch has ended; the next one is opened at once, or after a backoff.
fn ended(sim: &mut Sim, life: Life, watched: Watched, end: WatchEnd) {
    let spread = sim.rng(watched as usize).f64();
    let now = sim.now;
    let Some(watch) = sim.leader(life).and_then(|leader| leader.watches.get_mut(watched as usize)) else { return };
    watch.connected = None;
    let lasted = Duration::try_from(now.duration_since(watch.opened)).unwrap_or_default();
    let wait = watch.cursor.ended(end, lasted).map_or(Duration::from_millis(5), |failures| backoff(failures, spread));
    let at = plus(now, SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX));
    sim.after(at, Event::Open(life, watched));
}

/// What has been stored since reaches each connected watch later, in order.
pub fn feed(sim: &mut Sim) {
    for process in 0..sim.processes.len() {
        for watched in Watched::ALL {
            let until = log_length(&sim.cluster, watched);
            let Some(process) = sim.processes.get_mut(process) else { continue };
            let life = process.life;
            let watch = process.leader().and_then(|leader| leader.watches.get_mut(watched as usize));
            if let Some(watch) = watch.filter(|watch| watch.lacks(until)) {
                watch.sent = until;
                send(sim, life, watched, until);
            }
        }
    }
}

/// A watch is sent its changes up to this place in the log. They arrive late, or the connection ends instead.
fn send(sim: &mut Sim, life: Life, watched: Watched, until: usize) {
    let now = sim.now;
    let millis = sim.rng((life.process, watched as usize)).i64(1..300);
    let rarity = if sim.has_faults() { 60 } else { 0 };
    let fault = sim.chance.take(Source::Watch, rarity);
    let Some(watch) = sim.leader(life).and_then(|leader| leader.watches.get_mut(watched as usize)) else { return };
    let mut at = plus(now, SignedDuration::from_millis(millis));
    let mut event = Event::Deliver(life, watched, until);
    if let Some(mut rng) = fault {
        match rng.u8(0..4) {
            0 => event = Event::Closed(life, watched),
            1 => {
                // a connection that is dead without either side having noticed
                watch.falls_silent(now);
                at = plus(now, SignedDuration::try_from(SILENCE).unwrap_or(SignedDuration::ZERO));
                event = Event::Closed(life, watched);
            }
            _ => at = plus(now, SignedDuration::from_millis(rng.i64(1_000..60_000))),
        }
    }
    watch.busy = at.max(watch.busy);
    let at = watch.busy;
    sim.after(at, event);
}

/// A process goes on after it has stood still: what its watches hold is as old as its pause, until a bookmark comes.
pub fn resumes(sim: &mut Sim, process: usize, stood_still_since: Timestamp) {
    let now = sim.now;
    let Some(process) = sim.processes.get_mut(process) else { return };
    let life = process.life;
    let Some(leader) = process.leader() else { return };
    let mut quiet = Vec::new();
    for watched in Watched::ALL {
        if let Some(watch) = leader.watches.get_mut(watched as usize).filter(|watch| watch.silent_since.is_none()) {
            watch.falls_silent(stood_still_since);
            quiet.push(watched);
        }
    }
    for watched in quiet {
        let at = plus(now, SignedDuration::from_millis(sim.rng(watched as usize).i64(1..60_000)));
        sim.after(at, Event::Bookmark(life, watched));
    }
}

/// A bookmark arrives, and before it whatever had not arrived yet.
pub fn bookmark(sim: &mut Sim, life: Life, watched: Watched) {
    let (now, until) = (sim.now, log_length(&sim.cluster, watched));
    let Some(watch) = sim.leader(life).and_then(|leader| leader.watches.get_mut(watched as usize)) else { return };
    if watch.connected.is_none() {
        return;
    }
    let recovered = watch.is_stale(now);
    watch.silent_since = None;
    watch.sent = until;
    deliver(sim, life, watched, until);
    replica::watches_are_open(sim, life, recovered);
}

/// The server closes a watch, or the client gives a silent one up.
pub fn closed(sim: &mut Sim, life: Life, watched: Watched) {
    ended(sim, life, watched, WatchEnd::Closed);
}

/// A watch delivers what has happened up to this place in the log.
pub fn deliver(sim: &mut Sim, life: Life, watched: Watched, until: usize) {
    if !sim.reaches(life.process) {
        return; // it fell silent; the client will notice
    }
    let cluster = &sim.cluster;
    let Some(leader) = leader_of(&mut sim.processes, life) else { return };
    let Some(watch) = leader.watches.get_mut(watched as usize).filter(|w| w.silent_since.is_none()) else { return };
    let Some(from) = watch.connected.filter(|from| *from < until) else { return };
    watch.connected = Some(until);
    let mut triggers = Triggers::new();
    let (cursor, caches) = (&mut watch.cursor, &mut leader.caches);
    with_table!(watched, cluster, |table| for logged in table.log.get(from..until).unwrap_or_default() {
        if logged.is_gone {
            cursor.deleted(logged.object.meta());
            triggers.extend(caches.delete(&*logged.object));
        } else {
            cursor.applied(logged.object.meta());
            triggers.extend(caches.apply((*logged.object).clone()));
        }
    });
    replica::triggered(sim, life, &triggers);
}
