//! The program `noderotation-webhook`; the library's documentation says what it does.

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
    // a single thread: one core answers more than ten thousand reviews a second, and every thread costs memory
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(args))
}
