//! The simulated API server under the script.

use std::fmt::Debug;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use noderotation_cluster::objects::Cached;
use noderotation_shared::kind::Kind;
use noderotation_shared::objects::{Node, NodeClaim, NodePool};
use noderotation_shared::store::Stored;
use noderotation_simulator::cluster::{Cluster, Refused, Table};

use crate::script::{Beginning, Memory, Op};
use crate::transcript::{Line, Sight, Transcript};

/// The simulated API server.
pub struct Simulated {
    cluster: Cluster,
    now: Timestamp,
    /// The resourceVersion at the beginning of the case.
    began: u64,
    bookmark: u64,
    memory: Memory,
}

/// Runs `$do` with the table of a kind, called `$table`.
macro_rules! with_table {
    ($cluster:expr, $kind:expr, |$table:ident| $do:expr) => {
        with_table!($cluster, $kind, $table, $do, NodePool pools, NodeClaim claims, Node nodes, Pod placeholders)
    };
    ($cluster:expr, $kind:expr, $table:ident, $do:expr, $($variant:ident $field:ident),+) => {
        match $kind {
            $(Kind::$variant => {
                let $table = &mut $cluster.$field;
                $do
            })+
            other => panic!("the simulator has no table of {other}s"),
        }
    };
}

impl Simulated {
    /// An empty one.
    pub fn new() -> Self {
        let now = "2027-01-01T00:00:00Z".parse().unwrap();
        Self { cluster: Cluster::default(), now, began: 0, bookmark: 0, memory: Memory::default() }
    }

    /// Performs a case.
    pub fn play(&mut self, number: usize, script: &[Op]) -> Transcript {
        self.memory = Memory::of_case(number);
        self.began = self.cluster.version();
        self.cluster.lease = None;
        let mut transcript = Transcript::default();
        for op in script {
            self.now += SignedDuration::from_secs(1);
            let lines = self.perform(op);
            transcript.answers.extend(lines);
        }
        for kind in [Kind::NodePool, Kind::NodeClaim, Kind::Node, Kind::Pod] {
            transcript.events.extend(self.shown_since(kind, self.began).unwrap());
        }
        transcript.events.sort_by_key(|line| if let Line::Shown(_, _, sight) = line { sight.version } else { 0 });
        transcript
    }

    fn perform(&mut self, op: &Op) -> Vec<Line> {
        if let Some(write) = self.memory.write(op) {
            let answer = self.cluster.write(&write, self.now);
            return vec![match answer {
                Ok(object) => {
                    let sight = object.as_ref().map(Sight::of_answer);
                    if let Some(sight) = &sight {
                        self.memory.saw(write.target().0, &sight.uid, &sight.version.to_string());
                    }
                    Line::Answer("applied".into(), sight)
                }
                Err(refused) => refusal(refused),
            }];
        }
        match op {
            Op::Apply(kind) => self.apply(*kind),
            Op::Touch(kind) => {
                let name = self.memory.name_of(*kind);
                with_table!(self.cluster, kind, |table| table.touch(&name));
                self.remember(*kind);
            }
            Op::Remove(Kind::Lease) => self.cluster.lease = None,
            Op::Remove(Kind::NodeClaim) => self.cluster.delete_claim(&self.memory.name, self.now),
            Op::Remove(Kind::Pod) => self.cluster.remove_placeholder(&self.memory.name_of(Kind::Pod), self.now),
            Op::Remove(kind) => {
                let name = self.memory.name_of(*kind);
                with_table!(self.cluster, kind, |table| table.remove(&name));
            }
            Op::Finalize => self.cluster.claims.remove(&self.memory.name),
            Op::Bind => {
                let node = self.memory.name.as_str().into();
                self.cluster.placeholders.change(&self.memory.name_of(Kind::Pod), |pod| pod.node = node);
                self.remember(Kind::Pod);
            }
            Op::PutLease(seen) => return vec![self.put_lease(seen.map(|seen| self.memory.version(Kind::Lease, seen)))],
            Op::Watch(kind, from) => return self.watch(*kind, *from),
            other => panic!("not understood: {other:?}"),
        }
        Vec::new()
    }

    fn apply(&mut self, kind: Kind) {
        let json = self.memory.object(kind).to_string();
        let meta = self.cluster.new_meta(&self.memory.name, self.now);
        match kind {
            Kind::NodePool => self.cluster.pools.put(NodePool { meta, ..NodePool::read(&json).unwrap() }),
            Kind::NodeClaim => self.cluster.claims.put(NodeClaim { meta, ..NodeClaim::read(&json).unwrap() }),
            _ => self.cluster.nodes.put(Node { meta, ..Node::read(&json).unwrap() }),
        }
        self.remember(kind);
    }

    fn remember(&mut self, kind: Kind) {
        let name = self.memory.name_of(kind);
        let meta = with_table!(self.cluster, kind, |table| table.get(&name).map(|object| object.meta().clone()));
        if let Some(meta) = meta {
            self.memory.saw(kind, &meta.uid, &meta.version);
        }
    }

    fn put_lease(&mut self, version: Option<String>) -> Line {
        match self.cluster.put_lease("conformance", Duration::from_secs(15), version.as_deref()) {
            Ok(()) => {
                let lease = self.cluster.lease.clone().unwrap();
                self.memory.saw(Kind::Lease, "the lease", &lease.version);
                let has_moved =
                    version.is_none_or(|before| lease.version.parse::<u64>().unwrap() > before.parse().unwrap());
                Line::Note(format!("applied, newer: {has_moved}"))
            }
            Err(refused) => refusal(refused),
        }
    }

    fn watch(&mut self, kind: Kind, from: Beginning) -> Vec<Line> {
        let version = match from {
            Beginning::InitialState => {
                self.bookmark = self.cluster.version();
                let mut lines =
                    with_table!(self.cluster, kind, |table| initial(kind, table, &self.memory.name_of(kind)));
                lines.push(Line::Note("bookmark: the initial state is complete".into()));
                return lines;
            }
            Beginning::Bookmark => self.bookmark,
            Beginning::Version(seen) => self.memory.version(kind, seen).parse().unwrap(),
            Beginning::Forgotten => {
                with_table!(self.cluster, kind, |table| table.forget_changes(self.began));
                1
            }
        };
        self.shown_since(kind, version).unwrap_or_else(|| vec![Line::Note("410".into())])
    }

    fn shown_since(&mut self, kind: Kind, version: u64) -> Option<Vec<Line>> {
        let name = self.memory.name_of(kind);
        with_table!(self.cluster, kind, |table| changes(kind, table, version, &name))
    }
}

fn refusal(refused: Refused) -> Line {
    let word = match refused {
        Refused::Conflict => "conflict",
        Refused::NotFound => "not_found",
    };
    Line::Answer(word.into(), None)
}

fn initial<K: Stored + Debug>(kind: Kind, table: &Table<K>, name: &str) -> Vec<Line> {
    table.iter().filter(|o| *o.meta().name == *name).map(|o| Line::Shown(kind, false, Sight::of(&**o))).collect()
}

fn changes<K: Stored + Debug>(kind: Kind, table: &Table<K>, version: u64, name: &str) -> Option<Vec<Line>> {
    let changes = table.changes_since(version)?.iter().filter(|logged| *logged.object.meta().name == *name);
    Some(changes.map(|logged| Line::Shown(kind, logged.is_gone, Sight::of(&*logged.object))).collect())
}
