//! `rig build` builds the control plane; `rig up` boots it and keeps it until it is interrupted.

use clap::{Parser, Subcommand};
use noderotation_rig::{Options, Rig, programs};

/// A real Kubernetes with a real Karpenter on this machine, without containers.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Builds what is missing (about ten minutes the first time, then nothing).
    Build,
    /// Boots and keeps running until Ctrl-C.
    Up {
        /// etcd and the API server only.
        #[arg(long)]
        bare: bool,
        /// Without Karpenter.
        #[arg(long)]
        without_karpenter: bool,
        /// Write an audit log.
        #[arg(long)]
        audit: bool,
    },
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    match Args::parse().verb {
        Verb::Build => {
            let programs = programs::build()?;
            println!("{}", programs.bin.display());
        }
        Verb::Up { bare, without_karpenter, audit } => {
            let began = std::time::Instant::now();
            let rig = Rig::start(Options { bare, without_karpenter, audit }).await?;
            eprintln!("rig: ready in {:.1?}; Ctrl-C ends it", began.elapsed());
            println!("export KUBECONFIG={} PATH={}:$PATH", rig.admin().display(), rig.programs.bin.display());
            let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            tokio::select! { _ = tokio::signal::ctrl_c() => {}, _ = terminate.recv() => {} }
            drop(rig);
        }
    }
    Ok(())
}
