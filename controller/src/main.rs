//! `noderotation-controller`: see the library's documentation.

use std::process::ExitCode;

use clap::Parser;
use noderotation_controller::args::Args;
use noderotation_controller::{cleanup, run};
use noderotation_process::{finish, install_tls_provider};

fn main() -> ExitCode {
    finish(start())
}

fn start() -> anyhow::Result<()> {
    install_tls_provider()?;
    let args = Args::parse();
    args.log.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if args.cleanup { runtime.block_on(cleanup::run(&args)) } else { runtime.block_on(run::run(args)) }
}
