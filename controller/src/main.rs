//! `noderotation-controller`: see the library's documentation.

use std::process::ExitCode;

use clap::Parser;
use noderotation_controller::args::{Args, LogFormat};
use noderotation_controller::run::run;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // a sentence for people; where in the program it arose helps nobody who runs it
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is installed already"))?;
    let args = Args::parse();
    log(&args)?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(args))
}

fn log(args: &Args) -> anyhow::Result<()> {
    let level: tracing::Level = args.log_level.parse()?;
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
        LogFormat::Text => lines.with_target(false).init(),
    }
    Ok(())
}
