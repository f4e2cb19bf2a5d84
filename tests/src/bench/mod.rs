//! Benches of whole processes on the rig: memory on clusters of three sizes, latency and writes of real rotations, the webhook
//! under load.
//!
//! Every result is printed next to its target. Nothing is asserted, since results depend on the machine.

mod load;
mod memory;
mod rotations;
mod webhook;

/// A row of the table of results.
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// The result, with its unit.
    pub measured: String,
    /// The target for the result; empty where there is none.
    pub target: &'static str,
}

/// Runs all benches and prints the table. `NODEROTATION_BENCH` selects one: `memory`, `rotations` or `webhook`.
pub async fn run() -> anyhow::Result<()> {
    let part = std::env::var("NODEROTATION_BENCH").unwrap_or_default();
    let mut figures = Vec::new();
    let tell = |new: Vec<Figure>| {
        for figure in &new {
            eprintln!("bench: {}: {}", figure.what, figure.measured);
        }
        new
    };
    if part.is_empty() || part == "rotations" {
        figures.extend(tell(rotations::measure().await?));
    }
    if part.is_empty() || part == "webhook" {
        figures.extend(tell(webhook::measure().await?));
    }
    if part.is_empty() || part == "memory" {
        for size in memory::SIZES {
            figures.extend(tell(memory::measure(size).await?));
        }
    }
    let width = figures.iter().map(|f| f.what.chars().count()).max().unwrap_or_default();
    println!("\n{:<width$}  {:<28}  target", "what", "measured");
    for figure in figures {
        println!("{:<width$}  {:<28}  {}", figure.what, figure.measured, figure.target);
    }
    Ok(())
}
