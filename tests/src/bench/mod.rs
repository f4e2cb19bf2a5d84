//! What the product costs: memory of clusters of three sizes, lag and writes of real rotations.
//!
//! Every figure is printed beside its target; nothing is asserted, since a figure depends on the machine.

mod load;
mod memory;
mod rotations;
mod webhook;

/// One line of the table.
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// The figure.
    pub measured: String,
    /// What it should be.
    pub target: &'static str,
}

/// Measures everything and prints the table. `NODEROTATION_BENCH` picks parts: `memory`, `rotations`, `webhook`.
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
