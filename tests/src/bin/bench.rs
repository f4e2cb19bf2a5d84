//! `make bench`: whole processes on the rig, beside their targets.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    noderotation_tests::exit(run().await)
}

async fn run() -> anyhow::Result<()> {
    noderotation_tests::bench::run().await
}
