//! `noderotation-webhook`: see the library's documentation.

use std::process::ExitCode;

use clap::Parser;
use noderotation_process::{finish, install_tls_provider};
use noderotation_webhook::args::Args;
use noderotation_webhook::run::run;

fn main() -> ExitCode {
    finish(start())
}

fn start() -> anyhow::Result<()> {
    install_tls_provider()?;
    let args = Args::parse();
    args.log.start()?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(args))
}
