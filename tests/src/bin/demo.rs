//! The program behind `make demo`.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    noderotation_tests::exit(run().await)
}

async fn run() -> anyhow::Result<()> {
    let keep = std::env::var_os("KEEP").is_some_and(|v| v == "1");
    // select drops the tour at Ctrl-C, and with it every process that it started
    tokio::select! {
        result = noderotation_tests::demo::run(keep) => result,
        _ = tokio::signal::ctrl_c(), if !keep => anyhow::bail!("interrupted; every process that was started has been stopped"),
    }
}
