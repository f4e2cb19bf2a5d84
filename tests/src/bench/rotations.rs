//! Latency and writes of real rotations, all taken from the API server's audit log.

use jiff::{SignedDuration, Timestamp};
use noderotation_rig::objects::{node_pool, stateful_set};

use super::Figure;
use crate::audit::{self, CONTROLLER, Write};
use crate::{Product, world};

/// The number of rotations.
const ROTATIONS: usize = 8;

/// `cooldownAfter` of the policy, in seconds; the next rotation should start as soon as it is over.
const COOLDOWN_SECONDS: i64 = 3;

struct Rotation {
    started: Timestamp,
    ready_to_deleted: f64,
    gone_to_released: f64,
    writes: usize,
    conflicts: usize,
    claims_made: usize,
    released: Timestamp,
}

/// Rotates [`ROTATIONS`] nodes, then evaluates the audit log.
pub async fn measure() -> anyhow::Result<Vec<Figure>> {
    eprintln!("bench: {ROTATIONS} rotations of a StatefulSet with a grace period of 5 s");
    let product = Product::install().await?;
    let rig = &product.rig;
    node_pool("api").apply(rig)?;
    stateful_set("app", "api", 4).cpu("1200m").slow(5).apply(rig)?;
    world::settled(rig, "app", 4).await?;
    let mut policy = world::policy("api");
    policy["spec"]["surge"]["cooldownAfter"] = format!("{COOLDOWN_SECONDS}s").into();
    rig.apply(&policy)?;
    let _controller = product.start_leader_quietly().await?;
    for round in 0..ROTATIONS.div_ceil(4) {
        let claims: Vec<String> = world::claims(rig, "api").await?.iter().map(world::name).collect();
        for claim in &claims {
            world::request(rig, claim, "next-window").await?;
        }
        for claim in &claims {
            world::rotated(rig, "api", claim).await?;
        }
        world::settled(rig, "app", 4).await?;
        eprintln!("bench: round {} done", round + 1);
    }
    Ok(figures(&read(&audit::writes(rig)?)))
}

/// The rotations of the audit log, oldest first.
fn read(writes: &[Write]) -> Vec<Rotation> {
    let mut rotations = Vec::new();
    let mut start: Option<usize> = None;
    for (i, write) in writes.iter().enumerate() {
        let own = write.user == CONTROLLER && write.code == 200;
        match write.annotation("active-rotation").filter(|_| own) {
            Some(Some(_)) => start = Some(i),
            Some(None) => {
                let Some(from) = start.take() else { continue };
                rotations.extend(writes.get(from..=i).and_then(one));
            }
            None => {}
        }
    }
    rotations
}

fn one(span: &[Write]) -> Option<Rotation> {
    let own = |w: &&Write| w.user == CONTROLLER;
    let (anchor, release) = (span.first()?, span.last()?);
    let claim = anchor.annotation("active-rotation")??;
    let ran = span.iter().find(|w| {
        w.resource == "pods/status" && w.name.starts_with("surge-") && w.body["status"]["phase"] == "Running"
    })?;
    // Running often precedes Karpenter's word that the node is initialized, without which nobody may drain
    let initialized =
        |w: &&Write| w.resource == "nodes" && w.body["metadata"]["labels"]["karpenter.sh/initialized"] == "true";
    let ready = span.iter().find(initialized).map_or(ran.answered, |w| w.answered.max(ran.answered));
    let deleted =
        span.iter().filter(own).find(|w| w.resource == "nodeclaims" && w.verb == "delete" && w.code == 200)?;
    // Karpenter takes the finalizer off, and the claim is gone
    let gone = span
        .iter()
        .rfind(|w| w.resource == "nodeclaims" && w.name == claim && w.user != CONTROLLER && w.code == 200)?;
    let counted = |w: &&Write| own(w) && w.resource != "events";
    Some(Rotation {
        started: anchor.at,
        ready_to_deleted: deleted.answered.duration_since(ready).as_secs_f64(),
        gone_to_released: release.answered.duration_since(gone.answered).as_secs_f64(),
        writes: span.iter().filter(counted).count(),
        conflicts: span.iter().filter(counted).filter(|w| w.code == 409).count(),
        claims_made: span.iter().filter(|w| w.resource == "nodeclaims" && w.verb == "create" && w.code == 201).count(),
        released: release.answered,
    })
}

fn figures(rotations: &[Rotation]) -> Vec<Figure> {
    let of = |value: &dyn Fn(&Rotation) -> f64| {
        let mut all: Vec<f64> = rotations.iter().map(value).collect();
        all.sort_by(f64::total_cmp);
        (all.get(all.len() / 2).copied().unwrap_or_default(), all.last().copied().unwrap_or_default())
    };
    let millis = |(median, most): (f64, f64)| format!("{:.0} ms median, {:.0} ms max", median * 1000.0, most * 1000.0);
    let counts = |(median, most): (f64, f64)| format!("{median:.0} median, {most:.0} max");
    #[allow(clippy::cast_precision_loss, reason = "small counts")]
    let count = |n: usize| n as f64;
    // the cooldown runs from the stored stamp, which has whole seconds
    let mut late: Vec<f64> = rotations
        .windows(2)
        .map(|pair| {
            let stamp = Timestamp::from_second(pair[0].released.as_second()).unwrap_or(pair[0].released);
            pair[1].started.duration_since(stamp + SignedDuration::from_secs(COOLDOWN_SECONDS)).as_secs_f64()
        })
        .filter(|lag| *lag < 2.0) // a new round waits for its request, not for the gate
        .collect();
    late.sort_by(f64::total_cmp);
    let late = (late.get(late.len() / 2).copied().unwrap_or_default(), late.last().copied().unwrap_or_default());
    vec![
        Figure {
            what: format!("a gate opens → anchor, {} rotations", rotations.len()),
            measured: millis(late),
            target: "p99 <= 100 ms",
        },
        Figure {
            what: "placeholder Running on an initialized node → old claim deleted".into(),
            measured: millis(of(&|r| r.ready_to_deleted)),
            target: "<= 50 ms median, <= 100 ms max",
        },
        Figure {
            what: "old claim gone → completion written".into(),
            measured: millis(of(&|r| r.gone_to_released)),
            target: "<= 20 ms median",
        },
        Figure { what: "writes of a rotation".into(), measured: counts(of(&|r| count(r.writes))), target: "<= 14" },
        Figure { what: "conflicts of a rotation".into(), measured: counts(of(&|r| count(r.conflicts))), target: "0" },
        Figure {
            what: "NodeClaims made for a rotation".into(),
            measured: counts(of(&|r| count(r.claims_made))),
            target: "1",
        },
    ]
}
