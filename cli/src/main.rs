//! `kubectl-noderotation`: what a policy means, before it means anything to a cluster (§14).
//!
//! ```text
//!   input (YAML, JSON, -) ─▶ check    every problem, ties, derived values, findings
//!                         └▶ windows  every occurrence, and what a clock change or an exclusion did to it
//! ```

mod check;
mod crd;
mod input;
mod output;
mod windows;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::Format;

/// Node rotation inside maintenance windows.
#[derive(Parser)]
#[command(name = "kubectl noderotation", bin_name = "kubectl noderotation", version = version(), about, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Says what admission would say of these policies and NodePools together. Needs no cluster.
    #[command(after_help = EXIT_CODES)]
    Check(check::Args),
    /// Lists every occurrence of the maintenance windows. Needs no cluster.
    #[command(after_help = EXIT_CODES)]
    Windows(windows::Args),
    /// Prints the CustomResourceDefinition.
    #[command(hide = true)]
    Crd {
        /// Form of the output.
        #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
        output: Format,
        /// Only what the programs keep of the spec's schema.
        #[arg(long)]
        schema: bool,
    },
}

const EXIT_CODES: &str = "Exit codes: 0 fine, 1 a finding or refusal, 2 wrong usage or unreadable input";

fn version() -> &'static str {
    static VERSION: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    VERSION.get_or_init(|| {
        format!("{} (tzdata {})", env!("CARGO_PKG_VERSION"), noderotation_shared::zone::database_version())
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.verb {
        Verb::Check(args) => check::run(&args),
        Verb::Windows(args) => windows::run(&args),
        Verb::Crd { output, schema } => crd::run(output, schema),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
