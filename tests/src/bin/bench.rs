//! `make bench`: whole processes on the rig, beside their targets.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    noderotation_tests::bench::run().await
}
