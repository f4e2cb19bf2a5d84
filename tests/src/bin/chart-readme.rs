//! The program behind `make chart-readme`: writes the README of the chart.

use std::process::ExitCode;

use noderotation_rig::repository;

fn main() -> ExitCode {
    let chart = repository().join("charts/noderotation");
    let written = std::fs::read_to_string(chart.join("values.yaml"))
        .and_then(|values| std::fs::write(chart.join("README.md"), noderotation_tests::values::readme(&values)));
    noderotation_tests::exit(written.map_err(Into::into))
}
