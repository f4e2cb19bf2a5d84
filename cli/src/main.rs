//! `kubectl-noderotation`: checks RotationPolicies and NodePools in files and lists maintenance windows (§14).
//!
//! ```text
//!   input (YAML, JSON, -) ─▶ check    every problem, ties, derived values, findings
//!                         └▶ windows  every occurrence, and how clock changes and exclusions affect it
//! ```
//!
//! It reads files only and does not talk to a cluster. The rules are those of the webhook and the controller, from
//! `noderotation-shared`; this crate parses the command line, reads the files and formats the output.

mod check;
mod crd;
mod documents;
mod files;
mod input;
mod manifest;
mod output;
mod windows;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use noderotation_shared::zone::program_version;

use crate::output::OutputFormat;

/// Checks policies for node rotation and lists their maintenance windows.
#[derive(Parser)]
#[command(name = "kubectl noderotation", bin_name = "kubectl noderotation", version = program_version(), about, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checks RotationPolicies and NodePools as admission would. Needs no cluster.
    #[command(after_help = EXIT_CODES)]
    Check(check::CheckArgs),
    /// Lists every occurrence of the maintenance windows. Needs no cluster.
    #[command(after_help = EXIT_CODES)]
    Windows(windows::WindowsArgs),
    /// Prints the CustomResourceDefinition.
    #[command(hide = true)]
    Crd {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t = OutputFormat::Yaml)]
        output: OutputFormat,
        /// Print only the part of the spec's schema that the programs validate.
        #[arg(long)]
        schema: bool,
    },
}

const EXIT_CODES: &str = "Exit codes: 0 no problem, 1 a finding or refusal, 2 wrong usage or unreadable input";

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.command {
        Command::Check(args) => check::run(&args),
        Command::Windows(args) => windows::run(&args),
        Command::Crd { output, schema } => crd::run(output, schema),
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
