//! The program `rig`: `rig build` builds the control plane, `rig up` boots it and runs it until Ctrl-C.

use clap::{Parser, Subcommand};
use noderotation_rig::{Options, Rig, programs};

/// A real Kubernetes control plane with a real Karpenter on this machine, without containers.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the programs that are missing, validators included: about twenty minutes the first time, then nothing.
    Build,
    /// Boot the control plane and run it until Ctrl-C.
    Up {
        /// Boot etcd and the API server only.
        #[arg(long)]
        bare: bool,
        /// Boot everything but Karpenter.
        #[arg(long)]
        without_karpenter: bool,
        /// Write an audit log of all writes.
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
            programs::build_validators()?;
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
