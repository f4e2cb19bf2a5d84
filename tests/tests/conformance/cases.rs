//! The table of cases. What is expected was seen on the real API server; both sides are held to it.

use noderotation_shared::keys::{CORDONED, DO_NOT_DISRUPT, ROTATE, STARTED_AT, STATE, SURGE_FOR};
use noderotation_shared::kind::Kind::{Lease, Node, NodeClaim, NodePool, Pod};

use crate::script::Beginning::{Bookmark, Forgotten, InitialState, Version};
use crate::script::Op::{
    Apply, Bind, Create, DeleteClaim, DeletePlaceholder, Finalize, Patch, PutLease, Remove, Touch, Watch,
};
use crate::script::Seen::{First, Never, Newest};
use crate::script::{Case, Op};

const PENDING: &[(&str, Option<&str>)] = &[(STATE, Some("pending")), (STARTED_AT, Some("2027-01-01T00:00:00Z"))];
const NO_ROTATE: &[(&str, Option<&str>)] = &[(ROTATE, None)];
const PROTECTED: &[(&str, Option<&str>)] =
    &[(SURGE_FOR, Some("a")), (DO_NOT_DISRUPT, Some("true")), (CORDONED, Some("true"))];
const BARE: &[(&str, Option<&str>)] = &[(SURGE_FOR, None), (DO_NOT_DISRUPT, None), (CORDONED, None)];

const fn case(
    name: &'static str,
    script: &'static [Op],
    answers: &'static [&'static str],
    events: &'static [&'static str],
) -> Case {
    Case { name, script, answers, events }
}

