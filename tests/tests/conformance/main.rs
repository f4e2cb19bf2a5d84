//! The simulated API server answers, and tells its watches, what a real one does: every case of one table is sent to both.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod cases;
mod real;
mod script;
mod simulated;
mod transcript;

use cases::CASES;
use real::Real;
use script::Case;
use simulated::Simulated;
use transcript::Transcript;

#[tokio::test(flavor = "multi_thread")]
async fn the_simulated_api_server_is_as_the_real_one() {
    let mut real = Real::start().await;
    let mut simulated = Simulated::new();
    let mut wrong = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let (told, simulation) = (real.play(number, case.script).await, simulated.play(number, case.script));
        wrong.extend(judge(case, &told, &simulation));
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), CASES.len(), wrong.join("\n\n"));
}

/// What is wrong in a case, if anything: the real server is not as the table says, or the simulated one not as the real one.
fn judge(case: &Case, real: &Transcript, simulated: &Transcript) -> Option<String> {
    let mut wrong = Vec::new();
    for (what, expected, found) in
        [("answers", case.answers, real.short_answers()), ("events", case.events, real.short_events())]
    {
        if found != expected {
            wrong.push(format!("real {what} are {found:?}, the table says {expected:?}"));
        }
    }
    let (real, simulated) = (real.full(), simulated.full());
    let lines = real.len().max(simulated.len());
    let line = |lines: &[String], n: usize| lines.get(n).cloned().unwrap_or_else(|| "nothing".into());
    if let Some(n) = (0..lines).find(|n| line(&real, *n) != line(&simulated, *n)) {
        wrong.push(format!("line {n}:\n    real:      {}\n    simulated: {}", line(&real, n), line(&simulated, n)));
    }
    (!wrong.is_empty()).then(|| format!("{}\n  {}", case.name, wrong.join("\n  ")))
}
