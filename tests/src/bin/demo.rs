//! `make demo`.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let keep = std::env::var_os("KEEP").is_some_and(|v| v == "1");
    noderotation_tests::demo::run(keep).await
}