#[rustfmt::skip]
pub const CASES: &[Case] = &[
    // patches
    case("a patch with the current version sets annotations",
        &[Apply(NodePool), Patch(NodePool, Newest, PENDING, None)],
        &["applied @2"], &["NodePool @1", "NodePool @2"]),
    case("a patch with an old version is a conflict and changes nothing",
        &[Apply(NodeClaim), Touch(NodeClaim), Patch(NodeClaim, First, PENDING, None)],
        &["conflict"], &["NodeClaim @1", "NodeClaim @2"]),
    case("a patch with a version that never was is a conflict",
        &[Apply(Node), Patch(Node, Never, PROTECTED, Some(true))],
        &["conflict"], &["Node @1"]),
    case("a patch that changes nothing, with the current version, is applied and leaves the version",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, PENDING, None), Patch(NodeClaim, Newest, PENDING, None)],
        &["applied @2", "applied @2"], &["NodeClaim @1", "NodeClaim @2"]),
    case("the same of a Node",
        &[Apply(Node), Patch(Node, Newest, PROTECTED, Some(true)), Patch(Node, Newest, PROTECTED, Some(true))],
        &["applied @2", "applied @2"], &["Node @1", "Node @2"]),
    case("a patch of no annotations at all, which only confirms the version",
        &[Apply(NodePool), Patch(NodePool, Newest, &[], None), Patch(NodePool, Newest, PENDING, None), Patch(NodePool, Newest, &[], None)],
        &["applied @1", "applied @2", "applied @2"], &["NodePool @1", "NodePool @2"]),
    case("a patch that changes nothing, with an old version, is a conflict",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, PENDING, None), Patch(NodeClaim, First, PENDING, None)],
        &["applied @2", "conflict"], &["NodeClaim @1", "NodeClaim @2"]),
    case("annotations are set, changed and removed",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, PENDING, None),
          Patch(NodeClaim, Newest, &[(STATE, Some("draining"))], None),
          Patch(NodeClaim, Newest, &[(STATE, Some("failed")), (STARTED_AT, None)], None)],
        &["applied @2", "applied @3", "applied @4"], &["NodeClaim @1", "NodeClaim @2", "NodeClaim @3", "NodeClaim @4"]),
    case("the last annotation is removed",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, &[(STATE, Some("failed"))], None), Patch(NodeClaim, Newest, &[(STATE, None)], None)],
        &["applied @2", "applied @3"], &["NodeClaim @1", "NodeClaim @2", "NodeClaim @3"]),
    case("a null for a key that is not there, on a NodeClaim without annotations",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, NO_ROTATE, None)],
        &["applied @1"], &["NodeClaim @1"]),
    case("a null for a key that is not there, on a NodePool without annotations",
        &[Apply(NodePool), Patch(NodePool, Newest, NO_ROTATE, None)],
        &["applied @1"], &["NodePool @1"]),
    case("a null for a key that is not there, on a NodeClaim with others",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, PENDING, None), Patch(NodeClaim, Newest, NO_ROTATE, None)],
        &["applied @2", "applied @2"], &["NodeClaim @1", "NodeClaim @2"]),
    case("a null for a key that is not there, on a Node without annotations",
        &[Apply(Node), Patch(Node, Newest, BARE, None)],
        &["applied @1"], &["Node @1"]),
    case("a null for a key that is not there, beside one that is set",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, &[(STATE, Some("failed")), (ROTATE, None)], None)],
        &["applied @2"], &["NodeClaim @1", "NodeClaim @2"]),
    case("a Node is cordoned and marked in one patch, and both are undone in one",
        &[Apply(Node), Patch(Node, Newest, PROTECTED, Some(true)), Patch(Node, Newest, BARE, Some(false))],
        &["applied @2", "applied @3"], &["Node @1", "Node @2", "Node @3"]),
    case("unschedulable is set to false where it was not set",
        &[Apply(Node), Patch(Node, Newest, PROTECTED, None), Patch(Node, Newest, BARE, Some(false)), Patch(Node, Newest, &[], Some(false))],
        &["applied @2", "applied @3", "applied @3"], &["Node @1", "Node @2", "Node @3"]),
    case("a patch of an object that never was",
        &[Patch(NodeClaim, Never, PENDING, None), Patch(NodePool, Never, PENDING, None), Patch(Node, Never, PROTECTED, Some(true))],
        &["not_found", "not_found", "not_found"], &[]),
    case("a patch of an object that is gone",
        &[Apply(Node), Remove(Node), Patch(Node, Newest, PROTECTED, Some(true))],
        &["not_found"], &["Node @1", "Node gone @2"]),
    case("a patch of a name that was deleted and created again",
        &[Apply(Node), Remove(Node), Apply(Node), Patch(Node, First, PROTECTED, Some(true)), Patch(Node, Newest, PROTECTED, Some(true))],
        &["conflict", "applied @4"], &["Node @1", "Node gone @2", "Node @3", "Node @4"]),
    case("a patch of a NodePool that was deleted and created again",
        &[Apply(NodePool), Remove(NodePool), Apply(NodePool), Patch(NodePool, First, PENDING, None)],
        &["conflict"], &["NodePool @1", "NodePool gone @2", "NodePool @3"]),

    // placeholders
    case("a placeholder is created once, and again after its deletion, with another UID",
        &[Create, Create, DeletePlaceholder(Newest), Create, DeletePlaceholder(First), DeletePlaceholder(Newest)],
        &["applied @1", "conflict", "applied", "applied @4", "conflict", "applied"],
        &["Pod @1", "Pod @2 deleting", "Pod gone @3 deleting", "Pod @4", "Pod @5 deleting", "Pod gone @6 deleting"]),
    case("a placeholder that is bound is gone at once, too",
        &[Create, Bind, DeletePlaceholder(Never), DeletePlaceholder(Newest), DeletePlaceholder(Newest)],
        &["applied @1", "conflict", "applied", "not_found"], &["Pod @1", "Pod @2", "Pod @3 deleting", "Pod gone @4 deleting"]),
    case("a placeholder that never was",
        &[DeletePlaceholder(Never)],
        &["not_found"], &[]),

    // deletions of NodeClaims
    case("a NodeClaim with a finalizer is being deleted; a second deletion changes nothing",
        &[Apply(NodeClaim), DeleteClaim(Newest, Some(Newest)), DeleteClaim(Newest, Some(Newest)), DeleteClaim(Newest, None), DeleteClaim(Newest, Some(First)), DeleteClaim(Never, None)],
        &["applied @2 deleting", "applied @2 deleting", "applied @2 deleting", "conflict", "conflict"], &["NodeClaim @1", "NodeClaim @2 deleting"]),
    case("a NodeClaim is deleted only by its own UID and version",
        &[Apply(NodeClaim), Touch(NodeClaim), DeleteClaim(Never, None), DeleteClaim(Newest, Some(First)), DeleteClaim(Never, Some(Newest)), DeleteClaim(Newest, None)],
        &["conflict", "conflict", "conflict", "applied @3 deleting"], &["NodeClaim @1", "NodeClaim @2", "NodeClaim @3 deleting"]),
    case("once the finalizer is taken off, the deletion has a version of its own",
        &[Apply(NodeClaim), DeleteClaim(Newest, Some(Newest)), Finalize, DeleteClaim(Newest, None), Patch(NodeClaim, Newest, PENDING, None)],
        &["applied @2 deleting", "not_found", "not_found"], &["NodeClaim @1", "NodeClaim @2 deleting", "NodeClaim gone @3 deleting"]),
    case("a NodeClaim that is being deleted is patched like any other",
        &[Apply(NodeClaim), DeleteClaim(Newest, None), Patch(NodeClaim, First, PENDING, None), Patch(NodeClaim, Newest, PENDING, None), Patch(NodeClaim, Newest, PENDING, None), Finalize],
        &["applied @2 deleting", "conflict", "applied @3 deleting", "applied @3 deleting"],
        &["NodeClaim @1", "NodeClaim @2 deleting", "NodeClaim @3 deleting", "NodeClaim gone @4 deleting"]),
    case("a NodeClaim that never was is deleted",
        &[DeleteClaim(Never, None), DeleteClaim(Never, Some(Never))],
        &["not_found", "not_found"], &[]),
    case("a NodeClaim of the same name is another one",
        &[Apply(NodeClaim), DeleteClaim(Newest, None), Finalize, Apply(NodeClaim), DeleteClaim(First, None), DeleteClaim(Newest, Some(First)), DeleteClaim(Newest, Some(Newest))],
        &["applied @2 deleting", "conflict", "conflict", "applied @5 deleting"],
        &["NodeClaim @1", "NodeClaim @2 deleting", "NodeClaim gone @3 deleting", "NodeClaim @4", "NodeClaim @5 deleting"]),

    // the lease
    case("a Lease is created once and replaced by its newest version only",
        &[PutLease(None), PutLease(None), PutLease(Some(Newest)), PutLease(Some(First)), PutLease(Some(Newest))],
        &["applied, newer: true", "conflict", "applied, newer: true", "conflict", "applied, newer: true"], &[]),
    case("a Lease that is gone is replaced, then created",
        &[PutLease(None), Remove(Lease), PutLease(Some(Newest)), PutLease(None)],
        &["applied, newer: true", "conflict", "applied, newer: true"], &[]),

    // watches
    case("a watch tells everything after its version, in order",
        &[Apply(NodeClaim), Patch(NodeClaim, Newest, PENDING, None), DeleteClaim(Newest, None), Finalize, Watch(NodeClaim, Version(First))],
        &["applied @2", "applied @3 deleting", "NodeClaim @2", "NodeClaim @3 deleting", "NodeClaim gone @4 deleting"],
        &["NodeClaim @1", "NodeClaim @2", "NodeClaim @3 deleting", "NodeClaim gone @4 deleting"]),
    case("a watch from the newest version tells nothing old",
        &[Apply(Node), Patch(Node, Newest, PROTECTED, Some(true)), Watch(Node, Version(Newest)), Touch(Node), Watch(Node, Version(Newest))],
        &["applied @2"], &["Node @1", "Node @2", "Node @3"]),
    case("a watch from a version that is forgotten ends with 410",
        &[Apply(NodePool), Watch(NodePool, Forgotten), Watch(NodePool, Version(Newest))],
        &["410"], &["NodePool @1"]),
    case("an initial state is streamed, its bookmark ends it, and a watch from there tells what comes after",
        &[Apply(NodePool), Patch(NodePool, Newest, PENDING, None), Watch(NodePool, InitialState), Watch(NodePool, Bookmark), Touch(NodePool), Remove(NodePool), Watch(NodePool, Bookmark), Watch(NodePool, InitialState)],
        &["applied @2", "NodePool @2", "bookmark: the initial state is complete", "NodePool @3", "NodePool gone @4", "bookmark: the initial state is complete"],
        &["NodePool @1", "NodePool @2", "NodePool @3", "NodePool gone @4"]),
    case("the initial state of placeholders, of which one is gone and back",
        &[Create, DeletePlaceholder(Newest), Create, Watch(Pod, InitialState), DeletePlaceholder(Newest), Watch(Pod, Bookmark)],
        &["applied @1", "applied", "applied @4", "Pod @4", "bookmark: the initial state is complete", "applied", "Pod @5 deleting", "Pod gone @6 deleting"],
        &["Pod @1", "Pod @2 deleting", "Pod gone @3 deleting", "Pod @4", "Pod @5 deleting", "Pod gone @6 deleting"]),
];
