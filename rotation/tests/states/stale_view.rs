//! The caches are older than what is stored: what cannot be undone is decided on live reads.

use noderotation_rotation::announcement::Announcement;
use noderotation_shared::keys;

use crate::cluster::*;

/// The point of no return (§9.5): the caches show a fit host and a running placeholder, the API server does not.
#[test]
fn a_crossing_is_judged_on_live_reads() {
    let gone: [&dyn Fn(&mut Cluster); 3] =
        [&|c| c.nodes.get_mut("node-new").unwrap().ready = false, &|c| drop(c.nodes.remove("node-new")), &|c| {
            c.placeholder = None;
        }];
    for change in gone {
        let mut c = Cluster::pending(&spec());
        c.provide();
        let cached = c.after(5).world();
        change(&mut c);
        c.pass_over(cached, usize::MAX).unwrap();
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "{:?}", c.done);
        assert!(!c.pool.is_draining() && !c.done.contains(&"protect-host"), "{:?}", c.done);
        assert!(!c.told.iter().any(|a| matches!(a, Announcement::SurgeReady { .. })), "{:?}", c.told);
    }
}

/// The live read shows the placeholder on another host, which only the caches hold for fit: that host is read as well.
#[test]
fn a_crossing_is_judged_on_a_live_read_of_the_host_that_it_names() {
    let mut c = Cluster::pending(&spec());
    c.provide();
    let cached = c.after(5).world();
    c.placeholder.as_mut().unwrap().node = "node-young".into();
    c.nodes.get_mut("node-young").unwrap().ready = false;
    c.pass_over(cached, usize::MAX).unwrap();
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"), "{:?}", c.done);
    assert!(!c.pool.is_draining() && !c.done.contains(&"protect-host"), "{:?}", c.done);
}

/// The deletion that a crash left out is sent only to a rotation whose host is fit on a live read.
#[test]
fn a_deletion_that_a_crash_left_out_is_judged_on_the_live_host() {
    let mut c = Cluster::new(&spec());
    c.pass(10);
    assert!(c.pool.is_draining() && c.claims["old"].meta.deleted.is_none(), "{:?}", c.done);
    c.provisions = false;
    let cached = c.after(5).world();
    c.nodes.get_mut("node-new").unwrap().ready = false;
    c.pass_over(cached, usize::MAX).unwrap();
    assert!(c.claims["old"].meta.deleted.is_none(), "{:?}", c.done);
    assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("pending"));
}

/// By these caches the attempt has timed out; meanwhile another leader has crossed. Its replacement must stay.
#[test]
fn a_rollback_confirms_the_claim_before_it_takes_anything_back() {
    let mut c = Cluster::pending(&spec());
    c.provide();
    let cached = c.after(901).world();
    c.set_claim("old", keys::STATE, "draining");
    c.set_claim("old", keys::SURGE_CLAIM, "new");
    c.set_node("node-new", keys::SURGE_FOR, "old");
    c.claims.get_mut("old").unwrap().meta.version = "1000".into();
    let before = c.done.len();
    c.pass_over(cached, usize::MAX).unwrap();
    assert!(c.claims["new"].meta.deleted.is_none(), "the replacement was taken back");
    assert_eq!(c.done[before..], ["mirror", "drain-placeholder", "delete-claim", "protect-host"]);
}

/// Stale caches do not show what was left undone: the window is judged once they are fresh again.
#[test]
fn a_window_is_neither_opened_nor_judged_on_stale_caches() {
    let mut c = Cluster::new(&spec());
    c.stale = true;
    c.run();
    assert_eq!(c.done, Vec::<&str>::new());
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.now = at("2026-12-04T21:00:00Z");
    c.run();
    assert_eq!((c.done.len(), c.told.len()), (0, 0), "{:?}", c.told);
    c.stale = false;
    c.claims.get_mut("old").unwrap().ready = false; // what they show now: nothing was left undone
    c.run();
    assert_eq!((c.done.as_slice(), c.told.len()), (["close-window"].as_slice(), 0));
}
