//! What became of a window.

use noderotation_rotation::announcement::Announcement;
use noderotation_shared::keys;

use crate::cluster::*;

#[test]
fn a_window_that_closes_with_work_undone_is_told_once() {
    let mut c = Cluster::new(&spec());
    c.claims.get_mut("old").unwrap().ready = false;
    c.run();
    assert_eq!(c.done, ["stamp-window"]);
    c.claims.get_mut("old").unwrap().ready = true;
    c.now = at("2026-12-04T21:00:00Z");
    c.run();
    assert!(
        matches!(c.told.as_slice(), [Announcement::WindowMissed { eligible: 1, in_backoff: 0, .. }]),
        "{:?}",
        c.told
    );
    c.run();
    assert_eq!(c.done, ["stamp-window", "close-window"]);
    // settled: a success within, a frozen pool, or nothing outstanding
    for change in [
        &|c: &mut Cluster| c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T18:30:00Z") as (),
        &|c: &mut Cluster| c.set_pool(keys::FREEZE, "2026-12-05T00:00:00Z"),
        &|c: &mut Cluster| c.claims.get_mut("old").unwrap().ready = false,
    ] as [&dyn Fn(&mut Cluster); 3]
    {
        let mut c = Cluster::new(&spec());
        c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
        change(&mut c);
        c.now = at("2026-12-04T21:00:00Z");
        c.run();
        assert_eq!((c.done.as_slice(), c.told.len()), (["close-window"].as_slice(), 0));
    }
}
