//! Rotation without a surge (§9.6).

use noderotation_rotation::announcement::Announcement;
use noderotation_shared::objects::RotationMode;
use serde_json::json;

use crate::cluster::*;

#[test]
fn the_forceful_fallback_goes_without_a_surge_only_when_it_is_late() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    let mut c = Cluster::new(&spec);
    c.run();
    assert!(!c.pool.is_fallback(), "there was time");
    let mut c = Cluster::new(&spec);
    // deadline 2026-12-04T19:10Z, t_rot 1h17m
    c.claims.get_mut("old").unwrap().meta.created = at("2026-11-20T19:10:00Z");
    c.run();
    assert_eq!(c.done, ["stamp-window", "anchor", "draining", "delete-claim"]);
    assert!(c.told.iter().any(|a| matches!(a, Announcement::ForcefulFallback { .. })));
    c.after(60).drained("old");
    c.run();
    c.assert_clean();
    let Some(Announcement::Completed { mode, surge_wait, .. }) = c.told.last() else { panic!("{:?}", c.told) };
    assert_eq!((*mode, *surge_wait), (RotationMode::ForcefulFallback, None));
}

/// The last instant at which a surge still fits is `deadline − t_rot`; the fallback begins behind it.
#[test]
fn at_the_last_instant_for_a_surge_there_still_is_one() {
    let mut spec = spec();
    spec["surge"]["forcefulFallback"] = json!({"enabled": true});
    for (created, is_fallback) in
        [("2026-11-20T19:17:01Z", false), ("2026-11-20T19:17:00Z", false), ("2026-11-20T19:16:59Z", true)]
    {
        let mut c = Cluster::new(&spec);
        // expireAfter 14d, t_rot 15m + 1h + 2m: at 18:00:00 for a deadline at 19:17:00
        c.claims.get_mut("old").unwrap().meta.created = at(created);
        c.provisions = false;
        c.run();
        assert_eq!(c.pool.is_fallback(), is_fallback, "{created}");
        assert_eq!(c.placeholder.is_some(), !is_fallback, "{created}");
    }
}
