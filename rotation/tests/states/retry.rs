//! An anchored claim that has failed: what a retry must pass, and what the pool owes after a failure.

use jiff::SignedDuration;
use noderotation_shared::keys;
use serde_json::json;

use crate::cluster::*;

/// Shuts a gate.
type Close<'a> = &'a dyn Fn(&mut Cluster);

/// Its backoff is over, and the window is open.
fn failed() -> Cluster {
    failed_under(&spec())
}

fn failed_under(spec: &serde_json::Value) -> Cluster {
    let mut c = Cluster::new(spec);
    c.set_pool(keys::WINDOW_OPENED_AT, "2026-12-04T17:00:00Z");
    c.set_pool(keys::ACTIVE_ROTATION, "old");
    c.set_claim("old", keys::STATE, "failed");
    c.set_claim("old", keys::FAILED_AT, "2026-12-04T17:10:00Z");
    c.set_claim("old", keys::RETRY_COUNT, "1");
    c
}

#[test]
fn a_retry_passes_every_gate_again() {
    let mut c = failed();
    c.one_pass(usize::MAX).unwrap();
    assert_eq!(c.done[0], "retry");
    let mut suspended = spec();
    suspended["suspend"] = json!(true);
    let gates: [(&str, Close<'_>); 11] = [
        ("stale", &|c| c.stale = true),
        ("draining", &|c| c.set_claim("young", keys::STATE, "draining")),
        ("old schema", &|c| c.missing_fields = ["spec.suspend".to_owned()].into()),
        ("static", &|c| c.pool.is_static = true),
        ("fatal", &|c| c.pool.expire_after = Some(SignedDuration::from_hours(24))),
        ("protect", &|c| c.set_pool(keys::FREEZE, "2026-12-04T23:00:00Z")),
        ("window", &|c| c.now = at("2026-12-04T21:00:00Z")),
        ("cooldown", &|c| c.set_pool(keys::LAST_ROTATION_AT, "2026-12-04T17:55:00Z")),
        ("failure pause", &|c| c.set_pool(keys::LAST_FAILURE_AT, "2026-12-04T17:55:00Z")),
        ("headroom", &|c| c.pool.limits = cpu("8500m")),
        ("a drain that would never end", &|c| c.never_drains("old")),
    ];
    let mut closed: Vec<(&str, Cluster)> = Vec::new();
    for (gate, close) in gates {
        let mut c = failed();
        close(&mut c);
        closed.push((gate, c));
    }
    closed.push(("suspend", failed_under(&suspended)));
    for (gate, mut c) in closed {
        c.one_pass(usize::MAX).unwrap();
        assert_eq!(c.done.first(), Some(&"release-failed"), "{gate}: {:?}", c.done);
        assert_eq!(c.mark("old", keys::STATE).as_deref(), Some("failed"), "{gate}");
        assert_eq!(c.pool.anchor(), None, "{gate}");
    }
}

/// The pause runs from the latest failure that is known, the pool's or the claim's.
#[test]
fn a_failure_never_moves_the_pause_backwards() {
    for (stored, wanted) in [
        (Some("2026-12-04T17:05:00Z"), "2026-12-04T17:10:00Z"),
        (Some("2026-12-04T17:55:00Z"), "2026-12-04T17:55:00Z"),
        (None, "2026-12-04T17:10:00Z"),
    ] {
        let mut c = failed();
        c.set_pool(keys::FREEZE, "2026-12-04T23:00:00Z");
        if let Some(stored) = stored {
            c.set_pool(keys::LAST_FAILURE_AT, stored);
        }
        c.run();
        assert_eq!(c.done, ["release-failed"]);
        assert_eq!(c.pool.meta.annotations.get(keys::LAST_FAILURE_AT), Some(wanted));
    }
}
