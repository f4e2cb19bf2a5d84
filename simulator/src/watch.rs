//! The watches of a leader: opened, delivered late, cut, expired, silent. Where each resumes is
//! `noderotation_shared::watch_cursor`'s.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_rotation::caches::{CacheOf, Caches, Triggers};
use noderotation_shared::backoff::backoff;
use noderotation_shared::instant::plus;
use noderotation_shared::store::Stored;
use noderotation_shared::watch_cursor::{Open, SILENCE, STALE_AFTER, WatchCursor, WatchEnd};

use crate::chance::Source;
use crate::cluster::{Cluster, Table};
use crate::process::Life;
use crate::replica;
use crate::run::{Event, Sim};

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

    /// The network is gone: what was connected is silent from now on.
    pub fn falls_silent(&mut self, now: Timestamp) {
        self.silent_since = self.silent_since.or(Some(now));
    }
}

/// Runs `$do` with the table of a kind, called `$table`.
macro_rules! with_table {
    ($watched:expr, $cluster:expr, |$table:ident| $do:expr) => {
        match $watched {
            Watched::Pools => {
                let $table = &$cluster.pools;
                $do
            }
            Watched::Claims => {
                let $table = &$cluster.claims;
                $do
            }
            Watched::Nodes => {
                let $table = &$cluster.nodes;
                $do
            }
            Watched::Placeholders => {
                let $table = &$cluster.placeholders;
                $do
            }
            Watched::Policies => {
                let $table = &$cluster.policies;
                $do
            }
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
    let Some(leader) = sim.processes.get_mut(life.process).filter(|p| p.life == life).and_then(|p| p.leader()) else {
        return;
    };
    let Some(watch) = leader.watches.get_mut(watched as usize) else { return };
    watch.opened = now;
    let mut triggers = Triggers::new();
    let end = match watch.cursor.open() {
        _ if !is_reachable => {
            watch.falls_silent(now);
            Some(WatchEnd::Failed)
        }
        Open::From(_) if fault.is_some() => Some(WatchEnd::Expired),
        Open::From(version) => {
            let version = version.parse().unwrap_or(0);
            let missed = with_table!(watched, cluster, |table| table.changes_since(version).map(<[_]>::len));
            let place = missed.map(|missed| log_length(cluster, watched).saturating_sub(missed));
            watch.connected = place;
            watch.sent = place.unwrap_or_default();
            place.is_none().then_some(WatchEnd::Expired)
        }
        Open::Stream if !streams => Some(WatchEnd::CannotStream),
        open @ (Open::Stream | Open::List) => {
            // a cut one arrives in part, and nothing tells which part
            let part = fault.map(|mut rng| rng.usize(0..8));
            let version = cluster.version().to_string();
            with_table!(watched, cluster, |table| list(
                table,
                part,
                &mut watch.cursor,
                &mut leader.caches,
                &mut triggers
            ));
            if part.is_some() {
                Some(WatchEnd::Closed)
            } else {
                let uids = match open {
                    Open::List => Some(watch.cursor.listed(version)),
                    _ => watch.cursor.bookmark(version, true),
                };
                let caches = &mut leader.caches;
                triggers.extend(init_done(watched, caches, &uids.unwrap_or_default()));
                watch.connected = Some(log_length(cluster, watched));
                watch.sent = log_length(cluster, watched);
                None
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

/// Applies a list, or the first part of it.
fn list<K: Stored>(
    table: &Table<K>,
    part: Option<usize>,
    cursor: &mut WatchCursor,
    caches: &mut Caches,
    triggers: &mut Triggers,
) where
    Caches: CacheOf<K>,
{
    for object in table.iter().take(part.unwrap_or(usize::MAX)) {
        cursor.applied(object.meta());
        triggers.extend(caches.apply(K::clone(object)));
    }
}

fn init_done(watched: Watched, caches: &mut Caches, uids: &std::collections::HashSet<Box<str>>) -> Triggers {
    use noderotation_shared::objects::{Node, NodeClaim, NodePool, Placeholder, PolicyObject};
    match watched {
        Watched::Pools => CacheOf::<NodePool>::init_done(caches, uids),
        Watched::Claims => CacheOf::<NodeClaim>::init_done(caches, uids),
        Watched::Nodes => CacheOf::<Node>::init_done(caches, uids),
        Watched::Placeholders => CacheOf::<Placeholder>::init_done(caches, uids),
        Watched::Policies => CacheOf::<PolicyObject>::init_done(caches, uids),
    }
}

/// A watch has ended; the next one is opened at once, or after a backoff.
fn ended(sim: &mut Sim, life: Life, watched: Watched, end: WatchEnd) {
    let spread = sim.rng(watched as usize).f64();
    let now = sim.now;
    let Some(leader) = sim.processes.get_mut(life.process).filter(|p| p.life == life).and_then(|p| p.leader()) else {
        return;
    };
    let Some(watch) = leader.watches.get_mut(watched as usize) else { return };
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
            let rarity = if sim.has_faults() { 60 } else { 0 };
            let millis = sim.rng((process, watched as usize)).i64(1..300);
            let now = sim.now;
            let Some(process) = sim.processes.get_mut(process) else { continue };
            let life = process.life;
            let Some(watch) = process.leader().and_then(|leader| leader.watches.get_mut(watched as usize)) else {
                continue;
            };
            if watch.connected.is_none() || watch.sent >= until || watch.silent_since.is_some() {
                continue;
            }
            watch.sent = until;
            let mut at = plus(now, SignedDuration::from_millis(millis));
            let mut event = Event::Deliver(life, watched, until);
            if let Some(mut rng) = sim.chance.take(Source::Watch, rarity) {
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
            at = at.max(watch.busy);
            watch.busy = at;
            sim.after(at, event);
        }
    }
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
    let Some(leader) = sim.processes.get_mut(life.process).filter(|p| p.life == life).and_then(|p| p.leader()) else {
        return;
    };
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
