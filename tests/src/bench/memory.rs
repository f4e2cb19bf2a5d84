//! Resident memory (current and peak) and CPU time of a controller on a cluster of a given size.

use std::time::Duration;

use noderotation_rig::{Options, Rig};

use super::{Figure, load};
use crate::Product;
use crate::world;

/// The size of a cluster, and the target for the memory of a controller on it.
#[derive(Clone, Copy)]
pub struct Size {
    nodes: usize,
    pods: usize,
    target: &'static str,
}

/// The sizes that are measured.
pub const SIZES: [Size; 3] = [
    Size { nodes: 20, pods: 50, target: "<= 12 MB" },
    Size { nodes: 1_000, pods: 10_000, target: "<= 16 MB" },
    Size { nodes: 5_000, pods: 50_000, target: "<= 30 MB at its highest" },
];

/// The time after the start over which CPU time is measured.
const FIRST: Duration = Duration::from_secs(90);

/// Fills a bare API server, starts a controller, and measures it.
pub async fn measure(size: Size) -> anyhow::Result<Vec<Figure>> {
    let Size { nodes, pods, target } = size;
    eprintln!("bench: {nodes} nodes, {pods} Pods");
    let rig = Rig::start(Options { bare: true, ..Options::default() }).await?;
    rig.install_karpenter_kinds()?;
    let product = Product::install_bare(rig)?;
    load::fill(&product.rig, nodes, pods).await?;
    let mut policy = world::policy("all");
    policy["spec"]["nodePoolSelector"] = serde_json::json!({});
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(11);
    policy["spec"]["maintenanceWindows"] = world::window(later, 60);
    product.rig.apply(&policy)?;
    let controller = product.start_leader_quietly().await?;
    // a sleep, since the result is one over this time
    tokio::time::sleep(FIRST).await;
    let (now, highest) = (status(controller.process.id(), "VmRSS")?, status(controller.process.id(), "VmHWM")?);
    let seconds = processor_time(controller.process.id())?;
    Ok(vec![
        Figure {
            what: format!("resident, {nodes} nodes / {pods} Pods"),
            measured: format!("{now:.1} MB, highest {highest:.1} MB"),
            target,
        },
        Figure {
            what: format!("processor time of the first 90 s, {nodes} nodes"),
            measured: format!("{seconds:.2} s"),
            target: if nodes == 5_000 { "<= 1 s" } else { "" },
        },
    ])
}

/// A field of `/proc/<id>/status`, in MB.
pub(super) fn status(id: u32, field: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = text.lines().find(|l| l.starts_with(field)).unwrap_or_default();
    let kib: f64 = line.split_whitespace().nth(1).unwrap_or_default().parse()?;
    Ok(kib / 1000.0 * 1.024)
}

/// The CPU time of a process so far, user and system, in seconds.
fn processor_time(id: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |n: usize| fields.get(n).and_then(|t| t.parse::<f64>().ok()).unwrap_or_default();
    // clock ticks are hundredths of a second on Linux
    Ok((ticks(11) + ticks(12)) / 100.0)
}
