//! The program behind `make bench`: measures whole processes on the rig.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    noderotation_tests::exit(run().await)
}

async fn run() -> anyhow::Result<()> {
    noderotation_tests::bench::run().await
}
